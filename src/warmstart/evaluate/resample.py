"""Scores on resamples of the test split: the same draws for every method, so that methods can be compared resample by resample.

Letters: N texts, C classes, R resamples.
"""

from __future__ import annotations

import numpy as np

from warmstart.seeding import rng

DRAWS = 1000
"""resamples; the bounds of an interval are then good to a twentieth of its width"""


def resampled(metric: str, labels: np.ndarray, answers: np.ndarray, classes: int, draws: int = DRAWS) -> np.ndarray:
    """(R,) the ``metric`` of ``answers`` (N,) against ``labels`` (N,) on resamples of the texts.

    The draws depend on N alone. A resample is told by its confusion: how often each pair of true and given class was drawn.
    """
    count, cells = len(labels), labels * classes + answers
    kinds, places = np.unique(cells, return_inverse=True)
    out = np.empty(draws)
    for draw in range(draws):
        chosen = rng(count, "resample", draw).integers(0, count, count)
        confusion = np.zeros(classes * classes)
        confusion[kinds] = np.bincount(places[chosen], minlength=len(kinds))
        out[draw] = _score(metric, confusion.reshape(classes, classes))
    return out


def _score(metric: str, confusion: np.ndarray) -> float:
    """Accuracy, or macro F1 in which a class that is neither true nor given counts 0."""
    right = np.diag(confusion)
    if metric == "accuracy":
        return float(right.sum() / confusion.sum())
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(np.divide(2 * right, both, out=np.zeros(len(both)), where=both > 0).mean())
