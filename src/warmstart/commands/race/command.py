"""``warmstart race``: every way to adapt, on the same splits, seeds and budget, and a recommendation."""

from __future__ import annotations

import json
from contextlib import nullcontext

from warmstart.commands.race.page import (
    interval_table,
    method_table,
    write_race_page,
)
from warmstart.errors import ModelError
from warmstart.experiment.compare import finish_comparison, with_frozen
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.estimate import SweepEstimate
from warmstart.experiment.race_verdict import headline_of, race_verdict
from warmstart.experiment.store import write_runs_table
from warmstart.experiment.sweep import estimate_only
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.steps import terminal_lines
from warmstart.system.console import console, print_table
from warmstart.system.storage import CURVE_FILE, RACE_FILE, atomic_write


def race(config: RaceConfig) -> Comparison | SweepEstimate:
    """Run the trials that have no result yet, rank all methods, write the report; the ``race`` command."""
    config = config.completed()
    return estimate_only(with_frozen(config)) if config.estimate else race_task(config)


def race_task(config: RaceConfig) -> Comparison:
    """The race, reported. Raises ``ModelError``, after the report, if the method to save cannot be saved."""
    result = finish_comparison(config)
    assert result.trials
    task, curve, folder = result.task, result.curve, result.trials.sweep.folder
    if curve:
        intervals = interval_table(curve)
        print_table(f"{task.name}: {task.metric} on {len(task.test)} test texts", intervals.rows, intervals.header)
        for sentence in curve.findings:
            console.print(sentence)
    title = f"{task.name}: {task.metric} on {len(task.test)} test texts, {result.labels} labels"
    methods = method_table(result)
    print_table(title, methods.rows, methods.header)
    for sentence in result.findings:
        console.print(sentence)
    saved, refused = None, None
    if config.save:
        try:
            fitted = result.refit(config.save)
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
        write_record(folder, score=(result.recommended.name, result.score_of_recommended.mean))
        page = write_race_page(result, config, folder)
    console.print(f"all runs: {folder / 'runs.csv'}\nreport: {page}\n{headline_of(result)}")
    for line in terminal_lines(race_verdict(result, folder, config).steps):
        console.print(line)
    if refused:
        raise refused
    return result
