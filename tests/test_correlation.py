"""Correlations: sums give what numpy and scipy give, and intervals over passages hold the truth."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from warmstart.seeding import rng
from warmstart.stats.correlation import PearsonSums, bootstrap_correlation, correlation_q_values, pearson, spearman


@given(st.integers(0, 100), st.floats(-1e4, 1e4), st.integers(1, 5))
def test_sums_over_a_stream_give_pearsons_r(seed: int, offset: float, batches: int) -> None:
    """Rows in any batches, far from zero or not, give what numpy gives on all of them at once; a constant column has 0."""
    draw = np.random.default_rng(seed)
    one, other = draw.normal(offset, 1, (60, 4)).astype(np.float32), draw.normal(size=(60, 3)).astype(np.float32)
    one[:, 1], other[:, 2] = other[:, 0] + 0.3 * draw.normal(size=60), 7
    sums = PearsonSums()
    for rows in np.array_split(np.arange(60), batches):
        sums.add(one[rows], other[rows])
    expected = np.corrcoef(one.T.astype(float), other[:, :2].T.astype(float))[:4, 4:]
    np.testing.assert_allclose(sums.correlations()[:, :2], expected, atol=1e-5)
    assert (sums.correlations()[:, 2] == 0).all()


def test_q_values_are_those_of_scipy() -> None:
    """The p-values of Pearson's r, corrected by Benjamini and Hochberg over all pairs of columns."""
    draw = np.random.default_rng(0)
    one, other = draw.normal(size=(50, 6)), draw.normal(size=(50, 4))
    one[:, 0] += other[:, 0]
    sums = PearsonSums()
    sums.add(one, other)
    p = [stats.pearsonr(one[:, i], other[:, j]).pvalue for i in range(6) for j in range(4)]
    expected = stats.false_discovery_control(p).reshape(6, 4)
    np.testing.assert_allclose(correlation_q_values(sums.correlations(), 50), expected, rtol=1e-3)


def test_the_bootstrap_interval_holds_the_truth() -> None:
    """About 95 of 100 intervals over passages hold the true correlation; a constant gives 0."""
    draw, inside = np.random.default_rng(0), 0
    for seed in range(100):
        pairs = []
        for _ in range(40):
            x = draw.normal(size=(8,))
            pairs.append((x, 0.6 * x + 0.8 * draw.normal(size=8)))
        low, high = bootstrap_correlation(pairs, rng(seed, "bootstrap"))
        inside += low < 0.6 < high
    assert 88 <= inside <= 99
    assert bootstrap_correlation([(np.ones(3), np.arange(3.0))] * 4, rng(0, "bootstrap")) == (0, 0)


def test_two_columns_by_hand() -> None:
    """Ranks alone count for Spearman's, distances for Pearson's."""
    one, other = np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 100.0])
    assert spearman(one, other) == 1
    assert abs(pearson(one, other) - np.corrcoef(one, other)[0, 1]) < 1e-12
