"""A figure before and after, as a sentence that says "fell" or "rose" only if the change is beyond noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.stats.comparison import SIGNIFICANT, detection_text, too_few_seeds
from warmstart.stats.differences import MethodScores, corrected_p_values, paired_difference
from warmstart.stats.formatting import p_value, percent, percent_value, points_range, sources_of_chance
from warmstart.stats.noise import detectable_from_interval


@dataclass(frozen=True)
class Change:
    """A figure before and after, and the 95% interval of the change."""

    before: float
    after: float
    low: float
    high: float
    """ends of the interval of ``after - before``; nan: nothing is known of the noise"""
    over: str
    """sources that the interval covers, such as ``5 seeds and the test texts``"""
    corrected: bool | None = None
    """True if it is significant after a correction for several; None: it is if the interval excludes 0"""
    detectable: float | None = None
    """the smallest true change that would have been detected with 80% power; None: that of the interval"""
    seeds: int = 0
    """number of seeds that the figures are means of"""

    @property
    def sign(self) -> int:
        """1: significantly higher after, -1: significantly lower, 0: not significantly different."""
        beyond_noise = int(self.low > 0) - int(self.high < 0)
        return beyond_noise if self.corrected is None or self.corrected else 0

    def verb(self, fell: str = "fell", rose: str = "rose", neither: str = "did not change significantly") -> str:
        """The verb that the interval allows."""
        return (neither, rose, fell)[self.sign]

    def in_nats(self, subject: str) -> str:
        """A sentence about a loss.

        -> ``"The held-out loss fell from 4.000 to 3.900 nats (95% interval of the change -0.150 to -0.050, over 12 documents)."``
        """
        interval, limit = f"{self.low:+.3f} to {self.high:+.3f}", self._limit("{:.3f}".format, " nats", bounded=False)
        return self._sentence(subject, (f"{self.before:.3f}", f"{self.after:.3f}"), interval, limit, " nats")

    def in_percent(self, subject: str) -> str:
        """A sentence about a score between 0 and 1; its interval is in points."""
        interval, limit = f"{points_range(self.low, self.high)} points", self._limit(percent_value, " points", bounded=True)
        return self._sentence(subject, (percent(self.before), percent(self.after)), interval, limit)

    def _limit(self, write: Callable[[float], str], unit: str, *, bounded: bool) -> str:
        """The size of a change that would have been detected, said after one that is not significant; one seed detects none.

        Of ``bounded`` scores, 50 points or more are not printed: seeds are said to be too few, as in comparisons.
        """
        size = detectable_from_interval(self.low, self.high) if self.detectable is None else self.detectable
        if self.sign or not 0 < size < math.inf:
            return ""
        return f"; {too_few_seeds(size, self.seeds, bounded=bounded) or detection_text([size], write, unit)}"

    def _sentence(self, subject: str, figures: tuple[str, str], interval: str, limit: str, unit: str = "") -> str:
        before, after = figures
        if math.isnan(self.low):
            return f"{subject} was {before}{unit} before and {after}{unit} after; {self.over}, so its noise is unknown."
        noise = f"(95% interval of the change {interval}, over {self.over})"
        if self.before == self.after and self.low == self.high:
            return f"{subject} did not change: it stayed at {after}{unit}."
        if self.sign:
            return f"{subject} {self.verb()} from {before} to {after}{unit} {noise}."
        return f"{subject} {self.verb()}: {before}{unit} before, {after}{unit} after {noise}{limit}."


def changes_of(pairs: Sequence[tuple[MethodScores, MethodScores]], texts: str) -> list[Change]:
    """The changes of (after, before), seed by seed and resample by resample; p-values corrected for their number (Holm 1979).

    ``texts`` names what was resampled. One seed says nothing about others: its interval is over the texts alone, and no change is
    significant. Simulation: tests/test_differences.py: ``test_few_equal_scores_are_said_to_have_changed``.

    >>> right = np.random.default_rng(0).random((2, 5, 400)) < np.array([0.85, 0.75])[:, None, None]  # (methods, S, N)
    >>> after, before = (MethodScores.from_texts(name, row) for name, row in zip(("after", "before"), right, strict=True))
    >>> [change.sign for change in changes_of([(after, before), (after, after)], "the test texts")]
    [1, 0]
    """
    differences = [paired_difference(after, before) for after, before in pairs]
    corrected = corrected_p_values(differences)
    changes = []
    for (after, before), gap, p in zip(pairs, differences, corrected, strict=True):
        seeds = len(after.scores)
        over = sources_of_chance(seeds, texts) + (", which shows nothing about other seeds" if seeds < 2 else "")
        if len(pairs) > 1 and gap.claimable:
            over += f"; corrected p {p_value(p)}"
        first, last = (float(np.mean(method.scores)) for method in (before, after))
        changes.append(Change(first, last, gap.low, gap.high, over, p < SIGNIFICANT, gap.detectable(len(pairs)), seeds))
    return changes
