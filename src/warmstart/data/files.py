"""Files as characters or bytes: unpacked on the way, decoded, and refused with the place where they are damaged.

Everything that reads a user's text goes through here, so that each kind of broken file has one message. It knows nothing of
texts, labels or tables (``read.py``).
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

PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""what opens a packed file, by its ending"""


@contextmanager
def opened(file: Path, encoding: str) -> Iterator[TextIO]:
    """A text file open for reading, unpacked and without byte order mark, whose troubles are ``DataError``."""
    try:
        # Only "\n" ends a line, so that a stray carriage return cannot shift labels against texts.
        with unpacked(file) as binary, io.TextIOWrapper(binary, _codec(encoding), newline="\n") as text:
            yield text
    except UnicodeError:
        raise DataError(_undecodable(file, encoding)) from None


def _codec(encoding: str) -> str:
    """Python's name for an encoding; plain UTF-8 becomes the one that drops a byte order mark."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"unknown encoding '{encoding}'; {suggest(encoding, ['utf-8', 'utf-16', 'latin-1', 'cp1252'])}") from None
    return "utf-8-sig" if name == "utf-8" else name


@contextmanager
def unpacked(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name ends in .gz or .xz."""
    try:
        with PACKED.get(file.suffix, open)(file, "rb") as binary:
            yield cast("IO[bytes]", binary)
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise DataError(f"{file} is damaged or cut short ({error}); copy or download it again") from None
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}; check the path and its permissions") from None


def _undecodable(file: Path, encoding: str) -> str:
    """The message for bytes that are no text, with the first such place (found by a second look at the file)."""
    offset, place, codec = 0, "", _codec(encoding)
    lines_are_bytes = b"\0" not in "\n".encode(codec)  # in UTF-16 the byte of a line feed may be half of another character
    with unpacked(file) as binary:
        for number, line in enumerate(binary if lines_are_bytes else (), 1):
            try:
                line.decode(codec)
            except UnicodeDecodeError as error:
                place = f" at line {number} (byte offset {offset + error.start}, value 0x{line[error.start]:02x})"
                break
            offset += len(line)
    return f"{file} must be text in {encoding}, but is not{place}; name its encoding, for instance 'encoding: latin-1'"
