"""A large text in pieces, each of which is tokenized on its own.

A piece is about ``PIECE_BYTES`` of text: several small files, or part of a large one. Plain text on this machine is cut between
documents; a compressed file, a table and a file elsewhere are one piece, however large. The pieces depend on the text alone, never
on how many processes read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from warmstart.data.files import is_compressed
from warmstart.data.read import count_documents, count_span, source_files, source_root, span_ends
from warmstart.data.source import Source
from warmstart.data.tables import source_format
from warmstart.errors import DataError
from warmstart.system.storage import sha256
from warmstart.system.urls import bring, is_url, remote_files

PIECE_BYTES = 1 << 26
"""text that makes a piece, as it lies on the disk"""


@dataclass(frozen=True)
class Part:
    """A file, or the bytes of it from ``start`` to ``end``."""

    path: str
    """a path or a URL"""
    name: str
    """what it is called in the text, wherever that lies"""
    size: int
    """bytes of the file"""
    changed: int
    """when it was last changed, in nanoseconds; 0 elsewhere"""
    start: int = 0
    end: int | None = None
    """None: the end of the file"""

    @property
    def bytes(self) -> int:
        """How much of the file it is."""
        return (self.size if self.end is None else self.end) - self.start


Piece = tuple[Part, ...]


def pieces_of(paths: Sequence[str], how: Source) -> list[Piece]:
    """The pieces of some files, folders, globs and URLs, in order, which are read as ``how`` is, whatever its path.

    Raises ``DataError`` if one of these names no file.
    """
    pieces, waiting, size = list[Piece](), list[Part](), 0
    for part in (part for path in paths for part in _parts(path, how)):
        if waiting and size + part.bytes > PIECE_BYTES:
            pieces.append(tuple(waiting))
            waiting, size = [], 0
        waiting.append(part)
        size += part.bytes
    return [*pieces, tuple(waiting)] if waiting else pieces


def _parts(path: str, how: Source) -> Iterator[Part]:
    if is_url(path):
        yield from (Part(file.url, file.name, file.size or 0, 0) for file in remote_files(path))
        return
    source = how.model_copy(update={"path": path})
    root = source_root(source)
    for file in source_files(source):
        status = file.stat()
        name = file.name if file == root else file.relative_to(root).as_posix()
        ends = [status.st_size]
        if source_format(source, file) == "text" and not is_compressed(file) and how.document != "file":
            ends = span_ends(source, file, PIECE_BYTES)
        for start, end in zip([0, *ends], ends, strict=False):
            yield Part(str(file), name, status.st_size, status.st_mtime_ns, start, end if len(ends) > 1 else None)


def identity_of(pieces: Sequence[Piece]) -> str:
    """A hash of the files' names, sizes and times, by which a text that changed is noticed."""
    known = [[{key: value for key, value in asdict(part).items() if key != "path"} for part in piece] for piece in pieces]
    return sha256(json.dumps(known).encode())


def documents_of_piece(piece: Piece, how: Source, scratch: Path) -> Iterator[tuple[str, int]]:
    """The documents of a piece that are not blank, with their numbers of words; files of URLs lie in ``scratch`` meanwhile."""
    return (one for part in piece for one in _documents(part, how, scratch) if one[0] and not one[0].isspace())


def _documents(part: Part, how: Source, scratch: Path) -> Iterator[tuple[str, int]]:
    if is_url(part.path):
        file = scratch / f"{sha256(part.path.encode())[:16]}-{part.path.rpartition('/')[2].partition('?')[0]}"
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            yield from count_documents(how.model_copy(update={"path": str(bring(part.path, file, part.size or None))}))
        finally:
            file.unlink(missing_ok=True)
        return
    file = Path(part.path)
    try:
        status = file.stat()
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}): it was there when the command began; put it back") from None
    if (status.st_size, status.st_mtime_ns) != (part.size, part.changed):
        raise DataError(f"{file} was changed while it was read; let no program write it, and use another --out")
    source = how.model_copy(update={"path": part.path})
    yield from count_documents(source) if part.end is None else count_span(source, file, (part.start, part.end))
