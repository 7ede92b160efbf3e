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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from warmstart.stats.intervals import t_quantile

ROUNDING = 1e-9
"""standard errors and differences below this are rounding errors"""
MODERATED_SEEDS = 3
"""number of seeds whose variance other methods support (``moderated_noise``): more gain nothing, fewer hide an unstable method"""
_PRIOR = 4.0
"""most degrees of freedom that other methods lend to the variance over seeds"""
_NODES = 400
"""nodes of the integral, which is exact to about nine digits"""


@dataclass(frozen=True)
class Noise:
    """The variance of a mean over S seeds and the test texts, by source; numbers, or arrays of one shape."""

    of_texts: float | np.ndarray
    """variance over test texts, of the mean over endless seeds"""
    of_seeds: float | np.ndarray
    """variance over seeds, of the mean over these S; 0 if there is only one"""
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
        """Noise of scores ``values`` (..., S), also given on resamples of the texts (..., S, R).

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
        """The noise if each of the S seeds scores what the others choose: 1 / S + doubt / (S - 1) for 1 / S over seeds.

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
        texts, seeds, gap = (np.asarray(part)[..., None] for part in (self.of_texts, self.of_seeds, np.abs(difference)))
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * ndtr(-gap / np.sqrt(texts + seeds / drawn)) @ weights
        return np.where(self.error > 0, np.minimum(p, 1.0), 1.0)

    def half_width(self, error_rate: float = 0.05) -> float:
        """Half the width of an interval: the error exceeds it, either way, with this probability. Of numbers only.

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
    >>> supported = moderated_noise(own, np.array([0.05, 0.08, 0.01]), others)  # v = 0.0012, m = 0.0009, f = 4, e = 2
    >>> supported.degrees, round(own.half_width(), 3), round(supported.half_width(), 3)
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
    """The bound of the ratio of two estimates of one variance that holds with a probability of 90%."""
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


# ---------- What a comparison over seeds and test texts can detect, and how many seeds and texts it takes to detect more
# A plan from a pilot knows the variance of seeds from few of them. Taken as known, it promises too much: where the pilot's
# seeds were alike by luck, far too few texts seem enough. ``possible_noise`` is what may lie behind such an estimate; the
# functions below then average over it. The variance of texts, which hundreds of texts show, is taken as known.
# Letters: S seeds, N test texts.


POWER = 0.8
"""the usual probability with which a difference should be detected (Cohen 1988)"""
MOST_TEXTS = 10_000_000
"""number of test texts above which none is said to suffice"""
_POWER_NODES = 64
_ANGLES = 33


def possible_noise(noise: Noise, degrees: float) -> Noise:
    """The noises that may lie behind ``noise``, whose seed variance was estimated with so many ``degrees`` of freedom.

    These are ``noise.degrees`` for a single difference. of_seeds / W with W = chi-square / degrees: the fiducial distribution of a
    variance (Fisher 1935), as 64 equally likely values. Power that is averaged over them is that of a repetition of the run; taken
    as known, three seeds would have a power of 64% instead of 80%. Simulation: tests/test_power.py:
    ``test_two_methods_differ_by_at_most_what_is_claimed``.

    >>> variances = possible_noise(Noise(1e-4, 1e-4, 3), 2).of_seeds
    >>> [round(float(variances[i] / 1e-4), 1) for i in (1, 16, 32, 48)]  # three seeds may be alike by luck
    [42.2, 3.4, 1.4, 0.7]
    """
    return replace(noise, of_seeds=noise.of_seeds / _estimates(degrees))


def rescaled(noise: Noise, seeds: int, texts_factor: float) -> Noise:
    """The noise of the same comparison with ``seeds`` seeds on ``texts_factor`` times as many test texts.

    of_texts / texts_factor and (of_seeds - of_both + of_both / texts_factor) S / seeds: variances of means (Cohen 1988), of
    which more texts also reduce what each run does with each text. Simulation: tests/test_power.py:
    ``test_a_plan_from_a_pilot_comes_true``.

    >>> new = rescaled(Noise(4e-4, 1e-4, 5), 10, 2.0)
    >>> new.of_texts, float(new.of_seeds)
    (0.0002, 5e-05)
    """
    share, both = noise.seeds / seeds if seeds else 0.0, noise.of_both / texts_factor
    of_seeds = np.maximum(noise.of_seeds - noise.of_both, 0.0) + both
    prior = noise.prior if seeds == MODERATED_SEEDS else 0.0
    return Noise(noise.of_texts / texts_factor, of_seeds * share, seeds, both * share, prior)


def detection_power(noise: Noise, difference: float, error_rate: float = 0.05) -> float:
    """The probability that a true difference is significant: that its estimate, with this noise, exceeds its half width.

    The estimate is normal around the difference; the seed variance is estimated anew, as of_seeds W with W = chi-square / degrees,
    and so is the half width h(W) with it:

        E_W[Phi((|difference| - h(W)) / error) + Phi((-|difference| - h(W)) / error)].

    0 for one seed, whose comparisons claim nothing (Cohen 1988, for known variances). The mean for noises that are equally likely.
    Simulation: tests/test_power.py: ``test_simulated_experiments_detect_as_often``.

    >>> round(detection_power(Noise(1e-4, 0.0, 5), 0.028), 2)  # as for a normal variable
    0.8
    """
    return float(_powers(noise, difference, error_rate).mean())


def _powers(noise: Noise, difference: float, error_rate: float) -> np.ndarray:
    """The power with each noise."""
    if noise.seeds == 1:
        return np.zeros(np.shape(noise.of_seeds))
    return _power(abs(difference), _half_widths(noise, error_rate), noise.error[..., None])


def smallest_detectable(noise: Noise, power: float = POWER, error_rate: float = 0.05) -> float:
    """The smallest true difference that is significant with probability ``power``; infinite for one seed.

    Solves ``detection_power`` = power (Cohen 1988). Simulation: tests/test_power.py:
    ``test_simulated_experiments_detect_as_often``.

    >>> round(smallest_detectable(Noise(1e-4, 0.0, 5)), 3)  # 2.8 standard errors, the familiar rule for a normal variable
    0.028
    """
    from scipy.optimize import brentq

    if noise.seeds == 1:
        return math.inf
    if not np.any(noise.error):
        return 0.0
    widths, error = _half_widths(noise, error_rate), noise.error[..., None]
    most = float((widths + 10 * error).max())
    return float(brentq(lambda gap: _power(gap, widths, error).mean() - power, 0.0, most, rtol=1e-6))


def detectable_from_interval(low: float, high: float, count: int | None = None, comparisons: int = 1) -> float:
    """The smallest true difference that is significant with a probability of 80%, from the 95% interval of a near normal estimate.

    A difference is significant if its interval excludes 0. With h, half the width of the interval, it is

        h (z_{1 - 0.025 / comparisons} + z_{0.8}) / z_{0.975}      (Cohen 1988),

    or 1.43 h for a single comparison. Of several ``comparisons``, p-values are corrected (Bonferroni), the interval is not. With
    ``count``, the interval is Student's t for so many independent values; the difference is then ``smallest_detectable`` for noise
    that is estimated from them. Infinite if the interval has no ends. Simulation: tests/test_power.py:
    ``test_what_an_interval_can_detect_is_detected``.

    >>> round(detectable_from_interval(-0.02, 0.02), 4), round(detectable_from_interval(-0.02, 0.02, count=5), 4)
    (0.0286, 0.0337)
    """
    from scipy.special import ndtri

    half = (high - low) / 2
    if math.isnan(half):
        return math.inf
    if count is None:
        return float(half * (ndtri(1 - 0.025 / comparisons) + ndtri(POWER)) / ndtri(0.975))
    noise = Noise(0.0, (half / t_quantile(0.95, count - 1)) ** 2, count)
    return smallest_detectable(possible_noise(noise, count - 1), error_rate=0.05 / comparisons)


def detectable_above(threshold: float, low: float, high: float) -> float:
    """The smallest true figure whose estimate is above a threshold with a probability of 80%, from the 95% interval of an estimate.

    threshold + h z_{0.8} / z_{0.975}, h half the width of the interval of a near normal estimate (Cohen 1988). Held by
    tests/test_power.py: ``test_what_is_above_a_threshold_is_detected``.

    >>> round(detectable_above(0.2, 0.1, 0.2), 3)
    0.221
    """
    from scipy.special import ndtri

    return threshold + (high - low) / 2 * float(ndtri(POWER) / ndtri(0.975))


def detectable_proportion(count: int, comparisons: int = 1) -> float:
    """The smallest proportion above 1/2 that ``binomial_test`` on ``count`` cases finds with a probability of 80%.

    P(Binomial(count, proportion) >= k) = 0.8 for the smallest k whose p-value is at most 0.05 / comparisons (Bonferroni), as
    in Cohen (1988, chapter 5), but exact. Infinite if even ``count`` successes are not significant. Simulation:
    tests/test_power.py: ``test_the_detectable_proportion_is_detected``.

    >>> round(detectable_proportion(100), 3), detectable_proportion(5)
    (0.645, inf)
    """
    from scipy import stats

    least = int(stats.binom.isf(0.025 / comparisons, count, 0.5)) + 1
    return float(stats.beta.ppf(POWER, least, count - least + 1)) if least <= count else math.inf


def _power(gap: float, widths: np.ndarray, error: np.ndarray) -> np.ndarray:
    """(...) from half widths (..., nodes) and standard errors (..., 1)."""
    from scipy.special import ndtr

    return np.asarray((ndtr((gap - widths) / error) + ndtr((-gap - widths) / error)).mean(axis=-1))


def _half_widths(noise: Noise, error_rate: float) -> np.ndarray:
    """(..., nodes) half widths if the seed variance is estimated anew, each equally likely; for at least two seeds."""
    drawn, of_angle = _estimates(noise.degrees), _half_width_by_angle(noise.seeds, noise.prior, error_rate)
    estimated = np.asarray(noise.of_seeds)[..., None] * drawn
    return np.sqrt(noise.of_texts + estimated) * of_angle(np.arctan2(np.sqrt(estimated), math.sqrt(float(noise.of_texts))))


@cache
def _estimates(degrees: float) -> np.ndarray:
    """(nodes,) estimates of a variance, as multiples of the true one: quantiles of chi-square / degrees; 1 for none."""
    from scipy import stats

    if degrees <= 0:
        return np.ones(1)
    return np.asarray(stats.chi2.ppf((np.arange(_POWER_NODES) + 0.5) / _POWER_NODES, degrees) / degrees)


@cache
def _half_width_by_angle(seeds: int, prior: float, error_rate: float) -> Callable[[np.ndarray], np.ndarray]:
    """The half width of an interval if the standard error is 1, by arctan(sqrt(of_seeds / of_texts)) (Fisher's angle).

    A cubic spline through a table, exact to 0.1%, so that a table of many comparisons takes milliseconds.
    """
    from scipy.interpolate import CubicSpline

    angles = math.pi / 2 * np.linspace(0, 1, _ANGLES) ** 2  # dense where a little seed variance already adds long tails
    noises = (Noise(math.cos(angle) ** 2, math.sin(angle) ** 2, seeds, prior=prior) for angle in angles)
    widths = [noise.half_width(error_rate) for noise in noises]
    spline: Callable[[np.ndarray], np.ndarray] = CubicSpline(angles, widths)
    return spline


def texts_needed(noise: Noise, texts: int, difference: float, power: float = POWER, error_rate: float = 0.05) -> int | None:
    """The fewest test texts on which a difference is detected with probability ``power``, given the noise of a pilot on ``texts``.

    The seeds are those of ``noise``, or of each of equally likely ones (``possible_noise``). None if no number of texts suffices,
    because the seeds alone hide the difference. Solves ``detection_power`` = power (Cohen 1988) with noise that is ``rescaled``.
    Simulation: tests/test_power.py: ``test_a_plan_from_a_pilot_comes_true``.

    >>> 1990 <= texts_needed(Noise(1e-4, 0.0, 5), 500, 0.014) <= 2020  # half the difference takes four times the texts
    True
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


def texts_to_decide(value: float, low: float, high: float, threshold: float, texts: int) -> int | None:
    """The number of texts whose 95% interval leaves out a threshold with a probability of 80%, if the figure is truly ``value``.

    N (h' / (value - threshold))^2, where N is the number of ``texts`` with the interval from ``low`` to ``high``, and h' the
    distance that it detects (``detectable_from_interval``, by its end towards the threshold; Cohen 1988). None if the value is the
    threshold. Simulation: tests/test_gates.py: ``test_so_many_texts_decide_in_four_of_five_cases``.

    >>> texts_to_decide(0.87, 0.83, 0.91, 0.85, 300)
    2452
    """
    if value == threshold:
        return None
    half = value - low if value > threshold else high - value
    return math.ceil(texts * (detectable_from_interval(-half, half) / (value - threshold)) ** 2)


def texts_to_tell(differing: float, difference: float) -> int:
    """The number of texts on which a true difference of two classifiers is significant with a probability of 80%.

    N = differing (2.8 / difference)^2, where ``differing`` is the share of texts on which only one of the two is right, and 2.8 =
    z_{0.975} + z_{0.8} (Connor 1987, in its simplest form). Simulation: tests/test_against.py:
    ``test_so_many_texts_tell_in_four_of_five_cases``.

    >>> texts_to_tell(0.1, 0.04)
    491
    """
    from scipy.special import ndtri

    return math.ceil(differing * (float(ndtri(0.975) + ndtri(POWER)) / difference) ** 2)
