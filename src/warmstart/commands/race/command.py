"""The race: every way to adapt, on the same splits, seeds and budget, and the cheapest within the noise of the best.

Which method is called the best is decided on the validation split; the test split serves the report alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars
from pydantic import Field

from warmstart.commands.race.page import race_page
from warmstart.commands.race.result import Race
from warmstart.console import console, print_table
from warmstart.data.task import subsample
from warmstart.errors import DataError, ModelError
from warmstart.storage import atomic_write
from warmstart.sweep.ranking import Standing
from warmstart.sweep.sweep import HeatsConfig, Ran, Scheme, line_up, open_heats, run_heats

LADDER = ("probe", "scalar-mix")
"""frozen backbones always run: they cost seconds"""


class RaceConfig(HeatsConfig):
    """Run every way to adapt on one task, on the same splits and seeds, and name the cheapest within the noise of the best."""

    schemes: tuple[Scheme, ...] = ("full", "lp-ft", "discriminative", "lora", "houlsby", "bitfit")
    """ways to adapt each backbone, a+b does both; probe and scalar-mix always run"""
    out: str = "runs/race"
    """folder of the run; the same folder goes on where it stopped"""
    labels: int | None = Field(None, gt=1)
    """training texts, drawn anew by each seed, stratified; default: all"""

    def fewest(self) -> int | None:
        """The number of labelled texts."""
        return self.labels


def race(config: RaceConfig) -> Race:
    """Run what is not done yet, and report how all stand; the ``race`` command."""
    heats = open_heats(config.model_copy(update={"schemes": (*LADDER, *config.schemes)}))
    task = heats.task
    count = len(subsample(task, config.labels, config.seed).train) if config.labels else len(task.train)
    ran = run_heats(heats, config.labels)
    line = line_up(heats, ran)
    if not line.standings and line.diverged:
        raise ModelError(f"at every rate that was tried {', '.join(line.diverged)} diverged; give lower --rates")
    if not line.standings:
        raise DataError(f"the budget of {config.budget} did not suffice for one run of one model; give more")
    result = Race(task, count, line.standings, line.missing, line.diverged, line.seeds, heats.found)
    print_table(f"{task.name}: {task.metric} on {len(task.test)} test texts, {count} labels", result.short(), result.SHORT)
    for sentence in result.sentences():
        console.print(sentence, markup=False)
    keep_runs([(count, line.standings, ran)], heats.folder)
    atomic_write(heats.folder / "race.json", json.dumps(result.to_dict(), indent=1).encode())
    page = race_page(result, config, heats.folder)
    console.print(f"every run: {heats.folder / 'runs.csv'}\nreport: {page}", markup=False)
    return result


def keep_runs(heats: list[tuple[int, Sequence[Standing], Ran]], folder: Path) -> None:
    """Write all runs as one tidy table, ``runs.csv``: one row a run, for each (labels, standings, runs)."""
    rows = [row for labels, standings, ran in heats for row in _tidy(labels, standings, ran)]
    atomic_write(folder / "runs.csv", polars.DataFrame(rows, infer_schema_length=None).write_csv().encode())


def _tidy(labels: int, standings: Sequence[Standing], ran: Ran) -> Iterator[dict[str, Any]]:
    chosen = {standing.entrant: standing.rate for standing in standings}
    for cell in ran.cells:
        if run := ran.done.get(str(cell)):
            yield {
                "method": cell.entrant.name,
                "kind": cell.entrant.kind,
                "scheme": cell.entrant.scheme,
                "backbone": cell.entrant.backbone,
                "labels": labels,
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
                "diverged": run.diverged,
                "note": run.note,
            }
