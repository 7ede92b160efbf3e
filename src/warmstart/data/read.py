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

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from warmstart.data.files import PACKED, opened
from warmstart.data.source import ENDINGS, Format, Source
from warmstart.data.tables import labels_of, read_table, texts_of, without_gaps
from warmstart.errors import DataError

SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["'”’)\]]))\s+(?![a-zß-öø-ÿ])""")
"""where one sentence ends and the next begins"""
PIECE = 1 << 20
"""characters: a longer paragraph, line or file is handed out in pieces"""


def read_documents(source: Source) -> Iterator[str]:
    r"""The texts of a source, one after the other. Raises ``DataError`` if a file cannot be read as it should be.

    Plain text is cut as ``document`` says; lines stay as they are: ``"a\nb\n\nc\n"`` gives ``"a\nb"`` and ``"c"`` as
    paragraphs, ``"a"``, ``"b"`` and ``"c"`` as lines. Blank paragraphs and lines are left out. What is longer than ``PIECE``
    comes in several pieces, cut at line ends, and inside a line that is longer by itself at white space. Tables and patterns
    give one text per row.
    """
    yield from islice(_all_documents(source), source.first)


def _all_documents(source: Source) -> Iterator[str]:
    for file in source_files(source):
        form = source_format(source, file)
        if form == "text":
            with opened(file, source.encoding) as lines:
                texts = _documents(_short_lines(lines), "paragraph" if source.document == "sentence" else source.document)
                yield from (part for text in texts for part in sentences(text)) if source.document == "sentence" else texts
        elif form == "pattern":
            for text, _ in _matches(source, file, ["text"]):
                yield text
        else:
            yield from texts_of(read_table(source, file, form), source, file)


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
    return texts[: source.first], labels[: source.first]


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


def source_format(source: Source, file: Path) -> Format:
    """What a file of a source is read as."""
    if source.format != "auto":
        return source.format
    if source.pattern is not None:
        return "pattern"
    bare = file.with_suffix("") if file.suffix in PACKED else file
    return ENDINGS.get(bare.suffix.lower(), "text")


# ------------------------------------------------------------------------------------------------ plain text


def sentences(text: str) -> list[str]:
    r"""A text cut after ``.``, ``!`` and ``?`` (and what closes after them) where white space and no lower-case letter follows.

    ``"I rub the dog. Do you? He can."`` gives three. It knows no abbreviations: ``"Dr. Who came."`` gives two.
    """
    return [part for part in SENTENCE_END.split(text.strip()) if part]


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
    form = source_format(source, file)
    if form == "text":
        raise DataError(
            f"{file} is plain text and names no labels; give a pattern with the groups text and label, "
            "or as_label, or labels_path, or a table (csv, tsv, ndjson, parquet)"
        )
    if form == "pattern":
        return _matches(source, file, ["text", "label"])
    table = read_table(source, file, form)
    return zip(texts_of(table, source, file), labels_of(table, source, file), strict=True)


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
    return texts, without_gaps(labels, other, "line")
