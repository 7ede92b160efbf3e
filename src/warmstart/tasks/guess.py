"""Guesses the manifest of a task from a table, a folder of texts or lines of fastText: columns, task type, splits.

Every guess can be overruled. Columns are chosen by their names, and where no name is known, by what they hold: the label is the
column with the fewest different short values, the text the string column with the longest ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.class_names import refuse_saved_dataset
from warmstart.data.conllu import is_conll
from warmstart.data.files import open_bytes, without_compression
from warmstart.data.label_cells import is_list, other_separator
from warmstart.data.owners import NONE, owner_column
from warmstart.data.read import open_prose, source_format
from warmstart.data.source import PROSE, LabelledTableFlags, Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError, nearest_path, suggest

TEXT_NAMES = (
    *("text", "body", "content", "message", "sentence", "review", "question", "comment", "document", "tweet", "abstract"),
    *("title", "words", "tokens"),
)
"""columns that hold texts, the likeliest first"""
LABEL_NAMES = (
    *("label", "labels", "category", "categories", "class", "target", "topic", "topics", "intent", "tag", "tags", "sentiment"),
    *("rating", "stars", "score", "emotion", "queue"),
)
"""columns that hold labels, the likeliest first"""
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("text_a", "text_b"), ("text1", "text2")),
    *(("question1", "question2"), ("question", "sentence")),
)
"""columns of the two texts of a pair"""
FASTTEXT = r"^__label__(?P<label>\S+)\s+(?P<text>.*)$"
"""a line of fastText with one label"""
_SPLIT_NAMES = {"test": ("test",), "validation": ("validation", "valid", "val", "dev")}
"""what files of the other splits are called"""
MANY_TEXTS = 5000
"""from so many on a tenth is set apart as validation texts; with fewer, cross-validation on all of them chooses"""
_TEXT_ENDINGS = (".txt", ".text", ".md", ".eml")
_NUMBERS = 20
"""a column with more different numbers than these holds numbers, not classes"""
_SAMPLE = 2000
_LONGEST_LABEL = 60
_SHOWN_LABELS = 20


@dataclass(frozen=True)
class Guess:
    """What a manifest would say."""

    type: str
    """the task type"""
    train: Path
    """the table; or a folder that holds one folder of texts per label"""
    source: dict[str, Any] = field(default_factory=dict)
    """settings of all sources that are not their defaults"""
    classes: tuple[str, ...] = ()
    """folders of texts, one per label"""
    test: Path | None = None
    validation: Path | None = None
    columns: tuple[str, ...] = ()
    """of the table"""
    rows: int = 0
    """of the table; 0: not counted"""
    unread: tuple[str, ...] = ()
    """columns that also hold texts"""

    def sources(self, folder: Path) -> dict[str, Any]:
        """``train``, and the other splits for which there is a file, with paths from ``folder`` on."""
        if self.classes:
            here = path_from(folder, self.train)
            return {"train": [{"path": f"{here}/{name}", "as_label": name} for name in self.classes]}
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: path_from(folder, file) for name, file in splits.items() if file}

    def manifest(self, folder: Path) -> dict[str, Any]:
        """The keys of a manifest in ``folder``, in the order in which they are written.

        Without a file for it, a fifth of the texts is set apart for test, and of many texts a tenth for validation.
        """
        sources = self.sources(folder)
        name = Path(self.train.name.removesuffix(".gz").removesuffix(".xz")).stem
        apart = {"validation": 0.1} if self.rows >= MANY_TEXTS else {}
        head = {"name": name or "task", "type": self.type} | ({"source": self.source} if self.source else {})
        return head | {"train": sources.pop("train")} | apart | {"test": 0.2} | sources

    def sentences(self) -> list[str]:
        """What was guessed, as complete sentences."""
        found = []
        if self.columns:
            text, label = (self.source.get(name, name) for name in ("text", "label"))
            second = f" and '{self.source['second']}'" if "second" in self.source else ""
            found.append(f"The text is read from column '{text}'{second}, the label from '{label}'.")
            if self.unread:
                reads = f'--text-column "{"+".join((*self.unread, text))}" reads {"both" if len(self.unread) == 1 else "them all"}'
                found[-1] += f" Not read: {', '.join(self.unread)}; {reads}."
            if group := self.source.get("group"):
                found[-1] += f" Texts with the same '{group}' belong together; --group-column none takes each by itself."
        if self.classes:
            more = f", and {len(self.classes) - _SHOWN_LABELS} more" if len(self.classes) > _SHOWN_LABELS else ""
            found.append(f"Each folder is a label: {', '.join(self.classes[:_SHOWN_LABELS])}{more}.")
        found.append(f"The task type is {self.type}.")
        return found + [
            f"{file} is the {name} split." for name, file in (("test", self.test), ("validation", self.validation)) if file
        ]


def guess_task(place: Path, flags: LabelledTableFlags | None = None, kind: str | None = None) -> Guess:
    """The guess for a table, a folder with one folder of texts per label, a CoNLL file, or lines of fastText.

    ``flags`` and ``kind`` (the task type) overrule what would be guessed. Raises ``DataError`` if nothing can be guessed.
    """
    flags = flags or LabelledTableFlags()
    text, label = flags.text_column, flags.label_column
    if place.is_dir():
        return _guess_folder(place, flags.encoding)
    if not place.is_file():
        raise DataError(
            f"no such file or folder: {place}; {nearest_path(place)}name a table (csv, tsv, ndjson, parquet) or a folder "
            "with one folder per label"
        )
    test, validation = _beside(place, "test"), _beside(place, "validation")
    source = {name: value for name, value in flags.reading.items() if name != "text"}
    if is_conll(place):
        return Guess("tagging", place, source, test=test, validation=validation)
    read = Source(path=str(place), **source)
    if source_format(read, place) in PROSE:
        return Guess("classification", place, {"pattern": _pattern(place, read), **source}, test=test, validation=validation)
    return replace(_guess_table(place, source, text, label, kind, flags.group_column), test=test, validation=validation)


def _guess_table(
    place: Path, source: dict[str, Any], text: str | None, label: str | None, kind: str | None, group: str | None
) -> Guess:
    named = {name: column for name, column in (("text", text), ("label", label)) if column}
    read = Source(path=str(place), **source, **named)
    table = read_table(read, place, source_format(read, place))
    if table.width < 2:
        raise DataError(
            f"{place} must have a column of texts and one of labels, separated by {_expected(place)}, but has {_columns(table)}"
        )
    source |= _guess_columns(table, place, text, label)
    label_column, text_column = table[source.get("label", "label")], table[source.get("text", "text")]
    found, separator = _guess_type(text_column, label_column)
    kind = kind or found
    if kind == "multilabel" and separator not in (None, "|"):
        source["separator"] = separator
    read_ones = [label_column.name, text_column.name, source.get("second"), *text_column.name.split("+")]
    if owner := _owner(table, place, read_ones, group):
        source["group"] = owner
        read_ones.append(owner)
    free = [one for one in table if text is None and one.name not in read_ones and one.dtype == pl.String]
    unread = tuple(one.name for one in free if _is_prose(one))
    return Guess(kind, place, source, columns=tuple(table.columns), rows=len(table), unread=unread)


def _owner(table: pl.DataFrame, place: Path, taken: Sequence[str | None], named: str | None) -> str | None:
    """The column of groups that was ``named``, or one that looks like it. Raises ``DataError`` if there is none of that name."""
    if named is None:
        return owner_column(table, table[str(taken[1])], table[str(taken[0])], [one for one in table.columns if one not in taken])
    if named not in table.columns and named != NONE:
        raise DataError(f"{place} has no column '{named}'; {suggest(named, table.columns)}")
    return named if named in table.columns else None


def _guess_folder(place: Path, encoding: str | None) -> Guess:
    refuse_saved_dataset(place)
    inside = sorted(one for one in place.iterdir() if one.is_dir() and not one.name.startswith("."))
    classes = [one.name for one in inside if any(file.suffix.lower() in _TEXT_ENDINGS for file in one.iterdir())]
    if len(classes) < 2:
        raise DataError(
            f"a folder must hold at least two folders of texts ({', '.join(_TEXT_ENDINGS)}), one per label, but {place} holds "
            f"{len(classes)}; write other documents as plain text first, or name a table"
        )
    source = {"document": "file"} | ({"encoding": encoding} if encoding else {})
    return Guess("classification", place, source, classes=tuple(classes))


def begins_as_fasttext(file: Path) -> bool:
    """Whether a file's first line begins with the label as fastText has it."""
    with open_bytes(file) as binary:
        return binary.read(9) == b"__label__"


def _pattern(place: Path, source: Source) -> str:
    with open_prose(source, place, source_format(source, place)) as lines:
        first = lines.readline(1000)
    if not first.startswith("__label__"):
        raise DataError(
            f"{place} must be a table (csv, tsv, ndjson, jsonl, parquet), a CoNLL file, or lines that begin with "
            f"__label__, but its first line is {first.strip()[:60]!r}; for other forms write the manifest by hand, with a pattern"
        )
    return FASTTEXT


def _guess_columns(table: pl.DataFrame, place: Path, text: str | None, label: str | None) -> dict[str, Any]:
    """The settings ``text``, ``label`` and ``second``, where they differ from the defaults."""
    for name in (text, label):
        if name is not None and name not in table.columns:
            raise DataError(f"{place} has no column '{name}'; {suggest(name, table.columns)}")
    folded = {name.strip().lower(): name for name in reversed(table.columns)}
    pair = (
        next(((folded[one], folded[two]) for one, two in PAIRS if one in folded and two in folded), None) if text is None else None
    )
    text = text or (pair[0] if pair else _known(folded, TEXT_NAMES, [name for name in table.columns if name != label]))
    if label is None:
        free = [name for name in table.columns if name not in (text, *(text or "").split("+"), *(pair or ()))]
        label = _known(folded, LABEL_NAMES, free) or _fewest_values(table, free, place)
    text = text or _longest_texts(table, [name for name in table.columns if name != label], place)
    named = {"text": text, "label": label} | ({"second": pair[1]} if pair else {})
    return {key: name for key, name in named.items() if key != name}


def _is_prose(column: pl.Series) -> bool:
    """Whether most cells hold several words, and few hold the same."""
    cells = column.drop_nulls().head(_SAMPLE)
    return len(cells) > 1 and min(cells.str.contains(r"\S\s+\S").sum(), cells.n_unique()) > len(cells) / 2


def _known(folded: dict[str, str], names: Sequence[str], free: Sequence[str]) -> str | None:
    return next((folded[name] for name in names if folded.get(name) in free), None)


def _fewest_values(table: pl.DataFrame, free: Sequence[str], place: Path) -> str:
    """The column with the fewest different short values, of which one at least occurs twice."""
    counts = {}
    for name in free:
        if table[name].dtype.is_nested():
            continue
        values = table[name].drop_nulls().cast(pl.String).str.strip_chars()
        different, longest = values.n_unique(), float(str(values.str.len_chars().max() or 0))
        if 2 <= different < len(values) and longest <= _LONGEST_LABEL:
            counts[name] = different
    if not counts:
        raise DataError(
            f"no column of {place} looks like labels (few short values); name it with --label-column. It has {_columns(table)}"
        )
    return min(counts, key=counts.__getitem__)


def _longest_texts(table: pl.DataFrame, free: Sequence[str], place: Path) -> str:
    lengths = {name: table[name].str.len_chars().mean() or 0.0 for name in free if table[name].dtype == pl.String}
    if not lengths:
        raise DataError(f"no column of {place} holds texts beside the labels; name it with --text-column. It has {_columns(table)}")
    return max(lengths, key=lambda name: float(str(lengths[name])))


def _guess_type(text: pl.Series, label: pl.Series) -> tuple[str, str | None]:
    """The task type, and what stands between several labels, if anything does."""
    if label.dtype.is_nested():
        return ("tagging" if text.dtype.is_nested() else "multilabel"), None
    cells = label.drop_nulls().cast(pl.String).str.strip_chars().head(_SAMPLE)
    numbers = cells.cast(pl.Float64, strict=False)
    if len(cells) and not numbers.is_null().any():
        whole = bool((numbers == numbers.round()).all())
        return ("classification" if whole and numbers.n_unique() <= _NUMBERS else "regression"), None
    texts = cells.to_list()
    if any(map(is_list, texts)):
        words = not text.dtype.is_nested() and all(map(is_list, map(str, text.head(_SAMPLE).to_list())))
        return ("tagging" if words else "multilabel"), None
    separator = other_separator(texts, "\0")
    return ("multilabel" if separator else "classification"), separator


def _beside(place: Path, split: str) -> Path | None:
    """The file of another split: ``train.csv`` -> ``test.csv``, ``mails_train.tsv.xz`` -> ``mails_dev.tsv.xz``."""
    if "train" not in place.name:
        return None
    head, _, tail = place.name.rpartition("train")
    return next((file for name in _SPLIT_NAMES[split] if (file := place.with_name(f"{head}{name}{tail}")).is_file()), None)


def path_from(folder: Path, file: Path) -> str:
    """The path that a manifest in ``folder`` has for a file."""
    return Path(os.path.relpath(file.absolute(), folder.absolute())).as_posix()


def _expected(place: Path) -> str:
    bare = without_compression(place)
    return "tabs" if bare.suffix.lower() == ".tsv" else "commas"


def _columns(table: pl.DataFrame) -> str:
    return f"the columns {', '.join(table.columns)}" if table.width > 1 else f"one column, {table.columns[0]}"
