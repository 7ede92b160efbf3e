"""Intervals that hold at every moment: a mean that is watched while it grows, as often as one likes.

An ordinary 95% interval holds at one moment that was fixed before. Who looks after every text and stops once it pleases is misled
more often than in 5% of cases. A confidence sequence holds at all moments together with 95% confidence, so that looking, and
stopping for any reason, is allowed.

Each value X_s has a mean m_s given all before it, which may change from value to value (a model that is being improved). What is
covered is the running mean of these, (m_1 + … + m_n) / n. With any prediction P_s of X_s that is made before, and X_s - P_s >= -c,

    exp(λ Σ (X_s - m_s) - ψ(λ) Σ (X_s - P_s)²)        ψ(λ) = (-log(1 - cλ) - cλ) / c²

is a supermartingale for every λ in [0, 1/c) (Fan, Grama and Liu 2015; Howard et al. 2021, theorem 4), so that by Ville's
inequality its mixture over λ exceeds 1/α with probability α at most, ever. Mixed with a gamma density it has a closed form
(Howard et al. 2021, proposition 9). Small squared errors of the predictions give narrow intervals.

Letters: n values, V the sum of their squared errors, c the scale.
"""

from __future__ import annotations

import math

import numpy as np

from warmstart.stats.intervals import Estimate

BEST_AT = 10.0
"""the V at which the boundary is closest to that of a single moment: about 100 texts of which 10% are wrong"""


def anytime_interval(
    values: np.ndarray,
    predictions: np.ndarray,
    scale: float,
    confidence_level: float = 0.95,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """The interval for the running mean of the means of ``values`` (n,), valid at all n together.

    ``predictions`` (n,) of the values were made before they were seen, and no value is further than ``scale`` from its prediction;
    the running mean is known to lie within ``limits``. Each end is missed with at most half of the error probability (Howard et al.
    2021, theorem 4). Simulation: tests/test_anytime.py: ``test_the_running_mean_is_covered_at_every_moment``.

    >>> [round(float(one), 2) for one in anytime_interval(np.ones(200), np.full(200, 0.9), 1.0)]  # 200 of 200 right
    [1.0, 0.96, 1.0]
    """
    lowest, highest = limits
    if not len(values):
        return Estimate(math.nan, lowest, highest)
    mean = float(np.mean(values))
    half = anytime_boundary(float(((values - predictions) ** 2).sum()), scale, (1 - confidence_level) / 2) / len(values)
    return Estimate(mean, max(lowest, mean - half), min(highest, mean + half))


def anytime_boundary(squares: float, scale: float, error: float) -> float:
    """How far Σ (X_s - m_s) ever gets where the squared errors sum to ``squares``, except with probability ``error`` (one-sided).

    By the gamma-exponential mixture (Howard et al. 2021, proposition 9). Parity: tests/test_anytime.py:
    ``test_the_boundary_is_that_of_the_mixture_over_all_rates``.

    >>> round(anytime_boundary(25.0, 1.0, 0.05), 1), round(1.645 * 25.0**0.5, 1)  # the second holds at one moment only
    (17.5, 8.2)
    """
    from scipy.optimize import brentq

    goal = -math.log(error)
    high = 1.0
    while _log_mixture(high, squares, scale, error) < goal:
        high *= 2
    return float(brentq(lambda sum_: _log_mixture(sum_, squares, scale, error) - goal, 0.0, high))


def _log_mixture(sum_: float, squares: float, scale: float, error: float) -> float:
    """The logarithm of the gamma-exponential mixture (Howard et al. 2021, proposition 9)."""
    square, goal = scale**2, -math.log(error)
    prior = BEST_AT / (2 * goal + math.log(1 + 2 * goal)) / square
    shape, rate = squares / square + prior, (scale * sum_ + squares) / square + prior
    constant = prior * math.log(prior) - _log_lower_gamma(prior, prior)
    return constant + _log_lower_gamma(shape, rate) - shape * math.log(rate) + rate - prior


def _log_lower_gamma(shape: float, end: float) -> float:
    """The logarithm of the lower incomplete gamma function, not regularised."""
    from scipy.special import gammainc, gammaln

    return float(gammaln(shape) + np.log(gammainc(shape, end)))
