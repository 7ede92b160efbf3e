"""The text of a .docx file: its paragraphs, with the standard library alone.

A paragraph is each ``w:p`` of the body, those of tables and text boxes included; tabs and line breaks are kept, deleted text and
field codes are not. Headers, footers, footnotes and comments are not read. A file comes from anywhere: what it may expand to is
limited, and XML that declares a document type, which could define entities, is refused.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from xml.parsers import expat

from warmstart.data.files import most_bytes, open_bytes, too_large
from warmstart.errors import DataError

_WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main ",
    "http://purl.oclc.org/ooxml/wordprocessingml/main ",
)
"""namespaces of text: of the usual form, and of the strict one"""
_FALLBACK = "http://schemas.openxmlformats.org/markup-compatibility/2006 Fallback"
"""says again, for old programs, what was said before it"""
_DOCUMENT = "/officeDocument"
"""end of the type by which a file names its main part"""
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_CHUNK = 1 << 16


class _RefusedError(Exception):
    """What is wrong with a file, in words that follow its name."""


def docx_text(file: Path) -> str:
    """The paragraphs of a .docx file, with a blank line between. Raises ``DataError`` for a file that is none, or too large."""
    with open_bytes(file) as binary:
        data = binary.read()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            left = [most_bytes(file)]
            reader = _Paragraphs()
            for chunk in _chunks(archive, _main_part(archive, file, left), file, left):
                reader.parser.Parse(chunk, False)
            reader.parser.Parse(b"", True)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"{file} cannot be read as docx ({error}); save it again as .docx") from None
    except expat.ExpatError as error:
        raise DataError(f"{file} cannot be read as docx: its XML is damaged ({error}); save it again as .docx") from None
    except _RefusedError as error:
        raise DataError(f"{file} {error}; save it again as .docx") from None
    return "\n\n".join(paragraph for paragraph in reader.paragraphs if paragraph and not paragraph.isspace())


def _main_part(archive: zipfile.ZipFile, file: Path, left: list[int]) -> str:
    """The name of the part that holds the body."""
    found: list[str] = []

    def start(name: str, values: dict[str, str]) -> None:
        if name.endswith(" Relationship") and values.get("Type", "").endswith(_DOCUMENT):
            found.append(str(PurePosixPath(values.get("Target", "").lstrip("/"))))

    if "_rels/.rels" in archive.namelist():
        parser = _parser()
        parser.StartElementHandler = start
        parser.Parse(b"".join(_chunks(archive, "_rels/.rels", file, left)), True)
    name = found[0] if found else "word/document.xml"
    if name not in archive.namelist():
        raise _RefusedError(f"must hold the text of a document in {name}, but does not")
    return name


def _chunks(archive: zipfile.ZipFile, name: str, file: Path, left: list[int]) -> list[bytes]:
    """The bytes of a part, as long as all that was read is at most ``left``."""
    chunks = []
    with archive.open(name) as part:
        while chunk := part.read(_CHUNK):
            left[0] -= len(chunk)
            if left[0] < 0:
                raise DataError(too_large(file))
            chunks.append(chunk)
    return chunks


def _parser() -> expat.XMLParserType:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _doctype
    return parser


def _doctype(*_: object) -> None:
    raise _RefusedError("must hold XML without a document type, which Word never writes, but one is declared")


class _Paragraphs:
    """Collects paragraphs; that of a text box ends before the one that it is anchored in."""

    def __init__(self) -> None:
        self.paragraphs: list[str] = []
        self.parser = _parser()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self._open: list[list[str]] = []
        self._in_text = False
        self._skipped = 0

    def _start(self, name: str, _: object) -> None:
        if self._skipped or name == _FALLBACK:
            self._skipped += 1
            return
        local = _local(name)
        if local == "p":
            self._open.append([])
        elif local == "t":
            self._in_text = True
        elif local in _BREAKS and self._open:
            self._open[-1].append(_BREAKS[local])

    def _end(self, name: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        local = _local(name)
        if local == "p" and self._open:
            self.paragraphs.append("".join(self._open.pop()))
        elif local == "t":
            self._in_text = False

    def _characters(self, text: str) -> None:
        if self._in_text and self._open and not self._skipped:
            self._open[-1].append(text)


def _local(name: str) -> str:
    """The name of an element of text without its namespace; empty for any other element."""
    return next((name.removeprefix(space) for space in _WORD if name.startswith(space)), "")
