"""The pool of a task: its text without labels, for what learns from such text too.

    rest (default)   the sources that the manifest calls ``unlabelled``, and the training texts whose labels are not in the budget
    none             no text
    FILE             the texts of a file instead: one per line, or a table with a column ``text``

Test and validation texts are never in it, nor texts that are equal to one, nearly the same, or contain one: a model that read them
would have seen what it is scored on. Texts of the budget are not repeated in it. A plain text file whose lines are not separated by
blank ones has a text on each line.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warmstart.data.budget import LabelBudget
from warmstart.data.read import by_lines, documents_of
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.data.text_key import plain_text, text_key, text_words
from warmstart.data.text_overlap import SHORTEST_NEAR, documents_with
from warmstart.data.units import independent_units
from warmstart.errors import DataError
from warmstart.system.storage import sha256

REST = "rest"
NO_POOL = "none"
POOL_FORMAT = 3
"""raised whenever other texts would be left out of the same pool"""


@dataclass(frozen=True)
class Pool:
    """Texts without labels that one run may read."""

    texts: tuple[str, ...]
    """plain strings, each once"""
    left_out: int = 0
    """texts that are not in it because they are equal to a test or validation text, nearly the same, or contain one"""

    def __len__(self) -> int:
        return len(self.texts)

    def __add__(self, other: Pool) -> Pool:
        """The texts of both, each once."""
        return Pool(tuple(dict.fromkeys((*self.texts, *other.texts))), self.left_out + other.left_out)

    def without(self, budget: LabelBudget) -> Pool:
        """The pool without the texts of a budget, or copies of them."""
        labelled = {text_key(plain_text(text)) for split in (budget.task.train, budget.task.validation) for text in split.texts}
        kept = tuple(text for text, key in zip(self.texts, self._keys, strict=True) if key not in labelled)
        return Pool(kept, self.left_out)

    @cached_property
    def _keys(self) -> list[str]:
        """Keys of the texts, alike for texts that count as the same, whatever the budget."""
        return [*map(text_key, self.texts)]


def task_pool(task: Task, source: str = REST) -> Pool:
    """All texts that may be in the pool of a task; ``without`` then takes out those of a budget. Once per task: it compares texts.

    ``source`` is ``rest``, ``none`` or a file. Raises ``DataError`` if the file holds a test text, or if it or the manifest's
    ``unlabelled`` text has no text that is not left out.
    """
    if source == NO_POOL:
        return Pool(())
    scored = scored_texts(task)
    given, where = _given(task, source), f"the 'unlabelled' text of '{task.name}'" if source == REST else source
    if source != REST:
        _refuse_test_texts(task, given, source)
    found = pool_unlike(given, scored)
    if not found and (source != REST or task.has_unlabelled):
        raise DataError(f"{where} must have texts that are not in test or validation, but has none; give more text")
    return found + pool_unlike(tuple(map(plain_text, task.train.texts)), scored) if source == REST else found


def texts_to_read(budget: LabelBudget, source: str = REST) -> Pool:
    """All that a method may read without labels: the pool of ``task_pool``, and the texts of the budget that learn.

    None is like a test or validation text.
    """
    task = budget.whole
    found = task_pool(task, source)
    if source != REST:
        return found + pool_unlike(tuple(map(plain_text, budget.task.train.texts)), scored_texts(task))
    return found


def scored_texts(task: Task) -> tuple[str, ...]:
    """The test and validation texts, which must not be read."""
    return tuple(plain_text(text) for split in task.held_out().values() for text in split.texts)


def pool_digest(task: Task, source: str = REST) -> str:
    """Identifies a pool with a task's own digest, of which its ``unlabelled`` text is no part; empty for ``none``."""
    return "" if source == NO_POOL else sha256(json.dumps([POOL_FORMAT, source == REST, *_given(task, source)]).encode())


def _given(task: Task, source: str) -> tuple[str, ...]:
    """The texts of the manifest's ``unlabelled`` sources, or of a file."""
    sources = by_lines(task.unlabelled) if source == REST else (Source(path=source, document="line"),)
    return (*(task.unlabelled_texts if source == REST else ()), *documents_of(sources))


@functools.lru_cache(maxsize=4)
def pool_unlike(texts: tuple[str, ...], scored: tuple[str, ...]) -> Pool:
    """The different texts that are not blank and not like a scored one, and how many texts are.

    A text is like a scored one if both are one unit, or if it contains one: word for word, or nearly if that has 14 words.
    Kept, because a sweep looks whether a file has any before its first trial, which reads the same.
    """
    different = [text for text in dict.fromkeys(texts) if text.strip()]
    units = independent_units((*different, *scored), None)
    like = np.isin(units[: len(different)], units[len(different) :])
    like |= documents_with([*map(text_words, scored)], [*map(text_words, different)], SHORTEST_NEAR)
    return Pool(tuple(text for text, out in zip(different, like, strict=True) if not out), int(like.sum()))


def _refuse_test_texts(task: Task, texts: Sequence[str], file: str) -> None:
    """Raise ``DataError`` if a text is exactly one of the test texts."""
    test = {plain_text(text).strip() for text in task.test.texts}
    if found := [text for text in dict.fromkeys(texts) if text.strip() in test]:
        raise DataError(
            f"a pool must hold no test text, but the test split of '{task.name}' has {len(found)} of the texts in {file}, such as "
            f"{found[0][:80]!r}; remove what it has, or name another file"
        )
