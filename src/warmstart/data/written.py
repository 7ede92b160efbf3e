"""Rows as a file that a spreadsheet opens: delimited text, or a workbook."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from warmstart.errors import DataError

_MOST_ROWS, _MOST_CHARACTERS = 1_048_576, 32_767
"""limits of Excel: rows of a sheet with its header, characters of a cell"""
NUMERAL = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?")
"""text that is the same as a number: no 007, and no more digits than a number keeps"""
_FIRST_YEAR = 1900
"""of dates that a workbook holds"""


def names_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of any row, in the order of their first."""
    return [*dict.fromkeys(name for row in rows for name in row)]


def delimited(rows: Sequence[Mapping[str, Any]], delimiter: str) -> str:
    """A header and a line for each row; all cells are quoted if one holds a carriage return, which csv would leave bare."""
    out = io.StringIO()
    returns = any("\r" in str(value) for row in rows for value in row.values())
    writer = csv.DictWriter(
        out, names_of(rows), delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    )
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def require_room(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Raise ``DataError`` for more rows, or a longer cell, than a workbook holds."""
    if len(rows) >= _MOST_ROWS:
        raise DataError(f"{file} holds at most {_MOST_ROWS - 1:,} rows, but there are {len(rows):,}; name a .csv")
    for number, row in enumerate(rows, 1):
        if (longest := max((len(cell) for cell in row.values() if isinstance(cell, str)), default=0)) > _MOST_CHARACTERS:
            raise DataError(
                f"row {number:,} has a text of {longest:,} characters, and a cell of a workbook holds {_MOST_CHARACTERS:,}; "
                f"name a .csv in place of {file}"
            )


def workbook(rows: Sequence[Mapping[str, Any]], file: Path) -> bytes:
    """An .xlsx of one sheet. What begins with = is text; a column of texts that are all numbers is one of numbers.

    Raises ``DataError`` where ``require_room`` does.
    """
    import xlsxwriter

    require_room(rows, file)
    out = io.BytesIO()
    with xlsxwriter.Workbook(out, {"in_memory": True, "nan_inf_to_errors": True, "remove_timezone": True}) as book:
        sheet = book.add_worksheet()
        day, moment = (book.add_format({"num_format": shown}) for shown in ("yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss"))
        sheet.freeze_panes(1, 0)
        for place, name in enumerate(names_of(rows)):
            cells = [row.get(name) for row in rows]
            numbers = all(NUMERAL.fullmatch(cell) for cell in cells if isinstance(cell, str) and cell)
            sheet.write_string(0, place, name)
            for line, cell in enumerate(cells, 1):
                if isinstance(cell, date) and cell.year >= _FIRST_YEAR:
                    sheet.write_datetime(line, place, cell, moment if isinstance(cell, datetime) else day)
                else:
                    _write(sheet, (line, place), float(cell) if numbers and isinstance(cell, str) and cell else cell)
    return out.getvalue()


def _write(sheet: Any, place: tuple[int, int], cell: Any) -> None:
    """One cell; nothing for None."""
    cell = float(cell) if isinstance(cell, Decimal) else cell
    if isinstance(cell, bool):
        sheet.write_boolean(*place, cell)
    elif isinstance(cell, int | float) and abs(cell) < 10**15:
        sheet.write_number(*place, cell)
    elif cell is not None and cell != "":
        sheet.write_string(*place, str(cell))
