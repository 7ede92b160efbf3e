"""What one row of another program's file may hold: its text, who labelled it, names of labels, and spans of characters.

What is wrong with a row is said without its place, which the reader of the file adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from warmstart.data.label_cells import is_list, names_in
from warmstart.errors import DataError

Wanted = Literal["label", "labels", "tags"]
"""what a task needs of a text: one label, any number of them, or one for each word"""
OUTSIDE_NAME = "O"
"""the label of words in no span"""
PERSON_KEYS = ("person", "annotator", "username", "_annotator_id", "_session_id")
"""where rows name who labelled them"""


@dataclass(frozen=True)
class Annotation:
    """One person's label of one text."""

    where: str
    """file and line"""
    text: str
    person: str
    label: str | tuple[str, ...] | None
    """the name of a label; several names; one for each word; or None: skipped"""
    seconds: float = 0.0
    comment: str = ""


@dataclass(frozen=True)
class AskedRow:
    """Where a row is, and what is read of it."""

    where: str
    """file and line"""
    person: str
    """who labelled it, if it does not say so"""
    wanted: Wanted
    column: str = "text"
    """the name of the text, where a row has several"""

    def answer(self, text: Any, label: str | tuple[str, ...] | None, **known: Any) -> Annotation:
        """What a person said of a text."""
        return Annotation(self.where, text_in(text), **{"person": self.person, **known}, label=label)


class RowError(Exception):
    """What is wrong with one row."""


class UnlabelledRow(Exception):  # noqa: N818  # no error: the row has no answer
    """A row says nothing of its text."""


def text_in(text: Any) -> str:
    """A text."""
    if not isinstance(text, str):
        raise RowError(f"must have a text, but has {shortened(text)}")
    return text


def only_text(values: Mapping[str, Any], *columns: str) -> Any:
    """The text among values by name: that of the first of the columns which is there, or the only string; else None."""
    strings = [value for value in values.values() if isinstance(value, str)]
    named = next((values[column] for column in columns if column in values), None)
    if named is None and len(strings) > 1:
        names = ", ".join(str(name) for name, value in values.items() if isinstance(value, str))
        raise RowError(f"must say which of {names} is the text; name it with --text-column, or call it text")
    return named if named is not None or not strings else strings[0]


def person_in(values: Mapping[str, Any], default: str) -> str:
    """Who labelled a row."""
    named = [str(values[key]) for key in PERSON_KEYS if values.get(key) not in (None, "")]
    return named[0] if named else default


def label_in(label: Any) -> str:
    """The name of a label."""
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise RowError(f"must have the name of a label, but has {shortened(label)}")
    return str(label).strip()


def labels_in(cell: Any, wanted: Wanted, separator: str | None = None) -> str | tuple[str, ...]:
    """The label of a cell, or all of them: a name, a list, or what ``label_cells`` reads; ``separator`` parts names, if given."""
    if isinstance(cell, Mapping) or (isinstance(cell, str) and (is_list(cell) or (separator and separator in cell))):
        try:
            cell = [*names_in(cell, separator or "|")]
        except DataError as error:
            raise RowError(f"must have labels that can be read: {error}") from None
    names = cell if isinstance(cell, list) else [cell]
    return tuple(map(label_in, names)) if wanted == "labels" else only_label(names)


def only_label(labels: Any) -> str:
    """The one label of a list. A row with none has no answer."""
    labels = list_in(labels, "labels")
    if not labels:
        raise UnlabelledRow
    if len(labels) > 1:
        raise RowError(f"must have one label, but has {len(labels)}: {shortened(labels)}")
    return label_in(labels[0])


def list_in(values: Any, what: str) -> list[Any]:
    """A list."""
    if not isinstance(values, list):
        raise RowError(f"must have a list of {what}, but has {shortened(values)}")
    return values


def span_in(span: Any) -> tuple[int, int, str]:
    """A span from a list of three, or from values by name."""
    if isinstance(span, Mapping):
        ends = [span.get(key, span.get(f"{key}_offset")) for key in ("start", "end")]
        return checked_span(ends[0], ends[1], span.get("label", span.get("labels")))
    if isinstance(span, list) and len(span) == 3:
        return checked_span(*span)
    raise RowError(f"must have spans as [start, end, label], but has {shortened(span)}")


def checked_span(start: Any, end: Any, label: Any) -> tuple[int, int, str]:
    """A span; its label may stand alone in a list."""
    if type(start) is not int or type(end) is not int or not 0 <= start < end:
        raise RowError(f"must have spans that begin before they end, but one is from {shortened(start)} to {shortened(end)}")
    return start, end, only_label(label) if isinstance(label, list) else label_in(label)


def word_tags(text: str, spans: Sequence[tuple[int, int, str]]) -> tuple[str, ...]:
    """The label of each word: that of the span that touches it.

    ``"Ada, of London"`` with ``(0, 3, "PER")`` and ``(8, 14, "LOC")`` -> ``("PER", "O", "LOC")``.
    """
    tags, at = [], 0
    for _, end, _ in spans:
        if end > len(text):
            raise RowError(f"has a span that ends at {end}, but its text at {len(text)}")
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        names = {label for first, last, label in spans if first < at and last > start}
        if len(names) > 1:
            raise RowError(f"has several labels for the word {shortened(word)}: {', '.join(sorted(names))}")
        tags.append(names.pop() if names else OUTSIDE_NAME)
    return tuple(tags)


def shortened(value: Any) -> str:
    """A value for a message."""
    return repr(value)[:80]
