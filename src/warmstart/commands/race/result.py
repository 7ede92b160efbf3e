"""What a race found: which method is the best, and which is the cheapest that cannot be told from it.

Nothing is run and nothing is written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from warmstart.data.audit import Audit
from warmstart.data.task import Task
from warmstart.stats.differences import Difference, cheapest_within_noise, paired_difference
from warmstart.stats.formatting import file_size
from warmstart.stats.intervals import Interval
from warmstart.stats.multiple_testing import holm
from warmstart.sweep.ranking import Standing, percent

FEW = 30
"""validation texts, below which they are said to be few"""


@dataclass(frozen=True)
class Race:
    """How all methods stand."""

    task: Task
    labels: int
    """training texts of each run"""
    standings: tuple[Standing, ...]
    """best mean first"""
    missing: tuple[str, ...]
    """methods that the time did not suffice for"""
    diverged: tuple[str, ...]
    """methods that diverged at every rate"""
    seeds: int
    """that every method has run"""
    audit: Audit

    @cached_property
    def best(self) -> Standing:
        """The trained method that is best on validation, of those that tried all their rates, if there are any."""
        trained = [s for s in self.standings if s.entrant.kind != "baseline"]
        return max([s for s in trained if s.whole] or trained, key=lambda s: s.validation)

    @cached_property
    def gaps(self) -> list[tuple[Standing, Difference, float]]:
        """Every other method against the best: the paired difference, and its probability corrected for their number (Holm)."""
        others = [standing for standing in self.standings if standing is not self.best]
        found = [paired_difference(standing.judged, self.best.judged) for standing in others]
        return list(zip(others, found, holm([gap.p for gap in found]), strict=True))

    def cheapest(self, cost: Callable[[Standing], float]) -> Standing:
        """The one with the lowest cost that is within the noise of the best on validation: the test split only reports.

        What has not tried all its rates takes no part.
        """
        able = [s for s in self.standings if s.whole or s is self.best]
        near = cheapest_within_noise([s.held for s in able], self.best.held, [cost(s) for s in able])
        return next(standing for standing in able if standing.held is near)

    def sentences(self) -> list[str]:
        """The recommendation, and what else should be known."""
        said = [self._advice(), self._smallest(), *self._surprises()]
        if lost := [f"{s.name} ({s.collapsed} of {len(s.runs)})" for s in self.standings if s.collapsed]:
            said.append(f"collapsed runs, no better than the commonest label: {', '.join(lost)}")
        if diverged := self._diverged():
            said.append(f"diverged, the loss was no number any more: {', '.join(diverged)}; lower rates may do")
        if cut := [f"{s.name} ({len(s.tried) + len(s.diverged)} of {s.asked})" for s in self.standings if not s.whole]:
            said.append(f"the time did not suffice for all rates of {', '.join(cut)}, left out of the recommendation")
        if len(ways := sorted({(run.jobs, run.threads) for s in self.standings for run in s.runs})) > 1:
            said.append(f"seconds do not compare well: runs had {' or '.join(map(_way, ways))}")
        if self.missing:
            said.append(f"the time did not suffice for {', '.join(self.missing)}; the same command goes on from here")
        if self.seeds < 3:
            said.append(f"{self.seeds} seed{'s' if self.seeds > 1 else ''} say little of what other seeds would give")
        return [sentence for sentence in said if sentence]

    def _diverged(self) -> list[str]:
        """Which methods diverged, and where."""
        search = [f"{s.name} at rate {', '.join(f'{rate:g}' for rate in sorted(s.diverged))}" for s in self.standings if s.diverged]
        later = [(s, sum(run.diverged for run in s.runs)) for s in self.standings]
        runs = [f"{s.name} at its chosen rate ({count} of {len(s.runs)} runs)" for s, count in later if count]
        return [*search, *runs, *(f"{name} at every rate" for name in self.diverged)]

    def _advice(self) -> str:
        best, taken = self.best, self.cheapest(lambda standing: standing.seconds + standing.entrant.before)
        chance = "over seeds and test texts" if self.seeds > 1 else "over test texts, one seed"
        around = f"{percent(best.judged.over_both)} {chance}, {best.seconds:.1f} s a run"
        count = len(self.task.validation)
        few = f"; {count} validation texts chose it, which is few" if count < FEW else ""
        if taken is best:
            return f"take {best.name}, the best on validation ({around}): nothing cheaper comes within its noise there{few}"
        bought = "; transfer bought nothing that can be seen on validation" if taken.entrant.kind != "adapted" else ""
        gap = paired_difference(taken.judged, best.judged)
        return (
            f"take {taken.name} ({taken.seconds:.1f} s a run): on validation it is within the noise of {best.name}, the best "
            f"there; on the test texts it has {100 * taken.judged.over_seeds.mean:.1f} %, {100 * gap.mean:+.1f} points "
            f"({100 * gap.low:+.1f} to {100 * gap.high:+.1f}) against {best.name} ({around}){bought}{few}"
        )

    def _smallest(self) -> str:
        taken = self.cheapest(lambda s: float(s.runs[0].disk) if s.entrant.kind != "baseline" else math.inf)
        if taken.entrant.kind == "baseline":
            return ""
        size = file_size(taken.runs[0].disk)
        return f"smallest to keep within the noise on validation: {taken.name}, {size} a task beside the backbone"

    def _surprises(self) -> list[str]:
        return [
            f"on the test texts {standing.name} is better than {self.best.name} by {100 * gap.mean:.1f} points "
            f"({100 * gap.low:.1f} to {100 * gap.high:.1f}), {self._said(standing)}"
            for standing, gap, chance in self.gaps
            if gap.mean > 0 and chance < 0.05
        ]

    def _said(self, standing: Standing) -> str:
        """Whether validation, which chose the best, already said what the test texts say of another method."""
        if standing.validation > self.best.validation:
            return f"and on validation by {100 * (standing.validation - self.best.validation):.1f}"
        return "though validation did not say so"

    HEADER: ClassVar = (
        "method",
        "score (95 % over seeds)",
        "over test texts",
        "seconds",
        "memory",
        "trained",
        "new",
        "a task",
        "note",
    )
    """names the columns of ``table``"""

    def table(self) -> list[tuple[str, ...]]:
        """One row a method, best mean first."""
        return [
            (
                s.name,
                str(s.judged.over_seeds),
                f"{100 * s.judged.over_texts.low:.1f} to {100 * s.judged.over_texts.high:.1f}",
                f"{s.seconds:.1f}",
                file_size(s.memory) if s.memory is not None else "-",
                f"{s.runs[0].trainable:,}" if s.runs[0].trainable else "-",
                f"{s.runs[0].new:,}" if s.runs[0].trainable else "-",
                file_size(s.runs[0].disk) if s.runs[0].trainable else "-",
                s.note,
            )
            for s in self.standings
        ]

    SHORT: ClassVar = ("method", "score (95 % over seeds)", "seconds", "memory", "trained", "a task")
    """names the columns of ``short``"""

    def short(self) -> list[tuple[str, ...]]:
        """The columns of ``table`` that fit a terminal."""
        places = [self.HEADER.index(name) for name in self.SHORT]
        return [tuple(row[place] for place in places) for row in self.table()]

    PAIRS: ClassVar = ("method", "against the best", "95 % interval", "p, corrected", "seen")
    """names the columns of ``pairs``"""

    def pairs(self) -> list[tuple[str, ...]]:
        """Each method's paired difference to the best, in points."""
        return [
            (
                standing.name,
                f"{100 * gap.mean:+.1f}",
                f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f}",
                "< 0.001" if chance < 0.001 else f"{chance:.3f}",
                "yes" if chance < 0.05 else "no",
            )
            for standing, gap, chance in self.gaps
        ]

    def to_dict(self) -> dict[str, Any]:
        """All that was found, fit for JSON."""
        return {
            "task": self.task.summary(),
            "labels": self.labels,
            "seeds": self.seeds,
            "best": self.best.name,
            "sentences": self.sentences(),
            "missing": list(self.missing),
            "diverged": list(self.diverged),
            "methods": [
                {
                    "method": s.name,
                    "scores": list(s.judged.scores),
                    "over_seeds": _ends(s.judged.over_seeds),
                    "over_texts": _ends(s.judged.over_texts),
                    "over_both": _ends(s.judged.over_both),
                    "validation": s.validation,
                    "seconds": s.seconds,
                    "search_seconds": s.search,
                    "memory": s.memory,
                    "trainable": s.runs[0].trainable,
                    "new": s.runs[0].new,
                    "disk": s.runs[0].disk,
                    "rate": s.rate or None,
                    "tried": {f"{rate:g}": score for rate, score in s.tried.items()},
                    "rates_diverged": list(s.diverged),
                    "rates_asked": s.asked,
                    "collapsed": s.collapsed,
                }
                for s in self.standings
            ],
            "against_best": [
                {"method": s.name, "difference": gap.mean, "low": gap.low, "high": gap.high, "p": gap.p, "p_corrected": chance}
                for s, gap, chance in self.gaps
            ],
        }


def _way(way: tuple[int, int]) -> str:
    jobs, threads = way
    return f"{threads} thread{'' if threads == 1 else 's'} with {jobs} at once"


def _ends(found: Interval) -> dict[str, float | None]:
    return {name: None if math.isnan(value := getattr(found, name)) else value for name in ("mean", "low", "high")}
