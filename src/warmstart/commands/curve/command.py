"""``warmstart curve``: scores by number of labels, what more labels would give, and where pretraining stops paying.

Every seed draws its own stratified subset of each size, the same for all methods, so that intervals also cover other choices of
texts. The number of labels counts everything labelled that anything looks at: settings are chosen within it.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator, Field

from warmstart.commands.curve.page import interval_header, interval_rows, write_curve_page
from warmstart.commands.curve.result import CurveResult
from warmstart.config import Advanced, Effectless
from warmstart.data.budget import SelectionName
from warmstart.errors import DataError
from warmstart.experiment.estimate import SweepEstimate
from warmstart.experiment.ranking import Ranking
from warmstart.experiment.store import write_runs_table
from warmstart.experiment.sweep import SchemeName, SweepConfig, estimate_only, open_sweep, run_sweep
from warmstart.system.console import console, print_table
from warmstart.system.storage import CURVE_FILE, atomic_write


def increasing(labels: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers themselves, if each is larger than the one before."""
    if list(labels) != sorted(set(labels)) or labels[0] < 2:
        raise ValueError(f"must be increasing numbers from 2 on; got {' '.join(map(str, labels))}")
    return labels


class CurveConfig(SweepConfig):
    """Measure the score by number of labels, predict it for more labels, and find where pretraining stops paying."""

    schemes: Annotated[tuple[SchemeName, ...], Field(min_length=1)] = ("lp-ft",)
    """ways to adapt each backbone, a+b combines two"""
    out: Effectless[str] = "runs/curve"
    """folder of the run; with the folder of an earlier run, continue it"""
    labels: Annotated[tuple[int, ...], Field(min_length=1), AfterValidator(increasing)] = (16, 32, 64, 128, 256, 512)
    """numbers of labelled texts, increasing: everything labelled that anything looks at"""
    target: Advanced[float | None] = Field(None, gt=0, lt=1)
    """a score to reach; default: half the error of the best method at the largest number of labels"""

    def numbers_of_labels(self) -> tuple[int | None, ...]:
        """The numbers of labelled texts."""
        return self.labels

    def selection_with(self, labels: int | None) -> SelectionName:
        """The same at every number of labels, so that points of the curve compare: that of the smallest."""
        return super().selection_with(self.labels[0])


def curve(config: CurveConfig) -> CurveResult | SweepEstimate:
    """Run the trials that have no result yet, compare the methods at each size, write the report; the ``curve`` command."""
    config = config.with_backbones()
    if config.estimate:
        return estimate_only(config)
    sweep = open_sweep(config)
    task = sweep.task
    runs = {}
    for labels in config.labels:
        console.print(f"\n{labels} labels")
        runs[labels] = run_sweep(sweep, labels)
    rankings = {labels: sweep.rank(found) for labels, found in runs.items()}
    _check_pretrained(config, rankings)
    complete = {labels: ranking for labels, ranking in rankings.items() if ranking.complete}
    incomplete = tuple(labels for labels in config.labels if labels not in complete)
    methods = dict.fromkeys(method for ranking in rankings.values() for method in ranking.diverged)
    diverged = {method: tuple(n for n, ranking in rankings.items() if method in ranking.diverged) for method in methods}
    ranked = {labels: ranking.methods for labels, ranking in complete.items()}
    drawn = any(ranking.drawn for ranking in complete.values())
    result = CurveResult(task, ranked, incomplete, diverged, config.target, sweep.audit, sweep.finish(), drawn)
    print_table(f"{task.name}: {task.metric} on {len(task.test)} test texts", interval_rows(result), interval_header(result))
    for sentence in result.findings:
        console.print(sentence)
    write_runs_table([(labels, runs[labels]) for labels in complete], sweep.folder)
    atomic_write(sweep.folder / CURVE_FILE, json.dumps(result.to_dict(), indent=1).encode())
    page = write_curve_page(result, config, sweep.folder)
    console.print(f"all runs: {sweep.folder / 'runs.csv'}\nreport: {page}")
    return result


def _check_pretrained(config: CurveConfig, rankings: dict[int, Ranking]) -> None:
    """Raise ``DataError`` if no pretrained method has a score at every number of labels."""
    complete = [ranking for ranking in rankings.values() if ranking.complete]
    if not complete and config.budget:
        raise DataError(
            f"the budget of {config.budget} is too short for all methods at one number of labels; use a longer --budget"
        )
    adapted = [{one.method for one in ranking.methods if one.method.family == "adapted"} for ranking in complete]
    if not adapted or not set.intersection(*adapted):
        names = dict.fromkeys(method.name for ranking in rankings.values() for method in ranking.diverged)
        diverged = f" ({', '.join(names)} diverged at every learning rate)" if names else ""
        raise DataError(
            f"a curve needs a pretrained method with a score at every number of labels, but there is none{diverged}; use lower "
            "--learning-rates"
        )
