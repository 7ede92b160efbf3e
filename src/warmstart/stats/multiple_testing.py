"""Corrections for many tests made at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from warmstart.stats.intervals import Estimate, percentiles


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in their order: with them, at most 5% of such tables call any equal pair different.

    The k-th smallest of m times m - k + 1, made to increase. Controls the family-wise error rate under any dependence (Holm 1979).
    Parity: tests/test_stats_references.py: ``test_holm_is_the_closure_of_bonferroni``.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[int(index)] = highest
    return corrected


def above_zero(estimates: Sequence[Estimate]) -> list[bool]:
    """True for each figure significantly above zero, corrected for their number: in at most 5% of such tables any is wrong.

    The error of each is that of a normal distribution with its 95% interval; p-values are two-sided and corrected (Holm 1979).
    Simulation: tests/test_stats_simulations.py: ``test_of_ten_equal_figures_few_are_above_zero``.

    >>> above_zero([Estimate(0.1, 0.05, 0.15), Estimate(0.1, 0.01, 0.19), Estimate(0.0, 0.0, 0.0)])
    [True, False, False]
    """
    errors = [(estimate.high - estimate.low) / (2 * NormalDist().inv_cdf(0.975)) for estimate in estimates]
    scaled = [
        estimate.value / error if error else math.inf * estimate.value if estimate.value else 0.0
        for estimate, error in zip(estimates, errors, strict=True)
    ]
    p = holm([2 * NormalDist().cdf(-abs(z)) for z in scaled])
    return [z > 0 and chance < 0.05 for z, chance in zip(scaled, p, strict=True)]


def benjamini_hochberg(p_values: np.ndarray) -> np.ndarray:
    """q-values in the shape of ``p_values``: of the tests with q < 0.05, at most 5% are false discoveries on average.

    min over j >= k of m p_(j) / j. Controls the false discovery rate of independent tests (Benjamini and Hochberg 1995).
    Parity: tests/test_stats_references.py: ``test_benjamini_hochberg_is_the_step_up_procedure``.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.04, 0.04]
    """
    from scipy import stats

    return np.asarray(stats.false_discovery_control(np.clip(p_values, 0, 1).ravel()).reshape(p_values.shape))


def max_statistic_threshold(statistics: np.ndarray, level: float = 0.95) -> np.ndarray:
    """(P,) the bound of the largest of many statistics in 95% of permutations, from ``statistics`` (R, P) of R permutations.

    A statistic above it is significant whichever of the many it was chosen from (Westfall and Young 1993). Simulation:
    tests/test_stats_simulations.py: ``test_the_largest_of_many_is_seldom_significant_by_chance``.

    >>> max_statistic_threshold(np.arange(101.0)[:, None]).tolist()
    [95.0]
    """
    return percentiles(statistics, (level,))[0]
