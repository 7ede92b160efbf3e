"""Comparisons that say who won, by how much and how sure that is, also when it is not us.

Letters: S seeds, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from warmstart.evaluate.differences import Gap, Judged, difference, holm
from warmstart.evaluate.seeds import Interval, interval

STILL = 1e-9
"""a standard error below this is none but the rounding's"""


@dataclass(frozen=True)
class Row:
    """One method of a comparison."""

    name: str
    scores: tuple[float, ...]
    """(S,) the metric on the test split: one a seed, or one alone for a method without chance"""
    seconds: float = 0.0
    """mean seconds of training"""
    trainable: int = 0
    """number of parameters that train"""
    note: str = ""
    """what should be known beside the figure: settings chosen, collapsed runs"""
    resampled: np.ndarray | None = field(default=None, compare=False, repr=False)
    """(S, R) the same on resamples of the test split, in one order for all methods; None where they are not known"""
    share: bool = True
    """whether a score lies between 0 and 1"""

    @property
    def interval(self) -> Interval:
        """Mean and 95 % interval over seeds; that of shares ends at 0 and 1."""
        return interval(self.scores).within(0, 1) if self.share else interval(self.scores)


@dataclass(frozen=True)
class Paired:
    """The difference of two methods."""

    names: tuple[str, str]
    gap: Gap
    """the first less the second"""
    seeds: int
    texts: bool
    """whether the chance of the test texts is in it, beside that of the seeds"""
    chance: float
    """the probability of the gap, corrected for the number of comparisons"""
    comparisons: int = 1
    """made at once"""

    @property
    def seen(self) -> bool:
        """Whether chance is unlikely to have made the difference: one seed, or seeds without any spread, cannot tell."""
        return self.seeds > 1 and self.gap.error > STILL and self.chance < 0.05

    @property
    def sentence(self) -> str:
        """Who is better, by how much, between which bounds, and over what.

        -> ``"pretrained is better than from scratch by 9.1 points (95 % interval 6.2 to 12.0 over 5 seeds and the test texts)"``
        """
        (one, other), points = self.names, f"{100 * self.gap.mean:+.1f} points"
        if self.seeds < 2:
            return f"{one} and {other} differ by {points} on one seed, which shows nothing{self._beyond_one_seed()}"
        if self.gap.error > STILL:
            around = f"({self._bounds(turned=self.seen and self.gap.mean < 0)} over {self._over()}{self._corrected()})"
            if self.seen:
                way = "better" if self.gap.mean > 0 else "worse"
                return f"{one} is {way} than {other} by {points.lstrip('+-')} {around}"
            return f"no difference between {one} and {other} can be seen: {points} {around}"
        if abs(self.gap.mean) > STILL:
            return f"{one} and {other} differ by {points} with each of {self.seeds} seeds; without spread, chance cannot be told"
        return f"no difference between {one} and {other} can be seen: +0.0 points with each of {self.seeds} seeds"

    def _bounds(self, *, turned: bool = False) -> str:
        low, high = (-self.gap.high, -self.gap.low) if turned else (self.gap.low, self.gap.high)
        return f"95 % interval {100 * low:.1f} to {100 * high:.1f}"

    def _over(self) -> str:
        return f"{self.seeds} seeds and the test texts" if self.texts else f"{self.seeds} seeds alone, on these test texts"

    def _corrected(self) -> str:
        if self.comparisons < 2:
            return ""
        return "; corrected p < 0.001" if self.chance < 0.001 else f"; corrected p {self.chance:.3f}"

    def _beyond_one_seed(self) -> str:
        return f" of other seeds ({self._bounds()} over the test texts alone)" if self.texts and self.gap.error > STILL else ""


def compared(pairs: Sequence[tuple[Row, Row]]) -> list[Paired]:
    """Each pair, seed by seed and resample by resample; a method without chance is the same for every seed.

    Where one of the two has no resamples, seeds are all the chance there is, and the sentence says so. What is compared at once is
    corrected for its number (Holm 1979).
    """
    with_texts = [one.resampled is not None and other.resampled is not None for one, other in pairs]
    gaps = [_gap(one, other, texts=texts) for (one, other), texts in zip(pairs, with_texts, strict=True)]
    chances = holm([gap.p for gap in gaps])
    return [
        Paired((one.name, other.name), gap, max(len(one.scores), len(other.scores)), texts, chance, len(pairs))
        for (one, other), gap, texts, chance in zip(pairs, gaps, with_texts, chances, strict=True)
    ]


def paired(one: Row, other: Row) -> Paired:
    """The same of one pair alone."""
    return compared([(one, other)])[0]


def _gap(one: Row, other: Row, *, texts: bool) -> Gap:
    """The difference; that of shares ends at -1 and 1."""
    gap = difference(_judged(one, texts=texts), _judged(other, texts=texts))
    return replace(gap, low=max(-1.0, gap.low), high=min(1.0, gap.high)) if one.share else gap


def _judged(row: Row, *, texts: bool) -> Judged:
    """Without resamples, as if these test texts were all there are."""
    known = row.resampled if texts and row.resampled is not None else np.tile(np.array(row.scores)[:, None], 2)
    return Judged(row.name, row.scores, known)


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
        return [found.sentence for found in compared([(self.rows[0], other) for other in self.rows[1:]])]

    HEADER: ClassVar = ("method", "score (95 % over seeds)", "seconds", "trained parameters", "note")
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
            found, known = row.interval, len(row.scores) > 1
            kept = {name: getattr(row, name) for name in ("name", "seconds", "trainable", "note")}
            ends = {"low": found.low if known else None, "high": found.high if known else None}
            rows.append(kept | {"scores": list(row.scores), "mean": found.mean} | ends)
        return {"metric": self.metric, "rows": rows, "sentences": self.sentences()}
