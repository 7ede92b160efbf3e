"""``warmstart plan``: how many seeds and test texts a comparison needs, and what they cost, from a pilot race."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.commands.race.command import RaceConfig
from warmstart.config import Advanced, Config, read_yaml
from warmstart.console import console, print_table
from warmstart.errors import DataError
from warmstart.stats.comparison import detectable_points, too_few_seeds
from warmstart.stats.differences import paired_difference
from warmstart.stats.formatting import file_size, percent, percent_value
from warmstart.stats.noise import Noise
from warmstart.stats.power import POWER, rescaled, smallest_detectable, texts_needed
from warmstart.stats.scores import metric_range
from warmstart.sweep.ranking import RankedMethod, rank
from warmstart.sweep.store import read_runs


class PlanConfig(Config):
    """Plan a race from a pilot: what it can detect, how many seeds and test texts a smaller difference takes, and the cost."""

    pilot: Positional[str]
    """folder of a race on one task, with at least two seeds: its variances and its costs are used"""
    see: float = Field(2.0, gt=0, le=100)
    """the difference to detect, in points"""
    seeds: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)] = (3, 5, 10, 20)
    """numbers of seeds to plan for, from 2 on: one seed shows no difference"""
    power: Advanced[float] = Field(POWER, gt=0.05, lt=1)
    """probability with which the difference should be significant"""
    as_json: Annotated[bool, arg(name="json")] = False
    """write JSON to standard output instead of a table"""


class PlannedSeeds(NamedTuple):
    """What a race with this number of seeds detects, needs and costs."""

    seeds: int
    detectable: float
    """the smallest difference on the pilot's test texts"""
    texts: int | None
    """test texts to detect the wanted difference; None if no number suffices"""
    minutes: float
    """of all trials, one at a time, at the pace of the pilot"""


@dataclass(frozen=True)
class PlanResult:
    """A plan, from the variances of the pilot's differences between its best method and the others."""

    see: float
    """a fraction"""
    power: float
    noise: Noise
    """of a difference to the best method, mean over the other methods"""
    rivals: int
    """methods that the best one is compared with; their p-values are corrected for it"""
    texts: int
    """test texts of the pilot"""
    memory: int | None
    """the largest peak of a trial, in bytes"""
    rows: tuple[PlannedSeeds, ...]
    bounded: bool = True
    """whether scores lie between 0 and 1"""

    @property
    def findings(self) -> list[str]:
        """What the pilot can detect, what the wanted difference takes, what it costs, and how far the plan can be trusted."""
        now, seeds = smallest_detectable(self.noise, self.power, 0.05 / self.rivals), self.noise.seeds
        detects = f"the pilot detects a difference of {percent_value(now)} points with probability {percent(self.power, 0)}"
        detects = f"With its {seeds} seeds and {self.texts:,} test texts, {detects}"
        if too_few := too_few_seeds(now, seeds, bounded=self.bounded, power=self.power):
            detects = f"The pilot's {too_few}"
        findings = [f"{detects}, corrected for {self.rivals} comparison{'s' * (self.rivals > 1)}."]
        enough = [f"{row.seeds} seeds and {row.texts:,} test texts" for row in self.rows if row.texts]
        wanted = f"{percent_value(self.see)} points"
        if enough:
            findings.append(f"To detect {wanted}, take {', or '.join(enough)}.")
        if hidden := [f"{row.seeds}" for row in self.rows if row.texts is None]:
            findings.append(f"With {' or '.join(hidden)} seeds no number of test texts is enough to detect {wanted}.")
        peak = f"; a trial takes up to {file_size(self.memory)} of memory" if self.memory is not None else ""
        costs = ", ".join(f"{row.seeds} seeds {row.minutes:.1f} minutes" for row in self.rows)
        findings.append(f"At the pilot's pace, one trial at a time, a race takes: {costs}{peak}.")
        findings.append(f"The variances come from only {self.noise.seeds} seeds, so the plan itself is uncertain.")
        return findings

    def table(self) -> list[tuple[str, ...]]:
        """One row per number of seeds: what it detects, the test texts and the minutes that it takes."""
        return [
            (
                f"{row.seeds}",
                detectable_points(row.detectable, bounded=self.bounded),
                f"{row.texts:,}" if row.texts else "none",
                f"{row.minutes:.1f}",
            )
            for row in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return {
            "findings": self.findings,
            "variance_of_texts": float(self.noise.of_texts) * self.texts,
            "variance_of_seeds": float(self.noise.of_seeds) * self.noise.seeds,
            "rows": [row._asdict() for row in self.rows],
        }


def plan(config: PlanConfig) -> PlanResult:
    """Read the pilot, print the plan; the ``plan`` command. Nothing is trained."""
    folder = Path(config.pilot)
    if folder.suffix in (".yaml", ".yml") or (folder / "task.yaml").is_file():
        raise DataError(
            f"a plan needs the variances of a small race, not a task alone; run this pilot, then plan from its folder:\n"
            f"warmstart race {folder} --backbones BACKBONE --schemes full --learning-rates 5e-4 --seeds 3 --out runs/pilot\n"
            f"warmstart plan runs/pilot --see {config.see:g}"
        )
    if not (folder / "race.json").is_file():
        raise DataError(f"{folder} must be the folder of a race on one task, but has no race.json; run `warmstart race` first")
    race = json.loads((folder / "race.json").read_text(encoding="utf-8"))
    settings = RaceConfig.build(read_yaml(folder / "config.yaml"))
    if settings.resample:
        raise DataError(f"a pilot must be a race on one split, but {folder} drew a split for each seed; run it without --resample")
    runs = read_runs(folder, settings.labels)
    methods = rank(list(dict.fromkeys(trial.method for trial in runs.trials)), runs).methods
    best = next(one for one in methods if one.method.id == race["best_id"])
    others = [one for one in methods if one is not best]
    if len(best.runs) < 2:
        raise DataError(f"a pilot must have at least two seeds, but {folder} has {len(best.runs)}; run it with --seeds 2 or more")
    bounded = metric_range(race["task"]["metric"]) == (0, 1)
    result = replace(make_plan(best, others, race["task"]["test"], config), bounded=bounded)
    if config.as_json:
        sys.stdout.write(json.dumps(result.to_dict(), indent=1) + "\n")
        return result
    header = ("seeds", "smallest detectable, points", f"test texts for {config.see:g} points", "minutes")
    print_table(f"{race['task']['name']}: power {percent(config.power, 0)}", result.table(), header)
    for sentence in result.findings:
        console.print(sentence, markup=False)
    return result


def make_plan(best: RankedMethod, others: Sequence[RankedMethod], texts: int, config: PlanConfig) -> PlanResult:
    """The plan for comparing ``best`` with ``others``, ranked in a pilot on ``texts`` test texts."""
    noises = [paired_difference(best.test_scores, other.test_scores).noise for other in others]
    of_texts, of_seeds = (float(np.mean(one)) for one in zip(*((noise.of_texts, noise.of_seeds) for noise in noises), strict=True))
    noise = Noise(of_texts, of_seeds, len(best.runs))
    see, error_rate = config.see / 100, 0.05 / len(others)
    run = [one for one in (best, *others) if one.method.family != "stack"]  # a stack only combines what others predicted
    again = sum(float(np.mean([trial.search_seconds for trial in one.runs[1:] or one.runs])) for one in run)
    search = sum(one.runs[0].search_seconds + one.method.continued_pretraining_seconds for one in run) - again
    per_seed = sum(one.seconds for one in run) + again
    rows = []
    for seeds in config.seeds:
        own = rescaled(noise, seeds, 1.0)
        detectable = smallest_detectable(own, config.power, error_rate)
        needed = texts_needed(own, texts, see, config.power, error_rate)
        rows.append(PlannedSeeds(seeds, detectable, needed, (search + per_seed * seeds) / 60))
    memory = max((one.memory for one in (best, *others) if one.memory is not None), default=None)
    return PlanResult(see, config.power, noise, len(others), texts, memory, tuple(rows))
