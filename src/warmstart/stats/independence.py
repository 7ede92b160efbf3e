"""Whether labels have anything to do with texts, whatever learns them.

Letters: N texts, D numbers per text, C classes, K permutations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warmstart.seeding import rng

LARGEST = 300
"""texts at most for which the test is worth its time, 0.5 s: with more, learners show what is there"""


def permutation_p(rows: Any, labels: np.ndarray, permutations: int = 499) -> float:
    """The p-value against the hypothesis that ``labels`` (N,) are independent of ``rows`` (N, D), sparse or dense.

    The statistic is the sum over classes of n_c |mean_c - mean|², what the classes explain of the rows' variance; it is compared
    with itself under K permutations of the labels, (1 + number at least as large) / (1 + K) (the permutational analysis of
    variance of Anderson 2001). No assumption on the rows and no learner is needed: if texts are exchangeable, p is at most x with
    probability at most x. So copies of a text, or several texts of one author, must be represented by one of them.
    Simulation: tests/test_draws.py: ``test_few_draws_without_signal_choose_a_method``.

    >>> rows, labels = np.arange(40.0)[:, None], np.repeat([0, 1], 20)
    >>> permutation_p(rows, labels), permutation_p(rows, np.tile([0, 1], 20)) > 0.5
    (0.002, True)
    """
    kernel = rows @ rows.T
    kernel = np.asarray(kernel if isinstance(kernel, np.ndarray) else kernel.todense(), dtype=np.float32)
    centred = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels))])[:-1]
    present = np.flatnonzero(np.bincount(labels))
    sizes, starts = np.bincount(labels)[present], starts[present]
    chance, order = rng(len(labels), "permutations"), np.argsort(labels, kind="stable")

    def explained(order: np.ndarray) -> float:
        sums = np.add.reduceat(np.add.reduceat(centred[np.ix_(order, order)], starts, axis=0), starts, axis=1)
        return float((np.diagonal(sums) / sizes).sum())

    found = explained(order)
    others = [explained(chance.permutation(len(labels))) for _ in range(permutations)]
    return (1 + sum(other >= found - 1e-6 * abs(found) for other in others)) / (1 + permutations)
