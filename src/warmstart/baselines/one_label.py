"""Classifiers that know one label per text, made to serve a task: unseen classes, a single class, several labels per text.

Letters: N texts, K classes that occur, C classes of the task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.baselines.baseline import Sample
from warmstart.stack.readout import ClassReadout, ConstantReadout, LinearReadout, PerLabelReadout, Readout


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


ClassFit = Callable[[ClassSample, float], ClassReadout]
"""a classifier: sample and setting -> a function from rows to (·, K) probabilities"""


def for_labels(fit: ClassFit) -> Callable[[Sample, float], Readout | PerLabelReadout]:
    """The classifier for tasks with one label per text, or with several: then one for each label (one against the rest).

    Its predictions are (·, C) probabilities. Classes without a text get 0. If all texts are in one class, it gets 1.
    """

    @functools.wraps(fit)
    def fitted(sample: Sample, setting: float) -> Readout | PerLabelReadout:
        if sample.labels.ndim == 1:
            return _in_classes(fit, sample, sample.labels, len(sample.task.labels), setting)
        return PerLabelReadout(tuple(_in_classes(fit, sample, one.astype(np.int64), 2, setting) for one in sample.labels.T))

    return fitted


def _in_classes(fit: ClassFit, sample: Sample, labels: np.ndarray, classes: int, setting: float) -> Readout:
    """The classifier of ``labels`` (N,), as a function from rows to (·, ``classes``) probabilities."""
    present, dense = np.unique(labels, return_inverse=True)
    if len(present) == 1:
        return ConstantReadout(np.eye(classes)[present[0]])
    return fit(ClassSample(sample.rows, dense, sample.pool, sample.seed), setting).spread(present, classes)


def from_margins(weights: np.ndarray, bias: np.ndarray, side: float = 1.0) -> LinearReadout:
    """The softmax of margins x W + b, (D, K) and (K,); with two classes, (D, 1) and (1,) as scikit-learn has them.

    These stand for the margins -``side`` m and m: with 1 those of a support vector machine for and against; with 0 and m, of which
    the softmax is the logistic function, ``side`` is 0.
    """
    if weights.shape[1] > 1:
        return LinearReadout(weights, bias)
    return LinearReadout(np.concatenate([-side * weights, weights], axis=1), np.concatenate([-side * bias, bias]))
