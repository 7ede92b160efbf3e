"""``warmstart race``: every way to adapt, on the same splits, seeds and budget, and a recommendation."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmstart.commands.race.page import (
    interval_header,
    interval_rows,
    method_header,
    method_rows,
    task_header,
    task_rows,
    write_race_page,
    write_tasks_page,
)
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.experiment.compare import check_save, finish_comparison, with_frozen
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.config import RaceConfig, duration_seconds
from warmstart.experiment.estimate import SweepEstimates
from warmstart.experiment.pilot import Pilot
from warmstart.experiment.plan import PlanResult, make_plan
from warmstart.experiment.race_verdict import headline_of
from warmstart.experiment.store import write_runs_table
from warmstart.experiment.sweep import check_sweep, estimate_only
from warmstart.experiment.tasks_comparison import TasksComparison
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.run import Run
from warmstart.stats.formatting import percent
from warmstart.stats.scores import metric_range
from warmstart.system.console import console, print_table
from warmstart.system.storage import CURVE_FILE, RACE_FILE, atomic_write
from warmstart.tasks.load import load_named_tasks

PLANNED_SEEDS = (3, 5, 10, 20)
"""numbers of seeds that ``--plan`` plans for"""


def race(config: RaceConfig) -> Comparison | TasksComparison | SweepEstimates:
    """Run the trials that have no result yet, rank all methods, write the report; the ``race`` command."""
    config = config.completed()
    if config.plan and (config.seeds == 1 or config.resample):
        raise ConfigError("--plan needs how much seeds differ on one split: give --seeds 2 or more, and not --resample")
    if config.more_tasks and len(config.labels) > 1:
        raise ConfigError("several tasks are compared with one number of labels; give one with --labels, or one task")
    if config.estimate:
        paths = (config.task, *config.more_tasks)
        return SweepEstimates(estimate_only(with_frozen(config.model_copy(update={"task": path}))) for path in paths)
    return _race_tasks(config) if config.more_tasks else race_task(config)


def _race_tasks(config: RaceConfig) -> TasksComparison:
    """One race per task, in a folder named like the task; the time budget is shared evenly among those still to run."""
    paths = (config.task, *config.more_tasks)
    tasks = load_named_tasks(paths)
    names = [task.name for task in tasks]
    for path in paths:  # what one of the races would refuse is refused before the first of them
        single = with_frozen(config.model_copy(update={"task": path, "more_tasks": ()}))
        check_save(*check_sweep(single))
    folder = Run.open(config.out, config, extend=any((Path(config.out) / name).is_dir() for name in names)).folder
    started, races, refused = time.time(), list[Comparison](), list[str]()
    for number, (path, name) in enumerate(zip(paths, names, strict=True)):
        changes: dict[str, Any] = {"task": path, "more_tasks": (), "out": str(folder / name)}
        if config.budget:
            left = max(0.0, duration_seconds(config.budget) - (time.time() - started))
            changes["budget"] = f"{left / (len(paths) - number):.1f}s"
        found, error = _reported_race(config.model_copy(update=changes))
        races.append(found)
        refused += [f"{name}: {error}"] if error else []
    result = TasksComparison(tuple(races))
    if len(result.names) < 2:
        raise DataError("at least two methods need a score on every task, but too few have one; use a longer --budget")
    print_table(f"mean ranks over {len(races)} tasks", task_rows(result), task_header(result))
    for sentence in result.findings:
        console.print(sentence)
    atomic_write(folder / RACE_FILE, json.dumps(result.to_dict(), indent=1).encode())
    console.print(f"report: {write_tasks_page(result, config, folder)}")
    if refused:
        raise ModelError("; ".join(refused))
    return result


def race_task(config: RaceConfig) -> Comparison:
    """The race on one task. Raises ``ModelError``, after the report, if the method to save cannot be saved."""
    result, refused = _reported_race(config)
    if refused:
        raise refused
    return result


def _reported_race(config: RaceConfig) -> tuple[Comparison, ModelError | None]:
    """The race on one task, and why the method to save is not saved."""
    result = finish_comparison(config)
    assert result.trials
    task, curve, folder = result.task, result.curve, result.trials.sweep.folder
    if curve:
        print_table(f"{task.name}: {task.metric} on {len(task.test)} test texts", interval_rows(curve), interval_header(curve))
        for sentence in curve.findings:
            console.print(sentence)
    title = f"{task.name}: {task.metric} on {len(task.test)} test texts, {result.labels} labels"
    print_table(title, method_rows(result), method_header(result))
    for sentence in result.findings:
        console.print(sentence)
    saved, refused = None, None
    if config.save:
        try:
            fitted = result.trials.fit(config.save, result)
            saved = fitted.save(folder / "bundle")
            console.print(f"{fitted.sentence}\nmodel: {saved}")
        except ModelError as error:
            refused = error
    with model_is_saved(saved) if saved else nullcontext():
        complete = curve.rankings if curve else result.trials.runs
        write_runs_table([(labels, runs) for labels, runs in result.trials.runs.items() if labels in complete], folder)
        if curve:
            atomic_write(folder / CURVE_FILE, json.dumps(curve.to_dict(), indent=1).encode())
        atomic_write(folder / RACE_FILE, json.dumps(result.to_dict(), indent=1).encode())
        write_record(folder, score=(result.best.name, result.score_of_best.mean))
        page = write_race_page(result, config, folder)
    console.print(f"all runs: {folder / 'runs.csv'}\nreport: {page}\n{headline_of(result)}")
    return replace(result, plan=_plan(result, config.plan)) if config.plan else result, refused


def pilot_of(result: Comparison) -> Pilot:
    """A race as the pilot of a larger one. Raises ``DataError`` if it says nothing about how much seeds differ."""
    ranking, best = result.ranking, result.best
    others = tuple(one for one in ranking.methods if one is not best)
    if ranking.seeds < 2 or not others:
        raise DataError("a plan needs two methods with at least two seeds each, but too few trials have run; use a longer --budget")
    return Pilot(best, others, ranking.seeds, len(result.task.test), result.draws.scores if ranking.drawn else None)


def _plan(result: Comparison, points: float) -> PlanResult:
    """Print what a race takes to detect a difference of so many points, with this one as its pilot."""
    found = make_plan(pilot_of(result), points / 100, PLANNED_SEEDS, bounded=metric_range(result.task.metric) == (0, 1))
    print_table(f"a larger race on {result.task.name}: power {percent(found.power, 0)}", found.table(), found.header)
    for sentence in found.findings:
        console.print(sentence)
    return found
