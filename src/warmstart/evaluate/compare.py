"""Comparisons that say who won, by how much and how sure that is, also when it is not us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from warmstart.evaluate.seeds import Interval, interval


@dataclass(frozen=True)
class Row:
    """One method of a comparison."""

    name: str
    scores: tuple[float, ...]
    """the metric on the test split: one a seed, or one alone for a method without chance"""
    seconds: float = 0.0
    """mean seconds of training"""
    trainable: int = 0
    """number of parameters that train"""
    note: str = ""
    """what should be known beside the figure: settings chosen, collapsed runs"""

    @property
    def interval(self) -> Interval:
        """Mean and 95 % interval over seeds."""
        return interval(self.scores)


@dataclass(frozen=True)
class Paired:
    """The difference of two methods, seed by seed."""

    difference: Interval
    sentence: str

    @property
    def seen(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.difference.low > 0 or self.difference.high < 0


def paired(one: Row, other: Row) -> Paired:
    """Compare seed by seed; a method without chance counts the same for every seed.

    -> ``"pretrained is better than from scratch by 9.1 points (95 % interval 6.2 to 12.0, 5 seeds)"``
    """
    count = max(len(one.scores), len(other.scores))
    assert {len(one.scores), len(other.scores)} <= {1, count}, "the same seeds on both sides, or a method without chance"
    a, b = (np.broadcast_to(row.scores, count) if len(row.scores) == 1 else np.array(row.scores) for row in (one, other))
    gap = interval([float(value) for value in a - b])
    points = f"{abs(100 * gap.mean):.1f} points"
    if gap.count < 2:
        return Paired(gap, f"{one.name} and {other.name} differ by {100 * gap.mean:+.1f} points on one seed, which shows nothing")
    around = f"(95 % interval {100 * gap.low:.1f} to {100 * gap.high:.1f}, {gap.count} seeds)"
    if gap.low > 0:
        return Paired(gap, f"{one.name} is better than {other.name} by {points} {around}")
    if gap.high < 0:
        around = f"(95 % interval {-100 * gap.high:.1f} to {-100 * gap.low:.1f}, {gap.count} seeds)"
        return Paired(gap, f"{one.name} is worse than {other.name} by {points} {around}")
    return Paired(gap, f"no difference between {one.name} and {other.name} can be seen: {100 * gap.mean:+.1f} points {around}")


@dataclass(frozen=True)
class Comparison:
    """Methods on the same splits and seeds; the first row is the one in question."""

    metric: str
    rows: tuple[Row, ...]

    def ranked(self) -> list[Row]:
        """The rows, best mean first."""
        return sorted(self.rows, key=lambda row: -row.interval.mean)

    def sentences(self) -> list[str]:
        """What the first method bought against each of the others, one sentence each."""
        return [paired(self.rows[0], other).sentence for other in self.rows[1:]]

    HEADER: ClassVar = ("method", "score (95 % interval)", "seconds", "trained parameters", "note")
    """names the columns of ``table``"""

    def table(self) -> list[tuple[str, str, str, str, str]]:
        """Name, score with interval, seconds, trained parameters and note of each row, best first."""
        return [
            (
                row.name,
                str(row.interval),
                f"{row.seconds:.1f}" if row.seconds else "-",
                f"{row.trainable:,}" if row.trainable else "-",
                row.note,
            )
            for row in self.ranked()
        ]

    def plain(self) -> dict[str, Any]:
        """All figures as plain values, fit for JSON: the ends of an interval that does not exist are None, not nan."""
        rows = []
        for row in self.rows:
            ends = {"low": row.interval.low, "high": row.interval.high} if len(row.scores) > 1 else {"low": None, "high": None}
            rows.append(vars(row) | {"scores": list(row.scores), "mean": row.interval.mean} | ends)
        return {"metric": self.metric, "rows": rows, "sentences": self.sentences()}
