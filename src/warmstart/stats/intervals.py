"""Intervals for one quantity: Student's t, the bootstrap's percentiles, and the normal approximation.

An interval over seeds says what other seeds would give on the same texts; one over texts says what another test set of the same
kind and size would give. Everything here is a 95% interval unless a confidence level is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.formatting import percent, percent_interval, percent_range

Z_95 = 1.96
"""half the width of a 95% interval, in standard errors of a normal distribution"""
CENTRAL_95 = (0.025, 0.975)
"""the quantiles between which 95% lie"""
_WIDEST = 0.4
"""width of an interval of a share above which it says too little to be a number"""
FEW_SEEDS = 3
"""number of seeds below which an interval over them is wide"""
ONE_SEED = "One seed says nothing about other seeds."
NO_SEEDS = "No method that is ranked depends on a seed: they are compared over the test texts alone."


class Estimate(NamedTuple):
    """A figure with the ends of its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def tells(self) -> bool:
        """True if the interval is narrow enough, for a share of texts, to be shown as a number."""
        return self.high - self.low <= _WIDEST


@dataclass(frozen=True)
class Interval:
    """A mean with its interval. One value has none: ``low`` and ``high`` are nan."""

    mean: float
    low: float
    high: float
    spread: float
    """standard deviation of the values (n - 1)"""
    count: int
    """number of values"""

    def within(self, least: float, most: float) -> Interval:
        """The interval, cut to the range of possible values."""
        return replace(self, low=float(np.clip(self.low, least, most)), high=float(np.clip(self.high, least, most)))

    def to_dict(self) -> dict[str, float | None]:
        """Mean and ends as plain values, fit for JSON: an end that does not exist is None."""
        return {name: None if math.isnan(value := getattr(self, name)) else value for name in ("mean", "low", "high")}

    def __str__(self) -> str:
        return f"{percent(self.mean)} (one run)" if math.isnan(self.low) else percent_interval(self.mean, self.low, self.high)

    @property
    def ends(self) -> str:
        """The ends alone, for a column beside the mean: ``"24.5 to 29.9"``; ``"one run"`` if there are none."""
        return "one run" if math.isnan(self.low) else percent_range(self.low, self.high)


def t_interval(values: Sequence[float], confidence_level: float = 0.95) -> Interval:
    """Student's t interval for the mean of ``values`` (S), one value per seed; the values are assumed independent and near normal.

    mean +- t(S - 1) s / sqrt(S) (Student 1908). It says what other seeds would give on the same texts. Parity:
    tests/test_stats_references.py: ``test_students_interval_is_that_of_scipy``.

    >>> print(t_interval([0.5, 0.6, 0.7]))  # three seeds say little
    60.0% (35.2 to 84.8)
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, math.nan, math.nan, math.nan, count)
    spread = float(np.std(values, ddof=1))
    half = t_quantile(confidence_level, count - 1) * spread / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, spread, count)


def t_quantile(confidence_level: float, degrees: float) -> float:
    """Half the width of a two-sided interval in standard errors, by Student's t with this many degrees of freedom."""
    from scipy import stats

    return float(stats.t.ppf((1 + confidence_level) / 2, degrees))


def bootstrap_interval(values: np.ndarray, seed: int = 0, draws: int = 2000, confidence_level: float = 0.95) -> Interval:
    """Percentile interval for the mean over test texts, by resampling the texts (Efron 1979).

    ``values`` (N,): one number per text, for example whether the prediction is right. Texts are assumed independent; for values
    that come in groups use ``cluster_bootstrap``. Parity: tests/test_stats_references.py: ``test_the_bootstrap_is_that_of_scipy``.

    >>> print(bootstrap_interval(np.array([1] * 80 + [0] * 20)))
    80.0% (72.0 to 88.0)
    """
    values = np.asarray(values, dtype=float)
    generator = rng(seed, "bootstrap")
    # one draw at a time: all of them at once would need draws × N numbers
    means = np.array([values[generator.integers(0, len(values), len(values))].mean() for _ in range(draws)])
    low, high = percentiles(means, ((1 - confidence_level) / 2, (1 + confidence_level) / 2))
    return Interval(float(values.mean()), float(low), float(high), float(means.std(ddof=1)), len(values))


def percentiles(draws: np.ndarray, quantiles: Sequence[float] = CENTRAL_95, *, ignore_nan: bool = False) -> np.ndarray:
    """(len(quantiles), ...) quantiles over the first axis of ``draws`` (R, ...): the ends of a percentile interval.

    ``ignore_nan`` leaves out draws in which a figure does not exist.
    """
    return np.asarray((np.nanquantile if ignore_nan else np.quantile)(draws, quantiles, axis=0))


def upper_prediction_bound(values: Sequence[float], error_rate: float) -> float:
    """The bound that one further draw exceeds with probability ``error_rate`` (Student's t; K values, near normal)."""
    from scipy import stats

    drawn, count = np.array(values), len(values)
    margin = stats.t.ppf(1 - error_rate, count - 1) * drawn.std(ddof=1) * np.sqrt(1 + 1 / count)
    return float(drawn.mean() + margin)
