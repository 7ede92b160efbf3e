"""The distribution of a mean over seeds and test texts, if there is no effect: p-values and interval widths.

The mean of S seeds on N texts errs for two reasons. Other test texts would change it by a normal error, whose variance the
bootstrap gives; other seeds by an error whose variance is only estimated, from S values. The error is taken as

    sqrt(of_texts) Z + sqrt(of_seeds) T(d),    Z normal, T Student's t with d = S - 1 (``degrees``), independent.

This is the distribution of Behrens (1929) and Fisher (1935, section V), one of whose variances is known. It never trusts a seed
variance that is close to 0 by luck, as the effective degrees of freedom of Welch and Satterthwaite do. Written with
T = Z' / sqrt(W), W = chi-square / d, the sum is normal for each W, so that p-values are one integral over W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

ROUNDING = 1e-9
"""standard errors and differences below this are rounding errors"""
MODERATED_SEEDS = 3
"""whose variance other methods support (``moderated_noise``): more gain nothing, and fewer hide an unstable method"""
_PRIOR = 4.0
"""most degrees of freedom that other methods lend to the variance over seeds"""
_NODES = 400
"""of the integral; it is exact to about nine digits"""


@dataclass(frozen=True)
class Noise:
    """The variance of a mean over S seeds and the test texts, by source; numbers, or arrays of one shape."""

    of_texts: float | np.ndarray
    """what other test texts would change, of the mean over endless seeds"""
    of_seeds: float | np.ndarray
    """what other seeds would change, of the mean over these S; 0 if there is only one"""
    seeds: int
    """0: nothing depends on a seed, and ``of_seeds`` is 0"""
    of_both: float | np.ndarray = 0.0
    """the part of ``of_seeds`` that more texts reduce: what each seed answers otherwise on each text"""
    prior: float = 0.0
    """degrees of freedom of ``of_seeds`` beside the S - 1 of these seeds, from other methods (``moderated_noise``)"""

    @property
    def degrees(self) -> float:
        """Degrees of freedom of ``of_seeds``."""
        return self.seeds - 1 + self.prior

    @classmethod
    def of(cls, values: np.ndarray, resampled: np.ndarray, overlap: float | None = None) -> Noise:
        """From scores ``values`` (..., S) and the same on resamples of the texts (..., S, R).

        of_seeds = var(values) / S. of_texts = var_R(mean_S) - (mean_S(var_R) - var_R(mean_S)) / (S - 1): the bootstrap's variance
        of the mean, without what each seed answers otherwise on each text, which of_seeds already contains (the variance
        components of a two-way table: Searle et al. 1992, chapter 4). That is of_both. Never below 0. With one seed, the texts'
        variance alone.

        If every seed draws its own split of the same texts, the scores vary with the test texts too, and depend on each other,
        because the splits overlap. With ``overlap``, the test texts per training text, of_texts = 0 and

            of_seeds = (1 / S + overlap) var(values)        (Nadeau and Bengio 2003, equation 10),

        so that p-values and intervals are those of the corrected resampled t-test. Simulation: tests/test_resample.py:
        ``test_intervals_over_splits_hold_the_truth``.

        ``Noise.of(np.array([0.8, 0.9]), np.array([[0.7, 0.9], [0.8, 1.0]]))`` -> of_texts 0.02, of_seeds 0.0025.
        """
        seeds = values.shape[-1]
        of_mean = _without_rounding(resampled.mean(axis=-2).var(axis=-1, ddof=1))
        if seeds == 1:
            return cls(of_mean, np.zeros_like(of_mean), 1)
        if overlap is not None:
            of_splits = values.var(axis=-1, ddof=1) * (1 / seeds + overlap)
            return cls(np.zeros_like(of_mean), _without_rounding(of_splits), seeds)
        both, of_seeds = (resampled.var(axis=-1, ddof=1).mean(axis=-1) - of_mean) / (seeds - 1), values.var(axis=-1, ddof=1) / seeds
        return cls(_without_rounding(of_mean - both), _without_rounding(of_seeds), seeds, np.clip(both, 0.0, of_seeds))

    def of_choice(self, doubt: float = 1.0, overlap: float | None = None) -> Noise:
        """The same if each of the S seeds scores what the others choose: 1 / S + doubt / (S - 1) for 1 / S over seeds.

        Nadeau and Bengio (2003, equation 10); ``overlap`` is added to 1 / S as in ``of``. One run has no noise over seeds.
        Simulation: tests/test_power.py: ``test_races_detect_what_their_power_says``.

        ``Noise(0.0, 0.0004, 3).of_choice()`` -> of_seeds 0.001.
        """
        if self.seeds < 2:
            return self
        factor = 1 + doubt / (self.seeds - 1) / (1 / self.seeds + (overlap or 0.0))
        return replace(self, of_seeds=self.of_seeds * factor, of_both=self.of_both * factor)

    @property
    def error(self) -> np.ndarray:
        """The standard error."""
        return np.sqrt(self.of_texts + self.of_seeds)

    def p(self, difference: float | np.ndarray) -> np.ndarray:
        """The probability of a difference at least as large, either way, if there were none; 1 if nothing is known of the noise.

        p = E_W[2 Phi(-|difference| / sqrt(of_texts + of_seeds / W))], in the shape of ``difference``.

        ``Noise(0.0001, 0.0, 5).p(0.0196)`` -> 0.05, as for a normal variable. Simulation: tests/test_noise.py:
        ``test_few_tables_of_equal_methods_claim_a_difference``.
        """
        from scipy.special import ndtr

        drawn, weights = _scaled_chi_square(self.degrees)
        texts, seeds, gap = (np.asarray(one)[..., None] for one in (self.of_texts, self.of_seeds, np.abs(difference)))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 2 * ndtr(-gap / np.sqrt(texts + seeds / drawn)) @ weights
        return np.where(self.error > 0, np.minimum(found, 1.0), 1.0)

    def half_width(self, error_rate: float = 0.05) -> float:
        """What the error stays below, either way, except with this probability: half the width of an interval. Of numbers only.

        Solves p(half width) = error_rate (Brent 1973). ``Noise(0.0001, 0.0, 5).half_width()`` -> 0.0196;
        ``Noise(0.0, 0.0001, 3).half_width()`` -> 0.043, as Student's t. Simulation: tests/test_noise.py:
        ``test_intervals_over_seeds_and_texts_hold_the_truth``.
        """
        from scipy.optimize import brentq

        error = float(self.error)
        if error == 0:
            return 0.0
        unit = replace(self, of_texts=self.of_texts / error**2, of_seeds=self.of_seeds / error**2)
        most = 1.0
        while unit.p(most) > error_rate:
            most *= 4
        return error * float(brentq(lambda width: float(unit.p(width)) - error_rate, 0, most, xtol=1e-10))


def moderated_noise(noise: Noise, difference: np.ndarray, others: np.ndarray) -> Noise:
    """The noise of a ``difference`` (S,) of two methods by seed, its variance over seeds supported by K - 2 ``others`` (K - 2, S).

    Three seeds tell little of their variance v, and Student's t with two degrees of freedom pays dearly for it. Other methods on
    the same seeds tell what is usual: m, the variance of a difference of two of them. Both are combined as limma does for genes,
    but with a fixed prior of four degrees of freedom, less where m itself is poorly known, and never to less than v (Smyth 2004):

        m = 2 sum_k sum_s (y_ks - mean_s y_k - mean_k y_s + mean y)^2 / f,    f = (K - 3)(S - 1),
        e = 1 / (1/4 + 1/f),    moderated v = max(v, (e m + (S - 1) v) / (e + S - 1)),    with S - 1 + e degrees of freedom.

    Subtracting mean_k y_s takes out what a draw of labels does to all methods alike, as a difference does. The noise is returned as
    it is unless there are three seeds and two ``others`` that vary, and if v exceeds m so far (90% quantile of F) that the two seem
    less stable than the others. Methods with a run that collapsed do not belong here. Simulation: tests/test_noise.py:
    ``test_moderated_differences_keep_their_level``.

    >>> others = np.array([[0.70, 0.73, 0.70], [0.62, 0.60, 0.65], [0.75, 0.74, 0.76]])
    >>> own = Noise(1e-4, 0.0012 / 3, 3)
    >>> found = moderated_noise(own, np.array([0.05, 0.08, 0.01]), others)  # v = 0.0012, m = 0.0009, f = 4, e = 2
    >>> found.degrees, round(own.half_width(), 3), round(found.half_width(), 3)
    (4.0, 0.088, 0.059)
    """
    count, seeds = others.shape
    if seeds != MODERATED_SEEDS or count < 2:
        return noise
    own, free = float(difference.var(ddof=1)), (count - 1) * (seeds - 1)
    centred = others - others.mean(axis=1, keepdims=True)
    usual = 2 * float(((centred - centred.mean(axis=0)) ** 2).sum()) / free
    if usual <= ROUNDING**2 or own > _largest_ratio(seeds - 1, free) * usual:
        return noise
    prior = 1 / (1 / _PRIOR + 1 / free)
    moderated = max(own, (prior * usual + (seeds - 1) * own) / (prior + seeds - 1))
    return replace(noise, of_seeds=moderated / seeds, prior=prior)


@cache
def _largest_ratio(degrees: int, others: int) -> float:
    """Of two estimates of one variance, what their ratio stays below with a probability of 90%."""
    from scipy import stats

    return float(stats.f.ppf(0.9, degrees, others))


def _without_rounding(variance: np.ndarray) -> np.ndarray:
    return np.where(variance > ROUNDING**2, variance, 0.0)


@cache
def _scaled_chi_square(degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of an average over W, a chi-square over its degrees of freedom; W = 1 for none.

    The trapezoidal rule for log W, whose density is smooth and falls off on both sides, converges exponentially.
    """
    from scipy import stats

    if degrees < 1:
        return np.ones(1), np.ones(1)
    low, high = stats.chi2.ppf([1e-14, 1 - 1e-14], degrees)
    drawn = np.exp(np.linspace(math.log(low), math.log(high), _NODES))
    weights = stats.chi2.pdf(drawn, degrees) * drawn
    return drawn / degrees, weights / weights.sum()
