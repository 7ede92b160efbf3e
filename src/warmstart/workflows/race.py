"""The race: every way to adapt, on the same splits, seeds and budget, and the cheapest within the noise of the best.

The learning rate of each method is chosen on the validation split with the first seed, over the same rates for all; the other seeds
run at the rate that won. Which method is called the best is decided on validation too. The test split serves the report alone.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import polars
from pydantic import AfterValidator, Field
from tyro.conf import Positional, arg

from warmstart.config import Config
from warmstart.data import audit, drop_leaks, load_task, subsample
from warmstart.engine import console
from warmstart.errors import ConfigError, DataError
from warmstart.evaluate import BASELINES
from warmstart.schemes import known_scheme
from warmstart.storage import write_forced
from warmstart.workflows.cells import Cell, Entrant, Ground, Result, bundle_digest, ground_of, run_cells
from warmstart.workflows.finetune import FineTuneConfig, check_scheme
from warmstart.workflows.race_page import race_page
from warmstart.workflows.run import load_model, open_run, print_table
from warmstart.workflows.standings import Race, Standing, choose_rate, stand

FRESH = "from scratch"
RATES = (5e-4, 2e-4, 1.5e-3)


def minutes_of(said: str) -> str:
    """The budget itself if it is one: a number with s, m or h after it; a bare number means minutes."""
    if not re.fullmatch(r"\d+(\.\d+)?\s*[smh]?", said):
        raise ValueError(f"must be a time such as 90s, 30m or 2h; got {said!r}")
    return said


class RaceConfig(Config):
    """Run every way to adapt on one task, on the same splits and seeds, and name the cheapest within the noise of the best."""

    task: Positional[str]
    """the task's manifest (YAML)"""
    backbones: Annotated[tuple[str, ...], Field(min_length=1)]
    """pretrained models: bundles, or runs' folders"""
    schemes: tuple[Annotated[str, AfterValidator(known_scheme)], ...] = (
        "full",
        "lp-ft",
        "discriminative",
        "lora",
        "houlsby",
        "bitfit",
    )
    """ways to adapt each backbone (a+b does both); probe and mix always run"""
    out: str = "runs/race"
    """folder of the run; the same folder goes on where it stopped"""
    labels: int | None = Field(None, gt=1)
    """training texts, drawn anew by each seed, stratified; default: all"""
    rates: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = RATES
    """learning rates that each method chooses from, on the validation split of the first seed"""
    seeds: int = Field(5, gt=0)
    """how many seeds; fewer than three say little"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    budget: Annotated[str, AfterValidator(minutes_of)] | None = None
    """time for all of it, such as 30m; runs that do not fit are left for the next time"""
    jobs: int = Field(1, gt=0)
    """runs at once; each then has its share of the cores"""
    scratch: bool = True
    """also train the same network from scratch"""
    drop_leaks: bool = False
    """drop training texts that also occur in validation or test, and validation texts that occur in test"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()


def race(config: RaceConfig) -> Race:
    """Run what is not done yet, and report how all stand; the ``race`` command."""
    started = time.time()
    _unambiguous(config.tune)
    task = load_task(config.task)
    task = drop_leaks(task) if config.drop_leaks else task
    count = len(subsample(task, config.labels, config.seed).train) if config.labels else len(task.train)
    entrants = enter(config)
    folder = open_run(config.out, config, resume=(Path(config.out) / "cells").is_dir())
    ground = ground_of(task, config.task, folder, config.tune, without_leaks=config.drop_leaks)
    if config.budget:
        ground = ground.model_copy(update={"deadline": started + seconds_of(config.budget)})
    found = audit(task)
    for finding in found.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}", markup=False)
    cells, done = heats(entrants, config, ground, config.labels)
    standings, missing, seeds = line_up(entrants, cells, done, config.tune.train.learning_rate)
    if not any(standing.validation is not None for standing in standings):
        raise DataError(f"the budget of {config.budget} did not suffice for one run of one model; give more")
    result = Race(task, count, tuple(standings), tuple(missing), seeds, found)
    print_table(f"{task.name}: {task.metric} on {len(task.test)} test texts, {count} labels", result.short(), result.SHORT)
    for sentence in result.sentences():
        console.print(sentence, markup=False)
    keep(result, cells, done, folder)
    console.print(f"every run: {folder / 'runs.csv'}\nreport: {race_page(result, config, folder)}", markup=False)
    return result


def enter(config: RaceConfig) -> list[Entrant]:
    """Who takes part, cheapest first. Raises ``ModelError`` or ``ConfigError`` where a scheme does not fit a backbone."""
    entrants = [Entrant(name=name, kind="baseline") for name in BASELINES]
    names = _names(config.backbones)
    schemes = list(dict.fromkeys(("probe", "mix", *config.schemes)))
    for path, name in zip(config.backbones, names, strict=True):
        bundle, origin = load_model(path), bundle_digest(path)
        for scheme in schemes:
            check_scheme(bundle, config.tune.model_copy(update={"scheme": scheme}))
            entrants.append(Entrant(name=f"{scheme}{name}", kind="adapted", backbone=path, origin=origin, scheme=scheme))
        if config.scratch:
            entrants.append(Entrant(name=f"{FRESH}{name}", kind="scratch", backbone=path, origin=origin))
    return entrants


def heats(
    entrants: Sequence[Entrant], config: RaceConfig, ground: Ground, labels: int | None
) -> tuple[list[Cell], dict[str, Result]]:
    """All cells of these entrants, and the results of those that the time sufficed for.

    First the rates, on the first seed; then seed after seed for all, so that a budget that runs out leaves all with as many.
    """
    first, middle = config.seed, config.tune.train.learning_rate
    rates = sorted(config.rates, key=lambda rate: abs(math.log(rate / middle)))
    search = [
        Cell(entrant=entrant, seed=first, rate=rate, labels=labels)
        for entrant in entrants
        for rate in (rates if entrant.kind != "baseline" else [0.0])
    ]
    done = run_cells(search, ground, config.jobs)
    rest = list[Cell]()
    for seed in range(first + 1, first + config.seeds):
        for entrant in entrants:
            if entrant.kind == "baseline" and not labels:
                continue  # the same texts give the same baseline
            tried = {c.rate: done[str(c)].validation or 0.0 for c in search if c.entrant == entrant and str(c) in done}
            if tried:
                rest.append(Cell(entrant=entrant, seed=seed, rate=choose_rate(tried, middle), labels=labels))
    return [*search, *rest], done | run_cells(rest, ground, config.jobs)


def line_up(
    entrants: Sequence[Entrant], cells: Sequence[Cell], done: dict[str, Result], middle: float
) -> tuple[list[Standing], list[str], int]:
    """How all stand on the seeds that all have run, best mean first; who has not run at all; and how many seeds that are."""
    stood = [(entrant, stand(entrant, cells, done, middle)) for entrant in entrants]
    chance = [standing for _, standing in stood if standing and standing.entrant.kind != "baseline"]
    seeds = min((len(standing.runs) for standing in chance), default=0)
    even = [standing.first(seeds) for _, standing in stood if standing]
    return sorted(even, key=lambda s: -s.judged.over_seeds.mean), [entrant.name for entrant, s in stood if not s], seeds


def keep(result: Race, cells: Sequence[Cell], done: dict[str, Result], folder: Path) -> None:
    """Write the tidy table of all runs (``runs.csv``) and what was found (``race.json``)."""
    rows = list(_tidy(result, cells, done))
    write_forced(folder / "runs.csv", polars.DataFrame(rows, infer_schema_length=None).write_csv().encode())
    write_forced(folder / "race.json", json.dumps(result.plain(), indent=1).encode())


def _tidy(result: Race, cells: Sequence[Cell], done: dict[str, Result]) -> Iterator[dict[str, str | float | int | bool | None]]:
    chosen = {standing.entrant: standing.rate for standing in result.standings}
    for cell in cells:
        if run := done.get(str(cell)):
            yield {
                "method": cell.entrant.name,
                "kind": cell.entrant.kind,
                "scheme": cell.entrant.scheme,
                "backbone": cell.entrant.backbone,
                "labels": result.labels,
                "seed": cell.seed,
                "learning_rate": cell.rate or None,
                "chosen": chosen.get(cell.entrant) == cell.rate,
                "validation": run.validation,
                "score": run.score,
                "seconds": round(run.seconds, 3),
                "memory_bytes": run.memory,
                "trained_parameters": run.trainable,
                "new_parameters": run.new,
                "task_bytes": run.disk,
                "collapsed": run.collapsed,
                "note": run.note,
            }


def seconds_of(budget: str) -> float:
    """``seconds_of("30m")`` -> 1800."""
    number, unit = float(budget.rstrip(" smh")), budget[-1]
    return number * {"s": 1, "h": 3600}.get(unit, 60)


def _names(backbones: Sequence[str]) -> list[str]:
    """What tells the backbones apart in a method's name: nothing where there is one, else the folder's name."""
    if len(backbones) == 1:
        return [""]
    if len(set(backbones)) < len(backbones):
        raise ConfigError(f"each backbone must be named once, but {', '.join(backbones)} came; drop one")
    short = [Path(path).parent.name if Path(path).name == "bundle" else Path(path).name for path in backbones]
    return [f" · {name if short.count(name) == 1 else path}" for name, path in zip(short, backbones, strict=True)]


def _unambiguous(tune: FineTuneConfig) -> None:
    """What the race settles itself must not be given beside it."""
    plain = FineTuneConfig()
    if tune.scheme != plain.scheme:
        raise ConfigError(f"a race runs several schemes: give --schemes {tune.scheme}, not --scheme")
    if tune.train.learning_rate != plain.train.learning_rate:
        raise ConfigError(f"a race chooses among several rates: give --rates {tune.train.learning_rate:g}, not --learning-rate")
