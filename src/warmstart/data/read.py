"""Text and labelled text from the files of a ``Source``.

    read_documents(source)   ->  a stream of texts, for pretraining
    count_documents(source)  ->  these texts, each with its number of words
    labelled_lines(source)   ->  texts and their labels, of what is no table

- Plain text is streamed: about a mebibyte of a file is in memory, however long it is. Tables and .eml are read whole.
- ``.gz``, ``.xz``, ``.bz2``, ``.zst`` and ``.zip`` files are decompressed; a byte order mark is dropped; lines end in LF or CRLF.
- A file that cannot be read as it should be is refused with its name, the position and what to do; no part of it is used.

It does not split, shuffle or clean (``splits.py``, ``audit.py``), and it downloads nothing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from email import message_from_bytes, policy
from glob import has_magic, iglob
from html.parser import HTMLParser
from itertools import islice, takewhile
from pathlib import Path
from typing import IO, TextIO

import regex

from warmstart.data.files import COMPRESSED, codec_of, open_bytes, open_text
from warmstart.data.formats import INFO
from warmstart.data.source import ENDINGS, PROSE, Document, Format, Source
from warmstart.data.tables import Tables, TextTable, read_table, source_format
from warmstart.errors import DataError, nearest_path
from warmstart.system.urls import is_url
from warmstart.tokenizer.pieces import WORD_MARK

SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["'”’)\]]))\s+(?![a-zß-öø-ÿ])""")
"""border of two sentences"""
MAX_CHARACTERS = 1 << 20
"""a longer paragraph, line or file is returned in pieces"""
PATTERN_SECONDS = 5
"""a manifest from somebody else may have a pattern that would never end; the standard library's ``re`` has no such limit"""

LINES = 200
"""a file with fewer lines may be a single text, unless it is all that there is; more are not looked at"""
FILES_READ = 20
"""most files of a source that are looked at: a folder of ten thousand mails is not read twice"""
_UNSEEN = ("script", "style", "title")
_BREAKS = ("br", "div", "h1", "h2", "h3", "li", "p", "tr")
"""elements of a page in a mail: those whose text is not read, and those that begin a line"""
_SAVED = ({"state.json", INFO}, {"dataset_dict.json"})
"""files that tell the folder of a saved dataset, or of its splits"""


def read_documents(source: Source) -> Iterator[str]:
    r"""The texts of a source, in order. Raises ``DataError`` if a file cannot be read as it should be.

    Plain text is cut according to ``source.document``: ``"a\nb\n\nc\n"`` gives the paragraphs ``"a\nb"`` and ``"c"``, or the lines
    ``"a"``, ``"b"`` and ``"c"``. Blank paragraphs and lines are left out. A document longer than ``MAX_CHARACTERS`` is returned in
    pieces, cut at line ends, or at white space if a single line is too long. Tables and patterns give one text per row.
    """
    return (text for text, _ in count_documents(source))


def documents_of(sources: Iterable[Source]) -> Iterator[str]:
    """All texts of some sources that are not blank, in order."""
    return (text for text, _ in counted_documents(sources))


def counted_documents(sources: Iterable[Source]) -> Iterator[tuple[str, int]]:
    """All texts of some sources that are not blank, each with its number of words."""
    return (document for source in sources for document in count_documents(source) if document[0] and not document[0].isspace())


def read_rows(source: Source) -> list[str]:
    """Every text of a source; of plain text every line is one, also blank ones but the last, or every file, also an empty one."""
    if whole := files_as_texts(source):
        return [_whole_text(source, file) for file in whole]
    files = source_files(source)
    if any(source_format(source, file) != "text" for file in files):
        return list(read_documents(source))
    rows = list[str]()
    for file in files:
        with open_prose(source, file, "text") as lines:
            rows += [line.rstrip("\r\n") for line in lines]
        while rows and not rows[-1].strip():
            rows.pop()
    return rows[: source.limit]


def files_as_texts(source: Source) -> list[Path]:
    """The files of a source each of which ``read_rows`` gives as one text, in their order; none if texts are not files."""
    files = source_files(source)
    whole = source.document == "file" and all(source_format(source, file) in PROSE for file in files)
    return files[: source.limit] if whole else []


def count_documents(source: Source) -> Iterator[tuple[str, int]]:
    r"""The texts of a source, each with its number of words: those between white space, and one for every line end.

    Blank lines between paragraphs, which a document's end stands for, count with the paragraph before them (before the first, with
    it), so that WikiText has the number of words that is published: ``"a\nb\n\nc\n"`` gives ``("a\nb", 5)`` and ``("c", 2)``. Read
    as lines or sentences, a text says nothing of its blank lines, and they do not count.
    """
    return islice(_all_documents(source), source.limit)


def count_span(source: Source, file: Path, span: tuple[int, int]) -> Iterator[tuple[str, int]]:
    """The documents of a part of a plain text file, from one byte to another, between which documents are whole (``span_ends``)."""
    with open_text(file, source.encoding, span) as lines:
        yield from _plain_text(_text_lines(source, lines), source.document)


def span_ends(source: Source, file: Path, size: int) -> list[int]:
    """Ends of parts of about ``size`` bytes into which a plain text file in UTF-8 can be cut.

    A document begins behind each but the last. The parts give the same documents as the file.
    """
    whole, ends = file.stat().st_size, list[int]()
    with open_bytes(file) as binary:
        if codec_of(binary, source.encoding) != "utf-8-sig":
            return [whole]
        while (at := (ends[-1] if ends else 0) + size) < whole:
            binary.seek(at)
            end = _next_document(binary, source.document)
            if end >= whole:
                break
            ends.append(end)
    return [*ends, whole]


def _next_document(binary: IO[bytes], document: Document) -> int:
    """Position of the next document, after a line that may be entered in its middle."""
    blank, whole_line = document == "line", False
    while line := binary.readline(MAX_CHARACTERS):
        is_blank = whole_line and (not line.strip() or line.decode(errors="replace").isspace())
        if blank and whole_line and not is_blank:
            return binary.tell() - len(line)
        blank, whole_line = blank or is_blank, line.endswith(b"\n")
    return binary.tell()


def count_words(text: str) -> int:
    r"""The words of one document: those between white space, and one for every line end. ``"a b\nc"`` -> 5."""
    return len(text.split()) + text.count("\n") + 1


def _all_documents(source: Source) -> Iterator[tuple[str, int]]:
    for file in source_files(source):
        form = source_format(source, file)
        if form in PROSE:
            with open_prose(source, file, form) as lines:
                yield from _plain_text(_text_lines(source, lines), source.document)
        elif form == "pattern":
            yield from ((text, count_words(text)) for text, _ in _matches(source, file, ["text"]))
        else:
            table = read_table(source, file, form)
            yield from ((text, count_words(text)) for text in table.strings(table.text_name(source)))


def tables_of(source: Source, tables: Tables | None = None) -> list[TextTable]:
    """Every file of a source, as a table; ``tables`` are those that were read before."""
    known = tables or Tables()
    return [known.read(source, file) for file in source_files(source)]


def labelled_lines(source: Source) -> tuple[list[str], list[str]] | None:
    """The texts of a source that is no table, and the label of each; None: it is one.

    Labels come from ``as_label``, from the lines of ``labels_path``, or from the pattern's group ``label``, whichever the source
    has first. Raises ``DataError`` if one is missing.
    """
    if source.as_label is not None:
        texts = list(read_documents(source))
        return texts, [source.as_label] * len(texts)
    if source.labels_path is not None:
        return _aligned(source, source.labels_path)
    files = source_files(source)
    if not all(source_format(source, file) == "pattern" for file in files):
        return None
    pairs = [pair for file in files for pair in _matches(source, file, ["text", "label"])]
    return [text for text, _ in pairs], [label for _, label in pairs]


def refuse_saved_dataset(folder: Path) -> None:
    """Raise ``DataError`` for a folder that ``save_to_disk`` has written."""
    if any(all((folder / name).is_file() for name in names) for names in _SAVED):
        raise DataError(
            f"{folder} is a folder of the datasets library, which is not read; write each split as a table, with the names of "
            f'labels: load_from_disk({str(folder)!r})[split].to_parquet(split + ".parquet")'
        )


def source_files(source: Source) -> list[Path]:
    """The files of a source in reading order. Raises ``DataError`` if there is none."""
    path = Path(source.path)
    if path.is_file():
        return [path]
    if is_url(source.path):
        raise DataError(
            f"{source.path} is a URL, which only pretrain and tokenize read; download it first (warmstart import URL --checksum)"
        )
    if not path.is_dir() and not has_magic(source.path):
        raise DataError(f"no such file or folder: {path}; {nearest_path(path)}check the path (it starts at {Path.cwd()})")
    if path.is_dir():
        refuse_saved_dataset(path)
    root = source_root(source)
    inside = sorted({Path(file) for file in iglob(source.path, recursive=True)}) if not path.is_dir() else sorted(path.rglob("*"))
    files = [file for file in inside if file.is_file() and not any(part.startswith(".") for part in file.relative_to(root).parts)]
    if not files and not path.is_dir():
        raise DataError(f"{path} must match at least one file that is not hidden, but matches none (it starts at {Path.cwd()})")
    if not files:
        raise DataError(f"the folder {path} must hold at least one file that is not hidden, but holds none; name another folder")
    return files


def given_file(texts: Sequence[str]) -> str | None:
    """The path of the file or folder that was given in place of texts; None: these are texts.

    Raises ``DataError`` for a file beside texts, and for what is written like a path where nothing is.
    """
    if len(texts) == 1 and _is_there(texts[0]):
        return texts[0]
    for text in filter(_PATH.fullmatch, texts):
        wrong = "must be given alone, but stands beside other texts" if _is_there(text) else "reads like a file, but there is none"
        raise DataError(f"{text} {wrong}; {nearest_path(text)}a text that reads like a file is given with a blank: '{text} '")
    return None


def _is_there(text: str) -> bool:
    """True if a text is the path of a file or a folder; a long one cannot be asked for."""
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False


_PATH = re.compile(
    rf"(?i)\S+({'|'.join(map(re.escape, (*ENDINGS, *COMPRESSED, '.txt', '.text', '.md', '.yaml', '.yml')))}|[/\\])"
    r"|\S*[/\\]\S*\.[a-z]+"
)
"""the path of a file, or of a folder with a slash at its end"""


def source_root(source: Source) -> Path:
    """The folder in which the files of a source lie: of ``books/*/a*.txt`` that is ``books``; a single file is its own."""
    path = Path(source.path)
    if path.exists():
        return path
    return Path(*takewhile(lambda part: not has_magic(part), path.parts))


# ------------------------------------------------------------------------------------------------ plain text


def by_lines(sources: Iterable[Source]) -> tuple[Source, ...]:
    """The sources; one of paragraphs that has many lines and no blank one is read by lines: one text would be no pool of texts."""
    return tuple(source.model_copy(update={"document": "line"}) if _unbroken(source) else source for source in sources)


def _unbroken(source: Source) -> bool:
    """True if all plain text files of a source, as far as they are looked at, have many lines and no blank one between them."""
    if source.document != "paragraph" or is_url(source.path):
        return False
    files = [*islice((file for file in source_files(source) if source_format(source, file) == "text"), FILES_READ)]
    return bool(files) and all(_has_no_blank_line(source, file, 2 if len(files) == 1 else LINES) for file in files)


def _has_no_blank_line(source: Source, file: Path, least: int) -> bool:
    """True if the first lines, at least so many, have no blank one; one that is too long to be a line counts as several."""
    with open_text(file, source.encoding) as lines:
        first = [*islice(iter(lambda: lines.readline(1 << 16), ""), LINES)]
    while first and len(first) < LINES and not first[-1].strip():
        first.pop()  # blank lines at the end separate nothing
    return len(first) >= least and all(map(str.strip, first))


@contextmanager
def open_prose(source: Source, file: Path, form: Format) -> Iterator[TextIO]:
    """The running text of a file in one of the formats ``PROSE``, opened for reading."""
    if form == "text":
        with open_text(file, source.encoding) as lines:
            yield lines
    else:
        yield io.StringIO(mail_text(file))


class _Words(HTMLParser):
    """The text of a page, a line for each block."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.seen = list[str](), True

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen = tag not in _UNSEEN
        self.parts += ["\n"] * (tag in _BREAKS)

    def handle_endtag(self, tag: str) -> None:
        self.seen = True

    def handle_data(self, data: str) -> None:
        self.parts += [re.sub(r"\s+", " ", data)] * self.seen


def mail_text(file: Path) -> str:
    """The subject, a blank line and the body of a mail. Raises ``DataError`` for a file that cannot be read as one."""
    with open_bytes(file) as binary:
        data = binary.read()
    try:
        mail = message_from_bytes(data, policy=policy.default)
        part = mail.get_body(("plain", "html"))
        if part is not None and part.get_content_charset() is None:
            part.set_param("charset", "utf-8")
        subject, body = str(mail["subject"] or ""), part.get_content() if part is not None else ""
        if part is not None and part.get_content_subtype() == "html":
            words = _Words()
            words.feed(body)
            words.close()
            body = "\n".join(filter(None, map(str.strip, "".join(words.parts).split("\n"))))
    except Exception as error:  # the library raises whatever comes of a damaged header
        raise DataError(f"{file} cannot be read as a mail ({type(error).__name__}: {error}); save it again, or as text") from None
    return f"{subject}\n\n{body}".strip().encode(errors="replace").decode()


def _whole_text(source: Source, file: Path) -> str:
    """All lines of a file."""
    with open_prose(source, file, source_format(source, file)) as lines:
        return "\n".join(_text_lines(source, lines))


def sentences(text: str) -> list[str]:
    r"""A text cut after ``.``, ``!`` and ``?`` (and closing quotes or brackets) if white space and no lower-case letter follow.

    ``"I rub the dog. Do you? He can."`` gives three. Abbreviations are not recognised: ``"Dr. Who came."`` gives two.
    """
    return [part for part in SENTENCE_END.split(text.strip()) if part]


def _plain_text(lines: Iterable[str], document: Document) -> Iterator[tuple[str, int]]:
    """The documents of plain text, each with its number of words."""
    if document == "sentence":
        parts = (part for text, _ in _documents(lines, "paragraph") for part in sentences(text))
        yield from ((part, count_words(part)) for part in parts)
    else:
        for text, blank_lines in _documents(lines, document):
            yield text, count_words(text) + (blank_lines if document == "paragraph" else 0)


def _documents(lines: Iterable[str], document: Document) -> Iterator[tuple[str, int]]:
    r"""Lines joined into documents, each with the number of blank lines behind it; those before the first are the first one's.

    ``["a", "b", "", "c"]`` as paragraphs -> ``("a\nb", 1)``, ``("c", 0)``.
    """
    kept: list[str] = []
    size, blank_lines, ended = 0, 0, False
    for line in lines:
        if document != "file" and (not line or line.isspace()):
            blank_lines, ended = blank_lines + 1, True
            continue
        if kept and (ended or document == "line" or size + len(line) > MAX_CHARACTERS):
            yield "\n".join(kept), blank_lines
            kept, size, blank_lines = [], 0, 0
        kept.append(line)
        size, ended = size + len(line) + 1, False
    if kept:
        yield "\n".join(kept), blank_lines


def _text_lines(source: Source, file: TextIO) -> Iterator[str]:
    """The lines of a plain text file, of pieces joined if the source has pieces."""
    lines = _short_lines(file)
    return map(_joined, lines) if source.pieces else lines


def _joined(line: str) -> str:
    """A line of SentencePiece pieces as text: ``"▁Un ▁bon ▁rom an ."`` gives ``"Un bon roman."``."""
    return line.replace(" ", "").replace(WORD_MARK, " ").strip()


def _short_lines(file: TextIO) -> Iterator[str]:
    """The lines of a file without line ends; a line longer than ``MAX_CHARACTERS`` is cut at white space."""
    rest = ""
    while line := rest + file.readline(MAX_CHARACTERS - len(rest)):
        rest = ""
        if len(line) == MAX_CHARACTERS and not line.endswith("\n") and " " in line:
            line, _, rest = line.rpartition(" ")
        yield line.rstrip("\r\n")


# ------------------------------------------------------------------------------------------------ labelled lines


def _matches(source: Source, file: Path, groups: list[str]) -> Iterator[tuple[str, str]]:
    """The groups ``text`` and ``label`` (empty if it is not in ``groups``) of each line that is not blank; all lines must match."""
    pattern = _compiled(source.pattern or "", groups)
    missed, first = 0, ""
    with open_text(file, source.encoding) as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\r\n")
            if not line or line.isspace():
                continue
            try:
                match = pattern.search(line, timeout=PATTERN_SECONDS)
            except TimeoutError:
                raise DataError(
                    f"the pattern {source.pattern!r} must match a line within {PATTERN_SECONDS} seconds, but line {number} of "
                    f"{file} takes longer; a repetition in a repetition, such as (a+)+, takes exponential time: write it without"
                ) from None
            if match:
                yield match["text"] or "", (match["label"] or "") if "label" in groups else ""
            elif not (missed := missed + 1) > 1:
                first = f"line {number}: {line[:80]!r}"
    if missed:
        raise DataError(
            f"every line of {file} must match the pattern {source.pattern!r}, but {missed} do not, first {first}; "
            "change the pattern or correct the lines"
        )


def _compiled(pattern: str, groups: list[str]) -> regex.Pattern[str]:
    example = r"for instance ^(?P<label>\S+) (?P<text>.*)$"
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise DataError(f"the pattern {pattern!r} is not a regular expression ({error}); write one, {example}") from None
    for group in groups:
        if group not in compiled.groupindex:
            raise DataError(f"the pattern {pattern!r} must have a group named '{group}', but has none; add it, {example}")
    return compiled


def _aligned(source: Source, labels_path: str) -> tuple[list[str], list[str]]:
    """The lines of a file and, line by line, the labels in another file."""
    file, other = Path(source.path), Path(labels_path)
    with open_text(file, source.encoding) as lines:
        texts = [_joined(line) if source.pieces else line.rstrip("\r\n") for line in lines]
    with open_text(other, source.encoding) as lines:
        labels = [line.strip() for line in lines]
    if len(texts) != len(labels):
        raise DataError(
            f"{file} and {other} must have equally many lines, but have {len(texts)} and {len(labels)}; check that they match"
        )
    if gaps := [number for number, label in enumerate(labels, 1) if not label]:
        raise DataError(
            f"every line of {other} must have a label, but {len(gaps)} have none, first line {gaps[0]}; fill them in, or leave "
            "these lines out"
        )
    return texts, labels
