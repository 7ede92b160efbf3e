"""The documents of a text: in pieces, each of which is tokenized on its own, held out or not, and a random sample of them.

A piece is about ``PIECE_BYTES`` of a large text: several small files, or part of a large one. Plain text on this machine is cut
between documents; a compressed file, a table and a file elsewhere are one piece, however large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from warmstart.config import Config
from warmstart.data.files import is_compressed
from warmstart.data.read import count_documents, count_span, counted_documents, source_files, source_root, span_ends
from warmstart.data.source import Source
from warmstart.data.tables import source_format
from warmstart.data.text_key import text_words
from warmstart.data.text_overlap import documents_with
from warmstart.errors import DataError
from warmstart.seeding import derive
from warmstart.system.storage import digest_of, sha256
from warmstart.system.urls import bring, is_url, remote_files

PIECE_BYTES = 1 << 26
"""text that makes a piece, as it lies on the disk"""
BATCH_CHARACTERS = 1 << 17
"""characters of a batch, and those of its last document that are over"""
FILTER_CHARACTERS = 1 << 21
"""characters of documents in which test texts are looked for at once"""
Counted = TypeVar("Counted", bound=tuple[Any, ...])
"""a document and what is known of it: its text comes first"""


class DocumentSplit(Config):
    """A random split of documents into kept and held-out ones, of all documents or of a random sample of them."""

    fraction: float = Field(ge=0, lt=1)
    """fraction of the documents that is held out"""
    sample: int | None = Field(None, gt=0)
    """documents whose random number is at least this are on neither side (``sample_of_words``)"""

    def held_out(self, *number: int) -> bool | None:
        """Whether the document with this number (of its piece and in it) is held out; None: it is not in the sample."""
        if self.sample is not None and _sample_number(*number) >= self.sample:
            return None
        return derive(0, "held-out document", *number) < self.fraction * 2**63


def sample_of_words(sources: Sequence[Source], words: int) -> int | None:
    """The ``DocumentSplit.sample`` with which whole documents of at most so many words are left, drawn at random; None: all are.

    A larger number of words keeps the documents of a smaller one. Words are those of ``count_documents``. Raises ``DataError`` if
    the first document that would be kept is already longer.
    """
    drawn = sorted((_sample_number(number), count) for number, (_, count) in enumerate(counted_documents(sources)))
    totals = accumulate(count for _, count in drawn)
    sample = next((number for (number, _), total in zip(drawn, totals, strict=True) if total > words), None)
    if drawn and sample == drawn[0][0]:
        raise DataError(
            f"at most {words:,} words are to be read, but the first document drawn has {drawn[0][1]:,}; allow more words, "
            "or cut the text into shorter documents (--document)"
        )
    return sample


def _sample_number(*document: int) -> int:
    return derive(0, "sampled document", *document)


@dataclass(frozen=True)
class Part:
    """A file, or the bytes of it from ``start`` to ``end``; or a whole source, of which nothing else is known."""

    source: Source
    """path, which may be a URL, and settings of its reading"""
    name: str = ""
    """name of the file in the text, wherever that lies"""
    size: int = 0
    """bytes of the file"""
    changed: int = 0
    """time of its last change, in nanoseconds; 0 elsewhere"""
    start: int = 0
    """first byte"""
    end: int | None = None
    """byte after the last one; None: the end of the file"""

    @property
    def bytes(self) -> int:
        """Number of its bytes."""
        return (self.size if self.end is None else self.end) - self.start

    def documents(self, scratch: Path) -> Iterator[tuple[str, int]]:
        """Documents of the piece, with their numbers of words; the file of a URL lies in ``scratch`` meanwhile."""
        path = self.source.path
        if is_url(path):
            file = scratch / f"{sha256(path.encode())[:16]}-{path.rpartition('/')[2].partition('?')[0]}"
            scratch.mkdir(parents=True, exist_ok=True)
            try:
                yield from count_documents(self.source.model_copy(update={"path": str(bring(path, file, self.size or None))}))
            finally:
                file.unlink(missing_ok=True)
            return
        if self.changed:
            self._check_unchanged(Path(path))
        if self.end is None:
            yield from count_documents(self.source)
        else:
            yield from count_span(self.source, Path(path), (self.start, self.end))

    def _check_unchanged(self, file: Path) -> None:
        try:
            status = file.stat()
        except OSError as error:
            raise DataError(f"{file} cannot be read ({error.strerror}): it was there when the command began; put it back") from None
        if (status.st_size, status.st_mtime_ns) != (self.size, self.changed):
            raise DataError(f"{file} was changed while it was read; let no program write it, and use another --out")


Piece = tuple[Part, ...]


def pieces_of(paths: Sequence[str], how: Source) -> list[Piece]:
    """The pieces of some files, folders, globs and URLs, in order, which are read as ``how`` is, whatever its path.

    They depend on the text alone. Raises ``DataError`` if one of these names no file.
    """
    pieces, waiting, size = list[Piece](), list[Part](), 0
    for part in (part for path in paths for part in _parts(how.model_copy(update={"path": path}))):
        if waiting and size + part.bytes > PIECE_BYTES:
            pieces.append(tuple(waiting))
            waiting, size = [], 0
        waiting.append(part)
        size += part.bytes
    return [*pieces, tuple(waiting)] if waiting else pieces


def _parts(source: Source) -> Iterator[Part]:
    if is_url(source.path):
        for found in remote_files(source.path):
            yield Part(source.model_copy(update={"path": found.url}), found.name, found.size or 0)
        return
    for file in source_files(source):
        status, ends = file.stat(), list[int]()
        if source_format(source, file) == "text" and not is_compressed(file) and source.document != "file":
            ends = span_ends(source, file, PIECE_BYTES)
        known = source.model_copy(update={"path": str(file)}), name_in_text(source, file), status.st_size, status.st_mtime_ns
        if len(ends) > 1:
            yield from (Part(*known, start, end) for start, end in zip([0, *ends], ends, strict=False))
        else:
            yield Part(*known)


def name_in_text(source: Source, file: Path) -> str:
    """The name of a file in a text: its path in the folder, if the text is one."""
    root = source_root(source)
    return file.name if file == root else file.relative_to(root).as_posix()


def identity_of(pieces: Sequence[Piece]) -> str:
    """A hash of the files' names, sizes and times, by which a text that changed is noticed."""
    return digest_of([[[part.name, part.size, part.changed, part.start, part.end] for part in piece] for piece in pieces])


def documents_of_piece(piece: Piece, scratch: Path, test_texts: Sequence[tuple[str, ...]] = ()) -> Iterator[tuple[str, int, bool]]:
    """The documents of a piece that are not blank, with their numbers of words, and whether one of the test texts is in each.

    The test texts are given by their words; files of URLs lie in ``scratch`` meanwhile.
    """
    documents = ((text, words) for part in piece for text, words in part.documents(scratch) if text and not text.isspace())
    for batch in document_batches(documents, FILTER_CHARACTERS if test_texts else BATCH_CHARACTERS):
        known = documents_with(test_texts, [text_words(text) for text, _ in batch]) if test_texts else np.zeros(len(batch), bool)
        yield from ((text, words, bool(has_test)) for (text, words), has_test in zip(batch, known, strict=True))


def document_batches(documents: Iterable[Counted], characters: int) -> Iterator[list[Counted]]:
    """Documents in lists of about so many characters."""
    batch: list[Counted] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document[0])
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
