"""``warmstart plan``: how many seeds and test texts a comparison needs, and what they cost, from a pilot race."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
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
from warmstart.storage import RACE_FILE
from warmstart.sweep.draws import MAJORITY_LABEL
from warmstart.sweep.ranking import RankedMethod, rank
from warmstart.sweep.store import read_runs
from warmstart.sweep.trial import SweepRuns

CLOSE = 3
"""the rivals with the mean test scores nearest to the best method's, for whose noise a race is planned"""


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
    """A plan, from the variances of the pilot's difference between its best method and a close rival."""

    see: float
    """a fraction"""
    power: float
    noise: Noise
    """of the difference between the two methods of ``pair``"""
    rivals: int
    """methods that the best one is compared with; their p-values are corrected for it"""
    texts: int
    """test texts of the pilot"""
    memory: int | None
    """the largest peak of a trial, in bytes"""
    rows: tuple[PlannedSeeds, ...]
    bounded: bool = True
    """whether scores lie between 0 and 1"""
    pair: tuple[str, str] = ("the best method", "a close rival")
    """the best method, and the rival whose noise is planned for"""

    @property
    def findings(self) -> list[str]:
        """What the pilot can detect, what the wanted difference takes, what it costs, and how far the plan can be trusted."""
        now, seeds = smallest_detectable(self.noise, self.power, 0.05 / self.rivals), self.noise.seeds
        detects = f"the pilot detects a difference of {percent_value(now)} points with probability {percent(self.power, 0)}"
        detects = f"With its {seeds} seeds and {self.texts:,} test texts, {detects}"
        if too_few := too_few_seeds(now, seeds, bounded=self.bounded, power=self.power):
            detects = f"The pilot's {too_few}"
        findings = [
            f"{detects}, corrected for {self.rivals} comparison{'s' * (self.rivals > 1)}.",
            f"The plan is for the difference between {' and '.join(self.pair)}, whose noise is the median of the closest rivals'.",
        ]
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
            "pair": list(self.pair),
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
    if not (folder / RACE_FILE).is_file():
        raise DataError(f"{folder} must be the folder of a race on one task, but has no race.json; run `warmstart race` first")
    race = _read_race(folder / RACE_FILE)
    settings = RaceConfig.build(read_yaml(folder / "config.yaml"))
    if settings.resample:
        raise DataError(f"a pilot must be a race on one split, but {folder} drew a split for each seed; run it without --resample")
    runs = read_runs(folder, settings.labels)
    if missing := [*_missing_trials(race, runs, settings)]:
        raise DataError(f"{folder} lacks trials, or their files are damaged: {'; '.join(missing)}; {AGAIN}")
    ranking = rank(list(dict.fromkeys(trial.method for trial in runs.trials)), runs)
    best = next((one for one in ranking.methods if one.method.id == race["best_id"]), None)
    others = [one for one in ranking.methods if one is not best]
    if best is None or not others:
        raise DataError(f"a pilot must rank the best method of race.json and others, but {folder} does not; {AGAIN}")
    if ranking.seeds < 2:
        raise DataError(f"a pilot must have at least two seeds, but {folder} has {ranking.seeds}; run it with --seeds 2 or more")
    bounded = metric_range(race["task"]["metric"]) == (0, 1)
    result = replace(make_plan(best, others, race["task"]["test"], config, ranking.seeds), bounded=bounded)
    if config.as_json:
        sys.stdout.write(json.dumps(result.to_dict(), indent=1) + "\n")
        return result
    header = ("seeds", "smallest detectable, points", f"test texts for {config.see:g} points", "minutes")
    print_table(f"{race['task']['name']}: power {percent(config.power, 0)}", result.table(), header)
    for sentence in result.findings:
        console.print(sentence)
    return result


AGAIN = "run the same race again: it goes on from the trials that are finished"


def _read_race(file: Path) -> dict[str, Any]:
    """What a race wrote; ``DataError`` if that is damaged, or the race has several tasks."""
    try:
        race = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} must be what a race wrote, but is damaged: {error}; {AGAIN}") from None
    if isinstance(race, dict) and "tasks" in race:
        raise DataError(f"{file.parent} must be the folder of a race on one task, but has several; name the folder of one of them")
    if not isinstance(race, dict) or not {"task", "best_id", "methods"} <= {*race}:
        raise DataError(f"{file} must be what a race wrote, with its task, its methods and the best of them; {AGAIN}")
    return race


def _missing_trials(race: dict[str, Any], runs: SweepRuns, settings: RaceConfig) -> Iterator[str]:
    """Methods that have fewer trials than scores in ``race``, with the seeds that are missing."""
    start = settings.seed + any(trial.chooses_rate for trial in runs.trials)
    for row in race["methods"]:
        own = {trial.seed for trial in runs.trials if trial.method.id == row["id"] and not trial.chooses_rate}
        lost = [seed for seed in range(start, start + settings.seeds) if seed not in own]
        if count := max(0, len(row["scores"]) - len(own)):
            yield f"{row['method']}, seed {', '.join(map(str, lost[:count]))}"


def typical_noise(best: RankedMethod, others: Sequence[RankedMethod], seeds: int) -> tuple[RankedMethod, Noise]:
    """The rival to plan for, and the noise of its difference to ``best``: the median of the ``CLOSE`` nearest by mean test score.

    The majority label and methods with collapsed runs are left out if others remain: their differences are noisy and plain to see.
    So are methods whose scores are those of the best throughout; ``DataError`` if all are.
    """
    found = [(one, replace(paired_difference(best.test_scores, one.test_scores).noise, seeds=seeds)) for one in others]
    found = [row for row in found if row[1].error > 0]
    if not found:
        raise DataError(
            f"a pilot must show how much differences vary, but every method scores as {best.name} does; use more test texts"
        )
    found = [row for row in found if row[0].name != MAJORITY_LABEL and not row[0].collapsed] or found
    mean = best.test_scores.over_seeds.mean
    near = sorted(found, key=lambda row: abs(row[0].test_scores.over_seeds.mean - mean))[:CLOSE]
    return sorted(near, key=lambda row: float(row[1].error))[len(near) // 2]


def make_plan(best: RankedMethod, others: Sequence[RankedMethod], texts: int, config: PlanConfig, seeds_run: int) -> PlanResult:
    """The plan for comparing ``best`` with ``others``, ranked in a pilot with ``seeds_run`` seeds on ``texts`` test texts."""
    rival, noise = typical_noise(best, others, seeds_run)
    see, error_rate = config.see / 100, 0.05 / len(others)
    run = [one for one in (best, *others) if one.method.family != "stack"]  # a stack only combines what others predicted
    once = {one.method.backbone_digest: one.method.continued_pretraining_seconds for one in run}  # methods share a backbone
    search = sum(one.seconds_of_search for one in run) + sum(once.values())
    per_seed = sum(one.seconds + float(np.mean([trial.search_seconds for trial in one.runs])) for one in run)
    rows = []
    for seeds in config.seeds:
        own = rescaled(noise, seeds, 1.0)
        detectable = smallest_detectable(own, config.power, error_rate)
        needed = texts_needed(own, texts, see, config.power, error_rate)
        rows.append(PlannedSeeds(seeds, detectable, needed, (search + per_seed * seeds) / 60))
    memory = max((one.memory for one in (best, *others) if one.memory is not None), default=None)
    pair = best.name, rival.name
    return PlanResult(see, config.power, noise, len(others), texts, memory, tuple(rows), pair=pair)
