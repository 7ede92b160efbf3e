"""Methods over several tasks: false claims, agreement with scipy's test, ranks and wins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from warmstart.stats.task_ranks import rank_over_tasks


def test_ranks_share_ties_and_nan_is_worst() -> None:
    """The best is 1; equal scores share the mean of their ranks; a method without a score is last."""
    found = rank_over_tasks([[0.9, 0.9, 0.1], [0.2, 0.8, float("nan")]])
    assert found.ranks.tolist() == [[1.5, 1.5, 3], [2, 1, 3]]
    assert found.mean.tolist() == [1.75, 1.25, 3]
    assert found.wins(1, 0) == (1, 1, 0)
    assert found.wins(0, 1) == (0, 1, 1)


def test_few_tasks_prove_nothing() -> None:
    """Two methods on three tasks: even three wins of three happen by chance once in four; six wins of six seldom do."""
    found = rank_over_tasks([[0.9, 0.8]] * 3)
    assert (found.p_pairs[0, 1], found.fewest_tasks) == (0.25, 6)
    assert rank_over_tasks([[0.9, 0.8]] * 6).p_pairs[0, 1] == 2 / 64


def test_pairs_agree_with_wilcoxon() -> None:
    """As scipy computes it, exactly for few tasks, by random flips for many."""
    chance = np.random.default_rng(0)
    for tasks, near in ((10, 1e-9), (40, 0.015)):
        scores = chance.normal(size=(tasks, 2)) + np.array([0.4, 0.0])
        exact = stats.wilcoxon(scores[:, 0], scores[:, 1], mode="exact").pvalue
        assert rank_over_tasks(scores).p_pairs[0, 1] == pytest.approx(exact, abs=near)


@pytest.mark.proofs
@pytest.mark.parametrize(("tasks", "methods"), [(8, 3), (12, 8)])
def test_equal_methods_are_seldom_called_different(tasks: int, methods: int) -> None:
    """At most 5% of tables of equal methods claim any difference, with tied scores too.

    Nor of tables in which two equal methods take turns as the first and the last around a steady field.
    """
    chance = np.random.default_rng(tasks * methods)
    equal = [rank_over_tasks(chance.integers(0, 30, (tasks, methods))).p_pairs.min() for _ in range(1000)]
    turns = []
    for _ in range(1000):
        field = np.r_[0.0, 0.0, np.arange(methods - 2.0)]
        scores = field + chance.normal(0, 0.2, (tasks, methods))
        first = chance.integers(0, 2, tasks)
        scores[np.arange(tasks), first] += 20
        scores[np.arange(tasks), 1 - first] -= 20
        turns.append(rank_over_tasks(scores).p_pairs[0, 1])
    claims = [float(np.mean(np.array(found) < 0.05)) for found in (equal, turns)]
    print(f"{methods} methods, {tasks} tasks: any false claim {claims[0]:.3f}; of two that take turns {claims[1]:.3f}")
    assert max(claims) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


def test_a_better_method_is_found() -> None:
    """One that wins on eleven of twelve tasks is significantly better than the rest, which are not told apart."""
    chance = np.random.default_rng(1)
    scores = chance.normal(size=(12, 4)) * 0.02 + np.array([0.1, 0, 0, 0]) + chance.normal(size=(12, 1))
    found = rank_over_tasks(scores)
    assert (found.p_pairs[0, 1:] < 0.05).all()
    assert (found.p_pairs[1:, 1:] > 0.05).all()
