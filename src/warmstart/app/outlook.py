"""What more labels would bring, and what they would cost: the power law through the accuracies so far.

The unbiased values of ``accuracy.py`` are averaged between 12 and 25 labels, 25 and 50, and so on; the law through these means
(``stats/extrapolation.py``) says what twice the labels give.

Letters: n texts drawn while there was a model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warmstart.app.accuracy import Outcomes
from warmstart.stats.extrapolation import LEAST_SIZES, Extrapolation, extrapolate_means
from warmstart.stats.formatting import percent_value
from warmstart.stats.intervals import percentiles, t_quantile

SMALLEST_GAIN = 0.01
"""what is worth as many labels again: less is not worth the work"""
_CAUTION = 0.5
"""share of the smallest gain that refits must stay below: they know the noise, not whether the law is right"""
_ENOUGH = 400
"""labels after which it may be said that more of them hardly pay: with fewer, a lucky start looks like a flat curve"""
_FIRST = 12
_QUANTILES = (0.05, 0.95)


@dataclass(frozen=True)
class Outlook:
    """Accuracy by number of labels, and what further ones give."""

    points: tuple[tuple[float, float, float, float], ...]
    """labels, accuracy, and the ends of its 95% interval at that point alone"""
    labels: int
    more: int
    """labels that are looked at: as many again, or all texts that are left"""
    gain: float
    low: float
    high: float
    """in 9 of 10 refits the gain is between these"""

    @property
    def pays(self) -> bool:
        """Whether more labels may still gain a point; with few labels nothing else is claimed."""
        return self.high >= SMALLEST_GAIN * _CAUTION or self.labels < _ENOUGH

    def sentence(self) -> str:
        """What more labels bring."""
        if not self.more:
            return "Every text has been shown."
        if not self.pays:
            most = percent_value(self.high)
            return f"More labels hardly pay: {self.more:,} more would bring at most {most} points in 9 of 10 refits."
        return (
            f"{self.more:,} more labels would bring about {percent_value(self.gain)} points ({percent_value(self.low)} to "
            f"{percent_value(self.high)} in 9 of 10 refits)."
        )

    def price_sentence(self, price: float | None, seconds: float | None) -> str:
        """What that costs: in money by the price of a label, in hours by the median time for one; empty if neither is known."""
        if not self.more or (price is None and seconds is None):
            return ""
        hours = self.more * seconds / 3600 if seconds is not None else None
        costs = [f"{self.more * price:,.2f}"] if price is not None else []
        costs += [f"{hours:.1f} hours"] if hours is not None else []
        points = 100 * self.gain
        if points < 0.1:
            return f"{self.more:,} more labels cost {' and '.join(costs)}, for next to nothing."
        each = [f"{self.more * price / points:,.2f}"] if price is not None else []
        each += [f"{hours / points:.1f} hours"] if hours is not None else []
        return f"{self.more:,} more labels cost {' and '.join(costs)}: {' and '.join(each)} for each point."


def outlook(outcomes: Outcomes, labels: np.ndarray, left: int, seed: int = 0, since: int = 0) -> Outlook | None:
    """The outlook after the outcomes from number ``since`` on, which are of one kind of model; None while there are too few.

    ``labels`` (n,) ascending is the number of labels with each outcome; ``left`` texts of the pool have not been drawn. Simulation:
    tests/test_extrapolation.py: ``test_labels_that_still_pay_are_seldom_called_useless``.
    """
    if not len(labels) or labels[-1] < _FIRST:
        return None
    values, means, errors = outcomes.values, dict[int, float](), dict[int, float]()
    edge = _FIRST
    while edge <= labels[-1]:
        inside = (labels >= edge) & (labels < 2 * edge) & (np.arange(len(labels)) >= since)
        if inside.sum() >= _FIRST:
            middle = round(float(np.exp(np.log(labels[inside]).mean())))
            means[middle] = float(values[inside].mean())
            errors[middle] = _standard_error(values[inside], outcomes.ratio[inside])
        edge *= 2
    if len(means) < LEAST_SIZES:
        return None
    curve = extrapolate_means(means, errors, seed)
    now, more = int(labels[-1]), min(int(labels[-1]), left)
    low, high = percentiles(_gains(curve, now, more), _QUANTILES)
    wide = t_quantile(0.95, math.inf)
    points = tuple(
        (float(size), *(float(np.clip(mean + sign * wide * errors[size], 0, 1)) for sign in (0, -1, 1)))
        for size, mean in means.items()
    )
    gain = curve.law.score(now + more) - curve.law.score(now)
    return Outlook(points, now, more, gain, float(low), float(high))  # type: ignore[arg-type]


def _standard_error(values: np.ndarray, ratios: np.ndarray) -> float:
    """Of a mean; not below that of right answers at a rate with one more of each kind, for a few that agree by luck say little."""
    count = len(values)
    rate = (float(np.clip(values.mean(), 0, 1)) * count + 1) / (count + 2)
    variance = max(float(values.var(ddof=1)), rate * (1 - rate) * float((ratios**2).mean()))
    return math.sqrt(variance / count)


def _gains(curve: Extrapolation, now: int, more: int) -> np.ndarray:
    return np.array([law.score(now + more) - law.score(now) for law in curve.refits])
