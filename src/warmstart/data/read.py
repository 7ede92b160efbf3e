"""Text and labelled text from files: what a source is, and how it is read.

One ``Source`` names a file or a folder and how to read it. Two readers share everything below them:

    read_documents(source)   ->  a stream of texts, for pretraining
    read_examples(source)    ->  texts and their labels, for a task

Notable:

- Plain text is streamed: however long the file is, about a mebibyte of it is in memory. Tables are read whole.
- ``.gz`` and ``.xz`` are opened on the way; a byte order mark is dropped; lines may end in LF or CRLF.
- A file that is not what it claims to be is refused with its name, the place and the remedy, never read half.

It does not split, shuffle or clean (``split.py``, ``audit.py``), and it fetches nothing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TextIO

import polars as pl
from pydantic import ConfigDict, model_validator

from warmstart.config import Config
from warmstart.data.files import PACKED, opened, unpacked
from warmstart.errors import DataError, suggest

PIECE = 1 << 20
"""characters: a longer paragraph, line or file is handed out in pieces"""

Format = Literal["text", "csv", "tsv", "ndjson", "parquet", "pattern"]

ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
}
"""what ``format: auto`` makes of a name, once .gz or .xz is taken off; anything else is text"""


class Source(Config):
    """A file or a folder, and how to read it."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # YAML reads `as_label: 1` and `text: 2` as numbers

    path: str
    """a file, or a folder whose files are all read, in the order of their names (hidden ones are skipped)"""
    format: Literal["auto", "text", "csv", "tsv", "ndjson", "parquet", "pattern"] = "auto"
    """auto: pattern if one is given, else by the ending (.csv, .tsv, .ndjson, .jsonl, .parquet; anything else is text)"""
    encoding: str = "utf-8"
    """how the bytes spell characters: utf-8, latin-1, cp1252, …"""
    pattern: str | None = None
    r"""a regular expression for one line with the groups text and label, for instance ^(?P<label>\S+) (?P<text>.*)$"""
    text: str = "text"
    """the column that holds the text"""
    label: str = "label"
    """the column that holds the label"""
    labels_path: str | None = None
    """a second file whose lines are the labels of the lines of the first"""
    as_label: str | None = None
    """one label for everything in this source, for tasks with a file or a folder per class"""
    document: Literal["paragraph", "line", "file"] = "paragraph"
    """what counts as one text in plain text: a run of lines that are not blank, a line, or a file"""
    header: bool = True
    """the first line of a csv or tsv file names the columns; if not, they are numbered 1, 2, …"""

    @model_validator(mode="after")
    def _agrees(self) -> Source:
        if self.as_label is not None and self.labels_path is not None:
            raise ValueError("labels come from one place: give as_label or labels_path, not both")
        if self.format == "pattern" and self.pattern is None:
            raise ValueError(r"format 'pattern' needs a pattern, for instance ^(?P<label>\S+) (?P<text>.*)$")
        return self


def read_documents(source: Source) -> Iterator[str]:
    r"""The texts of a source, one after the other. Raises ``DataError`` if a file cannot be read as it should be.

    Plain text is cut as ``document`` says; lines stay as they are: ``"a\nb\n\nc\n"`` gives ``"a\nb"`` and ``"c"`` as
    paragraphs, ``"a"``, ``"b"`` and ``"c"`` as lines. Blank paragraphs and lines are left out. What is longer than ``PIECE``
    comes in several pieces, cut at line ends, and inside a line that is longer by itself at white space. Tables and patterns
    give one text per row.
    """
    for file in source_files(source):
        form = _format(source, file)
        if form == "text":
            with opened(file, source.encoding) as lines:
                yield from _documents(_short_lines(lines), source.document)
        elif form == "pattern":
            for text, _ in _matches(source, file, ["text"]):
                yield text
        else:
            yield from _texts(_table(source, file, form), source, file)


def read_examples(source: Source) -> tuple[list[str], list[str]]:
    """All texts of a source and the label of each; the lists have the same length, which is at least 1.

    Labels come from ``as_label``, from the lines of ``labels_path``, from the pattern's group ``label`` or from the column
    ``label``, in this order, and always as strings (the number 3 is ``"3"``). Raises ``DataError`` where one is missing.
    """
    if source.as_label is not None:
        texts = list(read_documents(source))
        labels = [source.as_label] * len(texts)
    elif source.labels_path is not None:
        texts, labels = _aligned(source, source.labels_path)
    else:
        pairs = [pair for file in source_files(source) for pair in _pairs(source, file)]
        texts, labels = [text for text, _ in pairs], [label for _, label in pairs]
    if not texts:
        raise DataError(f"{source.path} must hold at least one labelled text, but it is empty")
    return texts, labels


def source_files(source: Source) -> list[Path]:
    """The files of a source in the order they are read; raises ``DataError`` if there are none."""
    path = Path(source.path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"no such file or folder: {path}; check the path (a relative one starts at {Path.cwd()})")
    inside = sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in inside if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not files:
        raise DataError(f"the folder {path} must hold at least one file that is not hidden, but holds none; name another folder")
    return files


def _format(source: Source, file: Path) -> Format:
    if source.format != "auto":
        return source.format
    if source.pattern is not None:
        return "pattern"
    bare = file.with_suffix("") if file.suffix in PACKED else file
    return ENDINGS.get(bare.suffix.lower(), "text")


# ------------------------------------------------------------------------------------------------ plain text


def _documents(lines: Iterable[str], document: str) -> Iterator[str]:
    r"""Lines joined to documents. ``["a", "b", "", "c"]`` as paragraphs -> ``"a\nb"``, ``"c"``."""
    kept: list[str] = []
    size = 0
    for line in lines:
        blank = document != "file" and (not line or line.isspace())
        if kept and (blank or document == "line" or size + len(line) > PIECE):
            yield "\n".join(kept)
            kept, size = [], 0
        if not blank:
            kept.append(line)
            size += len(line) + 1
    if kept:
        yield "\n".join(kept)


def _short_lines(file: TextIO) -> Iterator[str]:
    """The lines of a file without their ends; one that is longer than ``PIECE`` is cut at its white space."""
    rest = ""
    while line := rest + file.readline(PIECE - len(rest)):
        rest = ""
        if len(line) == PIECE and not line.endswith("\n") and " " in line:
            line, _, rest = line.rpartition(" ")
        yield line.rstrip("\r\n")


# ------------------------------------------------------------------------------------------------ labelled lines


def _pairs(source: Source, file: Path) -> Iterable[tuple[str, str]]:
    """The (text, label) pairs of one file."""
    form = _format(source, file)
    if form == "text":
        raise DataError(
            f"{file} is plain text and names no labels; give a pattern with the groups text and label, "
            "or as_label, or labels_path, or a table (csv, tsv, ndjson, parquet)"
        )
    if form == "pattern":
        return _matches(source, file, ["text", "label"])
    table = _table(source, file, form)
    return zip(_texts(table, source, file), _labels(table, source, file), strict=True)


def _matches(source: Source, file: Path, groups: list[str]) -> Iterator[tuple[str, str]]:
    """The groups ``text`` and ``label`` (empty if not asked for) of each line that is not blank; all lines must match."""
    pattern = _compiled(source.pattern or "", groups)
    missed, first = 0, ""
    with opened(file, source.encoding) as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\r\n")
            if not line or line.isspace():
                continue
            if match := pattern.search(line):
                yield match["text"] or "", (match["label"] or "") if "label" in groups else ""
            elif not (missed := missed + 1) > 1:
                first = f"line {number}: {line[:80]!r}"
    if missed:
        raise DataError(
            f"every line of {file} must match the pattern {source.pattern!r}, but {missed} do not, first {first}; "
            "change the pattern or mend the lines"
        )


def _compiled(pattern: str, groups: list[str]) -> re.Pattern[str]:
    example = r"for instance ^(?P<label>\S+) (?P<text>.*)$"
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise DataError(f"the pattern {pattern!r} is no regular expression ({error}); write one, {example}") from None
    for group in groups:
        if group not in compiled.groupindex:
            raise DataError(f"the pattern {pattern!r} must have a group named '{group}', but has none; write it so, {example}")
    return compiled


def _aligned(source: Source, labels_path: str) -> tuple[list[str], list[str]]:
    """The lines of a file and, line by line, the labels in another one."""
    file, other = Path(source.path), Path(labels_path)
    with opened(file, source.encoding) as lines:
        texts = [line.rstrip("\r\n") for line in lines]
    with opened(other, source.encoding) as lines:
        labels = [line.strip() for line in lines]
    if len(texts) != len(labels):
        raise DataError(
            f"{file} and {other} must have as many lines, but have {len(texts)} and {len(labels)}; pair the right files"
        )
    return texts, _without_gaps(labels, other, "line")


def _without_gaps(labels: list[str], file: Path, unit: str) -> list[str]:
    gaps = [number for number, label in enumerate(labels, 1) if not label]
    if gaps:
        raise DataError(
            f"every {unit} of {file} must have a label, but {len(gaps)} have none, first {unit} {gaps[0]}; fill them in"
        )
    return labels


# ------------------------------------------------------------------------------------------------ tables


def _table(source: Source, file: Path, form: Format) -> pl.DataFrame:
    """A whole table; the columns of csv and tsv are strings, those of ndjson and parquet what they say they are."""
    if form == "parquet":
        with unpacked(file) as binary:
            data = binary.read()
    else:
        with opened(file, source.encoding) as text:
            data = text.read().encode()
    if not data.strip():
        raise DataError(f"{file} must hold a table, but is empty")
    # Quotes are ordinary characters in a tsv file: nearly every text has unpaired ones, and a tab needs no quoting.
    separator, quote = ("\t", None) if form == "tsv" else (",", '"')
    try:
        if form == "parquet":
            return pl.read_parquet(io.BytesIO(data))
        if form == "ndjson":
            return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
        table = pl.read_csv(io.BytesIO(data), separator=separator, quote_char=quote, has_header=source.header, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file} cannot be read as {form}: {reason}; mend the file or name its format") from None
    if not source.header:
        table.columns = [str(number) for number in range(1, table.width + 1)]
    return table


def _column(table: pl.DataFrame, name: str, key: str, file: Path) -> pl.Series:
    if name not in table.columns:
        raise DataError(f"{file} has no column '{name}'; {suggest(name, table.columns)}; name the one to read with '{key}: …'")
    return table[name]


def _texts(table: pl.DataFrame, source: Source, file: Path) -> list[str]:
    return _strings(_column(table, source.text, "text", file), file)


def _labels(table: pl.DataFrame, source: Source, file: Path) -> list[str]:
    return _without_gaps([label.strip() for label in _strings(_column(table, source.label, "label", file), file)], file, "row")


def _strings(column: pl.Series, file: Path) -> list[str]:
    """A column as strings: a whole number has no decimal point even where the table holds 3.0, and nothing at all is ``""``."""
    if column.dtype.is_float() and bool((column.is_finite() & (column == column.round())).all()):  # nulls do not count
        column = column.cast(pl.Int64)
    if column.dtype.is_nested():
        raise DataError(f"column '{column.name}' of {file} must hold one text or number per row, but holds {column.dtype}")
    return column.cast(pl.String).fill_null("").to_list()
