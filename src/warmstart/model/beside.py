"""What a stack reads beside the text: trees on the other columns of a table, which move its probabilities.

Letters: N rows, C labels, D numbers of a row (``data/cells.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from warmstart.config import Config
from warmstart.data.cells import ColumnForm, cell_matrix
from warmstart.model.bundle import Calibration

LEAF = -1
"""the number of the column at a leaf, which splits no more"""
DEEPEST = 8
"""most splits on the way to a leaf"""
LEAST = 1e-4
"""smallest probability from which boosting begins: nearer to none, the steps of its leaves have no bound"""


class BoostedTree(Config):
    """A regression tree in the order of its nodes, from the root on; each value is added to the sum of one label."""

    label: int = Field(ge=0)
    """number of that label"""
    column: tuple[int, ...] = Field(min_length=1)
    """number of a row by which each node splits, or ``LEAF``"""
    threshold: tuple[float, ...]
    """rows of which that number is at most this one go left"""
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]
    """value of each node; that of a leaf is added"""

    @model_validator(mode="after")
    def _whole(self) -> BoostedTree:
        nodes, lists = len(self.column), (self.threshold, self.left, self.right, self.value)
        inside = all(0 <= child < nodes for child in (*self.left, *self.right))
        if any(len(part) != nodes for part in lists) or not inside:
            raise ValueError("a tree must have a threshold, two nodes of its own and a value for each node, but has not")
        return self

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """(N,) values for rows (N, D + C)."""
        column, threshold = np.array(self.column), np.array(self.threshold)
        left, right, at = np.array(self.left), np.array(self.right), np.zeros(len(rows), dtype=np.int64)
        for _ in range(DEEPEST):
            inner = column[at] != LEAF
            goes_left = rows[np.arange(len(rows)), np.maximum(column[at], 0)] <= threshold[at]
            at = np.where(inner, np.where(goes_left, left[at], right[at]), at)
        return np.array(self.value)[at]


class BesideText(Config):
    """Gradient boosting on other columns and on the answers to the text, from which it begins (Friedman 2001)."""

    forms: tuple[ColumnForm, ...] = Field(min_length=1)
    """the columns that it reads"""
    rounds: tuple[tuple[BoostedTree, ...], ...]
    """trees in the order in which they were learned; those of a round are for one label each"""
    several: bool = False
    """True: each label has a probability of its own"""
    text: Calibration = Calibration()
    """calibration of the answers to the text alone"""

    def fits(self, labels: int) -> bool:
        """True if every tree adds to one of so many labels, and reads no number beyond those of a row and its answers."""
        width = sum(form.width for form in self.forms) + labels
        return all(tree.label < labels and max(tree.column) < width for trees in self.rounds for tree in trees)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that it reads."""
        return tuple(form.name for form in self.forms)

    def __call__(self, answers: np.ndarray, inputs: Sequence[Any]) -> np.ndarray:
        """(N, C) probabilities from calibrated ``answers`` (N, C) to the texts, and the cells that come with the inputs."""
        *_, last = self.staged(answers, cell_matrix(self.forms, inputs))
        return last

    def staged(self, answers: np.ndarray, cells: np.ndarray) -> Iterator[np.ndarray]:
        """(N, C) probabilities from answers (N, C) and cells (N, D), before the first round and after each."""
        rows, sums = joined_rows(cells, answers), _start(answers, several=self.several)
        yield answers
        for trees in self.rounds:
            for tree in trees:
                sums[:, tree.label] += tree(rows)
            yield _probabilities(sums, several=self.several)


def joined_rows(cells: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """(N, D + C) rows of a tree, in the precision in which trees learn."""
    return np.concatenate([cells, answers], axis=1).astype(np.float32)


def _start(answers: np.ndarray, *, several: bool) -> np.ndarray:
    """(N, C) sums from which boosting begins: those of which ``answers`` are the probabilities."""
    kept = np.clip(answers, LEAST, 1 - LEAST)
    return np.log(kept) - np.log1p(-kept) if several else np.log(kept)


def _probabilities(sums: np.ndarray, *, several: bool) -> np.ndarray:
    """(N, C) probabilities of sums (N, C): each by itself, or all of a row together 1."""
    from scipy.special import expit, softmax

    return np.asarray(expit(sums) if several else softmax(sums, axis=1))
