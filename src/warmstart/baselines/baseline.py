"""Baselines: how one reads texts, which needs no labels, and how it learns from those of them that have labels.

    read(texts that learn, pool)     ->  a function from inputs to rows, and the rows of the pool     once
    fit(rows, labels, setting)       ->  a function from rows to predictions                          once per fold and setting

Rows are anything that numpy can index: a sparse matrix, an array of vectors, or the inputs themselves. ``choice.py`` runs a
baseline.

Letters: N texts, M texts of the pool, D width of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from warmstart.data.task import Task
from warmstart.model.rows import plain_texts

NO_WORDS = "the training texts have no words in common"
Vectors = Callable[[Sequence[Any]], np.ndarray]
"""inputs -> (N, D) vectors of a frozen backbone"""
Predict = Callable[[Any], Any]
"""rows -> predictions in the form that the task type scores"""
_NO_VOTES: Any = partial(np.empty, 0, np.int64)


class NoWordsError(Exception):
    """The texts that learn have no words, or none in common, so that nothing but their labels is left to learn from."""


@dataclass(frozen=True)
class Readable:
    """Inputs and texts that a baseline may read: no labels, no validation and no test texts."""

    task: Task
    """the task, whose type and names of labels may be read"""
    inputs: tuple[Any, ...]
    """the inputs of all texts that learn"""
    pool: tuple[str, ...] = ()
    """texts without labels"""
    vectors: Vectors | None = None
    """the frozen backbone; None if there is none"""
    seed: int = 0
    units: tuple[int, ...] = ()
    """number of the independent unit of each input (``data/units.py``); empty: each input is one"""

    def words_of(self) -> list[str]:
        """The inputs as plain strings. Raises ``NoWordsError`` if all are empty."""
        texts = plain_texts(self.inputs)
        if not any(text.strip() for text in texts):
            raise NoWordsError
        return texts


@dataclass(frozen=True)
class Reading:
    """A mapping from inputs to rows, with the rows of the pool."""

    rows: Callable[[Sequence[Any]], Any]
    """inputs -> their rows"""
    pool: Any = None
    """(M, ·) the rows of the pool; None if the baseline does not read it, or if it is empty"""
    saved: Any = None
    """the reading in a form that can be saved (``fitted_baseline``); None: inputs are no rows of numbers"""
    names: Any = None
    """(C, ·) rows of what the labels mean; None if the baseline does not read that"""


@dataclass(frozen=True)
class Sample:
    """Rows and labels from which a baseline learns."""

    rows: Any
    """(N, ·)"""
    labels: np.ndarray
    """(N, ·) as in a ``Split``"""
    pool: Any
    """(M, ·) rows without labels, or None"""
    task: Task
    """the task, whose type and names of labels count"""
    seed: int
    names: Any = None
    """(C, ·) rows of what the labels mean, or None"""
    in_span: bool = False
    """rows are turned into their span (``span.py``)"""
    equal: bool = False
    """all classes are as likely before a text is read, however many texts they have"""
    votes: np.ndarray = field(default_factory=_NO_VOTES)
    """(N,) the label that a language model gives each text, -1 for none"""
    pool_votes: np.ndarray = field(default_factory=_NO_VOTES)
    """(M,) the same for texts of the pool"""


@dataclass(frozen=True)
class Baseline:
    """A method without a network of its own. A new one is a function in a file, and one row in ``BASELINES``."""

    read: Callable[[Readable], Reading]
    """reads the texts; raises ``NoWordsError`` if there is nothing to read"""
    fit: Callable[[Sample, float], Predict]
    """learns from a sample, with one value of the setting"""
    types: tuple[str, ...] | None = None
    """names of the task types that it serves; None: all"""
    setting: str = ""
    """the name of what is chosen"""
    candidates: tuple[float, ...] = ()
    """values of the setting that are tried; empty: nothing is chosen"""
    multilabel_candidates: tuple[float, ...] = ()
    """values that are tried with several labels per text; empty: the same as ``candidates``"""
    note: str = ""
    """note for reports when nothing is tuned; empty: the rule of the task type's constant prediction"""
    linear: bool = False
    """learns weights with a penalty on their squares from rows alone, so that it may learn in their span (``span.py``)"""
    quick: bool = False
    """a fit takes milliseconds, so that texts can be left out in many folds"""
    race_only: bool = False
    """a race runs it, but an adaptation leaves it out"""
    reads_pool: bool = False
    """reads texts without labels"""
    reads_votes: bool = False
    """reads only those for which a language model has voted, and its votes"""
    pool_limit: int | None = None
    """most texts without labels that are read; a larger pool is sampled"""
    limited_because: str = ""
    """reason for the limit, for reports"""
    needs_vectors: bool = False
    """reads vectors of a frozen backbone"""


def inputs_themselves(readable: Readable) -> Reading:
    """Rows are the inputs: (N,) objects."""
    return Reading(as_objects)


def as_objects(inputs: Sequence[Any]) -> np.ndarray:
    """(N,) objects, also if the inputs are equally long tuples."""
    rows = np.empty(len(inputs), dtype=object)
    rows[:] = [*inputs]
    return rows
