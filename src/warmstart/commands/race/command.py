"""``warmstart race``: every way to adapt, on the same splits, seeds and budget, and a recommendation."""

from __future__ import annotations

import json

from pydantic import Field

from warmstart.baselines.majority import constant_score
from warmstart.commands.race.page import TERMINAL_HEADER, terminal_rows, write_race_page
from warmstart.commands.race.result import RaceResult
from warmstart.console import console, print_table
from warmstart.data.task import subsample
from warmstart.errors import DataError, ModelError
from warmstart.storage import atomic_write
from warmstart.sweep.store import write_runs_table
from warmstart.sweep.sweep import SchemeName, SweepConfig, open_sweep, run_sweep

ALWAYS_RUN = ("probe", "scalar-mix")
"""schemes with a frozen backbone: they take seconds"""


class RaceConfig(SweepConfig):
    """Run every way to adapt on one task, on the same splits and seeds, and recommend the cheapest within the noise of the best."""

    schemes: tuple[SchemeName, ...] = ("full", "lp-ft", "discriminative", "lora", "houlsby", "bitfit")
    """ways to adapt each backbone, a+b combines two; probe and scalar-mix always run"""
    out: str = "runs/race"
    """folder of the run; with the folder of an earlier run, continue it"""
    labels: int | None = Field(None, gt=1)
    """number of training texts, a new stratified sample for each seed; default: all"""

    def fewest_labels(self) -> int | None:
        """The number of labelled texts."""
        return self.labels


def race(config: RaceConfig) -> RaceResult:
    """Run the trials that have no result yet, rank all methods, write the report; the ``race`` command."""
    sweep = open_sweep(config.model_copy(update={"schemes": (*ALWAYS_RUN, *config.schemes)}))
    task = sweep.task
    labels = len(subsample(task, config.labels, config.seed).train) if config.labels else len(task.train)
    runs = run_sweep(sweep, config.labels)
    ranking = sweep.rank(runs)
    if not ranking.methods and ranking.diverged:
        names = ", ".join(method.name for method in ranking.diverged)
        raise ModelError(f"at every learning rate that was tried, {names} diverged; use lower --learning-rates")
    if not ranking.methods:
        raise DataError(f"the budget of {config.budget} is too short for one trial of one model; use a longer --budget")
    result = RaceResult(task, labels, ranking, sweep.audit, constant_score(task))
    print_table(
        f"{task.name}: {task.metric} on {len(task.test)} test texts, {labels} labels", terminal_rows(result), TERMINAL_HEADER
    )
    for sentence in result.findings:
        console.print(sentence, markup=False)
    write_runs_table([(labels, ranking, runs)], sweep.folder)
    atomic_write(sweep.folder / "race.json", json.dumps(result.to_dict(), indent=1).encode())
    page = write_race_page(result, config, sweep.folder)
    console.print(f"all runs: {sweep.folder / 'runs.csv'}\nreport: {page}", markup=False)
    return result
