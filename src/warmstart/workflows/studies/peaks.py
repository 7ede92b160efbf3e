"""What came of ``study neurons``: the best neuron of each property beside chance and untrained backbones.

Letters: F neurons, P properties, K untrained backbones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from warmstart.analysis.neurons import Correlated, Plan

HEADER = ("property", "neuron", "r (95 %)", "chance", "untrained, bar")
FEW = 30
"""passages below which the bootstrap's intervals are too narrow"""


@dataclass(frozen=True)
class Peak:
    """The neuron with the largest absolute correlation."""

    column: int
    r: float
    low: float
    high: float
    """95 % interval over passages, of this neuron"""

    @property
    def ends(self) -> tuple[float, float]:
        """The interval of the absolute r, as far as it lies on r's own side of 0."""
        low, high = (self.low, self.high) if self.r >= 0 else (-self.high, -self.low)
        return max(low, 0.0), max(high, 0.0)

    def __str__(self) -> str:
        return f"{self.r:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


@dataclass(frozen=True)
class Untrained:
    """The best neuron for a property in each of K untrained backbones."""

    sizes: Sequence[float]
    """(K,) absolute r"""
    peak: Peak
    """of the first of them"""
    count: int
    """properties of which the same is asked"""

    @property
    def bar(self) -> float:
        """What one more such backbone stays below, or the end of the first one's interval over passages if that is more.

        The former is the prediction bound of a further draw (Student's t, 2.5 % for all properties together: Bonferroni).
        """
        from scipy import stats

        sizes, draws = np.array(self.sizes), len(self.sizes)
        doubt = stats.t.ppf(1 - 0.025 / self.count, draws - 1) * sizes.std(ddof=1) * np.sqrt(1 + 1 / draws)
        return min(1.0, max(float(sizes.mean() + doubt), self.peak.ends[1]))

    def __str__(self) -> str:
        least, most = min(self.sizes), max(self.sizes)
        return f"{len(self.sizes)} untrained backbones {least:.2f} to {most:.2f} (bar: {self.bar:.2f})"


@dataclass(frozen=True)
class Best:
    """The neuron that goes best with a property, and what it must beat."""

    name: str
    peak: Peak
    floor: float
    """of chance"""
    control: Untrained | None
    """what untrained backbones have, where they were asked"""

    @property
    def gain(self) -> float:
        """How much more than untrained backbones would have, or than chance."""
        return abs(self.peak.r) - (self.floor if self.control is None else self.control.bar)

    @property
    def above(self) -> bool:
        """Above the floor of chance."""
        return abs(self.peak.r) > self.floor

    @property
    def learned(self) -> bool:
        """Also clearly above what untrained backbones have: the whole interval is."""
        return self.above and self.control is not None and self.peak.ends[0] > self.control.bar


@dataclass(frozen=True)
class Neurons:
    """What came of it."""

    correlated: Correlated
    q: np.ndarray
    """(F, P) by Benjamini and Hochberg"""
    best: list[Best]
    """one a property, strongest first"""
    plan: Plan
    names: tuple[str, ...]
    """the properties, in the order of the columns"""
    still: tuple[str, ...]
    passages: int
    """that have tokens"""

    def sentences(self) -> list[str]:
        """What was found, and how sure it is."""
        above, learned = [one for one in self.best if one.above], [one for one in self.best if one.learned]
        known, first, beyond = self.best[0].control, self.best[0], ""
        if known:
            beyond = (
                f", for {len(learned)} clearly more than in {len(known.sizes)} untrained backbones (the interval lies above "
                f"the bar that one more of them would stay below, corrected for {known.count} properties)"
            )
        said = [
            f"for {len(above)} of {len(self.best)} properties the best neuron goes with it above the floor of chance{beyond}; "
            f"most with {first.name}: neuron {self.plan.neuron(first.peak.column)}, r = {first.peak}"
        ]
        for one in sorted(learned if known else above, key=lambda one: -one.gain)[:6]:
            beside = f", {one.control}" if one.control else ""
            said.append(
                f"{one.name}: neuron {self.plan.neuron(one.peak.column)}, r = {one.peak}; chance gives the best of all neurons "
                f"{one.floor:.2f}{beside}"
            )
        if lost := [one.name for one in self.best if not one.above]:
            said.append(f"no neuron goes with {', '.join(lost)} more than chance lets the best of all neurons do")
        over = np.abs(self.correlated.r) > self.correlated.floor
        said.append(
            f"{100 * (self.q < 0.05).mean():.0f} % of all {self.q.size:,} correlations have q < 0.05 (Benjamini and Hochberg), "
            f"which takes the {self.correlated.n:,} tokens as independent; {100 * over.mean():.1f} % are above the floor of chance"
        )
        if self.still:
            said.append(f"left out, since they never vary in this text as the tokenizer spells it: {', '.join(self.still)}")
        if self.passages < FEW:
            said.append(f"intervals over as few as {self.passages} passages are too narrow: take what is just above for chance")
        return said

    def rows(self) -> list[tuple[str, ...]]:
        """One row a property."""
        rows = list[tuple[str, ...]]()
        for one in self.best:
            control = "-" if one.control is None else f"{one.control.bar:.2f}"
            rows.append((one.name, str(self.plan.neuron(one.peak.column)), str(one.peak), f"{one.floor:.2f}", control))
        return rows

    def table(self) -> pl.DataFrame:
        """Every correlation."""
        neurons = [self.plan.neuron(column) for column in range(len(self.q))]
        wide = len(self.names)
        return pl.DataFrame(
            {
                "layer": np.repeat([one.layer for one in neurons], wide),
                "neuron": np.repeat([one.place for one in neurons], wide),
                "property": np.tile(self.names, len(neurons)),
                "r": self.correlated.r.ravel(),
                "q": self.q.ravel(),
            }
        )
