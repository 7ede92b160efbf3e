"""How far apart methods are when chance has two sources: the seeds of the runs, and the texts that happen to be in the test split.

Seeds are told by repeating the run, texts by the bootstrap: every method is scored on the same resamples of the test split, so that
the difference of two methods can be taken resample by resample. Both errors are added as variances.

Letters: S seeds, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.evaluate.seeds import Interval, interval


@dataclass(frozen=True)
class Judged:
    """One method's scores on a split: the test split to report, the validation split to choose."""

    name: str
    scores: tuple[float, ...]
    """(S,) one a seed, or one alone for a method without chance"""
    resampled: np.ndarray
    """(S, R) the same on resamples of the split, in one order for all methods"""

    @property
    def over_seeds(self) -> Interval:
        """What other seeds would give on these test texts."""
        return interval(self.scores)

    @property
    def over_texts(self) -> Interval:
        """What other test texts would give on average over these runs: the bootstrap's percentiles (Efron 1979)."""
        means = self.resampled.mean(axis=0)
        low, high = np.quantile(means, [0.025, 0.975])
        return Interval(float(np.mean(self.scores)), float(low), float(high), float(means.std(ddof=1)), len(means))

    @property
    def over_both(self) -> Interval:
        """What other seeds and other test texts would give."""
        gap = _gap(np.array(self.scores), self.resampled)
        return Interval(gap.mean, gap.low, gap.high, gap.error, len(self.scores))


@dataclass(frozen=True)
class Gap:
    """A difference with its doubt."""

    mean: float
    low: float
    high: float
    """of the 95 % interval, over seeds and over test texts"""
    error: float
    """standard error"""
    p: float
    """probability of a difference at least so large if there were none"""


def difference(one: Judged, other: Judged) -> Gap:
    """``one`` less ``other``, seed by seed and resample by resample; a method without chance counts the same for every seed."""
    count = max(len(one.scores), len(other.scores))
    assert {len(one.scores), len(other.scores)} <= {1, count}, "the same seeds on both sides, or a method without chance"
    scores = np.broadcast_to(one.scores, count) - np.broadcast_to(other.scores, count)
    draws = one.resampled.shape[1]
    return _gap(scores, np.broadcast_to(one.resampled, (count, draws)) - np.broadcast_to(other.resampled, (count, draws)))


def _gap(values: np.ndarray, resampled: np.ndarray) -> Gap:
    """``values`` (S,) and what they are on resamples (S, R).

    The two variances add up; the degrees of freedom of the sum are Welch's and Satterthwaite's (1946), the bootstrap's part taken
    as known. One seed tells nothing of seeds: the doubt is then that of the texts alone.
    """
    from scipy import stats

    seeds = len(values)
    of_seeds = float(values.var(ddof=1)) / seeds if seeds > 1 else 0.0
    of_texts = float(resampled.mean(axis=0).var(ddof=1))
    mean, error = float(values.mean()), math.sqrt(of_seeds + of_texts)
    if error == 0:
        return Gap(mean, mean, mean, 0.0, 1.0 if mean == 0 else 0.0)
    freedom = (of_seeds + of_texts) ** 2 / (of_seeds**2 / (seeds - 1)) if of_seeds else math.inf
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Gap(mean, mean - half, mean + half, error, float(2 * stats.t.sf(abs(mean) / error, freedom)))


def holm(chances: Sequence[float]) -> list[float]:
    """Probabilities corrected for their number, in their order: no more than 5 % of such tables then call any equal pair different.

    ``holm([0.01, 0.04, 0.03])`` -> ``[0.03, 0.06, 0.06]`` (Holm 1979).
    """
    corrected, highest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(np.argsort(chances, kind="stable")):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[int(place)] = highest
    return corrected


def cheapest_within_noise(methods: Sequence[Judged], best: Judged, costs: Sequence[float]) -> Judged:
    """Of the methods that are within the noise of ``best``, the one with the lowest cost; of equals, the first.

    Within the noise is what falls short by no more than one standard error of the paired difference, over seeds and texts (the
    one-standard-error rule of Breiman et al. 1984, section 3.4.3).
    """
    gaps = [difference(method, best) for method in methods]
    near = [(cost, place) for place, (gap, cost) in enumerate(zip(gaps, costs, strict=True)) if gap.mean >= -gap.error]
    return methods[min(near)[1]]
