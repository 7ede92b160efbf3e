"""Methods over several tasks: false claims, agreement with scipy's tests for many tasks, ranks and wins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from warmstart.stats import task_ranks
from warmstart.stats.task_ranks import rank_over_tasks


def test_ranks_share_ties_and_nan_is_worst() -> None:
    """The best is 1; equal scores share the mean of their ranks; a method without a score is last."""
    found = rank_over_tasks([[0.9, 0.9, 0.1], [0.2, 0.8, float("nan")]])
    assert found.ranks.tolist() == [[1.5, 1.5, 3], [2, 1, 3]]
    assert found.mean.tolist() == [1.75, 1.25, 3]
    assert found.wins(1, 0) == (1, 1, 0)
    assert found.wins(0, 1) == (0, 1, 1)


def test_few_tasks_prove_nothing() -> None:
    """Two methods on three tasks: even three wins of three happen by chance once in four."""
    found = rank_over_tasks([[0.9, 0.8]] * 3)
    assert found.p == pytest.approx(0.25, abs=0.02)
    assert found.p_pairs[0, 1] == pytest.approx(found.p)
    assert found.detectable == np.inf
    assert rank_over_tasks(np.random.default_rng(0).normal(size=(6, 4))).detectable < 3


def test_many_tasks_agree_with_friedman_and_nemenyi() -> None:
    """As scipy computes them by their approximations for many tasks."""
    chance = np.random.default_rng(0)
    scores = chance.normal(size=(60, 5)) + np.array([0.25, 0, 0, 0, -0.05])
    found = rank_over_tasks(scores)
    assert found.p == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue, abs=0.015)
    nemenyi = stats.studentized_range.ppf(0.95, 5, np.inf) * np.sqrt(5 * 6 / (12 * 60))
    assert found.critical_difference == pytest.approx(nemenyi, rel=0.05)


@pytest.mark.proofs
@pytest.mark.parametrize(("tasks", "methods"), [(3, 8), (6, 3), (12, 8)])
def test_equal_methods_are_seldom_called_different(tasks: int, methods: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 5% of tables with any false claim, for the test of all methods and for the pairs, with tied scores too."""
    monkeypatch.setattr(task_ranks, "PERMUTATIONS", 400)
    chance = np.random.default_rng(tasks * methods)
    tables = [rank_over_tasks(chance.integers(0, 30, (tasks, methods)), seed) for seed in range(400)]
    allowed = 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    claims = [
        float(np.mean([p < 0.05 for p in all_p])) for all_p in zip(*((one.p, one.p_pairs.min()) for one in tables), strict=True)
    ]
    print(f"{methods} methods, {tasks} tasks: a difference is claimed in {claims[0]:.3f}, between any pair in {claims[1]:.3f}")
    assert max(claims) <= allowed


@pytest.mark.proofs
@pytest.mark.parametrize(("tasks", "methods"), [(6, 3), (12, 4), (20, 8)])
def test_the_detectable_difference_of_ranks_is_detected(tasks: int, methods: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods whose mean ranks truly differ by that are told apart in at least 80% of tables, give or take Monte-Carlo error.

    One is better and the other worse than all others, so that both differ from them too.
    """
    monkeypatch.setattr(task_ranks, "PERMUTATIONS", 1000)
    chance = np.random.default_rng(tasks * methods)
    detectable = rank_over_tasks(chance.normal(size=(tasks, methods))).detectable
    noise, leads = chance.normal(size=(20_000, methods)), np.linspace(0, 6, 121)

    def scores(lead: float, noise: np.ndarray) -> np.ndarray:
        return np.asarray(noise + lead / 2 * np.eye(methods)[0] - lead / 2 * np.eye(methods)[1])

    apart = [float(np.diff(stats.rankdata(-scores(lead, noise), axis=1).mean(axis=0)[:2])[0]) for lead in leads]
    lead = float(np.interp(detectable, apart, leads))
    tables = [rank_over_tasks(scores(lead, chance.normal(size=(tasks, methods)))) for _ in range(150)]
    found = np.mean([one.p_pairs[0, 1] < 0.05 for one in tables])
    print(f"{methods} methods, {tasks} tasks: a difference of {detectable:.2f} mean ranks is found in {found:.3f}")
    assert found >= 0.8 - 2 * np.sqrt(0.8 * 0.2 / 150)


def test_a_better_method_is_found() -> None:
    """One that wins on eleven of twelve tasks is significantly better than the rest, which are not told apart."""
    chance = np.random.default_rng(1)
    scores = chance.normal(size=(12, 4)) * 0.02 + np.array([0.1, 0, 0, 0]) + chance.normal(size=(12, 1))
    found = rank_over_tasks(scores)
    assert found.p < 0.01
    assert (found.p_pairs[0, 1:] < 0.05).all()
    assert (found.p_pairs[1:, 1:] > 0.05).all()
    assert (np.abs(found.mean[0] - found.mean[1:]) > found.critical_difference).all()
