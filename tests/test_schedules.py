"""Learning-rate schedules: fractions of the peak, by literal numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmstart.training.schedules import SCHEDULES, learning_rate_factor


@given(st.sampled_from(sorted(SCHEDULES)), st.floats(0, 1), st.floats(0, 0.9), st.floats(0, 1))
@settings(deadline=None)
def test_rates_stay_between_nothing_and_the_full_rate(schedule: str, progress: float, warmup: float, floor: float) -> None:
    """Every schedule is a share of the full rate, and the highest at the end of the warm-up."""
    share = learning_rate_factor(progress, schedule, warmup, floor)
    assert 0 <= share <= 1 + 1e-9
    assert learning_rate_factor(max(warmup, 1e-12), schedule, warmup, floor) == pytest.approx(1.0)


def test_schedules_by_literal_numbers() -> None:
    """Half-way: cosine and linear are at one half, the trapezoid is still at the top."""
    assert SCHEDULES["cosine"](0.5) == pytest.approx(0.5)
    assert SCHEDULES["linear"](0.25) == pytest.approx(0.75)
    assert SCHEDULES["trapezoid"](0.5) == 1.0
    assert SCHEDULES["trapezoid"](0.85) == pytest.approx(0.5)
    assert learning_rate_factor(1.0, "cosine", 0.1, 0.1) == pytest.approx(0.1)
    assert learning_rate_factor(0.05, "linear", 0.1, 0.0) == pytest.approx(0.5)
    assert math.isclose(learning_rate_factor(0.55, "linear", 0.1, 0.0), 0.5)
