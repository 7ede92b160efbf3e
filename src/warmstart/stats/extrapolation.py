"""The gain from more labels: a power law through the scores measured so far, and how far it can be trusted.

    error(n) = c + a n^-b          a, c >= 0, b > 0

Learning curves of many models and tasks have this form (Hestness et al. 2017; Rosenfeld et al. 2020). Its uncertainty comes from
refits to means drawn around it (the parametric bootstrap: Efron and Tibshirani 1993, section 6.5) with the covariance that the
means over seeds have across sizes:

- seeds: the deviations of the S runs from their means, with the same random weights at all sizes, so that a seed that is lucky at
  one size may be lucky at all;
- test texts: the deviations of the means on resamples of the test split, the same for all sizes and methods;
- the pool that the training subsets are drawn from: two subsets of n of its P texts share n / P of them, so their spread
  understates that of other pools.

All methods are drawn with the same seeds, texts and pool, so that two curves can be compared draw by draw.

Refits know the noise, not whether the law is right. Hiding the largest size and predicting it from the others tries that: by what
the law missed, it may be off again with each doubling of the labels, so intervals beyond the largest size are widened by this
(``Extrapolation.miss``).

Letters: S seeds, n labels, K numbers of labels, R resamples, D draws, P texts of the pool, E exponents, G numbers of labels tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.differences import MethodScores
from warmstart.stats.formatting import percent, sentence_case
from warmstart.stats.intervals import Estimate, percentiles, t_quantile

Labels = TypeVar("Labels", float, np.ndarray)

EXPONENTS = np.geomspace(0.05, 2.0, 40)
"""values of b tried: below, more labels hardly help; above, the curve is a step"""
REFITS = 500
CENTRAL_90 = (0.05, 0.95)
"""the quantiles between which 9 of 10 refits lie"""
HORIZON = 10
"""factor of the largest size measured beyond which nothing is claimed"""
MOST_SHARED = 0.5
"""share of a pool up to which its chance is estimated from the spread of subsets: larger subsets are too much alike"""
LEAST_SIZES = 3
"""numbers of labels that a fit needs: the law has three unknowns"""


@dataclass(frozen=True)
class PowerLaw:
    """One fitted curve."""

    irreducible_error: float
    """c: the error that no number of labels removes"""
    scale: float
    """a"""
    exponent: float
    """b"""

    def score(self, labels: Labels) -> Labels:
        """The score expected with this number of labels, or with each of several."""
        return 1 - self.irreducible_error - self.scale * labels**-self.exponent

    def labels(self, score: float) -> float:
        """Number of labels that give this score; infinite if no number does."""
        left = 1 - score - self.irreducible_error
        if left <= 0:
            return math.inf
        return math.exp(min(700.0, math.log(self.scale / left) / self.exponent)) if self.scale else 0.0


@dataclass(frozen=True)
class Extrapolation:
    """A method's learning curve with its uncertainty. Intervals are 90%: seeds, training pools, test texts, doubt in the law."""

    law: PowerLaw
    """fitted to the means over seeds"""
    refits: tuple[PowerLaw, ...]
    """fitted to means drawn around it, D in all"""
    means: Mapping[int, float]
    """means over seeds, by number of labels"""
    deviations: Mapping[int, np.ndarray]
    """(D,) the error of each drawn mean, by number of labels"""
    miss: float = 0.0
    """error of the law with each doubling beyond the largest size, as it was in hindsight; 0 where that is unknown"""

    @property
    def largest(self) -> int:
        """Labels of the largest size measured."""
        return max(self.means)

    def score(self, labels: float) -> Estimate:
        """The expected score with this number of labels, give or take 1.645 sqrt(variance of the refits + (k miss)^2).

        k is 1 with twice the labels of the largest size, 2 with four times, log2(labels / largest), and 0 below. Simulation:
        tests/test_extrapolation.py: ``test_hindsight_widens_intervals_where_the_law_is_wrong``.
        """
        expected, doublings = self.law.score(labels), max(0.0, math.log2(labels / self.largest))
        noise = float(np.std([law.score(labels) for law in self.refits]))
        half = t_quantile(0.9, math.inf) * math.hypot(noise, doublings * self.miss)
        return Estimate(expected, expected - half, min(1.0, expected + half))

    def gain(self, labels: float, more: float) -> Estimate:
        """The score of ``more`` labels less that of ``labels``; what both have in common, such as the texts, cancels.

        Of the refits, give or take the miss of each doubling between the two. Simulation: tests/test_extrapolation.py:
        ``test_intervals_of_a_curve_cover``.
        """
        expected = self.law.score(more) - self.law.score(labels)
        noise = float(np.std([law.score(more) - law.score(labels) for law in self.refits]))
        half = t_quantile(0.9, math.inf) * math.hypot(noise, math.log2(more / labels) * self.miss)
        return Estimate(expected, expected - half, expected + half)

    def labels(self, score: float) -> Estimate:
        """Labels that give this score; infinite if no number does."""
        return Estimate(self.law.labels(score), *_ends(self._labels_drawn([score] * len(self.refits))))

    def equivalent_labels(self, other: Extrapolation, labels: int) -> Estimate:
        """Number of labels that ``other`` needs for the mean score of this method with ``labels``; infinite if no number does.

        Both are drawn with the same seeds and test texts, so what favours both alike cancels. Simulation:
        tests/test_extrapolation.py: ``test_intervals_of_a_curve_cover``.
        """
        scores = self.means[labels] + self.deviations[labels]
        return Estimate(other.law.labels(self.means[labels]), *_ends(other._labels_drawn(scores)))

    def _labels_drawn(self, scores: Sequence[float] | np.ndarray) -> list[float]:
        """(D,) labels with which each refit, off by a normal share of ``miss`` with each doubling, reaches its score (D,).

        Infinite where it never does, or only beyond ``HORIZON``.
        """
        plain = [law.labels(float(score)) for law, score in zip(self.refits, scores, strict=True)]
        if not self.miss:
            return plain
        beyond = np.geomspace(self.largest, HORIZON * self.largest, 300)  # (G,)
        off = self.miss * rng(0, "hindsight").normal(size=len(plain))[:, None] * np.log2(beyond / self.largest)
        reached = np.array([law.score(beyond) for law in self.refits]) + off >= np.asarray(scores)[:, None]  # (D, G)
        crossings = np.where(reached.any(axis=1), beyond[reached.argmax(axis=1)], math.inf)
        return [near if near <= self.largest else float(far) for near, far in zip(plain, crossings, strict=True)]

    def sentence(self, name: str, score: float) -> str:
        """A sentence: the number of further labels that the method ``name`` needs for a score.

        -> ``"If the curve goes on as a power law, full needs about 300 more labels for 90.0% (90% interval 120 to 900)."``
        """
        expected, low, high = self.labels(score)
        goal = percent(score)
        if expected <= self.largest:
            ends = f"{round_labels(low)} to {labels_up_to(high, self.largest)}"
            return f"{sentence_case(name)} reaches {goal} with about {round_labels(expected)} labels (90% interval {ends})."
        if expected > HORIZON * self.largest:
            near, far = ", though the fit leaves open that these are enough", f", though {round_labels(low)} may be enough"
            lowest = near if low <= self.largest else far if low <= HORIZON * self.largest else ""
            return (
                f"{sentence_case(name)} is not expected to reach {goal} with less than {HORIZON} times the {self.largest:,} labels "
                f"at hand{lowest}."
            )
        about, least = (round_labels(max(0.0, value - self.largest)) for value in (expected, low))
        most = labels_up_to(high - self.largest, HORIZON * self.largest)
        return (
            f"If the curve goes on as a power law, {name} needs about {about} more labels for {goal} (90% interval {least} to "
            f"{most})."
        )


def fit_power_law(means: Mapping[int, float]) -> PowerLaw:
    """The power law nearest to the ``means``, scores by number of labels (least squares).

    error(n) = c + a n^-b (Hestness et al. 2017; Rosenfeld et al. 2020). Parity with scipy: tests/test_extrapolation.py:
    ``test_the_best_law_is_the_non_negative_least_squares_one``.

    >>> law = fit_power_law({16: 0.70, 64: 0.80, 256: 0.85})  # each quadrupling halves what is left
    >>> round(law.irreducible_error, 2), round(law.scale, 1), round(law.exponent, 1)
    (0.1, 0.8, 0.5)
    """
    return _fit(np.array(sorted(means)), np.array([[means[size] for size in sorted(means)]]))[0]


def _fit(sizes: np.ndarray, means: np.ndarray, errors: np.ndarray | None = None) -> list[PowerLaw]:
    """The law nearest to each row of ``means`` (D, K), which count by their standard ``errors`` (K,); None: all alike.

    For each exponent tried, irreducible error and scale are a least-squares problem with two unknowns that must not be negative:
    if the unconstrained solution is not allowed, one of them is 0.
    """
    error = 1 - means
    basis = (sizes / sizes[0]) ** -EXPONENTS[:, None]  # (E, K)
    weights = np.ones(len(sizes)) if errors is None else np.maximum(errors, 1e-6) ** -2.0
    weights = weights / weights.sum()
    centred = basis - (basis @ weights)[:, None]
    both = error @ (weights * centred).T / (centred**2 @ weights)  # (D, E) scales of the unconstrained solutions
    constant = (error @ weights)[:, None] - both * (basis @ weights)
    alone = np.maximum(error @ (weights * basis).T / (basis**2 @ weights), 0)  # scales without irreducible error
    flat = np.maximum((error @ weights)[:, None], 0)
    scale = np.where(both < 0, 0.0, np.where(constant < 0, alone, both))
    constant = np.where(both < 0, flat, np.where(constant < 0, 0.0, constant))
    distance = (error[:, None] - constant[..., None] - scale[..., None] * basis) ** 2 @ weights  # (D, E)
    best = distance.argmin(axis=1)
    rows = np.arange(len(means))
    values = zip(constant[rows, best], scale[rows, best] * sizes[0] ** EXPONENTS[best], EXPONENTS[best], strict=True)
    return [PowerLaw(*map(float, row)) for row in values]


def extrapolate(scores: Mapping[int, MethodScores], pool: float = math.inf, seed: int = 0) -> Extrapolation | None:
    """The curve through the scores of S seeds by number of labels; None for fewer than three sizes, or for one seed.

    ``pool`` is the number P of texts that the training texts are drawn from. The law is that of ``fit_power_law``, its uncertainty
    a parametric bootstrap (Efron and Tibshirani 1993, section 6.5), widened by what hindsight missed if there are four sizes.
    Simulation: tests/test_extrapolation.py: ``test_intervals_of_a_curve_cover``.

    >>> means = {16: 0.70, 64: 0.80, 256: 0.85}
    >>> scores = {n: MethodScores("", (m - 0.01, m + 0.01), np.array([[m - 0.01] * 2, [m + 0.01] * 2])) for n, m in means.items()}
    >>> curve = extrapolate(scores)
    >>> round(curve.score(1024).value, 3)
    0.876
    """
    if len(scores) < LEAST_SIZES or any(len(method.scores) < 2 for method in scores.values()):
        return None
    sizes = sorted(scores)
    means = {size: float(np.mean(scores[size].scores)) for size in sizes}
    law = fit_power_law(means)
    deviations = np.stack([_deviations(scores[size], size / pool, seed) for size in sizes], axis=1)  # (D, K)
    drawn = np.array([law.score(size) for size in sizes]) + deviations
    by_size = dict(zip(sizes, deviations.T, strict=True))
    return Extrapolation(law, tuple(_fit(np.array(sizes), drawn)), means, by_size, _miss_of_a_doubling(means))


def extrapolate_means(means: Mapping[int, float], errors: Mapping[int, float], seed: int = 0) -> Extrapolation:
    """The curve through means by number of labels with independent standard ``errors``, such as those of separate texts.

    The law is that of ``fit_power_law`` with means weighted by their precision, its uncertainty a parametric bootstrap (Efron and
    Tibshirani 1993, section 6.5). Simulation: tests/test_extrapolation.py:
    ``test_labels_that_still_pay_are_seldom_called_useless``.

    >>> curve = extrapolate_means({16: 0.70, 64: 0.80, 256: 0.85}, {16: 0.01, 64: 0.01, 256: 0.01})
    >>> round(curve.score(1024).value, 3)
    0.876
    """
    sizes = sorted(means)
    off = np.array([errors[size] for size in sizes])
    (law,) = _fit(np.array(sizes), np.array([[means[size] for size in sizes]]), off)
    deviations = rng(seed, "refit").normal(size=(REFITS, len(sizes))) * off
    drawn = np.array([law.score(size) for size in sizes]) + deviations
    by_size = dict(zip(sizes, deviations.T, strict=True))
    return Extrapolation(law, tuple(_fit(np.array(sizes), drawn, off)), dict(means), by_size)


def _miss_of_a_doubling(means: Mapping[int, float]) -> float:
    """The error of the law through the smaller sizes at the largest, for each doubling of the labels; 0 if they are too few.

    A step of less than a doubling counts by its part of one, a larger step as one: divided among its doublings, the miss of a step
    to four times the labels covers too few other laws in simulation.

    >>> round(_miss_of_a_doubling({16: 0.6, 32: 0.7, 64: 0.75, 128: 0.80}), 3)  # 0.774 is foretold
    0.026
    """
    *smaller, before, largest = sorted(means)
    if len(smaller) + 1 < LEAST_SIZES:
        return 0.0
    foretold = fit_power_law({size: means[size] for size in (*smaller, before)}).score(largest)
    return abs(means[largest] - foretold) / min(1.0, math.log2(largest / before))


def _deviations(scores: MethodScores, fraction: float, seed: int) -> np.ndarray:
    """(D,) the errors of the mean over seeds for other seeds, other test texts and another pool.

    ``fraction`` f of the pool is in each training set. The same draws are made for every size and method. The spread s² of the
    seeds contains the chance of single texts, which the resamples have too, so that part is taken off it. What is left is drawn
    with 2 (S - 1) degrees of freedom: S - 1 if a seed's luck were the same at all sizes, K times as many if it were not.
    """
    generator, values, count = rng(seed, "refit"), np.array(scores.scores), len(scores.scores)
    texts = scores.resampled.mean(axis=0)[generator.integers(0, scores.resampled.shape[1], REFITS)]
    degrees = 2 * (count - 1)
    chance = generator.normal(size=(REFITS, 2, count)) * np.sqrt(degrees / generator.chisquare(degrees, REFITS))[:, None, None]
    # if all of the spread comes from the choice of the subset, pools differ by s² f / (1 - f)
    shared = min(fraction, MOST_SHARED)
    weights = chance[:, 0] / math.sqrt(count) + chance[:, 1] * math.sqrt(shared / (1 - shared))
    spread = float(values.var(ddof=1))
    of_texts = float((scores.resampled - values[:, None]).var(axis=0, ddof=1).mean())
    kept = math.sqrt(max(0.0, 1 - of_texts / spread)) if spread else 0.0
    of_seeds = kept * weights @ (values - values.mean()) / math.sqrt(count - 1)
    return np.asarray(of_seeds + texts - scores.resampled.mean())


class Backtest(NamedTuple):
    """The largest size beside its prediction from the smaller ones."""

    labels: int
    score: float
    """mean over seeds"""
    predicted: Estimate


def backtest(scores: Mapping[int, MethodScores], pool: float = math.inf) -> Backtest | None:
    """Leave out the largest size and predict its mean score from the smaller ones; None if they are too few.

    The interval is for the mean of these seeds on these test texts: both are the same for all sizes, so what they have in common
    cancels (Efron and Tibshirani 1993, section 6.5). Simulation: tests/test_extrapolation.py:
    ``test_hindsight_counts_the_noise_of_what_was_observed``.

    >>> means = {16: 0.70, 64: 0.80, 256: 0.85, 1024: 0.875}
    >>> scores = {n: MethodScores("", (m - 0.01, m + 0.01), np.array([[m - 0.01] * 2, [m + 0.01] * 2])) for n, m in means.items()}
    >>> hindsight = backtest(scores)
    >>> hindsight.labels, round(hindsight.predicted.value, 3)
    (1024, 0.876)
    """
    largest = max(scores)
    curve, whole = extrapolate({size: method for size, method in scores.items() if size < largest}, pool), extrapolate(scores, pool)
    if curve is None or whole is None:
        return None
    expected = curve.law.score(largest)
    missed = whole.deviations[largest] - [law.score(largest) - expected for law in curve.refits]
    low, high = expected + percentiles(missed, CENTRAL_90)
    return Backtest(largest, whole.means[largest], Estimate(expected, float(low), float(high)))


def round_labels(labels: float) -> str:
    """A number of labels with two digits: ``round_labels(1234)`` -> ``"1,200"``."""
    if not math.isfinite(labels):
        return "no number"
    digits = max(0, math.floor(math.log10(labels)) - 1) if labels >= 1 else 0
    return f"{round(labels, -digits):,.0f}"


def labels_up_to(labels: float, most: float) -> str:
    """A number of labels with two digits; ``labels_up_to(9000, 5120)`` -> ``"more than 5,100"``."""
    return round_labels(labels) if labels <= most else f"more than {round_labels(most)}"


def _ends(labels: Sequence[float]) -> tuple[float, float]:
    """The ends of the 90% interval of numbers of labels, some of which may be infinite."""
    ranked = sorted(labels)
    low, high = (ranked[round(quantile * (len(ranked) - 1))] for quantile in CENTRAL_90)
    return low, high
