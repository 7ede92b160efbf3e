"""Opening files, compressed or not, as text or bytes; a damaged file is refused with the position of the damage.

Every reader of a user's files goes through here, so that each problem has one message.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, TextIO, cast

from warmstart.errors import DataError, nearest_path, suggest

_ZSTD: Any = None
with suppress(ImportError):
    _ZSTD = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
_DAMAGED = (
    *(gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError),
    *([_ZSTD.ZstdError] if _ZSTD else []),
)
"""errors that libraries raise for a compressed file that is damaged, or packed as they cannot read"""


def _only_member(file: Path, mode: str = "rb") -> IO[bytes]:
    """The only file in a zip archive, opened. Raises ``DataError`` if there are several."""
    archive = zipfile.ZipFile(file)
    return archive.open(_member(archive, file))


def _zstd(file: Path, mode: str = "rb") -> IO[bytes]:
    """A .zst file, opened by what the standard library has from Python 3.14 on."""
    if _ZSTD is None:
        raise DataError(f'{file} is read with backports.zstd: `pip install "warmstart[zst]"`, or unpack the file first')
    return cast("IO[bytes]", _ZSTD.open(file, mode))


COMPRESSED: dict[str, Callable[..., Any]] = {
    **{".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open},
    **{".zip": _only_member, ".zst": _zstd},
}
"""ending of a compressed file -> what opens it"""
EXPANSION = 200
"""most times its own bytes that a compressed file may hold; text seldom holds more than ten times"""
EXPANSION_VARIABLE = "WARMSTART_MAX_EXPANSION"
"""environment variable that sets another number"""
FREE_BYTES = 64 << 20
"""bytes that any file may expand to, however small it is"""


@contextmanager
def open_text(file: Path, encoding: str, span: tuple[int, int] | None = None) -> Iterator[TextIO]:
    """A text file opened for reading, decompressed and without byte order mark. Problems raise ``DataError``.

    ``span`` is the first byte to read and the byte behind the last, in a file that is not compressed; None: all of it.
    """
    try:
        # Only "\n" ends a line: a stray carriage return must not shift labels against texts.
        with open_bytes(file) as whole, _part(whole, span) as binary:
            codec = _codec(encoding) if span and span[0] else codec_of(whole, encoding)
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
    with io.BufferedReader(_Bounded(binary, span[1] - span[0]), 1 << 18) as part:
        yield cast("IO[bytes]", part)


class _Bounded(io.RawIOBase):
    """The next bytes of a stream, so many of them; or all of a ``whole`` file, with ``DataError`` for a bomb, which holds more."""

    def __init__(self, binary: IO[bytes], left: int, whole: Path | None = None) -> None:
        super().__init__()
        self.binary, self.left, self.whole = binary, left, whole

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.binary.read(len(buffer) if self.whole else min(len(buffer), self.left))
        self.left -= len(data)
        if self.whole and self.left < 0:
            raise DataError(too_large(self.whole))
        buffer[: len(data)] = data
        return len(data)


_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""byte order marks -> the encoding; that of UTF-32 is looked for first, since it begins like another"""


def codec_of(binary: IO[bytes], encoding: str) -> str:
    """The codec of an opened file; a byte order mark of UTF-16 or UTF-32 says more than the default, UTF-8."""
    codec = _codec(encoding)
    if codec != "utf-8-sig":
        return codec
    start = binary.peek(4)[:4] if isinstance(binary, io.BufferedReader) else b""
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), codec)


def _codec(encoding: str) -> str:
    """Python's name for an encoding; UTF-8 becomes the variant that drops a byte order mark."""
    try:
        name = codecs.lookup(encoding).name
        "\n".encode(name)  # refuses what encodes no text, such as hex
    except (LookupError, ValueError):
        raise DataError(f"unknown encoding '{encoding}'; {suggest(encoding, ['utf-8', 'utf-16', 'latin-1', 'cp1252'])}") from None
    return "utf-8-sig" if name == "utf-8" else name


def is_compressed(file: Path) -> bool:
    """True if a file's ending, in any case, is that of a compression."""
    return file.suffix.lower() in COMPRESSED


def without_compression(file: Path) -> Path:
    """A file's name without the ending of its compression: ``"a.csv.gz"`` -> ``"a.csv"``; of a .zip file that of what it holds."""
    if file.suffix.lower() == ".zip" and file.is_file():
        try:
            with zipfile.ZipFile(file) as archive:
                return file.with_name(Path(_member(archive, file).filename).name)
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{file} is damaged or incomplete ({error}); copy or download it again") from None
    return file.with_suffix("") if is_compressed(file) else file


def _member(archive: zipfile.ZipFile, file: Path) -> zipfile.ZipInfo:
    """The only file of an archive, beside what macOS adds."""
    held = [member for member in archive.infolist() if not member.is_dir() and not member.filename.startswith("__MACOSX/")]
    if len(held) != 1:
        raise DataError(f"{file} must hold one file, but holds {len(held)}; unpack it, and name the folder or a file")
    return held[0]


@contextmanager
def open_bytes(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed by its ending; ``DataError`` once it holds more than ``most_bytes``."""
    try:
        if not is_compressed(file):
            with open(file, "rb") as plain:
                yield plain
        else:
            with (
                COMPRESSED[file.suffix.lower()](file, "rb") as binary,
                io.BufferedReader(_Bounded(binary, most_bytes(file), file), 1 << 18) as bounded,
            ):
                yield cast("IO[bytes]", bounded)
    except _DAMAGED as error:
        raise DataError(f"{file} is damaged or incomplete ({error}); copy or download it again") from None
    except FileNotFoundError:
        raise DataError(f"no such file: {file}; {nearest_path(file)}check the path") from None
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}; check the path and its permissions") from None


def most_bytes(file: Path) -> int:
    """Most bytes that a compressed file may hold; ``WARMSTART_MAX_EXPANSION`` raises it, or ``DataError`` if it is no number."""
    factor = os.environ.get(EXPANSION_VARIABLE, str(EXPANSION))
    if not factor.isdecimal():
        raise DataError(f"{EXPANSION_VARIABLE} must be a whole number, the most that a file may expand, but is {factor!r}")
    return FREE_BYTES + int(factor) * file.stat().st_size


def too_large(file: Path) -> str:
    """The message for a compressed file that holds more than ``most_bytes``."""
    return (
        f"{file} must hold at most {most_bytes(file):,} bytes when decompressed, but holds more; if you trust it, set "
        f"{EXPANSION_VARIABLE} to how many times its size it may expand (default {EXPANSION})"
    )


def is_utf8(file: Path) -> bool:
    """True if all bytes of a file, decompressed, are UTF-8; a folder or a missing file is not."""
    if not file.is_file():
        return False
    with open_bytes(file) as binary:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while part := binary.read(1 << 20):
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def text_lines(texts: Iterable[str]) -> Iterator[str]:
    """Texts as the lines of an ndjson file that ``Source`` reads."""
    return (json.dumps({"text": text}) + "\n" for text in texts)


def _undecodable(file: Path, encoding: str) -> str:
    """The message for bytes that cannot be decoded, with the first such line, found by reading the file again."""
    codec, offset, position, seen = _codec(encoding), 0, "", b""
    good, bad = 0, list[int]()  # lines with characters beyond ASCII that can be decoded, and those that cannot
    lines_are_bytes = b"\0" not in "\n".encode(codec)  # in UTF-16 the byte of a line feed can be half of another character
    with open_bytes(file) as binary:
        start = binary.read(_LOOKED_AT)
        for number, line in enumerate(chain(start.splitlines(keepends=True), binary) if lines_are_bytes else (), 1):
            try:
                line.decode(codec)
                good += not line.isascii()
            except UnicodeError as error:  # of some encodings without a position in the line
                bad.append(number)
                begin = getattr(error, "start", 0)
                if len(bad) == 1:
                    position, seen = f" at line {number} (byte offset {offset + begin}, value 0x{line[begin]:02x})", line
            offset += len(line)
    if good > len(bad) and b"\0" not in start:
        lines = ", ".join(map(str, bad[:_LISTED])) + (f" and {len(bad) - _LISTED} more" if len(bad) > _LISTED else "")
        return (
            f"{file} must be text in {encoding}, but is not{position}; {good:,} other lines are, so that no other encoding reads "
            f"all: write these again: {lines}. In cp1252 the first reads {seen.decode('cp1252', 'replace').strip()[:120]!r}"
        )
    return f"{file} must be text in {encoding}, but is not{position}; {_likely(start, seen)}"


def _utf16(start: bytes) -> str:
    """The byte order of UTF-16 without a mark, by the place of the zeros of ASCII."""
    return "utf-16-le" if start[1::2].count(0) >= start[::2].count(0) else "utf-16-be"


_LOOKED_AT, _ENOUGH, _LISTED = 1 << 18, 20, 5
"""bytes from which another encoding is guessed, and how many of them must be no ASCII; of fewer, Windows' is as likely; lines
that are listed"""
_USUAL = [
    *("utf_8", "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "koi8_r", "mac_roman"),
    *("cp437", "cp850", "cp932", "gb18030", "big5", "cp949"),
]
"""encodings of files that people have"""


def _likely(start: bytes, line: bytes) -> str:
    """Advice: the encoding in which the bytes read well, with the words by which a person can tell."""
    import charset_normalizer

    name = _utf16(start) if b"\0" in start else ""
    if not name:
        seen = start if line in start else start + line
        guess = charset_normalizer.from_bytes(seen, cp_isolation=_USUAL).best()
        few = sum(byte > 127 for byte in seen) < _ENOUGH
        name = (
            "cp1252" if guess is None or few or str(guess) == seen.decode("cp1252", "replace") else guess.encoding.replace("_", "-")
        )
    try:
        shown = (start if name.startswith("utf-16") else line or start)[:400].decode(name, errors="replace").strip()[:60]
    except LookupError:
        shown = ""
    return (
        f"it may be {name}, in which this reads {shown!r}: if that is right, say so with 'encoding: {name}', or --encoding {name}"
    )
