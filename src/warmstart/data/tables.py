"""Tables of texts and labels, read whole: of files (``delimited.py``, ``formats.py``), and of data frames.

A frame is one of pandas, polars, pyarrow or ``datasets``, a mapping from names to columns, or a list of rows. Nothing is imported
to read it: a frame has the names of its columns, and gives a column by its name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.cells import RowText
from warmstart.data.columns import cells_of, holding, is_prose, text_columns
from warmstart.data.delimited import DELIMITERS, read_delimited, table_form
from warmstart.data.files import COMPRESSED, is_utf8, most_bytes, open_bytes, open_text, too_large, without_compression
from warmstart.data.formats import parsed, read_fasttext, refuse_export, with_names_of_labels
from warmstart.data.label_cells import MISSING, as_label, dates_among, listed, names_several, signs_of_none
from warmstart.data.source import ENDINGS, PROSE, TABLE_FORMATS, Format, Source
from warmstart.errors import DataError, suggest
from warmstart.stats.formatting import first_of
from warmstart.system.console import print_once
from warmstart.system.storage import atomic_file

ALIKE = ("encoding", "delimiter", "header", "sheet", "text", "second", "columns", "pieces")
"""settings of a ``Source`` that also hold for the next file of the same kind"""
_LOOKED_AT = 500
_MAYBE_GARBLED = re.compile(
    "[\u00c2-\u00f4\u221a][\u0080-\u00bf\u0152-\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]|\u221a\\S"
)
_MOST_WITHOUT = 0.5
"""share of rows without a label from which these are not labelled, where a text may have several labels or none"""


def reading_of(source: Source) -> dict[str, Any]:
    """Settings of a source that are not their defaults and also hold for the next file of the same kind."""
    values = source.model_dump(include={*ALIKE} - {"columns"}, exclude_defaults=True)  # a model says which columns it reads
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def reading_alike(before: Mapping[str, Any], path: str, own: Mapping[str, Any], tables: Tables | None = None) -> dict[str, Any]:
    """Settings of a ``Source`` for a file: its ``own``, over those with which others of its kind were read ``before``.

    An encoding of before holds only for what is not UTF-8: in latin-1 anything can be read, but not as it was meant; a column of
    texts only where there is one of that name.
    """
    kept = {name: value for name, value in before.items() if name in ALIKE and name not in own}
    place = Path(path)
    form = (
        source_format(Source.build({"path": path, "document": "line", **own}), place)
        if place.is_file()
        else ENDINGS.get(place.suffix.lower(), "text")
    )
    if form in (*PROSE, "fasttext"):
        kept = {name: value for name, value in kept.items() if name in ("encoding", "pieces")}  # there are no columns
    if "encoding" in kept and is_utf8(place):
        del kept["encoding"]
    if "text" in kept and form in TABLE_FORMATS and place.is_file():
        source = Source.build({"path": path, "document": "line", **kept, **own})
        if not {source.text, *source.text.split("+")} & {*(tables or Tables()).read(source, place).frame.columns}:
            del kept["text"]
    if kept:
        shown = ", ".join(f"{name} {value!r}" for name, value in kept.items())
        print_once(f"{path} is read as the texts were from which the model learned: {shown}")
    return {**kept, **own}


_PANDOC = "write its text with pandoc --to plain FILE --output FILE.txt"
UNREAD = {
    ".pdf": "write its text with pdftotext FILE.pdf FILE.txt (poppler-utils)",
    **dict.fromkeys((".html", ".htm", ".xhtml", ".mhtml", ".docx", ".odt", ".rtf", ".epub"), _PANDOC),
    **dict.fromkeys((".xml", ".rss", ".svg"), "its tags would be words; write its texts as a table, such as a .csv"),
    **dict.fromkeys((".mbox", ".msg"), "it holds mails with their headers; save each as .eml, and name their folder"),
    **dict.fromkeys(
        (".doc", ".pptx", ".ppt"), "make a .pdf of it with soffice --headless --convert-to pdf FILE, and its text with pdftotext"
    ),
    **dict.fromkeys(
        (".sqlite", ".sqlite3", ".db"),
        "write a table with sqlite3 -header -csv FILE 'SELECT body AS text, topic AS label FROM mails' > mails.csv",
    ),
    **dict.fromkeys((".xls", ".ods", ".xlsb", ".numbers"), "a spreadsheet; save it as .xlsx or .csv"),
    **dict.fromkeys(
        (".7z", ".rar", ".tar", ".tgz", ".br", ".lz4"),
        "it is packed; unpack it first, or pack it as .gz, .xz, .bz2, .zst or .zip",
    ),
    **dict.fromkeys(
        (".pkl", ".pickle", ".npy", ".npz", ".pt", ".pth", ".safetensors", ".h5", ".onnx", ".gguf", ".bin", ".ds"),
        "it holds no text; name another file",
    ),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".mp3", ".mp4", ".wav", ".exe"), "it holds no text; name another file"),
}
"""endings of files that would be taken for plain text but are not, and what to do"""
_SNIFFED = 1 << 16
"""characters of a text file by which it is known for a table"""


def source_format(source: Source, file: Path) -> Format:
    """The format in which a file of a source is read; one called .txt may be a table. Raises ``DataError`` if it cannot be read."""
    ending = without_compression(file).suffix.lower()
    by_name = ENDINGS.get(ending, "text") if source.pattern is None else "pattern"
    if source.format == "auto" and by_name == "text":
        if ending in UNREAD:
            raise DataError(f"{file} cannot be read: {UNREAD[ending]}")
        alone = Path(source.path) == file and source.document == "line" and not source.labels_path
        if alone and not source.pieces:
            by_name = _called_text(source, file)
    form = by_name if source.format == "auto" else source.format
    if source.pieces and form != "text":
        raise DataError(f"pieces are joined in plain text only, but {file} is read as {form}; leave pieces out")
    return form


def _called_text(source: Source, file: Path) -> Format:
    """The format of a file that is called text: a table, if each of its lines has the same fields, or is an object of JSON."""
    try:
        with open_text(file, source.encoding) as lines:
            start = lines.read(_SNIFFED)
    except DataError:
        return "text"  # which says what is wrong with it
    first = start.lstrip()[:100].lower()
    if first.startswith(("<html", "<!doctype html")):
        raise DataError(f"{file} cannot be read: it is a page; {_PANDOC}")
    if first.startswith("__label__"):
        return "fasttext"
    whole = start if len(start) < _SNIFFED else start.rpartition("\n")[0]
    form: Format | None = table_form(whole)
    if form is None and first.startswith("{"):
        with suppress(ValueError, RecursionError):
            form = "ndjson" if all(isinstance(json.loads(line), dict) for line in whole.split("\n", 3)[:2]) else None
    if form:
        print_once(f"{file} is a table ({form}), and is read as one; --format text reads its lines as texts.")
    return form or "text"


@dataclass(frozen=True)
class TextTable:
    """The content of a file, parsed once. Columns of csv, tsv and xlsx are strings; those of other formats keep their types."""

    frame: pl.DataFrame
    file: Path

    def column(self, name: str, key: str = "text") -> pl.Series:
        """A column that the setting ``key`` names; of several (``a+b``) the texts one under the other, or the labels that hold."""
        parts, known = name.split("+"), {*self.frame.columns}
        if name in known:
            return self.frame[name]
        if key == "label" and len(parts) > 1 and {*parts} <= known:
            return holding(self.frame, parts)
        if key == "text" and len(parts) > 1 and known & {*parts}:
            texts = zip(*map(self.strings, parts), strict=True)
            return pl.Series(["\n".join(filter(None, text)) for text in texts], dtype=pl.String)
        how = f"--{key}-column (in a manifest '{key}: …')" if key in ("text", "label", "group") else f"'{key}: …' in a manifest"
        how = "--columns" if key == "columns" else how
        raise DataError(
            f"{self.file} has no column '{name}'; {suggest(name, self.frame.columns)}; name the column to read with {how}"
        )

    def strings(self, name: str, key: str = "text") -> list[str]:
        """A column as strings: whole numbers have no decimal point even if the table holds 3.0, and missing values are ``""``."""
        column = self.column(name, key)
        # nulls are ignored; above 2**53 a float is not known to one
        if column.dtype.is_float() and bool((column.is_finite() & (column == column.round()) & (column.abs() < 2**53)).all()):
            column = column.cast(pl.Int64)
        if column.dtype.is_nested():
            raise DataError(f"column '{name}' of {self.file} must hold one text or number per row, but holds {column.dtype}")
        try:
            texts = column.cast(pl.String).fill_null("")
        except pl.exceptions.PolarsError:
            raise DataError(
                f"column '{name}' of {self.file} must hold texts, but holds {column.dtype}; name another column"
            ) from None
        if self.file.suffix in (".parquet", ".arrow") and texts.str.len_bytes().cast(pl.Int64).sum() > most_bytes(self.file):
            raise DataError(too_large(self.file))  # a text that is repeated is stored once there, but not here
        return texts.to_list()

    def lists(self, name: str, key: str) -> list[list[Any]]:
        """A column of lists, also as a csv file holds them."""
        cells = self.column(name, key).to_list()
        for number, cell in enumerate(cells, 1):
            value = listed(cell.strip()) if isinstance(cell, str) else cell
            if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
                raise DataError(f"row {number} of {self.file} must hold a list in '{name}', but holds {cell!r}")
            cells[number - 1] = list(value)
        return cells

    def text_name(self, source: Source) -> str:
        """The name of the column of texts; if none was given, and none is called text, of the likeliest one, which is printed."""
        name, table = source.text, self.frame
        if name == "text" and name not in table.columns and (columns := text_columns(table, table.columns)):
            name = columns[0]
            example = next(filter(None, map(str.strip, table[name].drop_nulls().to_list())), "")[:60]
            others = [column for column in columns[1:] if is_prose(table[column])]
            more = f"Not read: {', '.join(others)}; " if others else ""
            sentence = f"The texts of {self.file} are read from column '{name}', such as {example!r}."
            print_once(f"{sentence} {more}--text-column names another.")
        return name

    def inputs(self, source: Source) -> list[Any]:
        """The texts, with the cells of other columns that the source names; or pairs, if it names a second column."""
        texts = self.strings(self.text_name(source))
        if source.second is not None:
            return [*zip(texts, self.strings(source.second, "second"), strict=True)]
        if lacking := [name for name in source.columns if name not in self.frame.columns]:
            known = ", ".join(self.frame.columns)
            raise DataError(
                f"{self.file} must have the columns that are read beside the text, but lacks {first_of(lacking, 5)}; it has {known}"
            )
        rows = self.frame.select(source.columns).rows(named=True) if source.columns else ()
        return [*map(RowText, texts, rows)] if source.columns else texts

    def labels(self, source: Source) -> list[str]:
        """The column of labels."""
        return as_label([label.strip() for label in self.strings(source.label, "label")])

    def groups(self, source: Source) -> list[str]:
        """The group of each row; of a row without one it is ``""``."""
        if source.group is None:
            return [""] * len(self.frame)
        return ["" if cell.lower() in MISSING else cell for cell in cells_of(self.column(source.group, "group"))]

    def labelled(self, source: Source, *, several: bool = False, say: bool = True) -> tuple[TextTable, TextTable]:
        """The rows that have a label, and those that have none, whose number and reason are printed.

        What stands for no label is told from the others (``signs_of_none``). With ``several`` labels per text, a row without one is
        a text for which none holds; if most are so, nobody labelled them. Raises ``DataError`` if no row has a label.
        """
        column, signs, doubtful = self.column(source.label, "label"), set[str](), list[str]()
        if column.dtype.is_nested():
            cells = ["" if cell is None else "a list" for cell in column.to_list()]
        else:
            cells = [cell.strip() for cell in self.strings(source.label, "label")]
            signs, doubtful = signs_of_none(cells, source.unlabelled_as)
        counts = Counter(cell or "blank" for cell in cells if not cell or cell in signs)
        spelled = ", ".join(f"{name!r} {n:,}" if name != "blank" else f"blank {n:,}" for name, n in counts.most_common(5))
        if len(cells) and counts.total() == len(cells):
            raise DataError(
                f"{self.file} must have labels in column '{source.label}', but has none ({spelled}); name another with "
                "--label-column, or say with --unlabelled-as what stands for no label"
            )
        none = several and counts.total() <= _MOST_WITHOUT * len(cells)
        if say:
            _report_labels(cells, signs, doubtful, spelled, f"{self.file}: ", none=none)
            if not several and (cell := names_several(cells)):
                print_once(
                    f"{self.file}: {cell!r} is read as one label; if it names several, the type is multilabel (--type multilabel)."
                )
        frame = self.frame
        if column.dtype == pl.String and signs:
            known = [None if cell in signs else cell for cell in cells]
            frame = frame.with_columns(pl.Series(source.label, known, dtype=pl.String))
        missing = pl.Series([not none and (not cell or cell in signs) for cell in cells], dtype=pl.Boolean)
        return TextTable(frame.filter(~missing), self.file), TextTable(frame.filter(missing), self.file)


class Tables:
    """Reads each file once, whoever asks for it: the guess of columns, the examples, their groups; ``without`` hides a column."""

    def __init__(self, without: str | None = None) -> None:
        self._read, self.without = dict[tuple[Any, ...], TextTable](), without

    def read(self, source: Source, file: Path) -> TextTable:
        """A whole table. Raises ``DataError`` for plain text, which has no columns, and for what cannot be read."""
        form = source_format(source, file)
        key = (file.absolute(), form, source.encoding, source.delimiter, source.sheet, source.header)
        if key not in self._read:
            table = read_table(source, file, form)
            self._read[key] = TextTable(table.frame.drop([self.without] if self.without else [], strict=False), file)
        return self._read[key]


def read_table(source: Source, file: Path, form: Format | None = None) -> TextTable:
    """A whole table; without ``form`` in the format of the source."""
    form = form or source_format(source, file)
    if form in (*PROSE, "pattern"):
        raise DataError(
            f"{file} is read as {form}, which has no columns; give a table (csv, tsv, ndjson, parquet), or for classification a "
            "pattern with the groups text and label, or as_label, or labels_path"
        )
    frame = _read_frame(source, file, form)
    if garbled := _garbled(frame):
        print_once(
            f"{file}: some cells were read in a wrong encoding before this table was written: {garbled[0]!r} was {garbled[1]!r}; "
            "write it again from where they come from."
        )
    return TextTable(frame, file)


def _garbled(table: pl.DataFrame) -> tuple[str, str] | None:
    """A word whose UTF-8 some program took for another encoding, and what it was; of the first rows."""
    for column in table:
        for cell in column.head(_LOOKED_AT).to_list() if column.dtype == pl.String else ():
            words = (cell or "").split() if _MAYBE_GARBLED.search(cell or "") else ()
            for word in filter(_MAYBE_GARBLED.search, words):
                for codec in ("cp1252", "mac_roman"):
                    with suppress(UnicodeError):
                        codes = b"".join(bytes([ord(sign)]) if "\x80" <= sign < "\xa0" else sign.encode(codec) for sign in word)
                        return word, codes.decode()
    return None


def _read_frame(source: Source, file: Path, form: Format) -> pl.DataFrame:
    if form in ("parquet", "arrow", "xlsx"):
        with open_bytes(file) as binary:
            data = binary.read()
    else:
        with open_text(file, source.encoding) as lines:
            text = lines.read()
        data = text.encode() if text.strip("\x1a\0 \t\r\n") else b""
    if not data.strip():
        raise DataError(f"{file} must hold a table, but is empty")
    if form in DELIMITERS:
        return read_delimited(text, file, form, delimiter_of(source), header=source.header)
    if form == "fasttext":
        return read_fasttext(text, file)
    if form in ("json", "ndjson"):
        refuse_export(text, file, source.label)
    return parsed(data, source, file, form)


def delimiter_of(source: Source) -> str | None:
    """The character that a source names, also as a word; None: it is detected."""
    if source.delimiter is None:
        return None
    character = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}.get(source.delimiter, source.delimiter)
    if len(character) != 1:
        raise DataError(f"delimiter must be one character, or tab, but is {source.delimiter!r}")
    return character


def _report_labels(cells: Sequence[str], signs: set[str], doubtful: Sequence[str], spelled: str, where: str, *, none: bool) -> None:
    """Print the number of rows without a label, what may stand for none, and labels that look like dates."""
    if spelled:
        what = "texts to which no label applies" if none else "texts without one"
        how = "; --unlabelled-as says what stands for none" if signs else ""
        count = sum(not cell or cell in signs for cell in cells)
        print_once(f"{where}{count:,} of {len(cells):,} rows have no label ({spelled}) and are read as {what}{how}.")
    for name in doubtful:
        print_once(
            f"{where}'{name}' is a label, of {cells.count(name):,} rows; if it stands for none, say so with --unlabelled-as {name}."
        )
    if dates := dates_among(cells):
        (date, count), *_ = dates.most_common(1)
        print_once(
            f"{where}some labels look like dates ({date!r}, {count:,} rows), which spreadsheets make of names such as 1-2: if they "
            "are names, give that column the format Text there, and write them again."
        )


# ------------------------------------------------------------------------------------------------ frames

_MISSING = ("NAType", "NaTType")
"""types of the values by which pandas says that there is none"""


def write_texts(texts: Iterable[Any], file: str | Path) -> Path:
    """Write texts as a file that ``pretrain`` and every other command reads, and return its path.

    ``texts`` is any iterable of strings, such as the column of a data frame; it is read once, and never whole in memory. The name
    ends in .jsonl or .ndjson, and in .gz or .xz to compress it; an earlier file is replaced.

    >>> write_texts(frame["body"], "mails.jsonl.gz")  # doctest: +SKIP
    PosixPath('mails.jsonl.gz')
    """
    path = Path(file)
    if without_compression(path).suffix not in (".jsonl", ".ndjson"):
        raise DataError(f"texts are written as .jsonl, .jsonl.gz or .jsonl.xz, but the file is {path}; name it so")
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise DataError(f"texts must be several strings, but are {texts!r:.80}; give a list, or a column of a frame")
    with (
        atomic_file(path, "the texts") as aside,
        COMPRESSED.get(path.suffix, open)(aside, "wt", encoding="utf-8", newline="\n") as out,
    ):
        count = 0
        for count, value in enumerate(texts, 1):
            text = plain_value(value)
            if not isinstance(text, str):
                raise DataError(f"every text must be a string, but number {count} is {value!r:.80}; remove or convert it")
            out.write(json.dumps({"text": text}) + "\n")
        if not count:
            raise DataError("there must be at least one text, but there are none; pass one or more")
    return path


def write_frame(frame: Any, file: Path) -> Path:
    """Write all columns of a frame as lines of JSON, which are read like any table, and return the path."""
    frame = _of_columns(frame)
    table = frame_table(frame, _names(frame)).frame
    if not len(table):
        raise DataError("the frame must have rows, but is empty")
    table.write_ndjson(file)
    return file


def _of_columns(frame: Any) -> Any:
    """A frame; a list of rows becomes a mapping from names to columns."""
    if not isinstance(frame, Sequence) or isinstance(frame, str | bytes) or not all(isinstance(row, Mapping) for row in frame):
        return frame
    return {name: [row.get(name) for row in frame] for name in dict.fromkeys(name for row in frame for name in row)}


def frame_table(frame: Any, needed: Sequence[str]) -> TextTable:
    """The columns ``needed`` of a frame, as a table like those of files; of ``subject+body`` both.

    Numbers of a ``ClassLabel`` become names. Raises ``DataError`` for a column that is missing, and for what is no frame.
    """
    frame = _of_columns(frame)
    names, place = _names(frame), Path("the frame")
    chosen = [*dict.fromkeys(part for name in needed for part in ([name] if name in names else name.split("+")))]
    if missing := [name for name in chosen if name not in names]:
        raise DataError(f"{place} has no column '{missing[0]}'; {suggest(missing[0], names)}")
    columns = {name: [*map(plain_value, frame[name])] for name in chosen}
    if len({*map(len, columns.values())}) > 1:
        lengths = ", ".join(str(len(cells)) for cells in columns.values())
        raise DataError(f"the columns {', '.join(chosen)} must be equally long, but have {lengths} values")
    if mixed := [name for name, cells in columns.items() if {list, str} <= {*map(type, cells)}]:
        raise DataError(f"column '{mixed[0]}' must hold texts or lists, but holds both; write each cell as a list")
    features = {name: _feature(feature) for name, feature in getattr(frame, "features", {}).items()}
    return TextTable(with_names_of_labels(pl.DataFrame(columns, strict=False), features, place), place)


def _names(frame: Any) -> list[str]:
    """The names of the columns of a frame."""
    names = frame.keys() if isinstance(frame, Mapping) else getattr(frame, "column_names", None)
    lazy = hasattr(frame, "collect")
    names = getattr(frame, "columns", None) if names is None and not lazy else names
    several = isinstance(frame, Mapping) and any(hasattr(part, "column_names") for part in frame.values())  # a DatasetDict
    if names is None or several or lazy or not hasattr(frame, "__getitem__"):
        raise DataError(
            f"a task is made of data frames, or of lists of rows, but got {type(frame).__name__}; of a lazy frame collect() it, "
            "of a DatasetDict give each split"
        )
    return [name for name in names if isinstance(name, str)]


def _feature(of: Any) -> dict[str, Any]:
    """The description of a column that ``datasets`` writes beside its files."""
    if (inner := getattr(of, "feature", None)) is not None:
        return {"_type": "List", "feature": _feature(inner)}
    return {"_type": "ClassLabel", "names": of.names} if hasattr(of, "names") else {}


def plain_value(value: Any) -> Any:
    """A cell as JSON has it: numpy's, pandas' and pyarrow's values as Python's, what is missing as None, any other as a string."""
    for convert in ("as_py", "tolist", "to_list"):
        if hasattr(value, convert):
            value = getattr(value, convert)()
            break
    if value is None or type(value).__name__ in _MISSING or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(part) for part in value]
    return str(value)
