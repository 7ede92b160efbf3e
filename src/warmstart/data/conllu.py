"""Sentences of CoNLL and CoNLL-U files: words with their tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from warmstart.data.files import open_text, without_compression
from warmstart.data.read import source_files
from warmstart.data.source import Source
from warmstart.errors import DataError

TAG_COLUMNS = {"upos": "4", "xpos": "5"}
"""number of the column, from 1, of universal tags and of tags of the language"""
_CONLLU_COLUMNS, _LOOKED_AT = 10, 2000
_TAG = re.compile(r"O|[BIESLU]-\S+")


def is_conllu(path: str | Path) -> bool:
    """True if a file is CoNLL-U by its name, compressed or not."""
    return without_compression(Path(path)).suffix == ".conllu"


def is_conll(path: str | Path) -> bool:
    """True if a file is CoNLL or CoNLL-U by its name, compressed or not; a .tsv, .txt, .iob or .bio by what it holds."""
    ending = without_compression(Path(path)).suffix
    return ending in (".conll", ".conllu") or (ending in (".tsv", ".txt", ".iob", ".bio") and _holds_tags(Path(path)))


def _holds_tags(file: Path) -> bool:
    """True if blank lines part lines of which each ends in a tag of a span, or O."""
    if not file.is_file():
        return False
    try:
        with open_text(file, "utf-8") as lines:
            rows = [_fields(line) for line in islice(lines, _LOOKED_AT)]
    except DataError:
        return False  # which its reader explains
    ends = [row[-1] for row in rows if len(row) > 1 and row[0] != "-DOCSTART-"]
    return [] in [[*filter(None, row)] for row in rows[1:-1]] and len(ends) > 1 and all(map(_TAG.fullmatch, ends))


def read_conllu(path: str | Path, tags: Literal["upos", "xpos"] = "upos") -> list[list[tuple[str, str]]]:
    """The (word, tag) pairs of each sentence; multiword tokens and empty nodes are skipped.

    Raises ``DataError`` if the file is not CoNLL-U, or empty.
    """
    if not is_conllu(path):
        raise DataError(f"parts of speech are read from .conllu files (also compressed), but got {path}")
    source = Source(path=str(path), label=TAG_COLUMNS[tags])
    sentences = [
        list(zip(words, of_words, strict=True))
        for file in source_files(source)
        for words, of_words in tagged_sentences(source, file)
    ]
    if not sentences:
        raise DataError(f"{path} must hold at least one example, but is empty")
    return sentences


def tag_columns(source: Source, file: Path) -> dict[str, str]:
    """The columns of words and of tags, counted from 1, where a file has not the ten columns of CoNLL-U: the first, and the last.

    If the first holds numbers of words, the words are in the second. Raises ``DataError`` for a file of a single column.
    """
    with open_text(file, source.encoding) as lines:
        rows = [_fields(line) for line in islice(lines, _LOOKED_AT) if line.strip() and not line.startswith(("#", "-DOCSTART-"))]
    width = min(map(len, rows), default=0)
    if not rows or width == _CONLLU_COLUMNS:
        return {}
    if width < 2:
        raise DataError(
            f"{file} must have a word and its tag on each line, with a tab or spaces between, but one is {rows[0][0]!r}"
        )
    numbered = width > 2 and all(row[0].isdecimal() for row in rows)
    return {"text": "2" if numbered else "1", "label": str(width)}


def _fields(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t" if "\t" in line else None)


def tagged_sentences(source: Source, file: Path) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(words, tags) of each sentence of a CoNLL file. ``text`` and ``label`` of the source are column numbers, from 1.

    The default columns are those of CoNLL-U. If words are in the first column, the file has no word numbers and no comments, and
    what looks like one is a word.
    """
    word = int(source.text) - 1 if source.text.isdecimal() else 1
    tag = int(source.label) - 1 if source.label.isdecimal() else 3
    words, tags = list[str](), list[str]()
    with open_text(file, source.encoding) as lines:
        for number, line in enumerate(lines, 1):
            fields = _fields(line)
            if line.startswith("-DOCSTART-"):
                continue
            if word and (line.startswith("#") or (fields and "-" in fields[0] and fields[0].replace("-", "").isdecimal())):
                continue  # a comment, or a multiword token
            if not line.strip():
                if words:
                    yield tuple(words), tuple(tags)
                words, tags = [], []
            elif word and "." in fields[0] and fields[0].replace(".", "").isdecimal():
                continue  # an empty node
            elif max(word, tag) >= len(fields):
                raise DataError(f"line {number} of {file} must have at least {max(word, tag) + 1} columns, but has {len(fields)}")
            else:
                words.append(fields[word])
                tags.append(fields[tag])
    if words:
        yield tuple(words), tuple(tags)
