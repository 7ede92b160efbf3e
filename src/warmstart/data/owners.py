"""Guesses which column of a table says whose a text is: texts of one author, customer or conversation are not independent.

A column is taken by its name if its values repeat and say more of the labels than chance does; by its values if these are people,
addresses or numbers, or stand in the texts, and nearly always have one label. A customer whose texts have labels like those of all
others is no reason: then texts of new customers are as easy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from warmstart.data.label_cells import MISSING

NONE = "none"
"""instead of a column: each text stands alone"""
_NAMES = re.compile(
    r"(?:author|user|customer|client|owner|sender|from|speaker|writer|reviewer|poster|patient|student|account|member|person|employee"
    r"|family|household|group|thread|conversation|dialog|dialogue|session|document|doc|article|autor|kunde|absender|verfasser"
    r"|client|auteur)s?(?:[ _.-]*(?:id|ids|name|no|nr|number|key|email|mail|address))?|e-?mail(?:[ _-]*address)?",
    re.I,
)
_VALUES = re.compile(r"\S+@\S+\.\S+|[^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){1,3}|(?=\S*\d)[\w:.#/-]{2,}")
"""addresses, names of several words, and identifiers with a number"""
OWNERS_OF_NAME, FEWEST_OWNERS = 4, 8
"""different values of a column of such a name, and of another"""
LABELS_TIMES = 2
"""of other columns: so many times as many values as labels; fewer are finer labels"""
ONE_LABEL, ABOVE_CHANCE = 0.9, 0.1
"""share of texts that have the most frequent label of their value; and how much more that is than with values at random"""
ORDERS = 99
"""of the labels, all of which must say less: a test at the 1% level (Phipson and Smyth 2010)"""
FIRST_ROWS = 10_000
"""with a label, in which it is looked"""
LIKE_OWNERS, IN_TEXT = 0.8, 0.5
"""share of values that look like owners, and of texts in which their value stands"""
LEAST_LETTERS = 4
"""of a value that is looked for in texts"""


def owner_column(table: pl.DataFrame, text: pl.Series, label: pl.Series, free: Sequence[str]) -> str | None:
    """The likeliest of the ``free`` columns; None if none looks like owners."""
    strings = {name: _cells(table[name]) for name in free if not table[name].dtype.is_nested() and not table[name].dtype.is_float()}
    labels = _cells(label)
    named = (
        name
        for name, cells in strings.items()
        if _NAMES.fullmatch(name.strip()) and _repeats(cells, OWNERS_OF_NAME) and _tells(cells, labels)
    )
    other = (name for name, cells in strings.items() if _repeats(cells, FEWEST_OWNERS) and _owns(cells, _cells(text), labels))
    return next(named, None) or next(other, None)


def groups_of(table: pl.DataFrame, column: str | None, prefix: str) -> list[str]:
    """The group of each row; a row without one is a group of its own, whose name begins with ``prefix``."""
    cells = [""] * len(table) if column is None else _cells(table[column])
    return [f"{prefix}{row}" if cell.lower() in MISSING else cell for row, cell in enumerate(cells)]


def _cells(column: pl.Series) -> list[str]:
    return ["" if one is None else str(one).strip() for one in column.to_list()]


def _repeats(values: Sequence[str], fewest: int) -> bool:
    """Whether nearly all rows have a value, of which there are several, with two texts each in the mean."""
    given = [value for value in values if value]
    return fewest <= len({*given}) <= len(given) / 2 and len(given) > ONE_LABEL * len(values)


def _tells(values: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether the labels depend on the values beyond chance, in the rows that have a label."""
    rows = [row for row, one in enumerate(labels) if one.lower() not in MISSING][:FIRST_ROWS]
    kept, given = (_numbers([cells[row] for row in rows]) for cells in (values, labels))
    draw, own = np.random.default_rng(0), _one_label(kept, given)
    return all(_one_label(kept, draw.permutation(given)) < own for _ in range(ORDERS))


def _owns(values: Sequence[str], texts: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether values look like owners, each of whom nearly always has one label."""
    different = {*values}
    if len(different) < LABELS_TIMES * len({*labels}):
        return False
    inside = np.mean(
        [len(value) >= LEAST_LETTERS and value.lower() in one.lower() for value, one in zip(values, texts, strict=True)]
    )
    if inside < IN_TEXT and sum(bool(_VALUES.fullmatch(value)) for value in different) < LIKE_OWNERS * len(different):
        return False
    rows, columns = _numbers(values), _numbers(labels)
    own = _one_label(rows, columns)
    return own >= ONE_LABEL and own > ABOVE_CHANCE + _one_label(rows, np.random.default_rng(0).permutation(columns))


def _numbers(cells: Sequence[str]) -> np.ndarray:
    """(N,) the number of each cell's value among the different ones."""
    return np.unique(np.array(cells, dtype=object), return_inverse=True)[1]


def _one_label(rows: np.ndarray, columns: np.ndarray) -> float:
    """The share of rows, given as the numbers (N,) of their values and labels, that have the most frequent label of their value."""
    if not len(rows):
        return 0.0
    counts = np.bincount(rows * (columns.max() + 1) + columns, minlength=(rows.max() + 1) * (columns.max() + 1))
    return float(counts.reshape(rows.max() + 1, -1).max(axis=1).sum() / len(rows))
