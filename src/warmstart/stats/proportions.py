"""Proportions: how often something is right, with exact and approximate intervals, and tests against chance.

Letters: N cases of a group, G groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.stats.intervals import Z_95, Estimate


def wilson_interval(proportion: float, count: float) -> Estimate:
    """A proportion of ``count`` independent cases with its 95% interval (Wilson 1927); it never leaves 0 to 1.

    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), z = 1.96. Parity: tests/test_stats_references.py:
    ``test_intervals_of_proportions_are_those_of_scipy``.

    >>> [round(value, 3) for value in wilson_interval(0.8, 10)]
    [0.8, 0.49, 0.943]
    """
    n, p, z = count, proportion, Z_95
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Estimate(p, max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n)))


def unseen_label_share(labels: np.ndarray, units: np.ndarray | None = None) -> float:
    """The share of new texts with a label that no labelled text has: that of the N texts whose label no other has (Good 1953).

    ``labels`` (N,) are numbers; ``units`` (N,) are equal for texts that depend on each other, such as copies. New texts must be
    like these, which were not picked by their labels. Off by at most 1 / N in the mean. Simulation:
    tests/test_stats_simulations.py: ``test_the_share_of_unseen_labels_is_estimated``.

    >>> unseen_label_share(np.array([0, 0, 0, 1, 1, 2, 2, 3, 4, 5]))
    0.3
    """
    pairs = np.unique(np.stack([labels, np.arange(len(labels)) if units is None else units]), axis=1)
    counts = np.unique(pairs[0], return_counts=True)[1]
    return float((counts == 1).sum() / pairs.shape[1])


def clopper_pearson_bound(errors: int, count: int, confidence_level: float) -> float:
    """The largest error rate that ``errors`` in ``count`` cases still allows: one-sided and exact (Clopper and Pearson 1934).

    The rate at which P(Binomial(count, rate) <= errors) = 1 - confidence_level. Parity: tests/test_stats_references.py:
    ``test_intervals_of_proportions_are_those_of_scipy``.

    >>> round(clopper_pearson_bound(0, 59, 0.95), 4)  # a guarantee of 5% takes 59 right answers in a row
    0.0495
    """
    from scipy import stats

    return 1.0 if errors >= count else float(stats.beta.ppf(confidence_level, errors + 1, count - errors))


def binomial_test(successes: float, count: int) -> float:
    """The two-sided exact p-value of ``successes`` in ``count`` fair coin flips (Dixon and Mood 1946).

    Half a success is rounded towards chance. Parity: tests/test_stats_references.py:
    ``test_intervals_of_proportions_are_those_of_scipy``.

    >>> round(binomial_test(9, 10), 4)
    0.0215
    """
    from scipy import stats

    whole = math.floor(successes) if successes > count / 2 else math.ceil(successes)
    return float(stats.binomtest(whole, count).pvalue)


def sign_test(better: int, worse: int) -> float:
    """The two-sided exact p-value of so many pairs better and worse, without ties (McNemar 1947, exact); 1 if there is no pair.

    Parity: tests/test_stats_references.py: ``test_intervals_of_proportions_are_those_of_scipy``.

    >>> round(sign_test(9, 1), 4), sign_test(0, 0)
    (0.0215, 1.0)
    """
    return binomial_test(better, better + worse) if better + worse else 1.0


def mean_proportion(groups: Sequence[np.ndarray]) -> Estimate:
    """The mean of G groups' proportions, each group counted alike, with its 95% interval over cases.

    Each group is (N,) of 0 to 1. A group's variance is that of its proportion with two successes and two failures added (Agresti
    and Coull 1998), so that a few cases that all agree are not taken as certain. A single group has its Wilson interval.
    Simulation: tests/test_stats_references.py: ``test_the_interval_of_the_mean_holds_the_truth``.

    >>> [round(value, 2) for value in mean_proportion([np.array([1.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0])])]
    [0.62, 0.21, 1.0]
    """
    means = [float(one.mean()) for one in groups]
    if len(groups) == 1:
        return wilson_interval(means[0], len(groups[0]))
    mean = float(np.mean(means))
    adjusted = [(float(one.sum() + 2) / (len(one) + 4), len(one)) for one in groups]
    error = Z_95 * math.sqrt(sum(p * (1 - p) / n for p, n in adjusted)) / len(groups)
    return Estimate(mean, max(0.0, mean - error), min(1.0, mean + error))


@dataclass(frozen=True)
class ProportionDifference:
    """How much more often one of two is right on the same cases."""

    mean: float
    """difference of proportions; each group counts alike"""
    low: float
    high: float
    """ends of the 95% interval over cases"""
    p: float
    """of a sign test on the cases on which the two differ"""
    balance: int
    """cases on which the first is better less those on which it is worse"""

    @property
    def sign(self) -> int:
        """1 if the first is significantly better, -1 if significantly worse (interval and sign test must agree), else 0."""
        agreed = int(self.low > 0 and self.balance > 0) - int(self.high < 0 and self.balance < 0)
        return agreed if self.p < 0.05 else 0


def paired_proportions(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> ProportionDifference:
    """``one`` less ``other``, case by case; both are G groups of (N,) of 0 to 1 on the same cases.

    The variance is that of the cases and of two more, one for each side by half and one alike (Agresti and Min 2005), so that cases
    that all agree leave some uncertainty. Simulation: tests/test_stats_simulations.py:
    ``test_differences_of_paired_proportions_hold_the_truth``.

    >>> found = paired_proportions([np.ones(10)], [np.zeros(10)])
    >>> found.mean, found.sign, round(found.p, 4)
    (1.0, 1, 0.002)
    """
    gaps = np.concatenate([a - b for a, b in zip(one, other, strict=True)])
    weights = np.concatenate([np.full(len(a), 1 / len(a) / len(one)) for a in one])
    mean, squares = float((gaps * weights).sum()), float((weights**2).sum())
    count = 1 / squares  # as many cases of equal weight would give the same information
    variance = float(((gaps - mean) ** 2 * weights**2).sum()) / squares
    smoothed = (count * variance + 1 + 2 * mean**2) / (count + 2)
    error = Z_95 * math.sqrt(smoothed / count)
    return _difference(mean, error, gaps)


def _difference(mean: float, half: float, gaps: np.ndarray) -> ProportionDifference:
    """A difference with half its interval, cut to -1 to 1, and the sign test on the cases' gaps."""
    better, worse = int((gaps > 0).sum()), int((gaps < 0).sum())
    return ProportionDifference(mean, max(-1.0, mean - half), min(1.0, mean + half), sign_test(better, worse), better - worse)
