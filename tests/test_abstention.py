"""Abstention: the bar keeps its promise on new examples, and the curve says what was counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from warmstart.errors import ConfigError
from warmstart.seeding import rng
from warmstart.stats.abstention import area_under_risk_coverage, clopper_pearson_bound, find_threshold, risk_coverage

TARGET, CONFIDENCE_LEVEL = 0.1, 0.9


def simulated(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidences s, and answers that are wrong with probability 0.9 (1 - s)²."""
    draw = rng(seed, "simulated")
    sure = draw.random(count)
    return sure, draw.random(count) >= 0.9 * (1 - sure) ** 2


def true_error(threshold: float) -> float:
    """The error of all answers above a bar, under ``simulated``: the mean of 0.9 (1 - s)² from the bar to 1."""
    return 0.3 * (1 - threshold) ** 2


def test_the_promise_is_kept() -> None:
    """Over 1,000 draws of 300 held-out examples the error above the bar is below the target in at least the stated share."""
    bars = [find_threshold(*simulated(300, seed), TARGET, CONFIDENCE_LEVEL) for seed in range(1000)]
    kept = [math.isinf(bar.threshold) or true_error(bar.threshold) <= TARGET for bar in bars]
    assert np.mean(kept) >= CONFIDENCE_LEVEL
    assert np.mean([not math.isinf(bar.threshold) for bar in bars]) > 0.5, "a bar that is never found promises nothing"


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.5, 0.99))
@settings(deadline=None, max_examples=50)
def test_the_bound_is_the_binomial_one(wrong: int, answered: int, confidence_level: float) -> None:
    """At the bound, so few wrong answers have exactly the probability of doubt that is left."""
    wrong = min(wrong, answered)
    bound = clopper_pearson_bound(wrong, answered, confidence_level)
    if wrong == answered:
        assert bound == 1
    else:
        assert stats.binom.cdf(wrong, answered, bound) == pytest.approx(1 - confidence_level)


def test_what_cannot_be_promised_is_not() -> None:
    """Too few examples, or answers that are never right: nothing is answered, and the sentence says why."""
    few = find_threshold(np.array([0.9, 0.8]), np.array([True, True]), 0.05)
    assert math.isinf(few.threshold)
    assert few.sentence() == (
        "No threshold can guarantee at most 5% errors with 95% confidence from these 2 held-out examples, so the model always "
        "abstains. Allow more errors, or hold out more examples."
    )
    wrong = find_threshold(np.linspace(0, 1, 500), np.zeros(500, dtype=bool), 0.5)
    assert wrong.answered == 0


def test_a_model_that_is_always_right_answers_all() -> None:
    """The bar then lies at the lowest confidence."""
    bar = find_threshold(np.linspace(0.2, 1, 400), np.ones(400, dtype=bool), 0.05)
    assert (bar.threshold, bar.answered, bar.wrong) == (0.2, 400, 0)
    assert bar.sentence() == (
        "With a confidence threshold of 0.2, at most 5% of predictions are wrong, with 95% confidence. Of 400 held-out examples, "
        "400 (100%) reach it, and 0 of those are wrong."
    )


@pytest.mark.parametrize(("target", "confidence_level"), [(0.0, 0.95), (1.0, 0.95), (0.1, 1.0)])
def test_impossible_promises_are_refused(target: float, confidence_level: float) -> None:
    """No share of errors of nothing or all, no full certainty."""
    with pytest.raises(ConfigError, match="must lie between 0 and 1"):
        find_threshold(np.ones(3), np.ones(3, dtype=bool), target, confidence_level)


def test_risk_and_coverage_by_hand() -> None:
    """Equal confidences are answered together."""
    coverage, risk = risk_coverage(np.array([0.8, 0.9, 0.8]), np.array([False, True, True]))
    assert coverage.tolist() == pytest.approx([1 / 3, 1])
    assert risk.tolist() == pytest.approx([0, 1 / 3])
    assert area_under_risk_coverage(coverage, risk) == pytest.approx(2 / 9)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40))
@settings(deadline=None, max_examples=50)
def test_the_curve_ends_at_the_plain_error(rows: list[tuple[int, bool]]) -> None:
    """Answering everything is wrong as often as the answers are; coverage only rises."""
    sure, right = np.array([row[0] / 5 for row in rows]), np.array([row[1] for row in rows])
    coverage, risk = risk_coverage(sure, right)
    assert coverage[-1] == pytest.approx(1)
    assert risk[-1] == pytest.approx((~right).mean())
    assert (np.diff(coverage) > 0).all()
