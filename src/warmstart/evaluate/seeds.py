"""How sure a result is: intervals over seeds and over test texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from warmstart.seeding import rng


@dataclass(frozen=True)
class Interval:
    """A mean with its interval. With one value there is none: ``low`` and ``high`` are nan."""

    mean: float
    low: float
    high: float
    spread: float
    """standard deviation of the values (n - 1)"""
    count: int

    def within(self, least: float, most: float) -> Interval:
        """The same, with ends that are not beyond what can be."""
        return replace(self, low=float(np.clip(self.low, least, most)), high=float(np.clip(self.high, least, most)))

    def __str__(self) -> str:
        if self.count < 2:
            return f"{100 * self.mean:.1f} % (one run)"
        return f"{100 * self.mean:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval for the mean of ``values``, one value a seed.

    ``interval([0.5, 0.6, 0.7])`` -> mean 0.6, from 0.352 to 0.848: three seeds say little.
    """
    from scipy import stats

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, math.nan, math.nan, math.nan, count)
    spread = float(np.std(values, ddof=1))
    half = float(stats.t.ppf((1 + confidence) / 2, count - 1)) * spread / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, spread, count)


def bootstrap(values: np.ndarray, seed: int = 0, draws: int = 2000, confidence: float = 0.95) -> Interval:
    """Percentile interval for the mean over test texts: what another test set of the same kind and size would say (Efron 1979).

    ``values`` (N,): one number a text, for example whether it was answered rightly.
    """
    values = np.asarray(values, dtype=float)
    chance = rng(seed, "bootstrap")
    # one draw at a time: all of them at once would need draws × N numbers
    means = np.array([values[chance.integers(0, len(values), len(values))].mean() for _ in range(draws)])
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(values.mean()), float(low), float(high), float(means.std(ddof=1)), len(values))
