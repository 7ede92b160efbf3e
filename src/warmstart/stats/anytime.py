"""Accuracy while labels come in: intervals that hold at every moment, and one for a single look at the newest model.

An ordinary 95% interval holds at one moment that was fixed before. Who looks after every text and stops once it pleases is misled
more often than in 5% of cases. A confidence sequence holds at all moments together with 95% confidence, so that looking, and
stopping for any reason, is allowed.

Each value X_s has a mean m_s given all before it, which may change from value to value (a model that is being improved). What is
covered is the running mean of these, (m_1 + … + m_n) / n. With any prediction P_s of X_s that is made before, and X_s - P_s >= -c,

    exp(λ Σ (X_s - m_s) - ψ(λ) Σ (X_s - P_s)²)        ψ(λ) = (-log(1 - cλ) - cλ) / c²

is a supermartingale for every λ in [0, 1/c) (Fan, Grama and Liu 2015; Howard et al. 2021, theorem 4), so that by Ville's
inequality its mixture over λ exceeds 1/α with probability α at most, ever. Mixed with a gamma density it has a closed form
(Howard et al. 2021, proposition 9). Small squared errors of the predictions give narrow intervals.

The newest model is usually better than that mean says. Its own accuracy is estimated from predictions for texts that were left out
(``weighted_accuracy``), whose interval holds for one look.

The same exactness costs width: nothing may be assumed of the values but their range. With some tens of values their mean is nearly
normal, and the interval of ``asymptotic_half_width`` has 0.6 of that width.

Letters: n values or texts, V the sum of their squared errors, c the scale.
"""

from __future__ import annotations

import math

import numpy as np

from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import wilson_interval

BEST_AT = 10.0
"""the V at which the boundary is closest to that of a single moment: about 100 texts of which 10% are wrong"""
FEWEST_NORMAL = 30
"""values after which a mean is taken as nearly normal"""
_LEAST_VARIANCE = 0.02
"""of values between 0 and 1: a few that agree by luck say little"""
_NARROWEST_AT = 60
"""values at which the asymptotic boundary is narrowest, beside one of a single moment"""
_OVERLAP = 1.4
"""so many texts count as one, because the folds are fitted to overlapping texts"""


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


def asymptotic_half_width(values: np.ndarray, scale: float = 1.0, error: float = 0.05, count: int | None = None) -> float:
    """Half the interval for the running mean of the means of ``values`` (n,), valid at all n together except with ``error``.

    sd sqrt(2 (n r + 1) / (n^2 r) log(sqrt(n r + 1) / error)) with r = (-2 log error + log(1 - 2 log error)) / 60
    (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2021, theorem 2.2). It is asymptotic: as the central limit theorem, it holds
    nearly, and the better the more values there are; with fewer than 30 it is infinite. The values so far may lack a rare one that
    is far off, such as a wrong answer of great weight: so the variance is taken as if there were one more, ``scale`` from the
    mean, and at least 0.02; without that, up to a third of the sequences are misled. With ``count``: after so many values, if they
    vary as these do. Simulation: tests/test_anytime.py: ``test_the_asymptotic_interval_nearly_holds_at_every_moment``.

    >>> values = np.array([1.0] * 80 + [0.0] * 20)
    >>> [round(asymptotic_half_width(values, count=count), 3) for count in (29, 50, 100, 400)]
    [inf, 0.176, 0.125, 0.065]
    """
    n = len(values) if count is None else count
    if n < FEWEST_NORMAL:
        return math.inf
    rate = (-2 * math.log(error) + math.log(1 - 2 * math.log(error))) / _NARROWEST_AT
    grown = n * rate + 1
    wide = 2 * grown / (n**2 * rate) * math.log(math.sqrt(grown) / error)
    variance = (float(((values - values.mean()) ** 2).sum()) + scale**2) / (len(values) + 1)
    return math.sqrt(max(variance, _LEAST_VARIANCE) * wide)


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


def weighted_accuracy(right: np.ndarray, remaining: np.ndarray, probabilities: np.ndarray) -> Estimate:
    """The accuracy of a model on the texts of a pool that have no label yet, from n labelled texts that were drawn by chance.

    ``right`` (n,), in the order of the draws, is the share of repetitions of a cross-validation in which a text was predicted
    correctly out of fold; text m was drawn among R_m ``remaining`` (n,) with probability q_m (``probabilities``, (n,)). It weighs
    u_m = 1 + (R_m + m - 1) / (R_m - 1) (1 / (R_m q_m) - 1), which is 1 at random, and the mean of the u right is then that of the
    texts that are left (Farquhar, Gal and Rainforth 2021, less the labelled ones). The 95% interval of sum(u right) / sum(u) is
    that of Wilson 1927 for (sum u)^2 / sum u^2 / 1.4 texts (Kish 1965; 1.4, because the folds share texts). It holds for one look,
    not for all. Simulation: tests/test_anytime.py: ``test_the_newest_model_is_covered_at_one_look``.

    >>> right, remaining = np.array([1.0] * 60 + [0.0] * 40), 500 - np.arange(100)
    >>> probabilities = np.array([0.8] * 60 + [1.4] * 40) / remaining  # those that turned out wrong had been preferred
    >>> [round(float(one), 2) for one in weighted_accuracy(right, remaining, probabilities)]
    [0.74, 0.63, 0.83]
    """
    number, others = np.arange(1, len(right) + 1), np.maximum(remaining - 1, 1)
    weights = 1 + (remaining + number - 1) / others * (1 / (remaining * probabilities) - 1)
    if (total := float(weights.sum())) <= 0:
        return Estimate(math.nan, 0.0, 1.0)
    mean = float(np.clip((weights * right).sum() / total, 0, 1))
    return wilson_interval(mean, total**2 / float((weights**2).sum()) / _OVERLAP)
