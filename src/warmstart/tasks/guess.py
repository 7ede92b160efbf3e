"""Guesses the manifest of a task from a table, a folder of texts or lines of fastText: columns, task type, splits.

Every guess can be overruled, and is said with an example. Which columns are likeliest is known by ``data/columns.py``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.columns import (
    LABEL_NAMES,
    NONE,
    SPLITS,
    TEXT_NAMES,
    is_prose,
    label_columns,
    names_splits,
    owner_column,
    text_columns,
)
from warmstart.data.conllu import is_conll, is_conllu, tag_columns, tagged_sentences
from warmstart.data.files import without_compression
from warmstart.data.label_cells import is_list, names_in, other_separator, with_decimal_comma
from warmstart.data.read import open_prose, refuse_saved_dataset
from warmstart.data.source import ENDINGS, PROSE, LabelledTableFlags, Source
from warmstart.data.tables import Tables, TextTable, source_format
from warmstart.errors import DataError, nearest_path

PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("text_a", "text_b"), ("text1", "text2")),
    *(("question1", "question2"), ("question", "sentence")),
)
"""columns of the two texts of a pair"""
_SPLIT_NAMES = {"test": ("test",), "validation": ("validation", "valid", "val", "dev")}
"""what files of the other splits are called"""
MANY_TEXTS = 5000
"""from so many on a tenth is set apart as validation texts; with fewer, cross-validation on all of them chooses"""
_TEXT_ENDINGS = (".txt", ".text", ".md", ".eml")
_NUMBERS = 20
"""a column with more different numbers than these holds numbers, not classes"""
_RECUR = 3
"""so often recurs on average each of more whole numbers that are classes: codes, which are equally long"""
_SAMPLE = 2000
_SHOWN_LABELS, _SHOWN_CHARACTERS, _RIVALS = 20, 60, 2
_UNLABELLED = {
    "unlabeled",
    "unlabelled",
    "unsup",
    "unsupervised",
    "unlabeled_data",
    "unlabelled_data",
    "no_label",
    "nolabel",
    "todo",
}
"""folders of texts without a label"""


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
    unlabelled: Path | None = None
    """a folder of texts without a label"""
    notes: tuple[str, ...] = ()
    """what else a user should know, as sentences: an example, other columns that may hold labels, files that are not used"""

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
        more = {"unlabelled": [{"path": path_from(folder, self.unlabelled)}]} if self.unlabelled else {}
        return head | {"train": sources.pop("train")} | apart | {"test": 0.2} | sources | more

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
        found += self.notes
        found.append(f"The task type is {self.type}.")
        return found + [
            f"{file} is the {name} split." for name, file in (("test", self.test), ("validation", self.validation)) if file
        ]


def guess_task(place: Path, flags: LabelledTableFlags | None = None, tables: Tables | None = None) -> Guess:
    """The guess for a table, a folder with one folder of texts per label, a CoNLL file, or lines of fastText.

    ``flags`` overrule what would be guessed; ``tables`` keep what is read. Raises ``DataError`` if nothing can be guessed.
    """
    flags, tables = flags or LabelledTableFlags(), tables or Tables()
    if place.is_dir():
        return _guess_folder(place, flags.encoding)
    if not place.is_file():
        raise DataError(
            f"no such file or folder: {place}; {nearest_path(place)}name a table (csv, tsv, ndjson, parquet) or a folder "
            "with one folder per label"
        )
    source = {name: value for name, value in flags.reading.items() if name != "text"}
    source |= {"unlabelled_as": flags.unlabelled_as} if flags.unlabelled_as is not None else {}
    if is_conll(place):
        return _guess_tags(place, source, flags)
    read = Source(path=str(place), **source, document="line")
    if (form := source_format(read, place)) in PROSE:
        raise DataError(
            f"{place} must be a table (csv, tsv, ndjson, jsonl, parquet), a CoNLL file, or lines that begin with "
            f"__label__, but its first line is {_first_line(place, read)!r}; for other forms write the manifest by hand, with a "
            "pattern"
        )
    source |= {} if form == ENDINGS.get(without_compression(place).suffix.lower()) else {"format": form}
    return _with_splits(_guess_table(tables.read(read, place), source, flags), tables)


def _first_line(place: Path, source: Source) -> str:
    with open_prose(source, place, source_format(source, place)) as lines:
        return lines.readline(1000).strip()[:_SHOWN_CHARACTERS]


def _guess_tags(place: Path, source: dict[str, Any], flags: LabelledTableFlags) -> Guess:
    """The columns of words and tags of a CoNLL file, counted from 1; those of CoNLL-U are known."""
    named = {name: one for name, one in (("text", flags.text_column), ("label", flags.label_column)) if one}
    found = source | ({} if is_conllu(place) else tag_columns(Source(path=str(place), **source), place)) | named
    read = Source(path=str(place), **found)
    words, tags = next(tagged_sentences(read, place), ((), ()))
    example = ", ".join(f"{word} {tag}" for word, tag in [*zip(words, tags, strict=True)][:3])
    text, label = (found.get(name, default) for name, default in (("text", "2"), ("label", "4")))
    note = (
        f"The words are read from column {text}, the tags from column {label}, as in: {example}. --text-column and --label-column "
    )
    guess = Guess("tagging", place, found, notes=(f"{note}name others.",))
    return replace(guess, test=_beside(place, "test"), validation=_beside(place, "validation"))


def _guess_table(table: TextTable, source: dict[str, Any], flags: LabelledTableFlags) -> Guess:
    place, frame = table.file, table.frame
    if frame.width < 2:
        raise DataError(
            f"{place} must have a column of texts and one of labels, separated by {_expected(place)}, but has {_columns(frame)}"
        )
    if "header" not in source and frame.columns == [str(number) for number in range(1, frame.width + 1)]:
        source["header"] = False
    columns, rivals = _guess_columns(table, flags.text_column, flags.label_column)
    source |= columns
    read = Source(path=str(place), **source)
    texts = table.column(read.text).drop_nulls().head(_SAMPLE).to_list()
    labelled, _ = table.labelled(read, say=False)
    text, label = labelled.column(read.text), labelled.column(read.label, "label")
    found, separator, why = _guess_type(text, label)
    kind = flags.type or found
    if kind != "tagging" and texts and all(isinstance(text, str) and is_list(text) for text in texts):
        raise DataError(
            f"column '{read.text}' of {place} must hold one text per row, but holds lists ({texts[0][:60]!r}); join them"
        )
    if kind == "multilabel" and separator not in (None, "|"):
        source["separator"] = separator
    taken = [read.label, read.text, read.second, *read.text.split("+"), *read.label.split("+")]
    if owner := _owner(table, read, taken, flags.group_column):
        source["group"] = owner
        taken.append(owner)
    rivals = [name for name in rivals if name not in taken]
    free = [one for one in frame if flags.text_column is None and one.name not in taken]
    unread = tuple(one.name for one in free if is_prose(one))
    examples = [
        f"An example: {_shown(one)!r} is {_shown(other)!r}." for one, other in zip(text.head(1), label.head(1), strict=True)
    ]
    notes = [*examples, *_notes(read, rivals, free), *([why] if why and kind == found else [])]
    return Guess(kind, place, source, columns=tuple(frame.columns), rows=len(frame), unread=unread, notes=tuple(notes))


def _notes(read: Source, rivals: Sequence[str], free: Sequence[pl.Series]) -> list[str]:
    """Whether columns look exchanged, which others may hold labels, and that a column names splits."""
    notes = []
    if read.text.lower() in LABEL_NAMES or read.label.lower() in TEXT_NAMES:
        notes.append(
            f"The columns of texts and labels look exchanged; --text-column {read.label} --label-column {read.text} reads them as "
            "they are called."
        )
    if others := rivals[:_RIVALS]:
        notes.append(f"Labels may also stand in {' or '.join(others)}; --label-column names another column.")
    for column in free:
        if names_splits(column):
            notes.append(
                f"Column '{column.name}' names splits, but is not read: all rows are of one. Put the rows of each into a file of "
                "its own: train.csv and test.csv."
            )
    return notes


def _shown(cell: Any) -> str:
    """The beginning of a cell, on one line."""
    return " ".join(", ".join(map(str, cell)).split() if isinstance(cell, pl.Series) else str(cell).split())[:_SHOWN_CHARACTERS]


def _with_splits(guess: Guess, tables: Tables) -> Guess:
    """With the files of other splits beside it, if their labels are labels of this one."""
    found, notes = dict[str, Path](), list[str]()
    known = None
    for name in _SPLIT_NAMES:
        if (file := _beside(guess.train, name)) is None:
            continue
        try:
            known = _names(guess, tables, guess.train) if known is None else known
            if guess.type in ("classification", "multilabel") and (new := _names(guess, tables, file) - known):
                raise DataError(f"{file} has labels that {guess.train.name} has not: {', '.join(map(repr, sorted(new)[:3]))}")
            found[name] = file
        except DataError as error:
            notes.append(f"Not used as the {name} split: {error}.")
    return replace(guess, **found, notes=(*guess.notes, *notes))  # type: ignore[arg-type]


def _names(guess: Guess, tables: Tables, file: Path) -> set[str]:
    """The names of labels in a table."""
    source = Source(path=str(file), **guess.source)
    several = guess.type == "multilabel"
    table, _ = tables.read(source, file).labelled(source, several=several, say=False)
    if several:
        return {name for cell in table.column(source.label, "label").to_list() for name in names_in(cell, source.separator)}
    return set() if guess.type != "classification" else {*table.labels(source)}


def _owner(table: TextTable, read: Source, taken: Sequence[str | None], named: str | None) -> str | None:
    """The column of groups that was ``named``, or one that looks like it. Raises ``DataError`` if there is none of that name."""
    if named is None:
        free = [one for one in table.frame.columns if one not in taken]
        return owner_column(table.frame, table.column(read.text), table.column(read.label, "label"), free)
    return None if named == NONE and NONE not in table.frame.columns else table.column(named, "group").name


def _guess_folder(place: Path, encoding: str | None) -> Guess:
    refuse_saved_dataset(place)
    inside = sorted(one for one in place.iterdir() if one.is_dir() and not one.name.startswith("."))
    classes = [one.name for one in inside if any(file.suffix.lower() in _TEXT_ENDINGS for file in one.iterdir())]
    without = [name for name in classes if name.lower().replace(" ", "_").replace("-", "_") in _UNLABELLED]
    classes = [name for name in classes if name not in without]
    if len(classes) < 2 or {name.lower() for name in classes} <= SPLITS:
        raise DataError(
            f"a folder must hold at least two folders of texts ({', '.join(_TEXT_ENDINGS)}), one per label, but {place} holds "
            f"{', '.join(classes) or 'none'}; write other documents as plain text first, or name a table"
        )
    source = {"document": "file"} | ({"encoding": encoding} if encoding else {})
    more = place / without[0] if without else None
    notes = (f"The texts in {more} are read as texts without a label.",) if more else ()
    return Guess("classification", place, source, classes=tuple(classes), unlabelled=more, notes=notes)


def _guess_columns(whole: TextTable, text: str | None, label: str | None) -> tuple[dict[str, Any], Sequence[str]]:
    """The settings ``text``, ``label`` and ``second``, where they differ from the defaults; and other columns of labels."""
    table, place = whole.frame, whole.file
    for key, name in (("text", text), ("label", label)):
        if name is not None:
            whole.column(name, key)
    folded = {name.strip().lower(): name for name in reversed(table.columns)}
    pair = (
        next(((folded[one], folded[two]) for one, two in PAIRS if one in folded and two in folded), None) if text is None else None
    )
    columns = [
        name for name in table.columns if name != label and (is_prose(table[name]) or name.strip().lower() not in LABEL_NAMES)
    ]
    text = text or (pair[0] if pair else next(iter(text_columns(table, columns)), None))
    rivals = list[str]()
    if label is None:
        free = [name for name in table.columns if name not in (text, *(text or "").split("+"), *(pair or ()))]
        label, *rivals = label_columns(table, free, None if text is None else whole.column(text)) or [""]
        if not label:
            raise DataError(
                f"no column of {place} looks like labels (few short values); name it with --label-column. It has {_columns(table)}"
            )
    if text is None or text == label:
        raise DataError(f"no column of {place} holds texts beside the labels; name it with --text-column. It has {_columns(table)}")
    named = {"text": text, "label": label} | ({"second": pair[1]} if pair else {})
    return {key: name for key, name in named.items() if key != name}, rivals


def _guess_type(text: pl.Series, label: pl.Series) -> tuple[str, str | None, str]:
    """The task type, what stands between several labels, if anything does, and what a user should know of it."""
    if label.dtype.is_nested():
        return ("tagging" if text.dtype.is_nested() else "multilabel"), None, ""
    cells = [cell for cell in label.drop_nulls().cast(pl.String).str.strip_chars().head(_SAMPLE).to_list() if cell]
    if cells and with_decimal_comma(cells):
        return "regression", None, "The labels are numbers with a decimal comma; --type classification takes them as names."
    numbers = pl.Series(cells, dtype=pl.String).cast(pl.Float64, strict=False)
    if cells and not numbers.is_null().any():
        whole, different = bool((numbers == numbers.round()).all()), numbers.n_unique()
        codes = len({*map(len, cells)}) == 1 and len(cells) >= _RECUR * different
        if whole and (different <= _NUMBERS or codes):
            numbers_too = "; --type regression takes them as quantities" if different > 2 else ""
            return "classification", None, f"The labels are {different} different numbers, taken as classes{numbers_too}."
        return "regression", None, "The labels are numbers, taken as quantities; --type classification takes them as classes."
    if any(map(is_list, cells)):
        words = not text.dtype.is_nested() and all(map(is_list, map(str, text.head(_SAMPLE).to_list())))
        return ("tagging" if words else "multilabel"), None, ""
    if (separator := other_separator(cells, "\0")) is None:
        return "classification", None, ""
    cell = next(cell for cell in cells if separator in cell)
    return "multilabel", separator, f"{cell!r} are several labels; --type classification takes it as the name of one."


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
