"""How good the method is that its own labels chose: the accuracy out of fold, less the luck of having been chosen.

Nothing but the labels is needed: no test text, and no fit beyond those of the folds. Letters: M methods, N texts, R repetitions
of cross-validation, each with other folds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import wilson_interval

_RESAMPLES = 1000
"""resamples of the texts, in which the choice is made again"""
REPEATED, ONCE = 1.2, 1.6
"""by how much folds widen the interval: with five repetitions or more, and with fewer"""
MANY_REPETITIONS = 5


@dataclass(frozen=True)
class SelectedAccuracy:
    """The best method, and what to expect of it once it has learned from all N texts."""

    index: int
    """of the method"""
    out_of_fold: float
    """its accuracy out of fold, which flatters it, because it was chosen by it"""
    optimism: float
    """by how much, in the mean over resamples"""
    expected: Estimate
    """its accuracy on new texts with a 95% interval"""


def selected_accuracy(right: np.ndarray, repetitions: int, units: np.ndarray | None = None) -> SelectedAccuracy:
    """The best of M methods, and the accuracy to expect of it after fitting it to all N texts.

    ``right`` (M, N) is the share of ``repetitions`` in which each method predicted each text correctly out of fold; ``units`` (N,)
    are equal for texts that depend on each other, such as copies. With the accuracies p = mean(right), the optimism is the mean of
    p*_b* - p_b* over resamples of the units, where b* is the best method of the resample and p* its accuracy there (the bootstrap
    bias correction of Tsamardinos, Greasidou and Borboudakis 2018). The interval is that of Wilson 1927 around p less the
    optimism, with N / 1.2 texts for five repetitions and N / 1.6 for fewer, because the folds are fitted to overlapping texts.
    Simulation: tests/test_selected.py: ``test_the_accuracy_of_what_was_selected_is_covered``.

    >>> right = np.array([[1.0] * 80 + [0.0] * 20, [1.0] * 50 + [0.0] * 50])
    >>> found = selected_accuracy(right, repetitions=5)
    >>> found.index, found.out_of_fold, round(found.expected.low, 2), round(found.expected.high, 2)
    (0, 0.8, 0.7, 0.87)
    """
    groups = np.arange(right.shape[1]) if units is None else np.unique(units, return_inverse=True)[1]
    sizes = np.bincount(groups).astype(float)
    sums = np.stack([np.bincount(groups, weights=row) for row in right])
    best = int(right.mean(axis=1).argmax())
    counts = rng(0, "optimism of a selection").multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=_RESAMPLES)
    resampled = counts @ sums.T / (counts @ sizes)[:, None]
    chosen = resampled.argmax(axis=1)
    optimism = float(np.mean(resampled.max(axis=1) - right.mean(axis=1)[chosen]))
    out_of_fold = float(right[best].mean())
    expected = min(1.0, max(0.0, out_of_fold - optimism))
    effective = len(sizes) / (REPEATED if repetitions >= MANY_REPETITIONS else ONCE)
    return SelectedAccuracy(best, out_of_fold, optimism, wilson_interval(expected, effective))
