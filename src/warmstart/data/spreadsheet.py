"""Tables in a spreadsheet (.xlsx), and in a file of JSON: one value that holds all rows."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.files import most_bytes, too_large
from warmstart.errors import DataError, suggest


def read_xlsx(data: bytes, file: Path, sheet: str | None) -> pl.DataFrame:
    """One sheet; the first row names the columns. Raises ``DataError`` if several hold something and none is named."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(part.file_size for part in archive.infolist()) > most_bytes(file):
                raise DataError(too_large(file))
        sheets = pl.read_excel(io.BytesIO(data), sheet_id=0, engine="calamine", raise_if_empty=False)
    except DataError:
        raise
    except Exception as error:  # calamine has errors of its own, which this package need not know
        raise DataError(f"{file} cannot be read as xlsx ({str(error).splitlines()[0]}); save it again as .xlsx or .csv") from None
    full = {name: table for name, table in sheets.items() if table.height}
    if sheet is not None and sheet not in sheets:
        raise DataError(f"{file} has no sheet '{sheet}'; {suggest(sheet, list(sheets))}")
    if sheet is None and len(full) != 1:
        raise DataError(f"{file} must have one sheet with rows, but has {', '.join(full) or 'none'}; name one with 'sheet: …'")
    table = sheets[sheet] if sheet is not None else next(iter(full.values()))
    table.columns = [name.strip() for name in table.columns]
    return table.filter(~pl.all_horizontal(pl.all().is_null()))


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
    if values and all(isinstance(one, dict) for one in values.values()):  # pandas' default: column -> row -> value
        keys = list(next(iter(values.values())))
        return [{name: column.get(key) for name, column in values.items()} for key in keys]
    if values and all(isinstance(one, list) for one in values.values()) and len({len(one) for one in values.values()}) == 1:
        found = _rows(next(iter(values.values()))) if len(values) == 1 else None
        return found or [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    lists = [rows for one in values.values() if isinstance(one, list) and (rows := _rows(one))]
    return lists[0] if len(lists) == 1 else None


def _kind(values: Any) -> str:
    kinds = {"dict": "an object without one list of rows", "list": "a list of other things"}
    return kinds.get(type(values).__name__, f"a {type(values).__name__}")
