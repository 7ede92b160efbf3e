"""Gradient boosting on the other columns of a table, on top of answers to its texts; fitted by scikit-learn.

Boosting begins from the answers, so that columns which say nothing leave them as they are. Where answers take labels as equally
likely, it learns on top of answers times the labels' frequencies, which the saved trees leave out again: how frequent labels are is
nothing that a column tells. Letters: N rows, C labels, D numbers of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warmstart.data.cells import ColumnForm
from warmstart.model.beside import LEAF, LEAST, BesideText, BoostedTree, joined_rows

_ROUNDS, _FEWEST_ROUNDS, _MOST_TREES = 60, 15, 1200
"""rounds of boosting, each with a tree for every label; fewer with many labels"""
_RATE, _DEPTH, _LEAST_ROWS, _SHARE, _MOST_NUMBERS = 0.1, 2, 5, 0.5, 12
"""the part of each tree that counts, its depth, the rows of a leaf; the share of rows of a tree, and of numbers that a split looks
at, and the most of these"""
_MOST_ROWS = 5000
"""rows that learn, a random sample of more"""
_MOST_STEP = 2.0
"""largest change of a sum by one leaf"""


class _Answers:
    """The answers (N, C) from which boosting begins, in the form in which scikit-learn asks for them."""

    def __init__(self, answers: np.ndarray) -> None:
        self.answers = answers

    def fit(self, rows: np.ndarray, labels: np.ndarray, sample_weight: Any = None) -> _Answers:
        """Nothing is learned."""
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        """(N, C) the answers to the rows that learn; it is asked for no others."""
        return self.answers


def as_frequent(answers: np.ndarray, frequencies: np.ndarray | None) -> np.ndarray:
    """(N, C) answers no surer than ``LEAST`` allows, times ``frequencies`` (C,) of labels; None: several labels, each by itself."""
    kept = np.clip(answers, LEAST, 1 - LEAST)
    return kept if frequencies is None else np.asarray(kept * frequencies / (kept @ frequencies)[:, None])


def boosted(
    forms: Sequence[ColumnForm],
    cells: np.ndarray,
    answers: np.ndarray,
    labels: np.ndarray,
    frequencies: np.ndarray | None,
    rounds: int = _ROUNDS,
) -> BesideText:
    """Trees of at most so many rounds, learned from cells (N, D), answers (N, C) out of fold, and labels (N,) or (N, C) of 0 and 1.

    A label that no row has, or that all have, gets no tree. ``frequencies`` (C,) of labels, up to a factor, are those that answers
    leave out; None for several labels.
    """
    kept = np.random.default_rng(0).permutation(len(cells))[:_MOST_ROWS]
    rows, answers, labels = joined_rows(cells, answers)[kept], answers[kept], labels[kept]
    begin = as_frequent(answers, frequencies)
    if several := labels.ndim == 2:
        by_label = [
            _rounds(rows, np.column_stack([1 - begin[:, label], begin[:, label]]), labels[:, label], rounds, label)
            for label in np.flatnonzero(labels.min(axis=0) < labels.max(axis=0)).tolist()
        ]
        turns = [tuple(tree for trees in turn for tree in trees) for turn in zip(*by_label, strict=True)]
    else:
        turns = _rounds(rows, begin, labels, rounds)
    return BesideText(forms=tuple(forms), rounds=tuple(turns), several=several)


def _rounds(
    rows: np.ndarray, begin: np.ndarray, labels: np.ndarray, most: int, only: int | None = None
) -> list[tuple[BoostedTree, ...]]:
    """The trees of each round for labels (N,), on top of ``begin`` (N, C): at most ``most``, all for the label ``only``, if any."""
    from sklearn.ensemble import GradientBoostingClassifier

    present = np.unique(labels)
    begin = begin[:, present]
    model = GradientBoostingClassifier(
        init=_Answers(begin / begin.sum(axis=1, keepdims=True)),
        n_estimators=min(most, max(_FEWEST_ROUNDS, _MOST_TREES // len(present))),
        learning_rate=_RATE,
        max_depth=_DEPTH,
        min_samples_leaf=min(_LEAST_ROWS, max(1, len(rows) // 10)),
        subsample=_SHARE,
        max_features=min(_MOST_NUMBERS, max(1, round(_SHARE * rows.shape[1]))),
        random_state=0,
    ).fit(rows, labels)
    numbers = present if len(present) > 2 else present[1:]
    return [
        tuple(_tree(part.tree_, only if only is not None else number) for part, number in zip(turn, numbers.tolist(), strict=True))
        for turn in model.estimators_
    ]


def _tree(tree: Any, label: int) -> BoostedTree:
    """A tree of scikit-learn as plain values."""
    leaf = tree.children_left < 0
    return BoostedTree(
        label=label,
        column=tuple(np.where(leaf, LEAF, tree.feature).tolist()),
        threshold=tuple(np.where(leaf, 0.0, tree.threshold).tolist()),
        left=tuple(np.where(leaf, 0, tree.children_left).tolist()),
        right=tuple(np.where(leaf, 0, tree.children_right).tolist()),
        value=tuple(np.clip(_RATE * tree.value[:, 0, 0], -_MOST_STEP, _MOST_STEP).tolist()),
    )
