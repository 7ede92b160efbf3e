"""How good the method is that its own labels chose: its score out of fold, less the luck of having been chosen.

Nothing but the labels is needed: no test text, and no fit beyond those of the folds. Letters: M methods, N texts, R repetitions
of cross-validation, each with other folds, C labels, K figures of a text that add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
class SelectedScore:
    """The best method, and what to expect of it once it has learned from all N texts."""

    index: int
    """of the method"""
    out_of_fold: float
    """its score out of fold, which flatters it, because it was chosen by it"""
    optimism: float
    """by how much, in the mean over resamples"""
    expected: Estimate
    """its score on new texts with a 95% interval"""
    resampled: np.ndarray = field(repr=False, compare=False)
    """its score out of fold on 1,000 resamples of the texts, which are the same for other methods of these texts"""


def selected_accuracy(right: np.ndarray, repetitions: int, units: np.ndarray | None = None) -> SelectedScore:
    """The most accurate of M methods, and the accuracy to expect of it after fitting it to all N texts.

    ``right`` (M, N) is the share of ``repetitions`` in which each method predicted each text correctly out of fold; ``units`` (N,)
    are equal for texts that depend on each other, such as copies. Its luck is taken off by the bootstrap of Tsamardinos, Greasidou
    and Borboudakis 2018. Simulation: tests/test_choice.py: ``test_the_accuracy_of_what_was_selected_is_covered``.

    >>> right = np.array([[1.0] * 80 + [0.0] * 20, [1.0] * 50 + [0.0] * 50])
    >>> found = selected_accuracy(right, repetitions=5)
    >>> found.index, found.out_of_fold, round(found.expected.low, 2), round(found.expected.high, 2)
    (0, 0.8, 0.7, 0.87)
    """
    return _selected(right[:, :, None], lambda means: means[..., 0], repetitions, units)


def selected_f1(
    predicted: np.ndarray, labels: np.ndarray, average: str, repetitions: int, units: np.ndarray | None = None
) -> SelectedScore:
    """The same by F1, ``average`` macro or micro: ``labels`` (N, C) are 1 where a text has a label, else 0.

    ``predicted`` (M, N, C) is the share of repetitions in which each method gives a text each label. F1 = 2 hits / (predictions +
    labels), of each class that occurs for macro, of all together for micro (Opitz and Burst 2019). Simulation:
    tests/test_choice.py: ``test_f1_of_what_was_selected_is_covered``.

    >>> labels = np.eye(2)[[0] * 60 + [1] * 40]
    >>> always_first = np.eye(2)[[0] * 100]
    >>> found = selected_f1(np.stack([labels, always_first]), labels, "macro", repetitions=5)
    >>> found.index, found.out_of_fold
    (0, 1.0)
    """
    some = labels.any(axis=0) if average == "macro" else np.ones(labels.shape[1], dtype=bool)
    predicted, labels = predicted[..., some], labels[:, some]
    counts = np.stack([2 * predicted * labels, predicted + labels], axis=-1)

    def f1(means: np.ndarray) -> np.ndarray:
        means = means.reshape(*means.shape[:-1], -1, 2)
        means = means.sum(axis=-2, keepdims=True) if average == "micro" else means
        return (means[..., 0] / np.maximum(means[..., 1], 1e-12)).mean(axis=-1)

    return _selected(counts.reshape(*counts.shape[:2], -1), f1, repetitions, units)


def _selected(
    figures: np.ndarray, score: Callable[[np.ndarray], np.ndarray], repetitions: int, units: np.ndarray | None = None
) -> SelectedScore:
    """The best of M methods by a score between 0 and 1, and what to expect of it after fitting it to all N texts.

    ``figures`` (M, N, K) are those of each text out of fold, and ``score`` makes (...) of their means (..., K) over texts. The
    optimism is the mean of s*_b* less the mean s* of that method, over resamples of the units, where b* is the best method of the
    resample and s* its score there (the bootstrap bias correction of Tsamardinos, Greasidou and Borboudakis 2018). The interval is
    that of Wilson 1927 around p, the score less the optimism, with p (1 - p) / var(s*) texts, at most the number of units, divided
    by 1.2 for five repetitions and 1.6 for fewer, because the folds are fitted to overlapping texts. The luck of a single fit
    is not in it: a network whose fits differ by more than two points is less certain.
    """
    groups = np.arange(figures.shape[1]) if units is None else np.unique(units, return_inverse=True)[1]
    sizes = np.bincount(groups).astype(float)
    sums = np.zeros((len(sizes), *figures.shape[::2]))
    np.add.at(sums, groups, figures.swapaxes(0, 1))
    scores = score(figures.mean(axis=1))
    best = int(scores.argmax())
    counts = rng(0, "optimism of a selection").multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=_RESAMPLES)
    resampled = score(np.einsum("rn,nmk->rmk", counts, sums, optimize=True) / (counts @ sizes)[:, None, None])
    chosen = resampled.argmax(axis=1)
    optimism = float(np.mean(resampled.max(axis=1) - resampled.mean(axis=0)[chosen]))
    expected = min(1.0, max(0.0, float(scores[best]) - optimism))
    product, spread = expected * (1 - expected), float(resampled[:, best].var())
    known = min(product, spread) > 1e-12  # not if every text is right, or none
    texts = min(len(sizes), max(1.0, product / spread)) if known else len(sizes)
    texts /= REPEATED if repetitions >= MANY_REPETITIONS else ONCE
    return SelectedScore(best, float(scores[best]), optimism, wilson_interval(expected, texts), resampled[:, best])
