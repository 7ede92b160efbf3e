"""Resampling: draws of test texts that all methods share, a bootstrap of clusters, the jackknife, and random shifts.

Letters: N texts (or clusters), C classes, R resamples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.intervals import Estimate, percentiles, t_quantile

DRAWS = 1000
"""resamples; the ends of an interval are then good to a twentieth of its width"""
MOST_KEPT = 4_000_000
"""indices of resamples that are kept for one number of texts, 4 bytes each"""


def resample_indices(count: int, draws: int = DRAWS, groups: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """The indices of the texts of each resample: (N,), or those of as many groups as there are.

    They depend on the number of texts and on ``groups`` (N,) alone: every method is scored on the same resamples, so that methods
    can be compared resample by resample. Texts of one group (a document, an author, copies) are drawn together, because what is
    independent is groups (Cameron, Gelbach and Miller 2008, section II.B: the pairs cluster bootstrap). Simulation:
    tests/test_groups.py: ``test_intervals_of_grouped_texts``.

    >>> sorted(set(next(resample_indices(4, groups=np.array([0, 1, 1, 1]))).tolist())) in ([0], [1, 2, 3], [0, 1, 2, 3])
    True
    """
    owners = np.arange(count) if groups is None else np.unique(groups, return_inverse=True)[1]
    members, sizes = np.argsort(owners, kind="stable"), np.bincount(owners)
    kept = _kept_draws(len(sizes), draws) if len(sizes) * draws <= MOST_KEPT else None
    for number in range(draws):
        drawn = _draw(len(sizes), number) if kept is None else kept[number]
        if len(sizes) == count:
            yield drawn
            continue
        many = sizes[drawn]
        first = np.repeat((np.cumsum(sizes) - sizes)[drawn] - (np.cumsum(many) - many), many)
        yield members[first + np.arange(len(first))]


def _draw(count: int, number: int) -> np.ndarray:
    """(N,) the units of one resample of ``count``."""
    return rng(count, "resample", number).integers(0, count, count)


@functools.lru_cache(maxsize=4)
def _kept_draws(count: int, draws: int) -> np.ndarray:
    """(R, N) the same of all resamples; kept, because every method, seed and split of a run asks for few numbers of texts."""
    indices = np.array([_draw(count, number) for number in range(draws)], dtype=np.int32)
    indices.flags.writeable = False
    return indices


def resample_counts(count: int, generator: np.random.Generator, draws: int = DRAWS, *, with_original: bool = False) -> np.ndarray:
    """(R, N) float: how often each of ``count`` units is drawn in each resample; weighted sums are then one matrix product.

    ``with_original`` puts a row of ones first: the sample itself.
    """
    drawn = generator.multinomial(count, np.full(count, 1 / count), draws).astype(float)
    return np.concatenate([np.ones((1, count)), drawn]) if with_original else drawn


def resample_classification(
    metric: str, labels: np.ndarray, predicted: np.ndarray, classes: int, draws: int = DRAWS, groups: np.ndarray | None = None
) -> np.ndarray:
    """(R,) accuracy or macro F1 of ``predicted`` (N,) against ``labels`` (N,) on resamples of the texts, or of ``groups`` (N,).

    Both hold class numbers below ``classes``. F1 of each resample is that of its confusion matrix: how often each pair of true and
    predicted class was drawn (Efron 1979). Equal to scikit-learn's: tests/test_differences.py:
    ``test_resamples_are_scored_as_scikit_learn_scores_them``.

    >>> scores = resample_classification("accuracy", np.array([0, 1] * 50), np.array([0, 1, 1, 1] * 25), 2)
    >>> len(scores), round(float(scores.mean()), 2)
    (1000, 0.75)
    """
    if metric == "accuracy":
        right = predicted == labels
        return np.array([np.count_nonzero(right[chosen]) / len(chosen) for chosen in resample_indices(len(labels), draws, groups)])
    pairs = labels * classes + predicted
    kinds, indices = np.unique(pairs, return_inverse=True)
    absent = np.bincount(np.concatenate([labels, predicted]), minlength=classes) == 0
    out = np.empty(draws)
    for number, chosen in enumerate(resample_indices(len(labels), draws, groups)):
        counts = np.zeros(classes * classes)
        counts[kinds] = np.bincount(indices[chosen], minlength=len(kinds))
        confusion = counts.reshape(classes, classes)  # (C, C): true by predicted
        both = confusion.sum(axis=0) + confusion.sum(axis=1)
        out[number] = resampled_macro_f1(np.diag(confusion), both, absent)
    return out


def resampled_macro_f1(right: np.ndarray, both: np.ndarray, absent: np.ndarray) -> float:
    """Macro F1 of one resample: the mean over the classes that were drawn.

    ``right`` (C,) counts right predictions; ``both`` (C,) texts with that label plus predictions of it; ``absent`` (C,) marks
    classes that occur nowhere in the full sample. Classes missing from this resample only are left out; absent ones count 0, as
    they do in the full score.
    """
    drawn = both > 0
    return float((2 * right[drawn] / both[drawn]).mean() * (1 - absent.mean())) if drawn.any() else 0.0


def cluster_bootstrap(values: np.ndarray, groups: np.ndarray, draws: int = DRAWS) -> Estimate:
    """The mean of values (M,) and its 95% interval, by resampling whole groups, such as the sentences that words belong to.

    ``groups`` (M,) names the group of each value. Values of one group may depend on each other; groups are assumed independent
    (Efron 1979; Cameron et al. 2008). Simulation: tests/test_stats_simulations.py: ``test_cluster_bootstraps_hold_the_truth``.

    >>> interval = cluster_bootstrap(np.array([1.0, 1.0, 0.0, 0.0] * 20), np.repeat(np.arange(40), 2))
    >>> [round(value, 2) for value in interval]
    [0.5, 0.35, 0.68]
    """
    _, owners = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(owners, values), np.bincount(owners)
    weights = resample_counts(len(counts), rng(len(counts), "clusters"), draws)
    low, high = percentiles(weights @ sums / (weights @ counts))
    return Estimate(float(values.mean()), float(low), float(high))


def jackknife(values: np.ndarray) -> Estimate:
    """A figure and its 95% interval, from values (1 + N,): of all clusters, then with each of the N left out.

    value +- t(N - 1) sqrt((N - 1) / N sum_i (value_i - mean)^2). Holds for smooth statistics (Arvesen 1969); clusters are assumed
    independent. Parity: tests/test_stats_references.py: ``test_the_jackknife_of_a_mean_is_students_interval``.

    >>> values = np.array([1.0, 2.0, 3.0, 6.0])
    >>> [round(value, 2) for value in jackknife(np.append(values.mean(), (values.sum() - values) / 3))]  # as the t interval
    [3.0, -0.44, 6.44]
    """
    left, count = values[1:], len(values) - 1
    error = math.sqrt((count - 1) / count * float(((left - left.mean()) ** 2).sum())) * t_quantile(0.95, count - 1)
    return Estimate(float(values[0]), float(values[0] - error), float(values[0] + error))


def circular_shifts(values: np.ndarray, generator: np.random.Generator, shifts: int) -> np.ndarray:
    """(n, shifts * P): a passage's columns (n, P), all rotated by the same random distance, ``shifts`` times, side by side.

    What a passage contains and which tokens are neighbours stay the same; only the position is lost. This is the null hypothesis
    of a permutation test for data in which neighbours depend on each other.
    """
    return np.concatenate([np.roll(values, int(by), axis=0) for by in generator.integers(len(values), size=shifts)], axis=1)
