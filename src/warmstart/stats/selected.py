"""How good the method is that its own labels chose: its score out of fold, less the luck of having been chosen.

Nothing but the labels is needed: no test text, and no fit beyond those of the folds. Letters: M methods, N texts, C labels, K
figures of a text that add up.
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
WIDER = 1.6
"""by how much folds widen the interval, since they are fitted to overlapping texts"""
AHEAD = 1.645
"""standard errors by which a method must be ahead of the favourite: 5%, one-sided"""
HARDLY = 0.01
"""the chance to be the best below which a method learns no further folds"""


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


def selected_accuracy(right: np.ndarray, units: np.ndarray | None = None, favourite: int | None = None) -> SelectedScore:
    """The most accurate of M methods, and the accuracy to expect of it after fitting it to all N texts.

    ``right`` (M, N) is 1 where a method predicted a text correctly out of fold, else 0; ``units`` (N,) are equal for texts that
    depend on each other, such as copies. A ``favourite`` is selected unless another is ahead of it beyond chance. The luck of what
    was selected is taken off by the bootstrap of Tsamardinos, Greasidou and Borboudakis 2018. Simulation: tests/test_choice.py:
    ``test_the_accuracy_of_what_was_selected_is_covered``.

    >>> right = np.array([[1.0] * 80 + [0.0] * 20, [1.0] * 50 + [0.0] * 50])
    >>> found = selected_accuracy(right)
    >>> found.index, found.out_of_fold, round(found.expected.low, 2), round(found.expected.high, 2)
    (0, 0.8, 0.7, 0.87)
    """
    return _selected(right[:, :, None], lambda means: means[..., 0], units, favourite)


def selected_f1(
    predicted: np.ndarray, labels: np.ndarray, average: str, units: np.ndarray | None = None, favourite: int | None = None
) -> SelectedScore:
    """The same by F1, ``average`` macro or micro: ``labels`` (N, C) are 1 where a text has a label, else 0.

    ``predicted`` (M, N, C) is 1 for each label that a method gives a text out of fold. F1 = 2 hits / (predictions +
    labels), of each class that occurs for macro, of all together for micro (Opitz and Burst 2019). Simulation:
    tests/test_choice.py: ``test_f1_of_what_was_selected_is_covered``.

    >>> labels = np.eye(2)[[0] * 60 + [1] * 40]
    >>> always_first = np.eye(2)[[0] * 100]
    >>> found = selected_f1(np.stack([labels, always_first]), labels, "macro")
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

    return _selected(counts.reshape(*counts.shape[:2], -1), f1, units, favourite)


def out_of_reach(right: np.ndarray, rival: np.ndarray, units: np.ndarray) -> bool:
    """Whether a method is ahead of a rival on fewer than one in a hundred resamples of the N texts that both have predicted.

    ``right`` and ``rival`` (N,) say which of them each predicted correctly, ``units`` (N,) which depend on each other. Then its
    other folds are left out (bootstrap bias-corrected cross-validation with dropping, Tsamardinos, Greasidou and Borboudakis 2018,
    section 4). Simulation: tests/test_choice.py: ``test_few_methods_that_would_win_are_dropped``.

    >>> out_of_reach(np.array([1, 0, 0, 0] * 5), np.array([1, 1, 1, 0] * 5), np.arange(20))
    True
    """
    lead = np.bincount(np.unique(units, return_inverse=True)[1], right.astype(float) - rival)
    draws = rng(0, "can it still win").multinomial(len(lead), np.full(len(lead), 1 / len(lead)), size=_RESAMPLES)
    return float(np.mean(draws @ lead >= 0)) < HARDLY


def _selected(
    figures: np.ndarray, score: Callable[[np.ndarray], np.ndarray], units: np.ndarray | None, favourite: int | None
) -> SelectedScore:
    """The best of M methods by a score between 0 and 1, and what to expect of it after fitting it to all N texts.

    ``figures`` (M, N, K) are those of each text out of fold, and ``score`` makes (...) of their means (..., K) over texts. Another
    than the favourite must be ahead of it by ``AHEAD`` standard errors of the difference, over resamples of the units. The optimism
    is the mean of s*_b* less the mean s* of that method, where b* is what would be selected in a resample and s* its score there
    (the bootstrap bias correction of Tsamardinos, Greasidou and Borboudakis 2018). The interval is that of Wilson 1927 around p,
    the score less the optimism, with p (1 - p) / var(s*) texts, at most the number of units, divided by 1.6, because the folds are
    fitted to overlapping texts. The luck of a single fit is not in it: a network whose fits differ by more than two points is less
    certain.
    """
    groups = np.arange(figures.shape[1]) if units is None else np.unique(units, return_inverse=True)[1]
    sizes = np.bincount(groups).astype(float)
    sums = np.zeros((len(sizes), *figures.shape[::2]))
    np.add.at(sums, groups, figures.swapaxes(0, 1))
    counts = rng(0, "optimism of a selection").multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=_RESAMPLES)
    resampled = score(np.einsum("rn,nmk->rmk", counts, sums, optimize=True) / (counts @ sizes)[:, None, None])
    beside = resampled if favourite is None else resampled[:, [favourite]]
    needed = AHEAD * (resampled - beside).std(axis=0)
    scores = score(figures.mean(axis=1))
    best, chosen = int((scores - needed).argmax()), (resampled - needed).argmax(axis=1)
    optimism = float(np.mean(resampled[np.arange(_RESAMPLES), chosen] - resampled.mean(axis=0)[chosen]))
    expected = min(1.0, max(0.0, float(scores[best]) - optimism))
    product, spread = expected * (1 - expected), float(resampled[:, best].var())
    known = min(product, spread) > 1e-12  # not if every text is right, or none
    texts = min(len(sizes), max(1.0, product / spread)) if known else len(sizes)
    return SelectedScore(best, float(scores[best]), optimism, wilson_interval(expected, texts / WIDER), resampled[:, best])
