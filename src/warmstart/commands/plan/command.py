"""``warmstart plan``: how many seeds and test texts a comparison needs, and what they cost, from a pilot race.

Given a task, the pilot is run first: a race like any other, in a folder of its own, that goes on where it was stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from tyro.conf import Positional

from warmstart.commands.plan.result import PlanResult, make_plan
from warmstart.commands.race.command import RaceConfig, race
from warmstart.config import Advanced, Config, Effectless, read_yaml
from warmstart.errors import ConfigError, DataError
from warmstart.stats.differences import MethodScores, picked
from warmstart.stats.formatting import percent
from warmstart.stats.power import POWER
from warmstart.stats.scores import metric_range
from warmstart.sweep.pilot import Pilot
from warmstart.sweep.ranking import Ranking, rank
from warmstart.sweep.store import read_runs
from warmstart.sweep.sweep import LearningRate, SchemeName
from warmstart.sweep.trial import SweepRuns
from warmstart.system.console import console, print_table
from warmstart.system.storage import RACE_FILE


class PlanConfig(Config):
    """Plan a race from a pilot: what it can detect, how many seeds and test texts a smaller difference takes, and the cost."""

    pilot: Positional[str]
    """folder of a race on one task, with at least two seeds: its variances and its costs are used; or a task, whose pilot is run"""
    see: float = Field(2.0, gt=0, le=100)
    """the difference to detect, in points"""
    seeds: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)] = (3, 5, 10, 20)
    """numbers of seeds to plan for, from 2 on: one seed shows no difference"""
    backbones: tuple[str, ...] = ()
    """the pilot of a task: pretrained models, as for race"""
    schemes: tuple[SchemeName, ...] = ("full",)
    """the pilot of a task: ways to adapt each backbone, beside probe, scalar-mix and the baselines"""
    labels: int | None = Field(None, gt=1)
    """the pilot of a task: number of labelled texts, as for race; default: all"""
    pilot_seeds: int = Field(3, ge=2)
    """the pilot of a task: number of seeds; more make the plan surer"""
    learning_rates: Advanced[Annotated[tuple[LearningRate, ...], Field(min_length=1)]] = (5e-4,)
    """the pilot of a task: learning rates that each method chooses from"""
    out: Effectless[str] = "runs/pilot"
    """folder of the pilot of a task; with the folder of an earlier one, continue it"""
    power: Advanced[float] = Field(POWER, gt=0.05, lt=1)
    """probability with which the difference should be significant"""


def plan(config: PlanConfig) -> PlanResult:
    """Read the pilot, or run that of a task; print the plan; the ``plan`` command."""
    folder = Path(config.pilot)
    if folder.suffix in (".yaml", ".yml") or (folder / "task.yaml").is_file():
        folder = _run_pilot(config)
    else:
        _refuse_pilot_settings(config)
    race, pilot = read_pilot(folder)
    bounded = metric_range(race["task"]["metric"]) == (0, 1)
    result = make_plan(pilot, config.see / 100, config.seeds, config.power, bounded=bounded)
    print_table(f"{race['task']['name']}: power {percent(config.power, 0)}", result.table(), result.header)
    for sentence in result.findings:
        console.print(sentence)
    return result


OF_PILOT = ("backbones", "schemes", "labels", "learning_rates", "out")
"""settings of the pilot of a task that are those of a race"""


def _refuse_pilot_settings(config: PlanConfig) -> None:
    """Raise ``ConfigError`` for settings of the pilot of a task beside a race that has run."""
    usual = PlanConfig(pilot=config.pilot)
    if given := [name for name in (*OF_PILOT, "pilot_seeds") if getattr(config, name) != getattr(usual, name)]:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{names}: for the pilot of a task, but {config.pilot} is taken as the folder of a race that has run")


def _run_pilot(config: PlanConfig) -> Path:
    """Run the trials of the pilot that have no result yet, as a race does; its folder."""
    if not config.backbones:
        raise ConfigError(
            "the pilot of a task needs a pretrained model: add --backbones MODEL, a bundle or the folder of a run (pool pretrains "
            f"a small one on the text of the task); or give the folder of a race on {config.pilot} that has run"
        )
    seeds, out = config.pilot_seeds, config.out
    console.print(f"pilot: a race with {seeds} seeds in {out}; it scores the test split, and the ledger counts that")
    shared = {name: getattr(config, name) for name in OF_PILOT}
    race(RaceConfig.build({"task": config.pilot, "seeds": seeds, "scratch": False} | shared))
    return Path(out)


def read_pilot(folder: Path) -> tuple[dict[str, Any], Pilot]:
    """What a race wrote, and its methods as a pilot. Raises ``DataError`` if something is missing, or it cannot be one."""
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
    others = tuple(one for one in ranking.methods if one is not best)
    if best is None or not others:
        raise DataError(f"a pilot must rank the best method of race.json and others, but {folder} does not; {AGAIN}")
    if ranking.seeds < 2:
        raise DataError(f"a pilot must have at least two seeds, but {folder} has {ranking.seeds}; run it with --seeds 2 or more")
    return race, Pilot(best, others, ranking.seeds, race["task"]["test"], _chosen(race, ranking))


def _chosen(race: dict[str, Any], ranking: Ranking) -> MethodScores | None:
    """The test scores of what each draw chose; None if all seeds chose together."""
    by_id = {one.method.id: one.test_scores for one in ranking.methods}
    chosen = race.get("chosen") or ()
    if not ranking.drawn or not {*chosen} <= {*by_id} or len(chosen) != ranking.seeds:
        return None
    return picked([by_id[one] for one in chosen])


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
