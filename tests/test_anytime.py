"""Confidence sequences: intervals that hold at every moment."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from warmstart.stats.anytime import BEST_AT, anytime_boundary, anytime_interval


@pytest.mark.proofs
def test_the_running_mean_is_covered_at_every_moment() -> None:
    """Right and wrong answers whose chance changes with time, 1,000 sequences of 1,000; the scale of 1 is exact."""
    for rate in (0.5, 0.9, 0.99):
        chance, missed = np.random.default_rng(7), 0
        chances = np.clip(rate + 0.1 * np.sin(np.arange(1000) / 80), 0, 1)
        counts, truths, looked = np.arange(1, 1001), chances.cumsum(), range(9, 1000, 45)
        for _ in range(1000):
            values = (chance.random(1000) < chances).astype(float)
            predictions = np.concatenate([[0.5], (0.5 + values.cumsum()[:-1]) / counts[1:]])
            found = [anytime_interval(values[: n + 1], predictions[: n + 1], 1.0) for n in looked]
            missed += any(not one.low <= truths[n] / (n + 1) <= one.high for one, n in zip(found, looked, strict=True))
        print(f"chance around {rate}: missed in {missed / 1000:.1%} of the sequences")
        assert missed <= 50


def test_the_boundary_is_that_of_the_mixture_over_all_rates() -> None:
    """Against numerical integration of the gamma mixture that proposition 9 of Howard et al. (2021) solves."""
    squares, scale, error = 12.0, 1.5, 0.05
    goal = -math.log(error)
    prior = BEST_AT / (2 * goal + math.log(1 + 2 * goal))
    end = anytime_boundary(squares, scale, error)
    weight = stats.gamma(prior / scale**2, scale=scale**2 / prior)

    def density(share: float) -> float:  # of 1 - scale * rate, a gamma variable that is at most 1
        return float(weight.pdf(share) / weight.cdf(1))

    def exponential(share: float) -> float:
        rate = (1 - share) / scale
        return math.exp(rate * end - (-math.log(share) - scale * rate) / scale**2 * squares)

    total, _ = integrate.quad(lambda share: density(share) * exponential(share), 1e-12, 1)
    assert total == pytest.approx(1 / error, rel=1e-5)


def test_boundaries_grow_with_squares_scale_and_certainty() -> None:
    assert anytime_boundary(20, 1, 0.05) < anytime_boundary(40, 1, 0.05) < anytime_boundary(40, 2, 0.05)
    assert anytime_boundary(20, 1, 0.05) < anytime_boundary(20, 1, 0.01)
    nothing = anytime_interval(np.array([]), np.array([]), 1.0)
    assert (nothing.low, nothing.high) == (0, 1)
