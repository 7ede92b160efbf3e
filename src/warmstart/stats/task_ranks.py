"""Methods compared over several tasks: mean ranks, and which pairs differ by more than chance.

On one task, seeds and test texts are the sources of chance; over tasks, the tasks themselves are. Each task counts once, by its
mean scores (Demšar 2006). A pair is tested on its own differences alone: in a test by mean ranks, as Nemenyi's, what the other
methods do decides whether two of them differ (Benavoli, Corani and Mangili 2016).

Letters: N tasks, K methods, P pairs, R sign flips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.multiple_testing import holm

FLIPS = 2**17
"""sign flips that are drawn where there are more; so many that hundreds of pairs can be significant"""


@dataclass(frozen=True)
class TaskRanks:
    """Methods over tasks. Rank 1 is the best; ties share the mean of their ranks."""

    ranks: np.ndarray
    """(N, K) of each method on each task"""
    p_pairs: np.ndarray
    """(K, K) of each pair of methods, corrected for the number of pairs"""

    @property
    def mean(self) -> np.ndarray:
        """(K,) mean rank of each method."""
        return np.asarray(self.ranks.mean(axis=0))

    @property
    def pairs(self) -> int:
        """How many pairs of methods are compared."""
        return math.comb(self.ranks.shape[1], 2)

    @property
    def fewest_tasks(self) -> int:
        """With fewer tasks, no pair of so many methods can differ significantly, even if one wins on every task.

        N of which 2^(1 - N) times the number of pairs is at most 5%.
        """
        return math.ceil(1 + math.log2(self.pairs / 0.05))

    def wins(self, one: int, other: int) -> tuple[int, int, int]:
        """On how many tasks method ``one`` is better than ``other``, equal and worse."""
        difference = self.ranks[:, other] - self.ranks[:, one]
        return int((difference > 0).sum()), int((difference == 0).sum()), int((difference < 0).sum())


def rank_over_tasks(scores: Sequence[Sequence[float]], seed: int = 0) -> TaskRanks:
    """The ranks of K methods on N tasks from ``scores`` (N, K), higher is better; NaN counts as worst.

    For each pair the signed ranks of its differences (Wilcoxon 1945): if two methods are equally good, each difference could as
    well have the other sign. p is the share of all 2^N sign flips, or of ``FLIPS`` random ones, whose sum is as far from 0,
    corrected for the number of pairs (Holm 1979). Simulation: tests/test_task_ranks.py:
    ``test_equal_methods_are_seldom_called_different``.

    >>> found = rank_over_tasks([[0.9, 0.8]] * 3)
    >>> found.mean.tolist(), float(found.p_pairs[0, 1])  # three wins of three are not significant
    ([1.0, 2.0], 0.25)
    """
    from scipy.stats import rankdata

    table = np.nan_to_num(np.asarray(scores, dtype=float), nan=-1e300)
    assert table.ndim == 2, "scores are one row per task, one column per method"
    assert min(table.shape) >= 2, "a comparison over tasks needs at least two tasks and two methods"
    one, other = np.triu_indices(table.shape[1], 1)
    differences = table[:, one] - table[:, other]  # (N, P)
    signed = np.sign(differences) * rankdata(np.abs(differences), axis=0)
    flips = _flips(len(table), seed)
    p = [_share_as_far(flips @ pair) for pair in signed.T]
    p_pairs = np.ones((table.shape[1],) * 2)
    p_pairs[one, other] = p_pairs[other, one] = holm(p)
    return TaskRanks(np.asarray(rankdata(-table, axis=1)), p_pairs)


def _share_as_far(sums: np.ndarray) -> float:
    """The share of the (R,) sums that are as far from 0 as the first, which flips nothing."""
    far = np.abs(sums)
    return float((far >= far[0] - 1e-9).mean())


def _flips(tasks: int, seed: int) -> np.ndarray:
    """(R, N) signs: all that there are, or none flipped and ``FLIPS`` random ones."""
    if 2**tasks <= FLIPS:
        return 1.0 - 2.0 * (np.arange(2**tasks)[:, None] >> np.arange(tasks) & 1)
    drawn = rng(seed, "sign flips").choice([-1.0, 1.0], (FLIPS, tasks))
    return np.concatenate([np.ones((1, tasks)), drawn])
