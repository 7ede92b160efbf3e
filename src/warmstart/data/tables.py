"""Tables of texts and labels, read whole: csv and tsv (``delimited.py``), and other formats by polars."""

from __future__ import annotations

import codecs
import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.class_names import features_in_parquet, features_of, with_names_of_labels
from warmstart.data.delimited import DELIMITERS, NO_DELIMITER, found_delimiter, in_lines, read_delimited
from warmstart.data.exports import refuse_export
from warmstart.data.files import is_utf8, most_bytes, open_bytes, open_text, too_large, without_compression
from warmstart.data.source import ENDINGS, PROSE, Format, Source
from warmstart.data.spreadsheet import read_json_table, read_xlsx
from warmstart.data.watched import COPIES, run_watched
from warmstart.errors import DataError, suggest
from warmstart.system.console import console
from warmstart.system.limits import free_memory

STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
"""with which an Arrow stream ends; without it rows may be missing"""
_ARROW_FILE = b"ARROW1"
"""with which Arrow's other format begins, that of random access"""
_NAMING_TEXT = "'text: …' in a manifest, or --text-column on the command line"

ALIKE = ("encoding", "delimiter", "header", "sheet", "text", "second", "pieces")
"""settings of a ``Source`` that also hold for the next file of the same kind"""


def reading_of(source: Source) -> dict[str, Any]:
    """How a source is read, as far as that holds for the next file of the same kind: settings that are not their defaults."""
    values = source.model_dump(include={*ALIKE}, exclude_defaults=True)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def reading_alike(before: Mapping[str, Any], path: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a ``Source`` for a file: those ``given``, over those with which others of its kind were read ``before``.

    An encoding of before holds only for what is not UTF-8: in latin-1 anything can be read, but not as it was meant.
    """
    kept = {name: value for name, value in before.items() if name in ALIKE and name not in given}
    if ENDINGS.get(without_compression(Path(path)).suffix.lower(), "text") in PROSE:
        kept = {name: value for name, value in kept.items() if name in ("encoding", "pieces")}  # there are no columns
    if "encoding" in kept and is_utf8(Path(path)):
        del kept["encoding"]
    if kept:
        shown = ", ".join(f"{name} {value!r}" for name, value in kept.items())
        console.print(f"{path} is read as the texts were from which the model learned: {shown}")
    return {**kept, **given}


def read_table(source: Source, file: Path, form: Format) -> pl.DataFrame:
    """A whole table. Columns of csv and tsv are strings; those of other formats keep their types.

    If ``source.text`` names several columns (``subject+body``), the table has one more, of their texts one under the other.
    """
    table, names = _read_table(source, file, form), source.text.split("+")
    if source.text in table.columns or not any(name in table.columns for name in names):
        return table
    parts = zip(*(_strings(_column(table, name, _NAMING_TEXT, file), file) for name in names), strict=True)
    return table.with_columns(pl.Series(source.text, ["\n".join(filter(None, part)) for part in parts], dtype=pl.String))


def _read_table(source: Source, file: Path, form: Format) -> pl.DataFrame:
    if form in ("parquet", "arrow", "xlsx"):
        with open_bytes(file) as binary:
            data = binary.read()
    else:
        with open_text(file, source.encoding) as lines:
            text = lines.read()
        if form in DELIMITERS and text.strip("\x1a\0 \t\r\n"):
            return read_delimited(text, file, form, delimiter_of(source), header=source.header)
        if form not in DELIMITERS:
            refuse_export(text, file, source.label)
        data = text.encode() if form not in DELIMITERS else b""
    if not data.strip():
        raise DataError(f"{file} must hold a table, but is empty")
    try:
        if form == "parquet":
            _check_expansion(data, file, "read_parquet(sys.argv[1])")
            features = features_in_parquet(pl.read_parquet_metadata(io.BytesIO(data)))
            return with_names_of_labels(pl.read_parquet(io.BytesIO(data)), features, file)
        if form == "arrow":
            return with_names_of_labels(_read_arrow(data, file), features_of(file.parent), file.parent)
        if form == "ndjson":
            return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
        if form == "xlsx":
            _check_expansion(data, file, "read_excel(sys.argv[1], sheet_id=0)")
            return read_xlsx(data, file, source.sheet)
        return read_json_table(data, file)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file} cannot be read as {form}: {reason}; correct the file or name its format") from None


def dialect_of(source: Source, file: Path) -> tuple[str, str]:
    """The delimiter of a csv file, and its byte order mark or ""; a file that is not UTF-8 gets one, for spreadsheets need it."""
    with open_bytes(file) as binary:
        marked = not is_utf8(file) or binary.read(3) == codecs.BOM_UTF8
    with open_text(file, source.encoding) as lines:
        found = delimiter_of(source) or found_delimiter(in_lines(lines.read()), "csv")
    return "," if found == NO_DELIMITER else found, "\ufeff" if marked else ""


def delimiter_of(source: Source) -> str | None:
    """The character that a source names, also as a word; None: it is found."""
    if source.delimiter is None:
        return None
    character = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}.get(source.delimiter, source.delimiter)
    if len(character) != 1:
        raise DataError(f"delimiter must be one character, or tab, but is {source.delimiter!r}")
    return character


def _read_arrow(data: bytes, file: Path) -> pl.DataFrame:
    """Arrow's stream, as ``datasets`` writes it, or its file format."""
    if data.startswith(_ARROW_FILE):
        _check_expansion(data, file, "read_ipc(sys.argv[1])")
        return pl.read_ipc(io.BytesIO(data))
    if not data.endswith(STREAM_END):
        raise DataError(f"{file} must be an Arrow stream with its end, but is cut short or no such stream; copy the file again")
    _check_expansion(data, file, "read_ipc_stream(sys.argv[1])")
    return pl.read_ipc_stream(io.BytesIO(data))


def _check_expansion(data: bytes, file: Path, call: str) -> None:
    """Raise ``DataError`` if a parquet, Arrow or .xlsx file expands to more than ``most_bytes``.

    Its own figures may lie, so the file is first read in a process that watches its memory; not if the limit is more than the free
    memory.
    """
    most = COPIES * most_bytes(file)
    if most > free_memory():
        return
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(data)
        copy.flush()
        imports = 'import os; os.environ["POLARS_MAX_THREADS"] = "1"; import polars'
        run_watched(imports, f"polars.{call}", Path(copy.name), most, file)  # what polars refuses is refused again


def _column(table: pl.DataFrame, name: str, how: str, file: Path) -> pl.Series:
    if name not in table.columns:
        raise DataError(f"{file} has no column '{name}'; {suggest(name, table.columns)}; name the column to read with {how}")
    return table[name]


def text_column(table: pl.DataFrame, source: Source, file: Path) -> list[str]:
    """The column of texts."""
    return _strings(_column(table, source.text, _NAMING_TEXT, file), file)


def label_column(table: pl.DataFrame, source: Source, file: Path, *, gaps: bool = False) -> list[str]:
    """The column of labels. Raises ``DataError`` if one is missing; with ``gaps`` it is ``""`` instead."""
    labels = [label.strip() for label in _strings(_column(table, source.label, "'label: …'", file), file)]
    return labels if gaps else without_gaps(labels, file, "row")


def _strings(column: pl.Series, file: Path) -> list[str]:
    """A column as strings: whole numbers have no decimal point even if the table holds 3.0, and missing values are ``""``."""
    # nulls are ignored; above 2**53 a float is not known to one
    if column.dtype.is_float() and bool((column.is_finite() & (column == column.round()) & (column.abs() < 2**53)).all()):
        column = column.cast(pl.Int64)
    if column.dtype.is_nested():
        raise DataError(f"column '{column.name}' of {file} must hold one text or number per row, but holds {column.dtype}")
    try:
        texts = column.cast(pl.String).fill_null("")
    except pl.exceptions.PolarsError:
        raise DataError(
            f"column '{column.name}' of {file} must hold texts, but holds {column.dtype}; name another column"
        ) from None
    if file.suffix in (".parquet", ".arrow") and texts.str.len_bytes().cast(pl.Int64).sum() > most_bytes(file):
        raise DataError(too_large(file))  # a text that is repeated is stored once there, but not here
    return texts.to_list()


def without_gaps(labels: list[str], file: Path, unit: str) -> list[str]:
    """The labels. Raises ``DataError`` that names the first ``unit`` (line, row) if one is empty."""
    gaps = [number for number, label in enumerate(labels, 1) if not label]
    if gaps:
        raise DataError(
            f"every {unit} of {file} must have a label, but {len(gaps)} have none, first {unit} {gaps[0]}; fill them in, or leave "
            "these rows out (`warmstart fit` reads them as text without a label)"
        )
    return labels
