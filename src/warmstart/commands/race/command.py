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
from warmstart.experiment.race_verdict import race_verdict
from warmstart.experiment.store import write_runs_table
from warmstart.experiment.sweep import estimate_only
from warmstart.report.sections import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.verdict import verdict_lines
from warmstart.system.console import console, print_table, progress_line
from warmstart.system.storage import CURVE_FILE, RACE_FILE, atomic_write


def race(config: RaceConfig) -> Comparison | SweepEstimate:
    """Run the trials that have no result yet, rank all methods, write the report; the ``race`` command."""
    config = config.completed()
    return estimate_only(with_frozen(config)) if config.estimate else race_task(config)


def race_task(config: RaceConfig) -> Comparison:
    """The race, reported. Raises ``ModelError``, after the report, if the method to save cannot be saved."""
    with progress_line("comparing methods", details=config.details):
        result = finish_comparison(config)
    assert result.trials
    curve, folder = result.curve, result.trials.sweep.folder
    if config.details:
        _print_details(result)
    saved, refused, places = None, None, list[str]()
    if config.save:
        try:
            fitted = result.refit(config.save)
            saved = fitted.save(folder / "bundle")
            places = [fitted.sentence, f"model: {saved}"]
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
    places += [*(curve.findings[:1] if curve else ()), f"all runs: {folder / 'runs.csv'}, report: {page}"]
    for line in verdict_lines(race_verdict(result, folder, config), *places):
        console.print(line)
    if refused:
        raise refused
    return result


def _print_details(result: Comparison) -> None:
    """The tables of scores, and what the tests say of them."""
    title = f"{result.task.name}: {result.task.metric} on {len(result.task.test)} test texts"
    if result.curve:
        intervals = interval_table(result.curve)
        print_table(title, intervals.rows, intervals.header)
    methods = method_table(result)
    print_table(f"{title}, {result.labels} labels", methods.rows, methods.header)
    for sentence in (*(result.curve.findings if result.curve else ()), *result.findings):
        console.print(sentence)
