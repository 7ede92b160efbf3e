"""How each method stands: its runs at the rate that was chosen for it.

Nothing is run and nothing is written here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from warmstart.stats.differences import MethodScores
from warmstart.stats.intervals import Interval
from warmstart.sweep.store import Cell, Entrant, Result


@dataclass(frozen=True)
class Standing:
    """One method's runs, at the rate that was chosen for it."""

    entrant: Entrant
    runs: tuple[Result, ...]
    """one a seed"""
    seeds: tuple[int, ...]
    """of these runs"""
    rate: float
    """0 where the method has none"""
    tried: dict[float, float]
    """validation score of the first seed at each rate"""
    diverged: tuple[float, ...]
    """rates at which the first seed diverged"""
    asked: int
    """how many rates were to be tried"""
    search: float
    """seconds spent on rates that were not chosen"""

    def on(self, seeds: Set[int]) -> Standing:
        """The same with the runs of these seeds alone."""
        kept = [place for place, seed in enumerate(self.seeds) if seed in seeds]
        return replace(self, runs=tuple(self.runs[place] for place in kept), seeds=tuple(self.seeds[place] for place in kept))

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.entrant.name

    @cached_property
    def judged(self) -> MethodScores:
        """Its scores on the test split, with what they are on resamples."""
        return MethodScores(self.name, tuple(run.score for run in self.runs), np.array([run.resampled for run in self.runs]))

    @cached_property
    def held(self) -> MethodScores:
        """The same on the validation split."""
        return MethodScores(self.name, tuple(run.validation for run in self.runs), np.array([run.held for run in self.runs]))

    @property
    def validation(self) -> float:
        """Mean over seeds."""
        return float(np.mean([run.validation for run in self.runs]))

    @property
    def seconds(self) -> float:
        """Mean over seeds."""
        return float(np.mean([run.seconds for run in self.runs]))

    @property
    def memory(self) -> int | None:
        """The least of the seeds: the first run in a process also loads the library's code."""
        return min((run.memory for run in self.runs if run.memory is not None), default=None)

    @property
    def collapsed(self) -> int:
        """Runs that learned nothing."""
        return sum(run.collapsed for run in self.runs)

    @property
    def whole(self) -> bool:
        """Whether every rate was tried: else a better one may be among the others."""
        return len(self.tried) + len(self.diverged) >= self.asked

    @property
    def note(self) -> str:
        """What should be known beside the figures."""
        rates = (*self.tried, *self.diverged)
        edge = len(rates) > 1 and self.rate in (min(rates), max(rates))
        parts = [
            "" if self.whole else f"{len(rates)} of {self.asked} rates tried",
            f"{self.collapsed} of {len(self.runs)} runs collapsed" if self.collapsed else "",
            f"after {self.entrant.before:.0f} s of going on with pretraining, once" if self.entrant.before else "",
            f"rate {self.rate:g}{' (at the edge of those tried)' if edge else ''}" if self.rate else "",
            *dict.fromkeys((*(f"diverged at rate {rate:g}" for rate in self.diverged), *(run.note for run in self.runs))),
        ]
        return "; ".join(part for part in parts if part)


def stand(entrant: Entrant, cells: Sequence[Cell], done: Mapping[str, Result], middle: float) -> Standing | None:
    """How a method stands, from its cells of which some are done; None if its first seed is not, or diverged at every rate.

    The rate is the one whose first seed did best on validation; of equals, the one nearest to ``middle``.
    """
    mine = [cell for cell in cells if cell.entrant == entrant]
    search = [cell for cell in mine if cell.seed == min(other.seed for other in mine)]
    mine = [cell for cell in mine if str(cell) in done]
    tried = validated(search, done)
    if not tried:
        return None
    rate = choose_rate(tried, middle)
    kept = sorted((cell for cell in mine if cell.rate == rate), key=lambda cell: cell.seed)
    spent = sum(done[str(cell)].seconds - done[str(cell)].spared for cell in mine if cell.rate != rate)
    runs, seeds = tuple(done[str(cell)] for cell in kept), tuple(cell.seed for cell in kept)
    if entrant.kind == "baseline":
        return Standing(entrant, runs, seeds, rate, {}, (), 0, spent)
    lost = tuple(cell.rate for cell in search if str(cell) in done and cell.rate not in tried)
    return Standing(entrant, runs, seeds, rate, tried, lost, len(search), spent)


def validated(search: Sequence[Cell], done: Mapping[str, Result]) -> dict[float, float]:
    """The validation score at each rate that is done; a run that diverged has none."""
    found = {cell.rate: done[str(cell)] for cell in search if str(cell) in done}
    return {rate: result.validation for rate, result in found.items() if not result.diverged}


def choose_rate(tried: Mapping[float, float], middle: float) -> float:
    """The rate with the highest validation score; of equals, the one nearest to ``middle``."""
    return max(tried, key=lambda rate: (tried[rate], -abs(math.log(rate / middle)) if rate else 0.0))


def percent(found: Interval) -> str:
    """A mean with its ends: ``"90.1 %, 88.2 to 92.0"``."""
    return f"{100 * found.mean:.1f} %, {100 * found.low:.1f} to {100 * found.high:.1f}"
