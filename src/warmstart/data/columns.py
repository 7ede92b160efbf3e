"""The content of a table's columns: where their names stand, which has the texts, and which may have the labels.

Names that are known count, but less than what the cells hold: a column of numbers is no text, whatever it is called. Of columns
that may hold labels the likeliest is the one that the texts tell most about, not a split, a language, a date, or who wrote.

Texts of one author, customer or conversation are not independent. Their column is taken by its name if its values repeat; by its
values if these are people, addresses or numbers, or stand in the texts, and nearly always have one label.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from warmstart.data.label_cells import MISSING
from warmstart.system.console import print_once

TEXT_NAMES = (
    *("text", "body", "content", "message", "sentence", "review", "question", "comment", "document", "tweet", "abstract"),
    *("title", "words", "tokens"),
)
"""columns that hold texts, the likeliest first"""
SUBJECT_NAMES = ("subject", "title", "headline", "betreff", "titel", "objet", "titre", "asunto", "oggetto")
"""columns that say in short what a text is about, and are read above it"""
LABEL_NAMES = (
    *("label", "labels", "category", "categories", "class", "target", "topic", "topics", "intent", "tag", "tags", "sentiment"),
    *("rating", "stars", "score", "emotion", "queue"),
)
"""columns that hold labels, the likeliest first"""
_WEAK_NAMES = {"rating", "stars", "score", "queue", "tag", "tags"}
"""names of labels, and of what is measured beside them"""
_LABEL_WORDS = {*LABEL_NAMES} - _WEAK_NAMES | {
    *("kategorie", "klasse", "thema", "etikett", "rubrik", "categoria", "categoría", "catégorie", "categorie", "clase", "classe"),
    *("étiquette", "etiqueta", "tema", "sujet", "cible", "department", "abteilung"),
}
"""words of the names of columns that hold labels"""
_OTHER_WORDS = {
    *("split", "set", "fold", "partition", "subset", "lang", "language", "locale", "sprache", "langue", "idioma", "status"),
    *("state", "gender", "sex", "geschlecht", "anrede", "salutation", "source", "channel", "kanal", "date", "time", "datum"),
    *("year", "month", "day", "country", "region", "city", "author", "user", "username", "customer", "agent", "annotator"),
    *("person", "version", "id", "nr", "no", "number", "row", "index", "flag", "verified", "deleted", "active"),
    *("gold", "confidence", "worker", "created", "updated", "closed", "timestamp", "priority", "device", "platform", "url"),
    *("email", "name", "hour", "count"),
}
"""words of the names of columns that hold something else"""
SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval", "trial"}
_LANGUAGES = {
    *("en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "zh", "ja", "ko", "ar", "tr", "sv", "da", "fi", "no", "cs", "el"),
    *("he", "hi", "hu", "ro", "uk", "vi"),
}
FLAGS = {"0", "1", "0.0", "1.0", "true", "false", "yes", "no", "y", "n", "t", "f", "x", "ja", "nein", "oui", "non", "si", "sí"}
"""words for yes and no"""
HOLDS = {"1", "1.0", "true", "yes", "y", "t", "x", "ja", "oui", "si", "sí"}
_DATES = re.compile(r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}.*")
_SEVERAL_WORDS = r"\pL\S*\s+\S*\pL|[\x{0e00}-\x{0eff}\x{3040}-\x{30ff}\x{3400}-\x{9fff}\x{ac00}-\x{d7af}]{4}"
_SAMPLE, _LONGEST_LABEL = 2000, 60
_KNOWN = {*TEXT_NAMES, *LABEL_NAMES, "id", "split", "date", "person", "annotator", "username"}
_MOST_ABOVE, _LOOKED_AT = 10, 500
"""rows that may stand above the names, and rows by which that is decided"""
_ENOUGH = 4
"""rows from which on a first row can be told from them"""
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def named_columns(table: pl.DataFrame, file: Path, header: bool | None, above: str = "") -> pl.DataFrame:
    """A table of strings, whose columns have the names in its first row; without any they are numbered from 1.

    None: it is detected. Rows above the names are left out; ``above`` is the text of rows left out before.
    """
    rows = [["" if cell is None else cell.strip() for cell in row] for row in table.head(_LOOKED_AT).rows()]
    skipped, named = find_header(rows) if header is None else (0, header)
    if skipped:
        above = next(filter(None, rows[0]), "")
    if above:
        print_once(f"{file}: lines above the names of the columns are left out: {above[:60]!r}; --header yes reads names there.")
    if not named:
        table.columns = [str(number) for number in range(1, table.width + 1)]
        if header is None:
            print_once(
                f"{file}: the first row is like the others ({rows[0][0][:40]!r}) and is read as one of them; columns are numbered "
                "from 1; --header yes reads it as their names."
            )
        return table
    names = [(rows[skipped] if rows else [])[place] for place in range(table.width)]
    names = [name if name not in names[:place] else f"{name}_duplicated_{place}" for place, name in enumerate(names)]
    table = table.slice(skipped + 1)
    table.columns = names
    again = [number for number, row in enumerate(rows[skipped + 1 :]) if row == rows[skipped]]
    if len(names) > 1 and again:
        print_once(f"{file}: rows that repeat the names of the columns are left out: {len(again):,}.")
        table = table.filter(~pl.all_horizontal(pl.col(name).str.strip_chars() == name for name in names))
    return table


def find_header(rows: Sequence[Sequence[str]]) -> tuple[int, bool]:
    """Number of rows above the names of the columns, or above the table; True if there are names.

    >>> find_header([["Tickets of May", ""], ["text", "label"], ["hello", "a"]]), find_header([["a", "x"], ["b", "y"]])
    ((1, True), (0, True))
    """
    if not rows or _known(rows[0]):
        return 0, True
    for above in range(1, min(_MOST_ABOVE + 1, len(rows))):
        if _known(rows[above]) >= min(2, len(rows[above])) and all(rows[above]) and len({*rows[above]}) == len(rows[above]):
            return above, True
    is_title = [(bool(row[0]) and not any(row[1:])) or not any(row) for row in rows[: _MOST_ABOVE + 1]]
    above = is_title.index(False) if len(rows[0]) > 1 and is_title[0] and False in is_title else 0
    if above and all(rows[above]) and len(rows) > above + 1 and all(map(all, rows[above + 1 : above + 3])):
        return above, not _like_others(rows[above:])
    return 0, not _like_others(rows)


def _words(name: str) -> set[str]:
    """The words of a name, in lower case: of ``ticketClass_name2`` ticket, class and name."""
    return {*map(str.lower, re.split(r"[\W_\d]+|(?<=[a-z])(?=[A-Z])", name))}


def _known(row: Sequence[str]) -> int:
    """Number of cells with a word that names columns: ``Ticket text`` and ``class_name``, but no sentence."""
    return sum(len(cell) <= 30 and len(cell.split()) <= 3 and bool((_KNOWN | _LABEL_WORDS) & _words(cell)) for cell in row)


def names_columns(row: Sequence[str]) -> bool:
    """True if a row has a name of texts or labels, and no sentence."""
    return bool(_known(row)) and all(len(cell.split()) <= 3 for cell in row)


def _like_others(rows: Sequence[Sequence[str]]) -> bool:
    """True if the first row holds what the others hold: a label that recurs, a number above numbers, or else a text above texts."""
    first, others = rows[0], rows[1:]
    if len(others) < _ENOUGH:
        return False
    signs = list[bool]()
    prose = False
    for name, *cells in zip(first, *others, strict=True):
        cells = list(filter(None, cells))
        if not name or not cells:
            continue
        if all(map(_NUMBER.fullmatch, cells)):
            signs.append(bool(_NUMBER.fullmatch(name)) and len({*cells}) > 1)
        elif len({*cells}) <= len(cells) / 2:
            signs.append(cells.count(name) > 1)
        else:
            words = [len(cell.split()) for cell in (name, *cells)]
            prose = prose or (words[0] > 4 and name[-1] not in "?:" and sum(count > 4 for count in words) > 0.8 * len(words))
    return any(signs) if signs else prose


def text_columns(table: pl.DataFrame, free: Sequence[str]) -> list[str]:
    """The columns that may hold the texts, the likeliest first: known names and several words, then the longest cells."""
    known = [column for name in TEXT_NAMES for column in free if column.strip().lower() == name]
    strings = [name for name in free if table[name].dtype == pl.String]
    by_length = sorted(strings, key=lambda name: -float(str(table[name].head(_SAMPLE).str.len_chars().mean() or 0)))
    prose = [name for name in by_length if is_prose(table[name])]
    named = [name for name in known if name in prose or table[name].dtype.is_nested()]
    return [*dict.fromkeys([*named, *prose, *known, *by_length])]


def is_prose(column: pl.Series) -> bool:
    """True if most cells hold several words, and few hold the same."""
    if column.dtype != pl.String:
        return False
    cells = column.drop_nulls().head(_SAMPLE)
    return len(cells) > 1 and min(cells.str.contains(_SEVERAL_WORDS).sum(), cells.n_unique()) > len(cells) / 2


def strings_in(column: pl.Series) -> list[str]:
    """The first cells of a column, without white space around them; those without a value are empty."""
    return [str(cell).strip() for cell in column.head(_SAMPLE).cast(pl.String).fill_null("").to_list()]


def names_splits(column: pl.Series) -> bool:
    """True if a column says of each row to which split it belongs."""
    values = {*map(str.lower, strings_in(column))} - {""} if column.dtype == pl.String else set()
    return len(values) > 1 and values <= SPLITS


def label_columns(table: pl.DataFrame, free: Sequence[str], text: pl.Series | None) -> list[str]:
    """The columns that may hold labels, the likeliest first; several that say of one label each whether it holds are ``a+b``."""
    known = [column for name in LABEL_NAMES for column in free if column.strip().lower() == name]
    ranks = {name: rank for name in free if (rank := _rank(table[name], name)) is not None}
    flags = [name for name in free if ranks.get(name) == 3 and {*map(str.lower, strings_in(table[name]))} - {""} <= FLAGS]
    sure = [name for name in known if table[name].dtype.is_nested() or ranks.get(name) == 0]
    words = strings_in(text) if not sure and text is not None and text.dtype == pl.String else []
    gains = {name: _told(words, strings_in(table[name])) if words and len(ranks) > 1 else 0.0 for name in ranks}
    ranked = sorted(ranks, key=lambda name: (ranks[name], -round(gains[name], 1), table[name].n_unique()))
    if not sure and len(flags) > 1 and all(ranks[name] > 2 for name in ranked):
        return ["+".join(flags), *(name for name in ranked if name not in flags)]
    good = [name for name in ranked if ranks[name] < 4]
    return [*dict.fromkeys([*sure, *(good if sure or good else known), *known, *ranked])]


def _rank(column: pl.Series, name: str) -> int | None:
    """Rank of a column among those of labels, from 0, the likeliest, to 4; None: its cells are no labels."""
    if column.dtype.is_nested():
        return None
    cells, folded, words = list(filter(None, strings_in(column))), name.strip().lower(), _words(name)
    exact, lower = folded in LABEL_NAMES, {cell.lower() for cell in cells}
    numbers = bool(cells) and all(map(_NUMBER.fullmatch, cells))
    marks = bool(lower) and lower <= HOLDS and len(cells) < len(column)  # an x, or nothing
    repeated = len(lower) >= 2 and (len({*cells}) < len(cells) or (numbers and exact))
    if not (marks or repeated) or max(map(len, cells)) > _LONGEST_LABEL:
        return None
    if exact and folded not in _WEAK_NAMES:
        return 0
    if lower <= SPLITS or lower <= _LANGUAGES or all(map(_DATES.fullmatch, cells)):
        return 4
    if words & _LABEL_WORDS:
        return 1
    if words & _OTHER_WORDS:
        return 4
    return 3 if (numbers and not exact) or marks or lower <= FLAGS else 2


def _told(texts: Sequence[str], labels: Sequence[str]) -> float:
    """Accuracy of a column predicted from the words of the texts, by naive Bayes on a half, beyond its commonest value."""
    rows = [(sorted({*text.lower().split()})[:60], label) for text, label in zip(texts, labels, strict=True) if label]
    random.Random(0).shuffle(rows)
    rows = rows[:600]
    learn, ask = rows[::2], rows[1::2]
    counts, sizes = dict[str, Counter[str]](), Counter(label for _, label in learn)
    for words, label in learn:
        counts.setdefault(label, Counter()).update(words)
    if not ask or len(sizes) < 2 or len(sizes) > 50:
        return 0.0
    right = 0
    for words, label in ask:
        scores = {
            name: math.log(size) + sum(math.log((counts[name][word] + 0.5) / (size + 1)) for word in words)
            for name, size in sizes.items()
        }
        right += max(scores, key=scores.__getitem__) == label
    commonest = max(Counter(label for _, label in ask).values())
    return (right - commonest) / len(ask)


def holding(table: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Lists of the columns that hold in each row."""
    rows = zip(*(table[name].cast(pl.String).fill_null("").to_list() for name in names), strict=True)
    return pl.Series(
        [[name for name, cell in zip(names, row, strict=True) if _holds(cell)] for row in rows], dtype=pl.List(pl.String)
    )


def _holds(cell: Any) -> bool:
    value = str(cell).strip().lower()
    return value in HOLDS or bool(_NUMBER.fullmatch(value) and float(value.replace(",", ".")) >= 0.5)


# ------------------------------------------------------------------------------------------------ whose a text is

NONE = "none"
"""instead of a column: each text stands alone"""
_NAMES = re.compile(
    r"(?:author|user|customer|client|owner|sender|from|speaker|writer|reviewer|poster|patient|student|account|member|person|employee"
    r"|family|household|group|thread|conversation|dialog|dialogue|session|document|doc|article|autor|kunde|absender|verfasser"
    r"|client|auteur)s?(?:[ _.-]*(?:id|ids|name|no|nr|number|key|email|mail|address))?|e-?mail(?:[ _-]*address)?",
    re.I,
)
_VALUES = re.compile(r"\S+@\S+\.\S+|[^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){1,3}|(?=\S*\d)[\w:.#/-]{2,}")
"""addresses, names of several words, and identifiers with a number"""
OWNERS_OF_NAME, FEWEST_OWNERS = 4, 8
"""different values of a column of such a name, and of another"""
LABELS_TIMES = 2
"""values of another column for each label; fewer are finer labels"""
ONE_LABEL, ABOVE_CHANCE = 0.9, 0.1
"""share of texts that have the most frequent label of their value; and how much more that is than with values at random"""
ORDERS = 99
"""random orders of the labels, all of which must say less: a test at the 1% level (Phipson and Smyth 2010)"""
FIRST_ROWS = 10_000
"""rows with a label that are looked at"""
LIKE_OWNERS, IN_TEXT = 0.8, 0.5
"""share of values that look like owners, and of texts in which their value stands"""
LEAST_LETTERS = 4
"""fewest letters of a value that is looked for in texts"""


def owner_column(table: pl.DataFrame, text: pl.Series, label: pl.Series, free: Sequence[str]) -> str | None:
    """The likeliest of the ``free`` columns; None if none looks like owners."""
    strings = {
        name: cells_of(table[name]) for name in free if not table[name].dtype.is_nested() and not table[name].dtype.is_float()
    }
    labels = cells_of(label)
    named = (
        name
        for name, cells in strings.items()
        if _NAMES.fullmatch(name.strip()) and _repeats(cells, OWNERS_OF_NAME) and _tells(cells, labels)
    )
    other = (name for name, cells in strings.items() if _repeats(cells, FEWEST_OWNERS) and _owns(cells, cells_of(text), labels))
    return next(named, None) or next(other, None)


def cells_of(column: pl.Series) -> list[str]:
    """A column as strings, without white space around them; those without a value are empty."""
    return ["" if cell is None else str(cell).strip() for cell in column.to_list()]


def _repeats(values: Sequence[str], fewest: int) -> bool:
    """True if nearly all rows have a value, of which there are several, with two texts each in the mean."""
    filled = [value for value in values if value]
    return fewest <= len({*filled}) <= len(filled) / 2 and len(filled) > ONE_LABEL * len(values)


def _tells(values: Sequence[str], labels: Sequence[str]) -> bool:
    """True if the labels depend on the values beyond chance, in the rows that have a label."""
    rows = [row for row, label in enumerate(labels) if label.lower() not in MISSING][:FIRST_ROWS]
    kept, targets = (_numbers([cells[row] for row in rows]) for cells in (values, labels))
    draw, own = np.random.default_rng(0), _one_label(kept, targets)
    return all(_one_label(kept, draw.permutation(targets)) < own for _ in range(ORDERS))


def _owns(values: Sequence[str], texts: Sequence[str], labels: Sequence[str]) -> bool:
    """True if values look like owners, each of whom nearly always has one label."""
    different = {*values}
    if len(different) < LABELS_TIMES * len({*labels}):
        return False
    inside = np.mean(
        [len(value) >= LEAST_LETTERS and value.lower() in text.lower() for value, text in zip(values, texts, strict=True)]
    )
    if inside < IN_TEXT and sum(bool(_VALUES.fullmatch(value)) for value in different) < LIKE_OWNERS * len(different):
        return False
    rows, columns = _numbers(values), _numbers(labels)
    own = _one_label(rows, columns)
    return own >= ONE_LABEL and own > ABOVE_CHANCE + _one_label(rows, np.random.default_rng(0).permutation(columns))


def _numbers(cells: Sequence[str]) -> np.ndarray:
    """(N,) the number of each cell's value among the different ones."""
    return np.unique(np.array(cells, dtype=object), return_inverse=True)[1]


def _one_label(rows: np.ndarray, columns: np.ndarray) -> float:
    """The share of rows, given as the numbers (N,) of their values and labels, that have the most frequent label of their value."""
    if not len(rows):
        return 0.0
    counts = np.bincount(rows * (columns.max() + 1) + columns, minlength=(rows.max() + 1) * (columns.max() + 1))
    return float(counts.reshape(rows.max() + 1, -1).max(axis=1).sum() / len(rows))
