"""Intervals keep their word: of many 95% intervals, about 95% hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from warmstart.seeding import rng
from warmstart.stats.intervals import bootstrap_interval, t_interval

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=12)


@settings(deadline=None, max_examples=80)
@given(SCORES, st.sampled_from([0.8, 0.95, 0.99]))
def test_equal_to_scipy(values: list[float], confidence: float) -> None:
    """The interval is that of scipy's one-sample t test."""
    found = t_interval(values, confidence)
    if np.ptp(values) < 1e-9:
        assert found.high - found.low == pytest.approx(0, abs=1e-7)
        return
    expected = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.low <= found.mean <= found.high
    assert found.count == len(values)


def test_interval_coverage() -> None:
    """Of 4,000 intervals over a few normal scores, 95% hold the mean, give or take 1.2 points."""
    for seeds in (2, 3, 5):
        scores = rng(0, "coverage", seeds).normal(0.8, 0.02, (4000, seeds))
        held = [found.low <= 0.8 <= found.high for found in map(t_interval, scores.tolist())]
        assert np.mean(held) == pytest.approx(0.95, abs=0.012), seeds


def test_one_seed_has_no_interval() -> None:
    """One seed says so instead of looking exact."""
    found = t_interval([0.9])
    assert found.mean == 0.9
    assert all(map(math.isnan, (found.low, found.high, found.spread)))
    assert str(found) == "90.0% (one run)"


def test_bootstrap_coverage() -> None:
    """Of 200 intervals over 200 texts each, about 95% hold the true share."""
    held = []
    for trial in range(200):
        found = bootstrap_interval(rng(trial, "coverage").random(200) < 0.6, seed=trial, draws=300)
        held.append(found.low <= 0.6 <= found.high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.04)


def test_bootstrap_is_repeatable() -> None:
    """The same seed gives the same interval, another seed another one."""
    right = np.arange(100) % 3 == 0
    assert bootstrap_interval(right, seed=1) == bootstrap_interval(right, seed=1) != bootstrap_interval(right, seed=2)
