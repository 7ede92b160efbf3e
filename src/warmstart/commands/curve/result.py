"""What a curve found: what labels are worth to each method, what more would give, and where pretraining stops paying.

Nothing is run and nothing is written here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from warmstart.data.audit import Audit
from warmstart.data.task import Task
from warmstart.stats.differences import Difference, paired_difference
from warmstart.stats.extrapolation import HORIZON, Extrapolation, backtest, extrapolate, round_labels
from warmstart.stats.multiple_testing import holm
from warmstart.sweep.ranking import Standing

SMALL = 0.02
"""a lead that can be no larger is no reason to pretrain"""


@dataclass(frozen=True)
class Learned:
    """How all methods stand at each number of labels."""

    task: Task
    stood: Mapping[int, tuple[Standing, ...]]
    """by number of labels, rising; best mean first"""
    missing: tuple[int, ...]
    """numbers of labels at which the time did not suffice for every method and rate"""
    diverged: Mapping[str, tuple[int, ...]]
    """by method, the numbers of labels at which it diverged at every rate"""
    goal: float | None
    """the score asked for"""
    audit: Audit

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Methods that stand everywhere, best at the largest number of labels first; the majority is left out."""
        everywhere = set.intersection(*({s.name for s in standings} for standings in self.stood.values()))
        last = self.stood[max(self.stood)]
        return tuple(s.name for s in last if s.name in everywhere and s.name != "majority")

    @cached_property
    def first(self) -> str:
        """The pretrained method that is best on validation at the largest number of labels."""
        adapted = [s for s in self.stood[max(self.stood)] if s.entrant.kind == "adapted" and s.name in self.names]
        return max(adapted, key=lambda s: s.validation).name

    @cached_property
    def target(self) -> float:
        """The score asked for; where none is, half the error that the first method makes with the most labels."""
        left = 1 - self.at(self.first, max(self.stood)).judged.over_seeds.mean
        return self.goal or 1 - float(f"{left / 2:.2g}")

    def at(self, name: str, labels: int) -> Standing:
        """How one method stands with so many labels."""
        return next(standing for standing in self.stood[labels] if standing.name == name)

    def scores(self, name: str) -> dict[int, tuple[float, ...]]:
        """Scores of all seeds by number of labels."""
        return {labels: self.at(name, labels).judged.scores for labels in self.stood}

    @cached_property
    def told(self) -> dict[str, Extrapolation]:
        """The power law of each method, where there are enough sizes and seeds to fit one."""
        found = {name: extrapolate(self.scores(name)) for name in self.names}
        return {name: law for name, law in found.items() if law}

    def gap(self, other: str, labels: int) -> Difference:
        """What the first method has over another with so many labels."""
        return paired_difference(self.at(self.first, labels).judged, self.at(other, labels).judged)

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Methods that the first is compared with: those that start from no pretrained backbone."""
        return tuple(name for name in self.names if self._kind(name) != "adapted")

    @cached_property
    def seen(self) -> dict[tuple[str, int], Difference]:
        """The differences that can be seen, once their probabilities are corrected for all methods and sizes (Holm)."""
        gaps = {(other, n): self.gap(other, n) for other in self.others for n in self.stood}
        chances = holm([gap.p for gap in gaps.values()])
        return {place: gap for (place, gap), chance in zip(gaps.items(), chances, strict=True) if chance < 0.05}

    def sentences(self) -> list[str]:
        """What labels are worth, and how sure that is."""
        said = [self._pays(other) for other in self.others]
        if law := self.told.get(self.first):
            said.append(law.sentence(self.first, self.target))
            said += [sentence for sentence in (self._hindsight(), self._worth()) if sentence]
        else:
            said.append("what more labels would give needs at least three numbers of labels and two seeds")
        for name, places in self.diverged.items():
            said.append(
                f"{name} diverged at every rate with {', '.join(map(str, places))} labels, and is left out; lower rates may do"
            )
        if self.missing:
            said.append(
                f"the time did not suffice for {', '.join(map(str, self.missing))} labels; the same command goes on from here"
            )
        return said

    def _kind(self, name: str) -> str:
        return self.at(name, max(self.stood)).entrant.kind

    def _pays(self, other: str) -> str:
        """Where the first method is better than another, and where that stops."""
        sizes = list(self.stood)
        better, worse = ([n for n in sizes if (other, n) in self.seen and sign * self.seen[other, n].mean > 0] for sign in (1, -1))
        if not better and not worse:
            return f"between {self.first} and {other} no difference can be seen at any number of labels"
        parts = []
        for verb, places in (("better", better), ("worse", worse)):
            if places:
                ends = dict.fromkeys((places[0], places[-1]))
                parts.append(f"{verb} with {listed(places, sizes)} labels ({'; '.join(_points(self.gap(other, n)) for n in ends)})")
        rest = [n for n in sizes if n not in better and n not in worse]
        unseen = f"; with {listed(rest, sizes)} no difference can be seen" if rest else ""
        return f"{self.first} against {other}: {' and '.join(parts)}{unseen}{self._stops(other, better)}"

    def _stops(self, other: str, better: Sequence[int]) -> str:
        """Where pretraining stops paying: where all that the texts and seeds leave open is a small lead."""
        beyond = [n for n in self.stood if better and n > better[-1]]
        if self._kind(other) != "scratch" or not beyond:
            return ""
        small = [n for n in beyond if all(self.gap(other, m).high <= SMALL for m in beyond if m >= n)]
        if small:
            return f": pretraining stops paying at {small[0]:,} labels ({_points(self.gap(other, small[0]))})"
        return f": whether pretraining stops paying at {beyond[0]:,} cannot be told ({_points(self.gap(other, beyond[0]))})"

    def _hindsight(self) -> str:
        """Whether the smaller sizes would have foretold the largest."""
        found = backtest(self.scores(self.first))
        if found is None:
            return ""
        labels, score, (told, low, high) = found
        verdict = "inside" if low <= score <= high else "outside: trust the extrapolation little"
        return (
            f"checked in hindsight: from the smaller sizes alone, {100 * told:.1f} % ({100 * low:.1f} to {100 * high:.1f}) would "
            f"have been foretold for {labels:,} labels; it was {100 * score:.1f} %, {verdict}"
        )

    def _worth(self) -> str:
        """How many labels the best method without pretraining needs for what the first reaches with few."""
        others = [name for name in self.others if name in self.told]
        ahead = [n for n in self.stood if all((other, n) in self.seen and self.seen[other, n].mean > 0 for other in others)]
        if not others or not ahead:
            return ""
        labels = ahead[0]
        other = max(others, key=lambda name: self.at(name, labels).judged.over_seeds.mean)
        needed = self.told[other].law.labels(self.at(self.first, labels).judged.over_seeds.mean)
        far = needed > HORIZON * max(self.stood)
        worth = f"more than {round_labels(HORIZON * max(self.stood))}" if far else f"about {round_labels(needed)}"
        return f"{labels} labels with {self.first} are worth {worth} with {other}"

    def header(self) -> tuple[str, ...]:
        """Names the columns of ``table``."""
        return ("method", *(f"{labels:,}" for labels in self.stood))

    def table(self) -> list[tuple[str, ...]]:
        """One row a method: score and interval at each number of labels."""
        return [(name, *(str(self.at(name, labels).judged.over_seeds) for labels in self.stood)) for name in self.names]

    def ahead(self, name: str) -> list[tuple[float, float, float, float]]:
        """(labels, score, low, high) foretold from the largest size measured to four times as many."""
        law = self.told[name]
        places = [law.largest * 2 ** (step / 4) for step in range(9)]
        return [(place, *law.score(place)) for place in places]

    def to_dict(self) -> dict[str, Any]:
        """All that was found, fit for JSON."""
        return {
            "task": self.task.summary(),
            "scores": {name: {str(n): list(values) for n, values in self.scores(name).items()} for name in self.names},
            "laws": {name: vars(law.law) for name, law in self.told.items()},
            "target": self.target,
            "more_labels": {
                name: [None if math.isinf(value) else value for value in law.labels(self.target)] for name, law in self.told.items()
            },
            "sentences": self.sentences(),
        }


def listed(places: Sequence[int], sizes: Sequence[int]) -> str:
    """Of sizes 16, 32, 64, 128 the places 16, 64, 128 -> ``"16 and 64 to 128"``: neighbours are taken together."""
    runs: list[list[int]] = []
    for place, size in enumerate(sizes):
        if size not in places:
            continue
        if place and runs and runs[-1][-1] == sizes[place - 1]:
            runs[-1].append(size)
        else:
            runs.append([size])
    said = [f"{run[0]:,}" if len(run) == 1 else f"{run[0]:,} to {run[-1]:,}" for run in runs]
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def _points(gap: Difference) -> str:
    return f"{100 * gap.mean:+.1f} points, {100 * gap.low:+.1f} to {100 * gap.high:+.1f}"
