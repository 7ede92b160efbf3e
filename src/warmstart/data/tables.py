"""Tables of texts and labels: csv, tsv, ndjson and parquet, read whole by polars."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from warmstart.data.files import open_bytes, open_text
from warmstart.data.source import Format, Source
from warmstart.errors import DataError, suggest


def read_table(source: Source, file: Path, form: Format) -> pl.DataFrame:
    """A whole table. Columns of csv and tsv are strings; those of ndjson and parquet keep their types."""
    if form == "parquet":
        with open_bytes(file) as binary:
            data = binary.read()
    else:
        with open_text(file, source.encoding) as text:
            data = text.read().encode()
    if not data.strip():
        raise DataError(f"{file} must hold a table, but is empty")
    # In a tsv file quotes are ordinary characters: nearly every text has unpaired ones, and tabs need no quoting.
    separator, quote = ("\t", None) if form == "tsv" else (",", '"')
    try:
        if form == "parquet":
            return pl.read_parquet(io.BytesIO(data))
        if form == "ndjson":
            return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
        table = pl.read_csv(io.BytesIO(data), separator=separator, quote_char=quote, has_header=source.header, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file} cannot be read as {form}: {reason}; correct the file or name its format") from None
    if not source.header:
        table.columns = [str(number) for number in range(1, table.width + 1)]
    return table


def _column(table: pl.DataFrame, name: str, key: str, file: Path) -> pl.Series:
    if name not in table.columns:
        raise DataError(f"{file} has no column '{name}'; {suggest(name, table.columns)}; name the column to read with '{key}: …'")
    return table[name]


def text_column(table: pl.DataFrame, source: Source, file: Path) -> list[str]:
    """The column of texts."""
    return _strings(_column(table, source.text, "text", file), file)


def label_column(table: pl.DataFrame, source: Source, file: Path) -> list[str]:
    """The column of labels. Raises ``DataError`` if one is missing."""
    return without_gaps([label.strip() for label in _strings(_column(table, source.label, "label", file), file)], file, "row")


def _strings(column: pl.Series, file: Path) -> list[str]:
    """A column as strings: whole numbers have no decimal point even if the table holds 3.0, and missing values are ``""``."""
    if column.dtype.is_float() and bool((column.is_finite() & (column == column.round())).all()):  # nulls are ignored
        column = column.cast(pl.Int64)
    if column.dtype.is_nested():
        raise DataError(f"column '{column.name}' of {file} must hold one text or number per row, but holds {column.dtype}")
    return column.cast(pl.String).fill_null("").to_list()


def without_gaps(labels: list[str], file: Path, unit: str) -> list[str]:
    """The labels. Raises ``DataError`` that names the first ``unit`` (line, row) if one is empty."""
    gaps = [number for number, label in enumerate(labels, 1) if not label]
    if gaps:
        raise DataError(
            f"every {unit} of {file} must have a label, but {len(gaps)} have none, first {unit} {gaps[0]}; fill them in"
        )
    return labels
