"""CKA: the unbiased estimate matches the paper, ignores rotation, and finds no similarity in noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from warmstart.inspection.cka import cka, linear_kernel
from warmstart.seeding import rng
from warmstart.stats.resampling import jackknife


def hsic_by_hand(x: np.ndarray, y: np.ndarray) -> float:
    """Song et al. 2007, equation 5, as it is printed, for states that are neither centred nor scaled."""
    k, l_ = x @ x.T, y @ y.T
    np.fill_diagonal(k, 0)
    np.fill_diagonal(l_, 0)
    n, one = len(x), np.ones(len(x))
    sums = (one @ k @ one) * (one @ l_ @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ k @ l_ @ one)
    return float((np.trace(k @ l_) + sums) / (n * (n - 3)))


def cka_by_hand(x: np.ndarray, y: np.ndarray) -> float:
    return hsic_by_hand(x, y) / math.sqrt(hsic_by_hand(x, x) * hsic_by_hand(y, y))


@given(st.integers(0, 1000), st.integers(2, 6))
@settings(max_examples=25)
def test_cka_matches_the_paper(seed: int, passages: int) -> None:
    """Equation 5 of Song et al. 2007 as printed, for all tokens and with each passage left out."""
    draw = rng(seed)
    lengths = draw.integers(1, 6, passages) + (3 if passages < 4 else 0)
    starts, owners = np.concatenate([[0], lengths.cumsum()[:-1]]), np.repeat(np.arange(passages), lengths)
    assume(len(owners) - lengths.max() > 4)
    x = draw.normal(size=(len(owners), 3)) + 0.5
    y = x @ draw.normal(size=(3, 4)) + 0.2 * draw.normal(size=(len(owners), 4))
    values = cka(linear_kernel(x, starts), linear_kernel(y, starts))
    expected = [(x, y), *((x[owners != one], y[owners != one]) for one in range(passages))]
    for value, (one, other) in zip(values, expected, strict=True):
        if min(hsic_by_hand(one, one), hsic_by_hand(other, other)) > 0.01:
            assert value == pytest.approx(cka_by_hand(one, other), rel=1e-3, abs=1e-3)


@given(st.integers(0, 1000), st.floats(0.01, 100), st.floats(-10, 10))
@settings(max_examples=25)
def test_cka_ignores_rotation_scale_and_shift(seed: int, scale: float, shift: float) -> None:
    """States that were rotated, scaled and shifted have a CKA of 1; random ones do not."""
    draw, starts = rng(seed), np.arange(0, 60, 5)
    x = draw.normal(size=(60, 6)) * np.array([3, 2, 2, 1, 1, 1])
    rotated = scale * x @ ortho_group.rvs(6, random_state=seed) + shift
    assert cka(linear_kernel(x, starts), linear_kernel(rotated, starts)) == pytest.approx(1, abs=1e-4)
    assert cka(linear_kernel(x, starts), linear_kernel(draw.normal(size=(60, 6)), starts))[0] < 0.5


def test_noise_has_no_cka_even_with_few_tokens() -> None:
    """The unbiased estimate is near 0 and its interval includes 0, where the biased estimate is high; constant states have none."""
    draw, starts = rng(0), np.arange(0, 100, 5)
    x, y = draw.normal(size=(2, 100, 1000))
    value, low, high = jackknife(cka(linear_kernel(x, starts), linear_kernel(y, starts)))
    assert abs(value) < 0.02
    assert low < 0 < high
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    biased = np.square(x.T @ y).sum() / math.sqrt(np.square(x.T @ x).sum() * np.square(y.T @ y).sum())
    assert biased > 0.8
    constant = linear_kernel(np.ones((100, 4)), starts)
    assert np.isnan(cka(constant, linear_kernel(x, starts))).all()
