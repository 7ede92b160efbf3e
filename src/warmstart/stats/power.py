"""What a comparison over seeds and test texts can detect, and how many seeds and texts it takes to detect more.

The variances are those of a pilot, taken as known: a plan from few seeds is itself uncertain.

Letters: S seeds, N test texts.
"""

from __future__ import annotations

import math

import numpy as np

from warmstart.stats.noise import Noise

POWER = 0.8
"""the usual probability with which a difference should be detected (Cohen 1988)"""
MOST_TEXTS = 10_000_000
"""more test texts than this are called none that suffice"""
_NODES = 40


def rescaled(noise: Noise, seeds: int, texts_factor: float) -> Noise:
    """The noise of the same comparison with ``seeds`` seeds on ``texts_factor`` times as many test texts.

    ``rescaled(Noise(4e-4, 1e-4, 5), 10, 2.0)`` -> of_texts 2e-4, of_seeds 5e-5.
    """
    return Noise(noise.of_texts / texts_factor, noise.of_seeds * noise.seeds / seeds, seeds)


def detection_power(noise: Noise, difference: float, error_rate: float = 0.05) -> float:
    """The probability that a true difference is significant: that its estimate, with this noise, exceeds its half width.

    The estimate is normal around the difference; the seed variance is estimated anew, as of_seeds W with W = chi-square / (S - 1),
    and so is the half width h(W) with it:

        E_W[Phi((|difference| - h(W)) / error) + Phi((-|difference| - h(W)) / error)].

    0 for one seed, whose comparisons claim nothing. ``detection_power(Noise(1e-4, 0.0, 5), 0.028)`` -> 0.80, as for a normal
    variable. Simulation: ``tests/test_power.py``.
    """
    from scipy import stats

    if noise.seeds < 2:
        return 0.0
    quantiles = (np.arange(_NODES) + 0.5) / _NODES
    drawn = stats.chi2.ppf(quantiles, noise.seeds - 1) / (noise.seeds - 1)
    widths = np.array([Noise(noise.of_texts, noise.of_seeds * w, noise.seeds).half_width(error_rate) for w in drawn])
    gap, error = abs(difference), float(noise.error)
    return float(np.mean(stats.norm.cdf((gap - widths) / error) + stats.norm.cdf((-gap - widths) / error)))


def smallest_detectable(noise: Noise, power: float = POWER, error_rate: float = 0.05) -> float:
    """The smallest true difference that is significant with probability ``power``; infinite for one seed.

    ``smallest_detectable(Noise(1e-4, 0.0, 5))`` -> 0.028: 2.8 standard errors, the familiar rule for a normal variable.
    """
    from scipy.optimize import brentq

    error = float(noise.error)
    if noise.seeds < 2:
        return math.inf
    if error == 0:
        return 0.0
    most = 2.0 * error
    while detection_power(noise, most, error_rate) < power:
        most *= 2
    return float(brentq(lambda gap: detection_power(noise, gap, error_rate) - power, 0.0, most, xtol=error / 1000))


def texts_needed(noise: Noise, texts: int, difference: float, power: float = POWER, error_rate: float = 0.05) -> int | None:
    """The fewest test texts on which a difference is detected with probability ``power``, given the noise of a pilot on ``texts``.

    The seeds are those of ``noise``. None if no number of texts suffices, because the seeds alone hide the difference.
    ``texts_needed(Noise(1e-4, 0.0, 5), 500, 0.014)`` -> about 2,000: half the difference takes four times the texts.
    """

    def enough(count: float) -> bool:
        return detection_power(rescaled(noise, noise.seeds, count / texts), difference, error_rate) >= power

    low, high = 1.0, float(texts)
    while not enough(high):
        low, high = high, high * 2
        if high > MOST_TEXTS:
            return None
    while high - low > max(1.0, high / 200):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.ceil(high)
