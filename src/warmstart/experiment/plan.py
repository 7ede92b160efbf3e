"""A plan: what a race with so many seeds detects, how many test texts a difference takes, and what it costs.

The power is the mean over the noises that the few seeds of a pilot leave possible, so that plans from many pilots reach it on
average; a single one may be far off, and the plan says how far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from warmstart.experiment.pilot import Pilot
from warmstart.stats.comparison import detectable_points, too_few_seeds
from warmstart.stats.formatting import file_size, percent, percent_value
from warmstart.stats.noise import Noise
from warmstart.stats.power import (
    POWER,
    detection_power,
    power_range,
    rescaled,
    smallest_detectable,
    texts_needed,
    texts_needed_range,
)

REACHABLE = 10
"""times the pilot's test texts: a plan that takes more is said beside one that does not"""
WITHIN_REACH = 4
"""times the planned test texts: a range that ends beyond is said to have no end within reach"""
MOST_SEEDS = 1000
"""more seeds are not looked for"""


class PlannedSeeds(NamedTuple):
    """What a race with this number of seeds detects, needs and costs."""

    seeds: int
    detectable: float
    """the smallest difference on the pilot's test texts"""
    texts: int | None
    """test texts to detect the wanted difference; None if no number suffices"""
    minutes: float
    """of all trials, one at a time, at the pace of the pilot"""
    power: tuple[float, float] | None = None
    """between which the power with these seeds and texts lies, with a probability of 90%"""
    texts_range: tuple[int | None, int | None] = (None, None)
    """between which the texts lie that are really needed, with a probability of 90%; None: no number suffices"""

    @property
    def texts_ends(self) -> str:
        """-> ``"340 to 580"``; ``"at least 340"`` if the upper end is more than ``WITHIN_REACH`` times the texts."""
        low, high = self.texts_range
        within = high is not None and self.texts is not None and high <= WITHIN_REACH * self.texts
        least = f"{low or self.texts or 0:,}"
        return f"{least} to {high:,}" if within else f"at least {least}"


@dataclass(frozen=True)
class PlanResult:
    """A plan, from the variances of the differences between the pilot's best method and its closest rivals."""

    see: float
    """a fraction"""
    power: float
    pilot_seeds: int
    texts: int
    """test texts of the pilot"""
    noise: Noise
    """of a difference between the best method and a close rival in the pilot"""
    detectable: float
    """the smallest difference that the pilot detects"""
    rivals: int
    """methods that the best one is compared with; their p-values are corrected for it"""
    memory: int | None
    """the largest peak of a trial, in bytes"""
    rows: tuple[PlannedSeeds, ...]
    best: str = "the best method"
    close: tuple[str, ...] = ("a close rival",)
    """the rivals whose noise is planned for"""
    bounded: bool = True
    """whether scores lie between 0 and 1"""

    @property
    def findings(self) -> list[str]:
        """What the pilot can detect, what the wanted difference takes, what it costs, and how far the plan can be trusted."""
        detects = f"the pilot detects a difference of {percent_value(self.detectable)} points"
        detects = f"With its {self.pilot_seeds} seeds and {self.texts:,} test texts, {detects} with {percent(self.power, 0)} power"
        if too_few := too_few_seeds(self.detectable, self.pilot_seeds, bounded=self.bounded, power=self.power):
            detects = f"The pilot's {too_few}"
        rivals = f"the mean over the closest rivals: {', '.join(self.close)}" if len(self.close) > 1 else f"that of {self.close[0]}"
        findings = [
            f"{detects}, corrected for {self.rivals} comparison{'s' * (self.rivals > 1)}.",
            f"The plan is for a difference to {self.best}. Its noise is {rivals}.",
            *self._needed(),
        ]
        peak = f"; a trial takes up to {file_size(self.memory)} of memory" if self.memory is not None else ""
        costs = ", ".join(f"{row.seeds} seeds {row.minutes:.1f} minutes" for row in self.rows)
        return [*findings, f"At the pilot's pace, one trial at a time, a race takes: {costs}{peak}."]

    def _needed(self) -> Iterator[str]:
        """Seeds and test texts for the wanted difference, and how much the pilot leaves open."""
        wanted, enough = f"{percent_value(self.see)} points", [row for row in self.rows if row.texts]
        if enough:
            takes = ", or ".join(f"{row.seeds} seeds and {row.texts:,} test texts" for row in enough)
            yield f"To detect {wanted} with {percent(self.power, 0)} power, take {takes}."
            if first := enough[0].power:
                yield (
                    f"That power is a mean: the {self.pilot_seeds} seeds of the pilot leave it open how much seeds differ. With "
                    f"{enough[0].seeds} seeds and {enough[0].texts:,} test texts it lies between {_ends(first)} in 9 of 10 cases; "
                    f"the test texts that are really needed are {enough[0].texts_ends}."
                )
        if hidden := [f"{row.seeds}" for row in self.rows if row.texts is None]:
            yield f"With {' or '.join(hidden)} seeds no number of test texts is enough to detect {wanted}."

    @property
    def header(self) -> tuple[str, ...]:
        """Names the columns of ``table``."""
        return (
            "seeds",
            "smallest detectable, points",
            f"test texts for {percent_value(self.see)} points (90% range)",
            "power (90% range)",
            "minutes",
        )

    def table(self) -> list[tuple[str, ...]]:
        """One row per number of seeds: what it detects, the test texts and the minutes that it takes."""
        return [
            (
                f"{row.seeds}",
                detectable_points(row.detectable, bounded=self.bounded),
                f"{row.texts:,} ({row.texts_ends})" if row.texts else "none",
                f"{percent(self.power, 0)} ({_ends(row.power, 'to')})" if row.power else "-",
                f"{row.minutes:.1f}",
            )
            for row in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return {
            "findings": self.findings,
            "best": self.best,
            "rivals": list(self.close),
            "variance_of_texts": float(self.noise.of_texts) * self.texts,
            "variance_of_seeds": float(self.noise.of_seeds) * self.pilot_seeds,
            "rows": [row._asdict() for row in self.rows],
        }


def _ends(power: tuple[float, float], word: str = "and") -> str:
    low, high = (percent(one, 0) for one in power)
    return f"{low} {word} {high}"


def make_plan(pilot: Pilot, see: float, seeds: Sequence[int], power: float = POWER, *, bounded: bool = True) -> PlanResult:
    """The plan for detecting a difference ``see`` (a fraction) to the best method of a pilot with these numbers of seeds.

    If none of them is enough with ten times the test texts of the pilot, the fewest seeds that are follow. Simulation:
    tests/test_plan_power.py: ``test_plans_from_single_pilots_come_true``.
    """
    error_rate = 0.05 / len(pilot.others)

    def planned(count: int) -> PlannedSeeds:
        noise = pilot.noise_with(count)
        texts = texts_needed(noise, pilot.texts, see, power, error_rate)
        leaves = power_range(rescaled(noise, count, texts / pilot.texts), see, error_rate) if texts else None
        span = texts_needed_range(noise, pilot.texts, see, power, error_rate)
        return PlannedSeeds(count, smallest_detectable(noise, power, error_rate), texts, pilot.minutes(count), leaves, span)

    def reachable(count: int) -> bool:
        return detection_power(rescaled(pilot.noise_with(count), count, REACHABLE), see, error_rate) >= power

    rows = [planned(count) for count in seeds]
    if not any(row.texts and row.texts <= REACHABLE * pilot.texts for row in rows):
        rows += [planned(count) for count in _fewest(reachable, max(seeds))]
    now = smallest_detectable(pilot.noise_with(pilot.seeds), power, error_rate)
    names = pilot.best.name, tuple(one.name for one in pilot.rivals)
    return PlanResult(
        see, power, pilot.seeds, pilot.texts, pilot.noise, now, len(pilot.others), pilot.memory, tuple(rows), *names, bounded
    )


def _fewest(reachable: Callable[[int], bool], below: int) -> list[int]:
    """The fewest seeds, more than ``below``, that are enough; empty if ``MOST_SEEDS`` are not."""
    low, high = below, below
    while not reachable(high):
        low, high = high, 2 * high
        if low > MOST_SEEDS:
            return []
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reachable(middle) else (middle, high)
    return [high]
