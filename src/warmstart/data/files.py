"""Opening files, compressed or not, as text or bytes; a damaged file is refused with the position of the damage.

Every reader of a user's files goes through here, so that each problem has one message.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from warmstart.errors import DataError, suggest

COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""ending of a compressed file -> what opens it"""
EXPANSION = 200
"""a compressed file may hold so many times its own bytes; text seldom holds more than ten times"""
EXPANSION_VARIABLE = "WARMSTART_MAX_EXPANSION"
"""environment variable that sets another number"""
FREE_BYTES = 64 << 20
"""so much may any file hold, however small it is"""


@contextmanager
def open_text(file: Path, encoding: str, span: tuple[int, int] | None = None) -> Iterator[TextIO]:
    """A text file opened for reading, decompressed and without byte order mark. Problems raise ``DataError``.

    ``span`` is the first byte to read and the byte behind the last, in a file that is not compressed; None: all of it.
    """
    try:
        # Only "\n" ends a line: a stray carriage return must not shift labels against texts.
        with open_bytes(file) as whole, _part(whole, span) as binary:
            codec = _codec(encoding)
            with io.TextIOWrapper(binary, codec if not (span and span[0]) else codec.removesuffix("-sig"), newline="\n") as text:
                yield text
    except UnicodeError:
        raise DataError(_undecodable(file, encoding)) from None


@contextmanager
def _part(binary: IO[bytes], span: tuple[int, int] | None) -> Iterator[IO[bytes]]:
    """The bytes of a file between two positions."""
    if span is None:
        yield binary
        return
    binary.seek(span[0])
    with io.BufferedReader(_Span(binary, span[1] - span[0]), 1 << 18) as part:
        yield cast("IO[bytes]", part)


class _Span(io.RawIOBase):
    """The next bytes of a stream, so many of them."""

    def __init__(self, binary: IO[bytes], left: int) -> None:
        super().__init__()
        self.binary, self.left = binary, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.binary.read(min(len(buffer), self.left))
        self.left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def _codec(encoding: str) -> str:
    """Python's name for an encoding; UTF-8 becomes the variant that drops a byte order mark."""
    try:
        name = codecs.lookup(encoding).name
        "\n".encode(name)  # refuses what encodes no text, such as hex
    except (LookupError, ValueError):
        raise DataError(f"unknown encoding '{encoding}'; {suggest(encoding, ['utf-8', 'utf-16', 'latin-1', 'cp1252'])}") from None
    return "utf-8-sig" if name == "utf-8" else name


def without_compression(file: Path) -> Path:
    """A file's name without the ending of its compression: ``"a.csv.gz"`` -> ``"a.csv"``."""
    return file.with_suffix("") if file.suffix in COMPRESSED else file


@contextmanager
def open_bytes(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in .gz or .xz; ``DataError`` once it holds more than ``most_bytes``."""
    try:
        if file.suffix not in COMPRESSED:
            with open(file, "rb") as plain:
                yield plain
        else:
            with COMPRESSED[file.suffix](file, "rb") as binary, io.BufferedReader(_Bounded(binary, file), 1 << 18) as bounded:
                yield cast("IO[bytes]", bounded)
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise DataError(f"{file} is damaged or incomplete ({error}); copy or download it again") from None
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}; check the path and its permissions") from None


def most_bytes(file: Path) -> int:
    """How many bytes a compressed file may hold; ``WARMSTART_MAX_EXPANSION`` raises it. Raises ``DataError`` for a wrong number."""
    given = os.environ.get(EXPANSION_VARIABLE, str(EXPANSION))
    if not given.isdecimal():
        raise DataError(f"{EXPANSION_VARIABLE} must be a whole number, the most that a file may expand, but is {given!r}")
    return FREE_BYTES + int(given) * file.stat().st_size


class _Bounded(io.RawIOBase):
    """A decompressed stream that ends with ``DataError`` after ``most_bytes``: a bomb holds a thousand times its size."""

    def __init__(self, binary: IO[bytes], file: Path) -> None:
        super().__init__()
        self.binary, self.file, self.left = binary, file, most_bytes(file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.binary.read(len(buffer))
        self.left -= len(data)
        if self.left < 0:
            raise DataError(too_large(self.file))
        buffer[: len(data)] = data
        return len(data)


def too_large(file: Path) -> str:
    """The message for a compressed file that holds more than ``most_bytes``."""
    return (
        f"{file} must hold at most {most_bytes(file):,} bytes when decompressed, but holds more; if you trust it, set "
        f"{EXPANSION_VARIABLE} to how many times its size it may expand (default {EXPANSION})"
    )


def text_lines(texts: Iterable[str]) -> Iterator[str]:
    """Texts as the lines of an ndjson file that ``Source`` reads."""
    return (json.dumps({"text": text}) + "\n" for text in texts)


def _undecodable(file: Path, encoding: str) -> str:
    """The message for bytes that cannot be decoded, with the first such position, found by reading the file again."""
    offset, position, codec = 0, "", _codec(encoding)
    lines_are_bytes = b"\0" not in "\n".encode(codec)  # in UTF-16 the byte of a line feed can be half of another character
    with open_bytes(file) as binary:
        for number, line in enumerate(binary if lines_are_bytes else (), 1):
            try:
                line.decode(codec)
            except UnicodeError as error:  # of some encodings without a position in the line
                start = getattr(error, "start", 0)
                position = f" at line {number} (byte offset {offset + start}, value 0x{line[start]:02x})"
                break
            offset += len(line)
    return f"{file} must be text in {encoding}, but is not{position}; name its encoding, for instance 'encoding: latin-1'"
