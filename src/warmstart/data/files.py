"""Opening files, compressed or not, as text or bytes; a damaged file is refused with the position of the damage.

Every reader of a user's files goes through here, so that each problem has one message.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from warmstart.errors import DataError, suggest

COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""ending of a compressed file -> what opens it"""


@contextmanager
def open_text(file: Path, encoding: str) -> Iterator[TextIO]:
    """A text file opened for reading, decompressed and without byte order mark. Problems raise ``DataError``."""
    try:
        # Only "\n" ends a line: a stray carriage return must not shift labels against texts.
        with open_bytes(file) as binary, io.TextIOWrapper(binary, _codec(encoding), newline="\n") as text:
            yield text
    except UnicodeError:
        raise DataError(_undecodable(file, encoding)) from None


def _codec(encoding: str) -> str:
    """Python's name for an encoding; UTF-8 becomes the variant that drops a byte order mark."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"unknown encoding '{encoding}'; {suggest(encoding, ['utf-8', 'utf-16', 'latin-1', 'cp1252'])}") from None
    return "utf-8-sig" if name == "utf-8" else name


@contextmanager
def open_bytes(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in .gz or .xz."""
    try:
        with COMPRESSED.get(file.suffix, open)(file, "rb") as binary:
            yield cast("IO[bytes]", binary)
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise DataError(f"{file} is damaged or incomplete ({error}); copy or download it again") from None
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}; check the path and its permissions") from None


def _undecodable(file: Path, encoding: str) -> str:
    """The message for bytes that cannot be decoded, with the first such position, found by reading the file again."""
    offset, position, codec = 0, "", _codec(encoding)
    lines_are_bytes = b"\0" not in "\n".encode(codec)  # in UTF-16 the byte of a line feed can be half of another character
    with open_bytes(file) as binary:
        for number, line in enumerate(binary if lines_are_bytes else (), 1):
            try:
                line.decode(codec)
            except UnicodeDecodeError as error:
                position = f" at line {number} (byte offset {offset + error.start}, value 0x{line[error.start]:02x})"
                break
            offset += len(line)
    return f"{file} must be text in {encoding}, but is not{position}; name its encoding, for instance 'encoding: latin-1'"
