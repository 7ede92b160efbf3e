"""Tables of texts and labels: csv, tsv, ndjson and parquet, read whole by polars."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import polars as pl

from warmstart.data.files import most_bytes, open_bytes, open_text, too_large
from warmstart.data.source import Format, Source
from warmstart.errors import DataError, suggest
from warmstart.limits import free_memory
from warmstart.processes import run_python

MOST_COLUMNS = 10_000
"""of a csv or tsv file; each costs time and memory, however short the file"""
COPIES = 8
"""bytes of memory that reading a parquet file needs for each byte of its texts, at most"""
READ_WITHIN_SECONDS = 120
"""that a file may take"""
_TOO_LARGE = 9
"""exit code of the process that reads a file, if its memory grows too much"""
_READ_WITHIN = f"""
import os, threading, time
os.environ["POLARS_MAX_THREADS"] = "1"
import polars, psutil
resident = lambda: psutil.Process().memory_info().rss
most = resident() + int(sys.argv[2])
def watch():
    while resident() < most:
        time.sleep(0.005)
    os._exit({_TOO_LARGE})
threading.Thread(target=watch, daemon=True).start()
polars.read_parquet(sys.argv[1])
"""
"""reads a parquet file and ends once it takes too much memory; a limit set by the system is no use, since polars may wait for ever
for memory that it is refused"""


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
            _check_parquet(data, file)
            return pl.read_parquet(io.BytesIO(data))
        if form == "ndjson":
            return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
        if (columns := 1 + data[: data.find(b"\n")].count(separator.encode())) > MOST_COLUMNS:
            raise DataError(f"{file} must have at most {MOST_COLUMNS:,} columns, but has {columns:,}; keep those that you need")
        table = pl.read_csv(io.BytesIO(data), separator=separator, quote_char=quote, has_header=source.header, infer_schema=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file} cannot be read as {form}: {reason}; correct the file or name its format") from None
    if not source.header:
        table.columns = [str(number) for number in range(1, table.width + 1)]
    return table


def _check_parquet(data: bytes, file: Path) -> None:
    """Raise ``DataError`` if a parquet file expands to more than ``most_bytes``.

    Its own figures may lie, so the file is first read in a process that watches its memory; not if the limit is more than the free
    memory.
    """
    most = COPIES * most_bytes(file)
    if most > free_memory():
        return
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(data)
        copy.flush()
        run = run_python(_READ_WITHIN, copy.name, str(most), seconds=READ_WITHIN_SECONDS)
        if run.returncode == _TOO_LARGE or run.returncode < 0:  # what the library itself refuses is refused again below
            raise DataError(too_large(file))


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
    # nulls are ignored; above 2**53 a float is not known to one
    if column.dtype.is_float() and bool((column.is_finite() & (column == column.round()) & (column.abs() < 2**53)).all()):
        column = column.cast(pl.Int64)
    if column.dtype.is_nested():
        raise DataError(f"column '{column.name}' of {file} must hold one text or number per row, but holds {column.dtype}")
    texts = column.cast(pl.String).fill_null("")
    if file.suffix == ".parquet" and texts.str.len_bytes().cast(pl.Int64).sum() > most_bytes(file):
        raise DataError(too_large(file))  # a text that is repeated is stored once there, but not here
    return texts.to_list()


def without_gaps(labels: list[str], file: Path, unit: str) -> list[str]:
    """The labels. Raises ``DataError`` that names the first ``unit`` (line, row) if one is empty."""
    gaps = [number for number, label in enumerate(labels, 1) if not label]
    if gaps:
        raise DataError(
            f"every {unit} of {file} must have a label, but {len(gaps)} have none, first {unit} {gaps[0]}; fill them in"
        )
    return labels
