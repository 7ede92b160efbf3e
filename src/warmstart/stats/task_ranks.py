"""Methods compared over several tasks: mean ranks, and whether they differ by more than chance.

On one task, seeds and test texts are the sources of chance; over tasks, the tasks themselves are. Each task counts once, by its
mean scores, and only the order of the methods counts, because points on different tasks do not compare (Demšar 2006).

Letters: N tasks, K methods, R permutations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.intervals import percentiles
from warmstart.stats.power import POWER

PERMUTATIONS = 10_000


@dataclass(frozen=True)
class TaskRanks:
    """Methods over tasks. Rank 1 is the best; ties share the mean of their ranks."""

    ranks: np.ndarray
    """(N, K) of each method on each task"""
    p: float
    """probability that mean ranks differ at least as much if the methods are equally good (the Friedman test)"""
    critical_difference: float
    """two methods whose mean ranks differ by more are significantly different at 5%, whichever pair is chosen (Nemenyi's test)"""
    p_pairs: np.ndarray
    """(K, K) of each pair of methods, corrected for the choice of the pair"""

    @property
    def mean(self) -> np.ndarray:
        """(K,) mean rank of each method."""
        return np.asarray(self.ranks.mean(axis=0))

    @property
    def detectable(self) -> float:
        """The smallest true difference of two mean ranks that is found with a probability of at least 80%; infinite if none is.

        critical difference + z_{0.8} sqrt(K (K + 1) / (6 N)): the standard error is that of equal methods, and methods that differ
        have a smaller one (Demšar 2006, section 3.2.2). Simulation: tests/test_task_ranks.py:
        ``test_the_detectable_difference_of_ranks_is_detected``.
        """
        from scipy.special import ndtri

        tasks, methods = self.ranks.shape
        if self.critical_difference >= methods - 1:  # not even the best on every task differs from the worst
            return math.inf
        return self.critical_difference + float(ndtri(POWER)) * math.sqrt(methods * (methods + 1) / (6 * tasks))

    def wins(self, one: int, other: int) -> tuple[int, int, int]:
        """On how many tasks method ``one`` is better than ``other``, equal and worse."""
        difference = self.ranks[:, other] - self.ranks[:, one]
        return int((difference > 0).sum()), int((difference == 0).sum()), int((difference < 0).sum())


def rank_over_tasks(scores: Sequence[Sequence[float]], seed: int = 0) -> TaskRanks:
    """The ranks of K methods on N tasks from ``scores`` (N, K), higher is better; NaN counts as worst.

    Friedman's test and Nemenyi's critical difference (Demšar 2006, section 3.2.2), by permutation instead of their
    approximations for large N, so that the level holds for a few tasks and for ties: if all methods are equally good, every order
    of a task's ranks is equally likely. With R = 10,000 permutations of the ranks within tasks,

        p = (1 + #{permutations whose sum of squared mean ranks is at least as large}) / (1 + R)

    and the critical difference is the 95% quantile of the largest difference of two mean ranks.
    Simulation: tests/test_task_ranks.py: ``test_equal_methods_are_seldom_called_different``.

    >>> found = rank_over_tasks([[0.9, 0.8]] * 3)
    >>> found.mean.tolist(), round(found.p, 2)  # three wins of three are not significant
    ([1.0, 2.0], 0.25)
    """
    from scipy.stats import rankdata

    table = np.asarray(scores, dtype=float)
    assert table.ndim == 2, "scores are one row per task, one column per method"
    assert min(table.shape) >= 2, "a comparison over tasks needs at least two tasks and two methods"
    ranks = np.asarray(rankdata(-np.nan_to_num(table, nan=-np.inf), axis=1))
    generator = rng(seed, "task ranks")
    permuted = np.array([generator.permuted(ranks, axis=1).mean(axis=0) for _ in range(PERMUTATIONS)])  # (R, K)
    mean, rounding = ranks.mean(axis=0), 1e-9
    ranges = np.ptp(permuted, axis=1)
    differences = np.abs(mean[:, None] - mean[None, :])
    return TaskRanks(
        ranks,
        p=_fraction_reached((permuted**2).sum(axis=1), float((mean**2).sum()) - rounding),
        critical_difference=float(percentiles(ranges, (0.95,))[0]),
        p_pairs=np.vectorize(lambda found: _fraction_reached(ranges, found - rounding))(differences),
    )


def _fraction_reached(permuted: np.ndarray, found: float) -> float:
    """The fraction of the permuted statistics (R,) that reach the one found, itself included."""
    return float((1 + (permuted >= found).sum()) / (1 + len(permuted)))
