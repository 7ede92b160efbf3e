"""Guesses the manifest of a task from a table, a folder of texts or lines of fastText: columns, task type, splits.

Every guess can be overruled, and is printed with an example. ``data/columns.py`` finds the likeliest columns.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.columns import (
    LABEL_NAMES,
    NONE,
    SPLITS,
    SUBJECT_NAMES,
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
"""names of the files of the other splits"""
MANY_TEXTS = 5000
"""number of texts from which on a tenth is set apart for validation; with fewer, cross-validation on all of them chooses"""
_TEXT_ENDINGS = (".txt", ".text", ".md", ".eml")
_NUMBERS = 20
"""a column with more different numbers than these holds numbers, not classes"""
_RECUR = 3
"""average number of rows per value from which on many whole numbers are classes: codes, which are equally long"""
_SAMPLE = 2000
_SHOWN_LABELS, _SHOWN_CHARACTERS, _RIVALS = 20, 60, 2
_UNLABELLED = {
    *("unlabeled", "unlabelled", "unsup", "unsupervised", "unlabeled_data", "unlabelled_data", "no_label", "nolabel", "todo"),
}
"""folders of texts without a label"""


@dataclass(frozen=True)
class Guess:
    """The guessed content of a manifest."""

    type: str
    """the task type"""
    train: Path
    """the table; or a folder that holds one folder of texts per label"""
    source: dict[str, Any]
    """settings of all sources that are not their defaults"""
    explained: tuple[str, ...]
    """sentences for the user on the guess: an example, other columns that may hold labels"""
    classes: tuple[str, ...] = ()
    """folders of texts, one per label"""
    splits: Mapping[str, Path] = field(default_factory=dict)
    """the files of test and validation texts, if there are any"""
    columns: tuple[str, ...] = ()
    """columns of the table"""
    rows: int = 0
    """rows of the table; 0: not counted"""
    unlabelled: Path | None = None
    """a folder of texts without a label"""

    def manifest(self, folder: Path) -> dict[str, Any]:
        """The keys of a manifest in ``folder``, in the order in which they are written.

        Without a file for it, a fifth of the texts is set apart for test, and of many texts a tenth for validation.
        """
        here, name = path_from(folder, self.train), without_compression(self.train).stem
        head = {"name": name or "task", "type": self.type} | ({"source": self.source} if self.source else {})
        train = [{"path": f"{here}/{name}", "as_label": name} for name in self.classes] or here
        apart = {"validation": 0.1} if self.rows >= MANY_TEXTS else {}
        files = {name: path_from(folder, file) for name, file in self.splits.items()}
        more = {"unlabelled": [{"path": path_from(folder, self.unlabelled)}]} if self.unlabelled else {}
        return head | {"train": train} | apart | {"test": 0.2} | files | more

    def sentences(self) -> list[str]:
        """The guess, as complete sentences."""
        splits = (f"{file} is the {name} split." for name, file in self.splits.items())
        return [*self.explained, f"The task type is {self.type}.", *splits]


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
        with open_prose(read, place, form) as lines:
            first = lines.readline(1000).strip()[:_SHOWN_CHARACTERS]
        raise DataError(
            f"{place} must be a table (csv, tsv, ndjson, jsonl, parquet), a CoNLL file, or lines that begin with "
            f"__label__, but its first line is {first!r}; for other forms write the manifest by hand, with a pattern"
        )
    source |= {} if form == ENDINGS.get(without_compression(place).suffix.lower()) else {"format": form}
    table = tables.read(read, place)
    try:
        return _with_splits(_guess_table(table, source, flags), tables)
    except DataError as error:
        hidden = f"; {tables.without} was not taken for either, since --votes names it" if tables.without else ""
        raise DataError(f"{error}{hidden}") from None


def _guess_tags(place: Path, source: dict[str, Any], flags: LabelledTableFlags) -> Guess:
    """The columns of words and tags of a CoNLL file, counted from 1; those of CoNLL-U are known."""
    named = {name: column for name, column in (("text", flags.text_column), ("label", flags.label_column)) if column}
    settings = source | ({} if is_conllu(place) else tag_columns(Source(path=str(place), **source), place)) | named
    read = Source(path=str(place), **settings)
    words, tags = next(tagged_sentences(read, place), ((), ()))
    example = ", ".join(f"{word} {tag}" for word, tag in [*zip(words, tags, strict=True)][:3])
    text, label = (settings.get(name, default) for name, default in (("text", "2"), ("label", "4")))
    columns = f"The words are read from column {text}, the tags from column {label}, as in: {example}."
    sentence = f"{columns} --text-column and --label-column name others."
    return Guess("tagging", place, settings, (sentence,), splits=_beside(place))


def _guess_table(table: TextTable, source: dict[str, Any], flags: LabelledTableFlags) -> Guess:
    place, frame = table.file, table.frame
    if frame.width < 2:
        raise DataError(
            f"{place} must have a column of texts and one of labels, separated by "
            f"{'tabs' if without_compression(place).suffix.lower() == '.tsv' else 'commas'}, but has {_columns(frame)}"
        )
    if "header" not in source and frame.columns == [str(number) for number in range(1, frame.width + 1)]:
        source["header"] = False
    columns, rivals = _guess_columns(table, flags.text_column, flags.label_column)
    source |= columns
    read = Source(path=str(place), **source)
    texts = table.column(read.text).drop_nulls().head(_SAMPLE).to_list()
    labelled, _ = table.labelled(read, say=False)
    text, label = labelled.column(read.text), labelled.column(read.label, "label")
    guessed, separator, why = _guess_type(text, label)
    kind = flags.type or guessed
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
        read = Source(path=str(place), **source)
    free = [column for column in frame if flags.text_column is None and column.name not in taken]
    sentences = [_columns_read(read, [column.name for column in free if is_prose(column)])]
    if flags.text_column is None and read.text not in frame.columns:
        sentences[0] += f" --text-column {read.text.partition('+')[2]} reads the latter alone."
    examples = ((cell, name) for cell, name in zip(text, label, strict=True) if cell is not None and str(cell).strip())
    sentences += [f"An example: {_shown(cell)!r} is {_shown(name)!r}." for cell, name in islice(examples, 1)]
    if read.text.lower() in LABEL_NAMES or read.label.lower() in TEXT_NAMES:
        how = f"--text-column {read.label} --label-column {read.text}"
        sentences.append(f"The columns of texts and labels look exchanged; {how} reads them as they are called.")
    if others := [name for name in rivals if name not in taken][:_RIVALS]:
        sentences.append(f"Labels may also stand in {' or '.join(others)}; --label-column names another column.")
    sentences += [
        f"Column '{column.name}' names splits, but is not read: all rows are of one. Put the rows of each into a file of its own: "
        "train.csv and test.csv."
        for column in free
        if names_splits(column)
    ]
    sentences += [why] if why and kind == guessed else []
    return Guess(kind, place, source, tuple(sentences), columns=tuple(frame.columns), rows=len(frame))


def _columns_read(read: Source, unread: Sequence[str]) -> str:
    """The columns that are read, and others that hold texts or say which texts belong together, as sentences."""
    second = "" if read.second is None else f" and '{read.second}'"
    sentence = f"The text is read from column '{read.text}'{second}, the label from '{read.label}'."
    if unread:
        all_of_them = f'--text-column "{"+".join((*unread, read.text))}" reads {"both" if len(unread) == 1 else "them all"}'
        sentence += f" Not read: {', '.join(unread)}; {all_of_them}."
    return sentence + (
        f" Texts with the same '{read.group}' belong together; --group-column none takes each by itself." if read.group else ""
    )


def _shown(cell: Any) -> str:
    """The beginning of a cell, on one line."""
    return " ".join(", ".join(map(str, cell)).split() if isinstance(cell, pl.Series) else str(cell).split())[:_SHOWN_CHARACTERS]


def _with_splits(guess: Guess, tables: Tables) -> Guess:
    """The guess with the files of other splits beside its table, if their labels are labels of this one."""
    files, sentences = dict[str, Path](), [*guess.explained]
    for name, file in _beside(guess.train).items():
        try:
            if new := _names(guess, tables, file) - _names(guess, tables, guess.train):
                raise DataError(f"{file} has labels that {guess.train.name} has not: {', '.join(map(repr, sorted(new)[:3]))}")
            files[name] = file
        except DataError as error:
            sentences.append(f"Not used as the {name} split: {error}.")
    return replace(guess, splits=files, explained=tuple(sentences))


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
        free = [name for name in table.frame.columns if name not in taken]
        return owner_column(table.frame, table.column(read.text), table.column(read.label, "label"), free)
    return None if named == NONE and NONE not in table.frame.columns else table.column(named, "group").name


def _guess_folder(place: Path, encoding: str | None) -> Guess:
    refuse_saved_dataset(place)
    inside = sorted(folder for folder in place.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    classes = [folder.name for folder in inside if any(file.suffix.lower() in _TEXT_ENDINGS for file in folder.iterdir())]
    without = [name for name in classes if name.lower().replace(" ", "_").replace("-", "_") in _UNLABELLED]
    classes = [name for name in classes if name not in without]
    if len(classes) < 2 or {name.lower() for name in classes} <= SPLITS:
        raise DataError(
            f"a folder must hold at least two folders of texts ({', '.join(_TEXT_ENDINGS)}), one per label, but {place} holds "
            f"{', '.join(classes) or 'none'}; write other documents as plain text first, or name a table"
        )
    source = {"document": "file"} | ({"encoding": encoding} if encoding else {})
    more = place / without[0] if without else None
    others = f", and {len(classes) - _SHOWN_LABELS} more" if len(classes) > _SHOWN_LABELS else ""
    sentences = [f"Each folder is a label: {', '.join(classes[:_SHOWN_LABELS])}{others}."]
    sentences += [f"The texts in {more} are read as texts without a label."] if more else []
    return Guess("classification", place, source, tuple(sentences), classes=tuple(classes), unlabelled=more)


def _guess_columns(whole: TextTable, text: str | None, label: str | None) -> tuple[dict[str, Any], Sequence[str]]:
    """The settings ``text``, ``label`` and ``second``, where they differ from the defaults; and other columns of labels."""
    table, place = whole.frame, whole.file
    for key, name in (("text", text), ("label", label)):
        if name is not None:
            whole.column(name, key)
    folded = {name.strip().lower(): name for name in reversed(table.columns)}
    pairs = [(folded[first], folded[second]) for first, second in PAIRS if {first, second} <= folded.keys()]
    pair = pairs[0] if pairs and text is None else None
    columns = [
        name for name in table.columns if name != label and (is_prose(table[name]) or name.strip().lower() not in LABEL_NAMES)
    ]
    text = text or (pair[0] if pair else _with_subject(table, columns))
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


def _with_subject(table: pl.DataFrame, columns: Sequence[str]) -> str | None:
    """The likeliest column of texts, below that of their subjects if there is one; None if no column may hold texts."""
    if not (names := text_columns(table, columns)):
        return None
    text, *others = names
    subjects = (name for name in others if name.strip().lower() in SUBJECT_NAMES and is_prose(table[name]))
    subject = next(subjects, None) if table[text].dtype == pl.String else None
    return f"{subject}+{text}" if subject else text


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


def _beside(place: Path) -> dict[str, Path]:
    """The files of other splits: ``train.csv`` -> ``test.csv``, ``mails_train.tsv.xz`` -> ``mails_dev.tsv.xz``."""
    head, train, tail = place.name.rpartition("train")
    near = {split: [place.with_name(f"{head}{name}{tail}") for name in names] for split, names in _SPLIT_NAMES.items() if train}
    nearest = {split: next(filter(Path.is_file, files), None) for split, files in near.items()}
    return {split: file for split, file in nearest.items() if file}


def path_from(folder: Path, file: Path) -> str:
    """The path that a manifest in ``folder`` has for a file."""
    return Path(os.path.relpath(file.absolute(), folder.absolute())).as_posix()


def _columns(table: pl.DataFrame) -> str:
    return f"the columns {', '.join(table.columns)}" if table.width > 1 else f"one column, {table.columns[0]}"
