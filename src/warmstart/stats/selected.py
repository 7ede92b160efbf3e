"""The one rule of choosing: the method with the best score on texts that it did not learn from, and how good it will be.

That is its score less the luck of having been chosen. Nothing but the labels is needed: no test text, and no fit beyond those of
the folds; a validation split is a fold that is left out once. Letters: M methods, N texts, C labels, K figures of a text that add
up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.differences import MethodScores, paired_difference
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import effective_cases, wilson_interval

Favourite = int | Sequence[int] | None
"""number of the method that is selected unless another is ahead of it beyond chance; of several the best"""
_RESAMPLES = 1000
"""resamples of the texts, in which the choice is made again"""
WIDER = 1.6
"""factor by which folds widen the interval, since they are fitted to overlapping texts"""
LEAD = 1.645
"""standard errors by which a method must be ahead of the favourite: 5%, one-sided"""
HARDLY = 0.01
"""the chance to be the best below which a method learns no further folds"""
FOLD_VARIANCE = 2.0
"""the variance of an out-of-fold score over draws without signal, at most, in multiples of the bootstrap's over texts"""


@dataclass(frozen=True)
class SelectedScore:
    """The best method, and the score to expect of it once it has learned from all N texts."""

    index: int
    """number of the method"""
    out_of_fold: float
    """score of the method out of fold, too high because it was chosen by it"""
    optimism: float
    """excess of the score out of fold, in the mean over resamples"""
    expected: Estimate
    """score of the method on new texts, with a 95% interval"""
    resampled: np.ndarray = field(repr=False, compare=False)
    """score of the method out of fold on 1,000 resamples of the texts, which are the same for other methods of these texts"""


def selected_accuracy(right: np.ndarray, units: np.ndarray | None = None, favourite: Favourite = None) -> SelectedScore:
    """The most accurate of M methods, and the accuracy to expect of it after fitting it to all N texts.

    ``right`` (M, N) is 1 where a method predicted a text correctly out of fold, else 0; ``units`` (N,) are equal for texts that
    depend on each other, such as copies. A ``favourite`` is selected unless another is ahead of it beyond chance. The luck of what
    was selected is taken off by the bootstrap of Tsamardinos, Greasidou and Borboudakis 2018. Simulation: tests/test_choice.py:
    ``test_the_accuracy_of_what_was_selected_is_covered``.

    >>> right = np.array([[1.0] * 80 + [0.0] * 20, [1.0] * 50 + [0.0] * 50])
    >>> choice = selected_accuracy(right)
    >>> choice.index, choice.out_of_fold, round(choice.expected.low, 2), round(choice.expected.high, 2)
    (0, 0.8, 0.68, 0.88)
    """
    return _selected(right[:, :, None], lambda means: means[..., 0], units, favourite)


def selected_f1(
    predicted: np.ndarray, labels: np.ndarray, average: str, units: np.ndarray | None = None, favourite: Favourite = None
) -> SelectedScore:
    """The method with the highest F1, ``average`` macro or micro: ``labels`` (N, C) are 1 where a text has a label, else 0.

    ``predicted`` (M, N, C) is 1 for each label that a method gives a text out of fold. F1 = 2 hits / (predictions +
    labels), of each class that occurs for macro, of all together for micro (Opitz and Burst 2019). Simulation:
    tests/test_choice.py: ``test_f1_of_what_was_selected_is_covered``.

    >>> labels = np.eye(2)[[0] * 60 + [1] * 40]
    >>> always_first = np.eye(2)[[0] * 100]
    >>> choice = selected_f1(np.stack([labels, always_first]), labels, "macro")
    >>> choice.index, choice.out_of_fold
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
    """True if a method is ahead of a rival on fewer than one in a hundred resamples of the N texts that both have predicted.

    ``right`` and ``rival`` (N,) say which of them each predicted correctly, ``units`` (N,) which depend on each other. Then its
    other folds are left out (bootstrap bias-corrected cross-validation with dropping, Tsamardinos, Greasidou and Borboudakis 2018,
    section 4). Simulation: tests/test_choice.py: ``test_few_methods_that_would_win_are_dropped``.

    >>> out_of_reach(np.array([1, 0, 0, 0] * 5), np.array([1, 1, 1, 0] * 5), np.arange(20))
    True
    """
    lead = np.bincount(np.unique(units, return_inverse=True)[1], right.astype(float) - rival)
    draws = rng(0, "can it still win").multinomial(len(lead), np.full(len(lead), 1 / len(lead)), size=_RESAMPLES)
    return float(np.mean(draws @ lead >= 0)) < HARDLY


def selected_method(methods: Sequence[MethodScores], texts: int, favourite: Favourite = None) -> SelectedScore:
    """The best method by scores on ``texts`` left out once, between 0 and 1 and on the same resamples for all methods.

    Scores of several seeds on one split count with their mean, on each resample that of as many seeds drawn anew, which is all that
    widens the interval (Tsamardinos, Greasidou and Borboudakis 2018). Simulation: tests/test_draws.py:
    ``test_the_range_of_what_labels_choose_holds``.

    >>> noise = np.random.default_rng(0).normal(0, 0.04, (2, 1, 1000))
    >>> choice = selected_method([MethodScores("", (mean,), mean + spread) for mean, spread in zip((0.5, 0.8), noise)], texts=100)
    >>> choice.index, choice.optimism < 0.001, round(choice.expected.low, 2), round(choice.expected.high, 2)
    (1, True, 0.68, 0.88)
    """
    chance, resampled = rng(0, "seeds of a selection"), []
    for method in methods:
        seeds, count = method.resampled.shape
        drawn = chance.integers(seeds, size=(seeds, count))
        resampled.append(method.resampled[drawn, np.arange(count)].mean(axis=0))
    scores, several = np.array([np.mean(method.scores) for method in methods]), max(len(method.scores) for method in methods) > 1
    return _corrected(scores, np.stack(resampled, axis=1), texts, favourite, 1.0 if several else WIDER)


def worse_out_of_fold(one: MethodScores, other: MethodScores, *, comparisons: int = 1) -> bool:
    """True if ``one`` is significantly worse than ``other`` on the texts that choose, on the same resamples.

    One-sided at the 5% level, as one of so many ``comparisons`` (Bonferroni), paired over texts and seeds, with twice the variance
    of the bootstrap over texts: in cross-validation each text is predicted from others that are predicted from it, so that without
    signal scores vary more than those of independent texts (Bengio and Grandvalet 2004): 2 is the factor if any two neighbours vote
    for each other. Of M methods, those that are not worse than the best of the scores as one of M - 1 comparisons hold the truly
    best one with 95% probability (subset selection, Gupta 1965). Simulation: tests/test_draws.py:
    ``test_few_equal_pairs_are_called_worse_out_of_fold``, ``test_the_truly_best_method_is_among_those_alike``.

    >>> noise = np.random.default_rng(0).normal(0, 0.05, 200)
    >>> one, other = (MethodScores("", (mean,), mean + noise[None] * size) for mean, size in ((0.5, 1), (0.7, 0.5)))
    >>> worse_out_of_fold(one, other), worse_out_of_fold(other, one)
    (True, False)
    """
    gap = paired_difference(one, other)
    noise = replace(gap.noise, of_texts=FOLD_VARIANCE * gap.noise.of_texts)
    return gap.mean < 0 and bool(noise.error == 0 or noise.p(gap.mean) < 2 * SIGNIFICANT / comparisons)


def _selected(
    figures: np.ndarray, score: Callable[[np.ndarray], np.ndarray], units: np.ndarray | None, favourite: Favourite
) -> SelectedScore:
    """The best of M methods by a score between 0 and 1, and the score to expect after fitting it to all N texts.

    ``figures`` (M, N, K) are those of each text out of fold, and ``score`` makes (...) of their means (..., K) over texts.
    """
    groups = np.arange(figures.shape[1]) if units is None else np.unique(units, return_inverse=True)[1]
    sizes = np.bincount(groups).astype(float)
    sums = np.zeros((len(sizes), *figures.shape[::2]))  # (units, M, K)
    np.add.at(sums, groups, figures.swapaxes(0, 1))
    counts = rng(0, "optimism of a selection").multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=_RESAMPLES)
    resampled = score(np.einsum("rn,nmk->rmk", counts, sums, optimize=True) / (counts @ sizes)[:, None, None])
    return _corrected(score(figures.mean(axis=1)), resampled, len(sizes), favourite)


def needed_lead(resampled: np.ndarray, favourite: Favourite) -> np.ndarray:
    """(M,) the lead over the favourite that each of M methods must have, from scores on resamples (R, M); 0 without a favourite.

    Of several favourites, none of which needs a lead, the first counts.
    """
    favourites = [] if favourite is None else [*np.atleast_1d(favourite)]
    needed = LEAD * (resampled - (resampled[:, favourites[:1]] if favourites else resampled)).std(axis=0)
    needed[favourites] = 0
    return np.asarray(needed)


def _corrected(
    scores: np.ndarray, resampled: np.ndarray, texts: float, favourite: Favourite, widening: float = WIDER
) -> SelectedScore:
    """The best of M methods, and the score to expect of it, from ``scores`` (M,), also on R resamples of the texts (R, M).

    Another than the favourite must be ahead of it beyond chance (``needed_lead``). The optimism is the mean of s*_b* less the mean
    s* of that method, over resamples, where b* is what would be selected in the resample and s* its score there (the bootstrap bias
    correction of Tsamardinos, Greasidou and Borboudakis 2018). The interval is that of Wilson 1927 around p, the score less the
    optimism, with p (1 - p) / var(s*) texts, at most ``texts``, divided by ``widening``, because the folds are fitted to
    overlapping texts. The luck of a single fit is not in it: a network whose fits differ by more than two points is less certain.
    """
    needed = needed_lead(resampled, favourite)
    best, chosen = int((scores - needed).argmax()), (resampled - needed).argmax(axis=1)
    optimism = float(np.mean(resampled[np.arange(len(resampled)), chosen] - resampled.mean(axis=0)[chosen]))
    expected = min(1.0, max(0.0, float(scores[best]) - optimism))
    count = effective_cases(expected * (1 - expected), float(resampled[:, best].var()), texts, texts) / widening
    return SelectedScore(best, float(scores[best]), optimism, wilson_interval(expected, count), resampled[:, best])
