"""Tables in a spreadsheet (.xlsx), and in a file of JSON: one value that holds all rows."""

from __future__ import annotations

import functools
import html
import io
import json
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastexcel
import polars as pl

from warmstart.data.columns import LABEL_NAMES, TEXT_NAMES, named_columns
from warmstart.data.files import most_bytes, too_large
from warmstart.errors import DataError, suggest
from warmstart.system.console import print_once


def read_xlsx(data: bytes, file: Path, sheet: str | None, header: bool | None = None) -> pl.DataFrame:
    """One sheet, every column as strings. Raises ``DataError`` if several that are shown hold something and none is named."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(part.file_size for part in archive.infolist()) > most_bytes(file):
                raise DataError(too_large(file))
            merged = dict[str, list[tuple[int, int, int]]]()
            with suppress(KeyError, UnicodeError):  # a book whose parts have other names is read without what is merged
                merged = _merged_down(archive)
        book = fastexcel.read_excel(data)
        sheets = [book.load_sheet(name, header_row=None, dtypes="string") for name in book.sheet_names]
    except DataError:
        raise
    except Exception as error:  # calamine has errors of its own, which this package need not know
        raise DataError(f"{file} cannot be read as xlsx ({str(error).splitlines()[0]}); save it again as .xlsx or .csv") from None
    full = [one for one in sheets if one.height > 1]
    shown = [one for one in full if one.visible == "visible"]
    if sheet is not None and sheet not in book.sheet_names:
        raise DataError(f"{file} has no sheet '{sheet}'; {suggest(sheet, book.sheet_names)}")
    if sheet is None and len(shown or full) != 1:
        names = ", ".join(one.name + (" (hidden)" if one.visible != "visible" else "") for one in full) or "none"
        raise DataError(f"{file} must have one sheet with rows, but has {names}; name one with --sheet (in a manifest 'sheet: …')")
    found = (shown or full)[0] if sheet is None else sheets[book.sheet_names.index(sheet)]
    if sheet is None and len(full) > 1:
        hidden = [one.name for one in full if one is not found]
        print_once(f"{file}: the sheet {found.name} is read; hidden, and not read: {', '.join(hidden)} (--sheet names another).")
    table = _filled_down(found.to_polars(), merged.get(found.name, []), file)
    return named_columns(table.filter(~pl.all_horizontal(pl.all().is_null())), file, header)


def _merged_down(archive: zipfile.ZipFile) -> dict[str, list[tuple[int, int, int]]]:
    """Sheet -> (column, first row, last row) of its cells that are merged over several rows, from where what it holds begins."""
    book, links = (archive.read(f"xl/{name}").decode() for name in ("workbook.xml", "_rels/workbook.xml.rels"))
    parts = {
        _attribute(one, "Id"): _attribute(one, "Target").removeprefix("/xl/") for one in re.findall(r"<Relationship\b[^>]*>", links)
    }
    found = dict[str, list[tuple[int, int, int]]]()
    for sheet in re.findall(r"<sheet\b[^>]*>", book):
        text = archive.read(f"xl/{parts[_attribute(sheet, 'r:id')]}").decode()
        held = [(_column(letters), int(row)) for letters, row in re.findall(r'<c r="([A-Z]+)(\d+)"[^>]*[^/]>', text)]
        merged = re.findall(r'<mergeCell ref="([A-Z]+)(\d+):[A-Z]+(\d+)"', text)
        if held and merged:
            left, top = min(column for column, _ in held), min(row for _, row in held)
            down = [
                (_column(letters) - left, int(first) - top, int(last) - top) for letters, first, last in merged if first != last
            ]
            found[html.unescape(_attribute(sheet, "name"))] = down
    return found


def _attribute(tag: str, name: str) -> str:
    return (re.findall(rf'\s{name}="([^"]*)"', tag) or [""])[0]


def _column(letters: str) -> int:
    """``A`` -> 1, ``AA`` -> 27."""
    return functools.reduce(lambda number, letter: 26 * number + ord(letter) - 64, letters, 0)


def _filled_down(table: pl.DataFrame, merged: list[tuple[int, int, int]], file: Path) -> pl.DataFrame:
    """A table in which each cell that is merged over rows stands in all of them."""
    columns = [column.to_list() for column in table] if merged else []
    for column, first, last in merged:
        if 0 <= column < table.width and 0 <= first < table.height:
            last = min(last, table.height - 1)
            columns[column][first : last + 1] = [columns[column][first]] * (last + 1 - first)
    if merged:
        print_once(f"{file}: {len(merged):,} merged cells hold for each of their rows.")
    return pl.DataFrame(columns, schema=table.schema) if merged else table


def read_json_table(data: bytes, file: Path) -> pl.DataFrame:
    """A list of objects or of texts, an object that holds such a list, or one of columns; or a line for each object.

    Raises ``DataError`` for anything else.
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        if data.count(b"\n") and data.lstrip().startswith(b"{"):
            return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
        raise DataError(f"{file} must be JSON, but is not ({error}); correct it, or name its format") from None
    rows = _rows(values)
    if rows is None:
        raise DataError(
            f'{file} must hold a list of objects, such as [{{"text": "…", "label": "…"}}], or of texts, but holds {_kind(values)}; '
            "write one, or a file with an object on each line (.jsonl)"
        )
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


def _rows(values: Any) -> list[dict[str, Any]] | None:
    """The rows of a table as pandas and others write it, or None."""
    if isinstance(values, list):
        if values and all(isinstance(one, str) for one in values):
            return [{"text": one} for one in values]
        return values if values and all(isinstance(one, dict) for one in values) else None
    if not isinstance(values, dict):
        return None
    if set(values) >= {"columns", "data"}:  # pandas, orient="split"
        return [dict(zip(values["columns"], row, strict=False)) for row in values["data"]]
    if values and all(isinstance(one, dict) for one in values.values()):
        if _by_row(values):  # pandas, orient="index"
            return list(values.values())
        # pandas' default: column -> row -> value
        keys = list(next(iter(values.values())))
        return [{name: column.get(key) for name, column in values.items()} for key in keys]
    if values and all(isinstance(one, list) for one in values.values()) and len({len(one) for one in values.values()}) == 1:
        found = _rows(next(iter(values.values()))) if len(values) == 1 else None
        return found or [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    lists = [rows for one in values.values() if isinstance(one, list) and (rows := _rows(one))]
    return lists[0] if len(lists) == 1 else None


def _by_row(values: dict[str, dict[str, Any]]) -> bool:
    """Whether an object of objects has a row in each, not a column: these have the names, or are more."""
    inner = {name for one in values.values() for name in one}
    known = {*TEXT_NAMES, *LABEL_NAMES}
    if known & values.keys() or known & inner:
        return not known & values.keys()
    return not any(map(str.isdecimal, inner)) and (all(map(str.isdecimal, values)) or len(values) > len(inner))


def _kind(values: Any) -> str:
    kinds = {"dict": "an object without one list of rows", "list": "a list of other things"}
    return kinds.get(type(values).__name__, f"a {type(values).__name__}")
