"""The other columns of a table as numbers: a price, a product, a date, yes or no, beside the text of the same row.

    other_columns(frame, taken)     ->  names of the columns that can be read so
    column_forms(rows, names)       ->  a form for each: number, date or category, learned from the labelled rows
    cell_matrix(forms, rows)        ->  (N, D) numbers

Letters: N rows, D numbers of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from warmstart.config import Config
from warmstart.data.label_cells import MISSING
from warmstart.errors import DataError
from warmstart.stats.formatting import first_of
from warmstart.system.console import print_once

if TYPE_CHECKING:
    import polars as pl

MOST_LEVELS, FEWEST_ROWS = 40, 5
"""different values that a category keeps at most, and the rows that each must have; others count as one"""
MOST_DIFFERENT = 0.3
"""share of different values among the rows, above which words are names or texts, not categories"""
UNREADABLE = 0.05
"""share of cells that are no number, or no date, from which a column is none of numbers, or of dates"""
_LOOKED_AT = 5000
"""rows by which the columns are known"""
_DATE_FORMS = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d")
"""forms of dates beside those of ISO 8601; 03/04/2026 is a day in April or in March, and is not read"""


class RowText(str):
    """A text with the cells of the other columns of its row: wherever texts go, these go along."""

    cells: Mapping[str, Any]
    """column -> cell"""

    def __new__(cls, text: str, cells: Mapping[str, Any]) -> RowText:
        """The text, with its cells."""
        row = super().__new__(cls, text)
        row.cells = cells
        return row

    def __reduce__(self) -> tuple[type[RowText], tuple[str, Mapping[str, Any]]]:
        return RowText, (str(self), self.cells)


class ColumnForm(Config):
    """The way in which the cells of a column become numbers."""

    name: str
    kind: Literal["number", "date", "category"]
    levels: tuple[str, ...] = ()
    """values of a category, each a number of 0 or 1; blank cells are a value, too"""
    fill: float = 0.0
    """number for a blank cell: the median"""
    counts: bool = False
    """True: whole numbers that are all different, such as the number of a ticket; they say nothing of new rows"""

    @property
    def width(self) -> int:
        """Number of numbers that a cell becomes."""
        return {"number": 2, "date": 5, "category": len(self.levels)}[self.kind]


def other_columns(frame: pl.DataFrame, taken: Sequence[str]) -> tuple[str, ...]:
    """The columns, but those that are ``taken``, which hold numbers, dates or categories; no texts, names and lists."""
    from warmstart.data.columns import cells_of  # predicting needs no tables

    first = frame.head(_LOOKED_AT)
    free = [name for name in first.columns if name not in taken and not first[name].dtype.is_nested()]
    return tuple(name for name in free if _form(name, cells_of(first[name])) is not None)


def column_forms(rows: Sequence[RowText], names: Sequence[str]) -> tuple[ColumnForm, ...]:
    """The forms of the columns, from N rows; a column that holds none of these kinds is left out."""
    forms = (_form(name, _cells(rows, name)) for name in names)
    return tuple(form for form in forms if form is not None)


def cell_matrix(forms: Sequence[ColumnForm], rows: Sequence[Any]) -> np.ndarray:
    """(N, D) numbers of N rows. Raises ``DataError`` for a text without cells, and for a column that holds another kind now."""
    if bare := [row for row in rows if not isinstance(row, RowText) or any(form.name not in row.cells for form in forms)]:
        names = first_of([form.name for form in forms], 5, "other columns")
        raise DataError(
            f"each text must come with the columns that the model reads beside it ({names}), but {str(bare[0])[:40]!r} comes "
            "without; give a table that has them: predict MODEL TABLE, or ws.predict(model, frame)"
        )
    parts = [_numbers(form, _cells(rows, form.name)) for form in forms]
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(rows), 0))


def _cells(rows: Sequence[RowText], name: str) -> list[str]:
    return ["" if row.cells[name] is None else str(row.cells[name]).strip() for row in rows]


def _form(name: str, cells: Sequence[str]) -> ColumnForm | None:
    """The form of a column; None if its cells are all blank or alike, or are texts or names."""
    import polars as pl

    from warmstart.data.columns import is_prose

    filled = [cell for cell in cells if cell.lower() not in MISSING]
    if not filled or len({*cells}) < 2:
        return None
    for kind, read in (("number", _number), ("date", _date)):
        values = [value for cell in filled if (value := read(cell)) is not None]
        if len(values) >= (1 - UNREADABLE) * len(filled):
            counts = kind == "number" and len({*values}) == len(values) == len(cells) and all(map(float.is_integer, values))
            return ColumnForm(name=name, kind=kind, fill=float(np.median(values)), counts=counts)
    levels = [level for level, count in Counter(map(_level, cells)).most_common(MOST_LEVELS) if count >= FEWEST_ROWS]
    if not levels or len({*filled}) > MOST_DIFFERENT * len(filled) or is_prose(pl.Series(filled)):
        return None
    return ColumnForm(name=name, kind="category", levels=tuple(sorted(levels)))


def _level(cell: str) -> str:
    """The value of a category; upper and lower case are one, as are all signs of a missing value."""
    folded = cell.casefold()
    return "" if folded in MISSING else folded


def _number(cell: str) -> float | None:
    """The number in a cell such as 12, 1.5, 1,5, 80% or 9.90 €; None: it is none."""
    bare = cell.strip(" €$£%\u00a0")
    with suppress(ValueError):
        value = float(bare.replace(",", ".") if bare.count(",") == 1 and "." not in bare else bare.replace(",", ""))
        return value if np.isfinite(value) else None
    return None


def _date(cell: str) -> float | None:
    """The days since 1970 of a date; None: it is none."""
    with suppress(ValueError):
        return _days(datetime.fromisoformat(cell))
    for form in _DATE_FORMS:
        with suppress(ValueError):
            return _days(datetime.strptime(cell, form))
    return None


def _days(moment: datetime) -> float:
    return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() / 86400


def _numbers(form: ColumnForm, cells: Sequence[str]) -> np.ndarray:
    """(N, width) numbers of the cells of one column."""
    if form.kind == "category":
        levels = [*map(_level, cells)]
        if len(levels) >= FEWEST_ROWS and not {*levels} & {*form.levels}:
            shown, known = next(filter(None, levels), ""), first_of(form.levels, 5, "others")
            print_once(f"Column '{form.name}' holds no value that the model knows: {shown!r} here, there {known}.")
        return np.array([[level == name for name in form.levels] for level in levels], dtype=np.float64)
    read = _number if form.kind == "number" else _date
    values, blank = [*map(read, cells)], np.array([cell.lower() in MISSING for cell in cells])
    wrong = [cell for cell, value in zip(cells, values, strict=True) if value is None and cell.lower() not in MISSING]
    if len(wrong) > UNREADABLE * (~blank).sum():
        raise DataError(
            f"column '{form.name}' must hold {form.kind}s, as when the model learned, but {len(wrong):,} of {(~blank).sum():,} "
            f"cells hold others, such as {wrong[0][:40]!r}; write them as before"
        )
    missing = np.array([value is None for value in values])
    filled = np.array([form.fill if value is None else value for value in values], dtype=np.float64)
    if form.kind == "number":
        return np.column_stack([filled, missing])
    return np.column_stack([filled, np.floor((filled + 3) % 7), filled % 365.25 // 30.4375, filled % 1 * 24, missing])
