"""Guesses which column of a table says whose a text is: texts of one author, customer or conversation are not independent.

A column is taken by its name if its values repeat; by its values if these are people, addresses or numbers, or stand in the texts,
and nearly always have one label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

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
LIKE_OWNERS, IN_TEXT = 0.8, 0.5
"""share of values that look like owners, and of texts in which their value stands"""
LEAST_LETTERS = 4
"""of a value that is looked for in texts"""


def owner_column(table: pl.DataFrame, text: pl.Series, label: pl.Series, free: Sequence[str]) -> str | None:
    """The likeliest of the ``free`` columns; None if none looks like owners."""
    strings = {name: _cells(table[name]) for name in free if not table[name].dtype.is_nested() and not table[name].dtype.is_float()}
    named = (name for name, cells in strings.items() if _NAMES.fullmatch(name.strip()) and _repeats(cells, OWNERS_OF_NAME))
    other = (
        name for name, cells in strings.items() if _repeats(cells, FEWEST_OWNERS) and _owns(cells, _cells(text), _cells(label))
    )
    return next(named, None) or next(other, None)


def _cells(column: pl.Series) -> list[str]:
    return ["" if one is None else str(one).strip() for one in column.to_list()]


def _repeats(values: Sequence[str], fewest: int) -> bool:
    """Whether nearly all rows have a value, of which there are several, with two texts each in the mean."""
    given = [value for value in values if value]
    return fewest <= len({*given}) <= len(given) / 2 and len(given) > ONE_LABEL * len(values)


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
    own = _one_label(values, labels)
    return own >= ONE_LABEL and own > ABOVE_CHANCE + _one_label(values, np.random.default_rng(0).permutation(labels).tolist())


def _one_label(values: Sequence[Any], labels: Sequence[Any]) -> float:
    """The share of rows that have the most frequent label of their value."""
    _, rows = np.unique(np.array(values, dtype=object), return_inverse=True)
    _, columns = np.unique(np.array(labels, dtype=object), return_inverse=True)
    counts = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(counts, (rows, columns), 1)
    return float(counts.max(axis=1).sum() / len(rows))
