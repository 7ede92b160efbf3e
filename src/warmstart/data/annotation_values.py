"""What one row of a table of labels holds: its text, who labelled it, and names of labels.

What is wrong with a row is said without its place, which the reader of the file adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OUTSIDE_NAME = "O"
"""the label of words in no span"""
PERSON_KEYS = ("person", "annotator", "username")
"""columns that name who labelled a row"""


@dataclass(frozen=True)
class Annotation:
    """One person's label of one text."""

    where: str
    """file and line"""
    text: str
    person: str
    label: str | tuple[str, ...]
    """the name of a label; or one for each word"""


class RowError(Exception):
    """What is wrong with one row."""


def text_in(text: Any) -> str:
    """A text."""
    if not isinstance(text, str):
        raise RowError(f"must have a text, but has {shortened(text)}")
    return text


def person_in(values: Mapping[str, Any], default: str) -> str:
    """Who labelled a row."""
    named = [str(values[key]) for key in PERSON_KEYS if values.get(key) not in (None, "")]
    return named[0] if named else default


def label_in(label: Any) -> str:
    """The name of a label."""
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise RowError(f"must have the name of a label, but has {shortened(label)}")
    return str(label).strip()


def shortened(value: Any) -> str:
    """A value for a message."""
    return repr(value)[:80]
