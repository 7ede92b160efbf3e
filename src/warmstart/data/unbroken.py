"""Text files whose lines look like documents, but are read as one document: many lines, and no blank one between them.

Somebody who pretrains on such a file is told. Where it belongs to the pool of a task its lines are the texts, because a pool of one
text is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from warmstart.data.files import open_text
from warmstart.data.read import source_files, source_format
from warmstart.data.source import Source
from warmstart.system.urls import is_url

LINES = 200
"""a file with fewer lines may be a single text, unless it is all that there is; more are not looked at"""
FILES_READ = 20
"""the first so many of all sources are looked at: a folder of ten thousand mails is not read twice"""


def unbroken_note(sources: Iterable[Source]) -> str | None:
    """What to tell somebody whose text has one document per line but is read by paragraphs; None if nothing looks like that."""
    found = [file for source, file in islice(_by_paragraphs(sources), FILES_READ) if _looks_so(source, file, LINES)]
    if not found:
        return None
    return (
        f"note: {found[0]}{_and_others(found)} many lines and no blank line between them, so they are read as one document; "
        "if each line is a document, say --document line"
    )


def by_lines(sources: Iterable[Source]) -> tuple[Source, ...]:
    """The sources of a pool, those that look unbroken by lines."""
    return tuple(one.model_copy(update={"document": "line"}) if _unbroken(one) else one for one in sources)


def by_lines_note(sources: Iterable[Source]) -> str | None:
    """What to tell somebody of whose sources ``by_lines`` changes some; None if it changes none."""
    found = [Path(one.path) for one in sources if _unbroken(one)]
    if not found:
        return None
    return (
        f"note: {found[0]}{_and_others(found)} no blank line between the lines, so each line is a text without a label; write "
        "'document: line' into the manifest, or 'document: file' if the whole file is one text"
    )


def _and_others(found: list[Path]) -> str:
    return " has" if len(found) == 1 else f" and {len(found) - 1:,} more have"


def _unbroken(source: Source) -> bool:
    """Whether all files of a source look so, as far as they are looked at."""
    files = [*islice(_by_paragraphs([source]), FILES_READ)]
    return bool(files) and all(_looks_so(source, file, 2 if len(files) == 1 else LINES) for _, file in files)


def _by_paragraphs(sources: Iterable[Source]) -> Iterator[tuple[Source, Path]]:
    """The plain text files whose documents are paragraphs."""
    for source in sources:
        if source.document == "paragraph" and not is_url(source.path):
            yield from ((source, file) for file in source_files(source) if source_format(source, file) == "text")


def _looks_so(source: Source, file: Path, least: int) -> bool:
    """By the first lines, of which there must be at least so many; one that is too long to be a line counts as several."""
    with open_text(file, source.encoding) as lines:
        first = [*islice(iter(lambda: lines.readline(1 << 16), ""), LINES)]
    while first and len(first) < LINES and not first[-1].strip():
        first.pop()  # blank lines at the end separate nothing
    return len(first) >= least and all(map(str.strip, first))
