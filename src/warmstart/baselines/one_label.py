"""Classifiers that know one label per text, made to serve a task: unseen classes, a single class, several labels per text.

Letters: N texts, K classes that occur, C classes of the task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.baselines.baseline import Predict, Sample


@dataclass(frozen=True)
class ClassSample:
    """What a classifier learns from: at least two classes, and all classes up to the last one occur."""

    rows: Any
    """(N, ·)"""
    labels: np.ndarray
    """(N,) int64 from 0 to K - 1"""
    pool: Any
    """(M, ·) rows without labels, or None"""
    seed: int


ClassFit = Callable[[ClassSample, float], Predict]
"""a classifier: sample and setting -> a function from rows to (·, K) probabilities"""


def for_labels(fit: ClassFit) -> Callable[[Sample, float], Predict]:
    """The classifier for tasks with one label per text, or with several: then one for each label (one against the rest).

    Its predictions are (·, C) probabilities. Classes without a text get 0. If all texts are in one class, it gets 1.
    """

    @functools.wraps(fit)
    def fitted(sample: Sample, setting: float) -> Predict:
        if sample.labels.ndim == 1:
            return _in_classes(fit, sample, sample.labels, len(sample.task.labels), setting)
        parts = [_in_classes(fit, sample, column.astype(np.int64), 2, setting) for column in sample.labels.T]
        return lambda rows: np.stack([part(rows)[:, 1] for part in parts], axis=1)

    return fitted


def _in_classes(fit: ClassFit, sample: Sample, labels: np.ndarray, classes: int, setting: float) -> Predict:
    """The classifier of ``labels`` (N,), as a function from rows to (·, ``classes``) probabilities."""
    present, dense = np.unique(labels, return_inverse=True)
    predict = fit(ClassSample(sample.rows, dense, sample.pool, sample.seed), setting) if len(present) > 1 else None

    def probabilities(rows: Any) -> np.ndarray:
        found = np.zeros((rows.shape[0], classes))
        found[:, present] = 1 if predict is None else predict(rows)
        return found

    return probabilities


def softmax_of(margins: np.ndarray) -> np.ndarray:
    """(N, K) the softmax of margins (N, K), or (N,) with two classes, as ``decision_function`` returns them."""
    from scipy.special import softmax

    return np.asarray(softmax(np.stack([-margins, margins], axis=1) if margins.ndim == 1 else margins, axis=1))
