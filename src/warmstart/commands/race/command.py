"""``warmstart race``: every way to adapt, on the same splits, seeds and budget, and a recommendation."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.baselines.simple import constant_score
from warmstart.commands.race.page import (
    method_header,
    method_rows,
    task_header,
    task_rows,
    write_race_page,
    write_tasks_page,
)
from warmstart.commands.race.result import RaceResult, TasksRaceResult
from warmstart.config import Advanced, Effectless, TaskInput
from warmstart.data.test_ledger import ScoringRun
from warmstart.errors import ConfigError, DataError, ModelError, suggest
from warmstart.experiment.draws import MAJORITY_LABEL
from warmstart.experiment.estimate import SweepEstimates
from warmstart.experiment.pilot import Pilot
from warmstart.experiment.plan import PlanResult, make_plan
from warmstart.experiment.refit import refit
from warmstart.experiment.store import write_runs_table
from warmstart.experiment.sweep import (
    SchemeName,
    Sweep,
    SweepConfig,
    check_sweep,
    duration_seconds,
    estimate_only,
    open_sweep,
    run_sweep,
)
from warmstart.experiment.trial import Method, SweepRuns
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.run import open_run, save_settings
from warmstart.stats.formatting import percent
from warmstart.stats.scores import metric_range
from warmstart.system.console import console, print_table
from warmstart.system.storage import RACE_FILE, atomic_write
from warmstart.tasks.load import load_named_tasks, load_task, names_validation

ALWAYS_RUN = ("probe", "scalar-mix")
"""schemes with a frozen backbone: they take seconds"""
PLANNED_SEEDS = (3, 5, 10, 20)
"""numbers of seeds that ``--plan`` plans for"""
RECOMMENDED = "recommended"
"""what ``--save`` calls the method that the race recommends"""


class RaceConfig(SweepConfig):
    """Run every way to adapt on one task, on the same splits and seeds, and recommend the cheapest within the noise of the best."""

    more_tasks: Positional[TaskInput[tuple[str, ...]]] = ()
    """manifests of further tasks: every task has a race of its own, and the methods are ranked over all of them"""
    schemes: tuple[SchemeName, ...] = ("full", "lp-ft", "discriminative", "lora", "houlsby", "bitfit")
    """ways to adapt each backbone, a+b combines two; probe and scalar-mix always run, and alone if neither schemes nor backbones
    are given"""
    out: Effectless[str] = "runs/race"
    """folder of the run; with the folder of an earlier run, continue it"""
    labels: int | None = Field(None, gt=1)
    """number of labelled texts, drawn anew for each seed: everything labelled that anything looks at; default: all"""

    save: str | None = None
    """save a method as a model, OUT/bundle: recommended, or its name in the table, such as stack. It is fitted again with the first
    seed: one more fit of each network in it"""

    plan: Effectless[Advanced[float | None]] = Field(None, gt=0, le=100)
    """also say how many seeds and test texts a race needs to detect a difference of so many points, and what it costs; the same
    command with it asks a race that has run"""

    resample: Advanced[bool] = False
    """draw a new split of all labelled texts with each seed, so that intervals also cover the chance of the split"""

    def with_backbones(self) -> Self:
        """The same; if no backbone is named, with the encoders at hand, and with what takes minutes unless schemes are named."""
        found = super().with_backbones()
        if self.backbones:
            return found
        if self.schemes != type(self).model_fields["schemes"].default:
            return found.model_copy(update={"scratch": False})
        console.print("Nothing is fine-tuned, so that it takes minutes; --schemes full lora, or others, fine-tunes.")
        return found.model_copy(update={"scratch": False, "schemes": ()})

    def numbers_of_labels(self) -> tuple[int | None, ...]:
        """The number of labelled texts."""
        return (self.labels,)

    def resamples(self) -> bool:
        """As the setting says."""
        return self.resample


def race(config: RaceConfig) -> RaceResult | TasksRaceResult | SweepEstimates:
    """Run the trials that have no result yet, rank all methods, write the report; the ``race`` command."""
    config = config.with_backbones()
    if config.plan and (config.seeds < 2 or config.resample):
        raise ConfigError("--plan needs how much seeds differ on one split: give --seeds 2 or more, and not --resample")
    if config.estimate:
        return SweepEstimates(estimate_only(_with_frozen(config, task)) for task in (config.task, *config.more_tasks))
    return _race_tasks(config) if config.more_tasks else race_task(config)


def _race_tasks(config: RaceConfig) -> TasksRaceResult:
    """One race per task, in a folder named like the task; the time budget is shared evenly among those still to run."""
    paths = (config.task, *config.more_tasks)
    tasks = load_named_tasks(paths)
    names = [task.name for task in tasks]
    for task, path in zip(tasks, paths, strict=True):  # what one of the races would refuse is refused before the first of them
        single = _with_frozen(config, path).model_copy(update={"more_tasks": ()})
        _check_saved(config, check_sweep(single)[1])
        ScoringRun.begin([task], single.model_copy(update={"out": str(Path(config.out) / task.name)}))
    folder = open_run(config.out, config, resume=any((Path(config.out) / name).is_dir() for name in names))
    save_settings(folder, config)
    started, races = time.time(), list[RaceResult]()
    for number, (path, name) in enumerate(zip(paths, names, strict=True)):
        changes: dict[str, Any] = {"task": path, "more_tasks": (), "out": str(folder / name)}
        if config.budget:
            left = max(0.0, duration_seconds(config.budget) - (time.time() - started))
            changes["budget"] = f"{left / (len(paths) - number):.1f}s"
        races.append(race_task(config.model_copy(update=changes)))
    result = TasksRaceResult(tuple(races))
    if len(result.names) < 2:
        raise DataError("at least two methods need a score on every task, but too few have one; use a longer --budget")
    print_table(f"mean ranks over {len(races)} tasks", task_rows(result), task_header(result))
    for sentence in result.findings:
        console.print(sentence)
    atomic_write(folder / RACE_FILE, json.dumps(result.to_dict(), indent=1).encode())
    console.print(f"report: {write_tasks_page(result, config, folder)}")
    return result


def _with_frozen(config: RaceConfig, task: str) -> RaceConfig:
    """The same for one task, with the schemes that always run, and a selection that needs no validation texts if it has none."""
    changes: dict[str, Any] = {"task": task, "schemes": (*ALWAYS_RUN, *config.schemes)}
    if config.selection is None and config.labels is None and not names_validation(task):
        changes["selection"] = config.selection_with(len(load_task(task).train))  # as with as many --labels
    return config.model_copy(update=changes)


def race_task(config: RaceConfig) -> RaceResult:
    """The race on one task."""
    sweep = open_sweep(_with_frozen(config, config.task))
    _check_saved(config, sweep.methods)
    task = sweep.task
    labels = config.labels or len(task.train)
    runs = run_sweep(sweep, config.labels)
    ranking = sweep.rank(runs)
    if not ranking.methods and ranking.diverged:
        names = ", ".join(method.name for method in ranking.diverged)
        raise ModelError(f"at every learning rate that was tried, {names} diverged; use lower --learning-rates")
    if not ranking.methods:
        raise DataError(f"the budget of {config.budget} is too short for one trial of one model; use a longer --budget")
    budget = ranking.methods[0].runs[0].budget
    selection = sweep.config.selection_with(config.labels)
    counted = task.single_label and task.metric == "accuracy"
    result = RaceResult(
        task,
        labels,
        sweep.choosing,
        ranking,
        sweep.audit,
        constant_score(task),
        sweep.finish(),
        budget,
        selection,
        float(np.bincount(sweep.budget.labels).max() / len(sweep.budget)) if counted else 0.0,
    )
    title = f"{task.name}: {task.metric} on {len(task.test)} test texts, {labels} labels"
    print_table(title, method_rows(result), method_header(result))
    for sentence in result.findings:
        console.print(sentence)
    recommended = config.save == RECOMMENDED
    method = result.recommended.method if recommended else _named(config.save, sweep.methods) if config.save else None
    saved = None
    if method and method.name != MAJORITY_LABEL:
        saved = _save(method, runs, sweep, result.draws.labels_of_choice if recommended and ranking.drawn else "")
    with model_is_saved(saved) if saved else nullcontext():
        write_runs_table([(labels, runs)], sweep.folder)
        atomic_write(sweep.folder / RACE_FILE, json.dumps(result.to_dict(), indent=1).encode())
        page = write_race_page(result, config, sweep.folder)
    console.print(f"all runs: {sweep.folder / 'runs.csv'}\nreport: {page}")
    if method and not saved:
        raise ModelError(
            f"{method.name} ignores the texts, so no model of it is saved; label more texts, or name another method with --save"
        )
    return replace(result, plan=_plan(result, config.plan)) if config.plan else result


def pilot_of(result: RaceResult) -> Pilot:
    """A race as the pilot of a larger one. Raises ``DataError`` if it says nothing about how much seeds differ."""
    ranking, best = result.ranking, result.best
    others = tuple(one for one in ranking.methods if one is not best)
    if ranking.seeds < 2 or not others:
        raise DataError("a plan needs two methods with at least two seeds each, but too few trials have run; use a longer --budget")
    return Pilot(best, others, ranking.seeds, len(result.task.test), result.draws.scores if ranking.drawn else None)


def _plan(result: RaceResult, points: float) -> PlanResult:
    """Print what a race takes to detect a difference of so many points, with this one as its pilot."""
    found = make_plan(pilot_of(result), points / 100, PLANNED_SEEDS, bounded=metric_range(result.task.metric) == (0, 1))
    print_table(f"a larger race on {result.task.name}: power {percent(found.power, 0)}", found.table(), found.header)
    for sentence in found.findings:
        console.print(sentence)
    return found


def _check_saved(config: RaceConfig, methods: Sequence[Method]) -> None:
    """Raise ``ConfigError`` for a name to ``--save`` that no method has: before the first trial, not after the last."""
    if config.save not in (None, RECOMMENDED):
        _named(str(config.save), methods)


def _named(name: str, methods: Sequence[Method]) -> Method:
    """The method of this name."""
    known = {method.name: method for method in reversed(methods)}
    if name not in known:
        raise ConfigError(f"--save {name}: no method of this race has this name; {suggest(name, (RECOMMENDED, *known))}")
    return known[name]


def _save(method: Method, runs: SweepRuns, sweep: Sweep, chosen: str) -> Path:
    """Fit a method once more, and save it in the run's ``bundle``; ``chosen`` says which labels of other draws chose it."""
    fitted = refit(method, runs, sweep.context, chosen)
    folder = fitted.save(sweep.folder / "bundle")
    console.print(f"{fitted.sentence}\nmodel: {folder}")
    return folder
