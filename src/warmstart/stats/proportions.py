"""Proportions: how often something is right, with exact and approximate intervals, and tests against chance.

Letters: N cases of a group, G groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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


def effective_cases(of_one: float, of_mean: float, most: float, units: float) -> float:
    """The number of independent cases whose mean varies as much: the variance of one case / that of the mean, at most ``most``.

    So ``wilson_interval`` fits cases that hang together (Korn and Graubard 1998), and scores that are no plain proportions, such as
    F1; p (1 - p) is the variance of one. Where nothing varies, because all cases are right, each of the independent ``units``
    counts as one. Simulation: tests/test_gates.py: ``test_few_models_below_the_gate_pass``.

    >>> round(effective_cases(0.16, 0.0032, 100, 60)), effective_cases(0.0, 0.0, 100, 60)
    (50, 60)
    """
    return min(most, max(1.0, of_one / of_mean)) if min(of_one, of_mean) > 1e-12 else units


def proportion_in_units(right: np.ndarray, units: np.ndarray) -> Estimate:
    """The share of ``right`` (N,), with its 95% interval over ``units`` (N,), equal for cases that depend on each other.

    Of independent cases the interval of Wilson 1927, else that for ``effective_cases`` by the variance between units. Percentiles
    of resamples are too sure of a high share: 98 right of 100 would be 95 to 100. Simulation: tests/test_gates.py:
    ``test_few_models_below_the_gate_pass``.

    >>> right = np.array([1] * 98 + [0, 0])
    >>> [round(100 * end, 1) for end in proportion_in_units(right, np.arange(100))]
    [98.0, 93.0, 99.4]
    """
    share = float(right.mean())
    cases = effective_cases(share * (1 - share), _variance_of_mean(right, units), len(right), len(np.unique(units)))
    return wilson_interval(share, cases)


def _variance_of_mean(values: np.ndarray, units: np.ndarray) -> float:
    """The variance of the mean of ``values`` (N,) if only ``units`` (N,) are independent (Cochran 1977, section 6.3)."""
    sums = np.bincount(np.unique(units, return_inverse=True)[1], values - values.mean())
    return float((sums**2).sum()) / len(values) ** 2


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
    means = [float(group.mean()) for group in groups]
    if len(groups) == 1:
        return wilson_interval(means[0], len(groups[0]))
    mean = float(np.mean(means))
    adjusted = [(float(group.sum() + 2) / (len(group) + 4), len(group)) for group in groups]
    error = Z_95 * math.sqrt(sum(p * (1 - p) / n for p, n in adjusted)) / len(groups)
    return Estimate(mean, max(0.0, mean - error), min(1.0, mean + error))


@dataclass(frozen=True)
class ProportionDifference:
    """The difference of two proportions on the same cases."""

    mean: float
    """difference of proportions; each group counts alike"""
    low: float
    high: float
    """ends of the 95% interval over cases"""
    p: float
    """p-value of a sign test on the cases on which the two differ; nan if cases depend on each other"""
    balance: int
    """cases on which the first is better less those on which it is worse"""

    @property
    def sign(self) -> int:
        """1 if the first is significantly better, -1 if significantly worse (interval and sign test must agree), else 0."""
        agreed = int(self.low > 0 and self.balance > 0) - int(self.high < 0 and self.balance < 0)
        return agreed if self.p < 0.05 else 0


def paired_proportions(
    one: Sequence[np.ndarray], other: Sequence[np.ndarray], units: np.ndarray | None = None
) -> ProportionDifference:
    """``one`` less ``other``, case by case; both are G groups of (N,) of 0 to 1 on the same cases.

    The variance is that of the cases and of two more, one for each side by half and one alike (Agresti and Min 2005), so that cases
    that all agree leave some uncertainty. If only ``units`` (N,) of a single group are independent, ``effective_cases`` count,
    and there is no sign test: p is nan. Simulation: tests/test_stats_simulations.py:
    ``test_differences_of_paired_proportions_hold_the_truth``.

    >>> difference = paired_proportions([np.ones(10)], [np.zeros(10)])
    >>> difference.mean, difference.sign, round(difference.p, 4)
    (1.0, 1, 0.002)
    """
    gaps = np.concatenate([a - b for a, b in zip(one, other, strict=True)])
    weights = np.concatenate([np.full(len(a), 1 / len(a) / len(one)) for a in one])
    mean, squares = float((gaps * weights).sum()), float((weights**2).sum())
    count = 1 / squares  # as many cases of equal weight would give the same information
    variance = float(((gaps - mean) ** 2 * weights**2).sum()) / squares
    if units is not None:
        count = effective_cases(variance, _variance_of_mean(gaps, units), count, independent := len(np.unique(units)))
    smoothed = (count * variance + 1 + 2 * mean**2) / (count + 2)
    difference = _difference(mean, Z_95 * math.sqrt(smoothed / count), gaps)
    return difference if units is None or independent == len(gaps) else replace(difference, p=math.nan)


def _difference(mean: float, half: float, gaps: np.ndarray) -> ProportionDifference:
    """A difference with half its interval, cut to -1 to 1, and the sign test on the cases' gaps."""
    better, worse = int((gaps > 0).sum()), int((gaps < 0).sum())
    return ProportionDifference(mean, max(-1.0, mean - half), min(1.0, mean + half), sign_test(better, worse), better - worse)


# --- Accuracy while labels come in: a lower end that holds at every moment, and an interval for a single look at the newest model
# An ordinary 95% interval holds at one moment that was fixed before. A reader who looks after every text and stops at will is
# misled more often than in 5% of cases. A confidence sequence holds at all moments together with 95% confidence, so that
# looking, and stopping for any reason, is allowed.
# Each value X_s has a mean m_s given all before it, which may change from value to value (a model that is being improved), and
# is at least f_s, which is known before. What is covered is the running mean (m_1 + … + m_n) / n. For every stake b > 0
#    product of (1 + b (X_s - f_s)) / (1 + b (m_s - f_s))
# is a martingale: the winnings of a gambler who bets that values are larger than their means (Waudby-Smith and Ramdas 2024). By
# Jensen's inequality the product of the 1 + b (m_s - f_s) is at most (1 + b mean(m - f))^n. So with the true running mean in
# it, the mean over some stakes of
#    product of (1 + b (X_s - f_s)) / (1 + b (mean(m) - mean(f)))^n
# is never above a martingale that begins at 1, and by Ville's inequality it ever exceeds 1/α with probability α at most.
# Nothing is assumed of the values but their floors, and nothing is asymptotic.
# The newest model is usually better than that mean says. Its own accuracy is estimated from predictions for texts that were
# left out (``weighted_accuracy``), whose interval holds for one look.
# Letters: n values or texts, b stakes.


_STAKES = 2.0 ** np.arange(-2, 6)
"""stakes, all tried at once: large ones are best for tens of values, small ones for thousands"""
_FAR = 20
"""factor of the values so far: a number of values beyond it is not predicted"""
_OVERLAP = 1.4
"""number of texts that count as one, because the folds are fitted to overlapping texts"""


def proven_mean(values: np.ndarray, floors: np.ndarray, error: float = 0.05) -> float:
    """The lower end for the running mean of the means of ``values`` (n,), valid at all n together except with ``error``.

    Each value is at least its floor (``floors``, (n,)), which must be known before it. By betting (Waudby-Smith and Ramdas 2024),
    with stakes that stay, so that means may change. Simulation: tests/test_anytime.py:
    ``test_what_is_proven_holds_at_every_moment``.

    >>> values = np.array([1.0] * 80 + [0.0] * 20)
    >>> round(proven_mean(values, np.zeros(100)), 3), round(0.8 - 1.645 * 0.04, 3)  # the second holds at one moment only
    (0.666, 0.734)
    """
    from scipy.optimize import brentq

    floor, won = float(floors.mean()), np.log1p(np.outer(_STAKES, values - floors)).sum(axis=1)

    def beyond(mean: float) -> float:  # above 0, the winnings prove that the running mean is above this one
        return float(_log_mean_exp(won - len(values) * np.log1p(_STAKES * (mean - floor)))) + math.log(error)

    return float(brentq(beyond, floor, float(values.mean()))) if beyond(floor) > 0 else floor


def values_to_prove(values: np.ndarray, floors: np.ndarray, goal: float, error: float = 0.05) -> float:
    """Further values after which ``proven_mean`` reaches ``goal`` if they are as those so far; infinite if none would soon.

    By the same stakes (Waudby-Smith and Ramdas 2024). Parity: tests/test_anytime.py:
    ``test_the_values_that_a_proof_needs_are_enough``.

    >>> values_to_prove(np.array([1.0] * 80 + [0.0] * 20), np.zeros(100), 0.7)
    76
    """
    count = len(values)
    growth = np.log1p(np.outer(_STAKES, values - floors)).mean(axis=1) - np.log1p(_STAKES * max(goal - floors.mean(), 0))
    totals = np.arange(count, _FAR * count)
    proves = _log_mean_exp(np.outer(growth, totals)) >= -math.log(error)
    return int(totals[proves.argmax()]) - count if proves.any() else math.inf


def _log_mean_exp(logarithms: np.ndarray) -> np.ndarray:
    """The log of the mean of exponentials over the stakes, the first axis."""
    return np.asarray(np.logaddexp.reduce(logarithms, axis=0)) - math.log(len(_STAKES))


def weighted_accuracy(right: np.ndarray, remaining: np.ndarray, probabilities: np.ndarray) -> Estimate:
    """The accuracy of a model on the texts of a pool that have no label yet, from n labelled texts that were drawn by chance.

    ``right`` (n,), in the order of the draws, is the share of repetitions of a cross-validation in which a text was predicted
    correctly out of fold; text m was drawn among R_m ``remaining`` (n,) with probability q_m (``probabilities``, (n,)). It weighs
    u_m = 1 + (R_m + m - 1) / (R_m - 1) (1 / (R_m q_m) - 1), which is 1 at random, and the mean of the u right is then that of the
    texts that are left (Farquhar, Gal and Rainforth 2021, less the labelled ones). The 95% interval of sum(u right) / sum(u) is
    that of Wilson 1927 for (sum u)^2 / sum u^2 / 1.4 texts (Kish 1965; 1.4, because the folds share texts). It holds for one look,
    not for all. Simulation: tests/test_anytime.py: ``test_the_newest_model_is_covered_at_one_look``.

    >>> right, remaining = np.array([1.0] * 60 + [0.0] * 40), 500 - np.arange(100)
    >>> probabilities = np.array([0.8] * 60 + [1.4] * 40) / remaining  # those that turned out wrong had been preferred
    >>> [round(float(value), 2) for value in weighted_accuracy(right, remaining, probabilities)]
    [0.74, 0.63, 0.83]
    """
    number, others = np.arange(1, len(right) + 1), np.maximum(remaining - 1, 1)
    weights = 1 + (remaining + number - 1) / others * (1 / (remaining * probabilities) - 1)
    if (total := float(weights.sum())) <= 0:
        return Estimate(math.nan, 0.0, 1.0)
    mean = float(np.clip((weights * right).sum() / total, 0, 1))
    return wilson_interval(mean, total**2 / float((weights**2).sum()) / _OVERLAP)
