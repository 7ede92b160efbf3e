"""How honest and how good ``warmstart fit`` is: ``python -m benchmarks.fits [--sets NAME …] [--draws 20] [--labels 100]``.

Each cell is a user with some labels of a set, drawn at random, and 1,000 texts of it without labels: what ``fit`` expects of the
method that it chooses, and what each method, fitted to the same labels, is right on among 1,000 other texts, which choose nothing.
Cells are kept in ``runs/fits`` and resumed; the last lines are the table.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.draws import measured_once
from benchmarks.few_label_tasks import SETS, prepare

from warmstart.data.task import Task
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.fit import out_of_fold
from warmstart.experiment.fit_result import FROZEN_FOLDS, FitResult
from warmstart.experiment.sweep import open_sweep, run_sweep
from warmstart.seeding import rng
from warmstart.stats.formatting import percent, percent_value
from warmstart.system.console import console
from warmstart.tasks.load import load_task

DRAWN = tuple(name for name in SETS if not name.endswith("-train"))
"""the other sets share their texts with one of these"""
UNLABELLED = OTHERS = 1000
"""texts of the same training split, which is one population; the test split of some sets is another"""


def cell(name: str, draw: int, labels: int, encoders: Sequence[str], runs: Path) -> dict[str, Any]:
    """One user: the expected accuracy of what the fit chooses, and the true one of every method."""
    task = load_task(prepare(name, runs))
    order = np.split(rng(draw, f"labels of a user of {name}").permutation(len(task.train)), (labels, labels + UNLABELLED))
    mine, rest, others = (task.train.take(part[:OTHERS]) for part in order)
    names = [[task.labels[label] for label in part.labels] for part in (mine, others)]
    data = Task.from_lists([*mine.texts], names[0], test=([*others.texts], names[1]), unlabelled=[*map(str, rest.texts)])
    with tempfile.TemporaryDirectory() as folder:
        config = RaceConfig(task=data.name, backbones=encoders, scratch=False, schemes=(), selection="none", seeds=1, out=folder)
        sweep = open_sweep(config, data)
        sweep = replace(sweep, context=sweep.context.model_copy(update={"parts": FROZEN_FOLDS}))
        results = run_sweep(sweep, None)
        found = FitResult(data, UNLABELLED, out_of_fold(sweep, results), sweep.budget(None).choosing, sweep.audit)
        true = {one.name: results.results[results.of(one)[0]].score for one in sweep.methods}
    return {
        "set": name,
        "draw": draw,
        "labels": labels,
        "chosen": found.best.name,
        "expected": found.selected.expected._asdict(),
        "out_of_fold": {one.name: float(one.right.mean()) for one in found.candidates},
        "true": true,
        "seconds": {one.name: one.seconds for one in found.candidates},
    }


def table(cells: Sequence[dict[str, Any]]) -> str:
    """A row for each set, and the means over all."""
    header = ("set", "right on", "expected", "off by", "interval holds it", "width", "best of this draw", "best on average")
    lines = [f"| {' | '.join(header)} |", "| --- " * len(header) + "|"]
    names = [*dict.fromkeys(one["set"] for one in cells)]
    for name in (*names, "all"):
        mine = [one for one in cells if name in (one["set"], "all")]
        true = np.array([one["true"][one["chosen"]] for one in mine])
        expected = np.array([[one["expected"][key] for key in ("value", "low", "high")] for one in mine])
        held = int(((expected[:, 1] <= true) & (true <= expected[:, 2])).sum())
        best = np.mean([max(one["true"].values()) for one in mine])
        steady = np.mean([_steady(cells, one["set"])[one["draw"]] for one in mine])
        cells_of = (percent(true.mean()), percent(expected[:, 0].mean()), percent_value(float((expected[:, 0] - true).mean())),
                    f"{held} of {len(mine)}", percent_value(float((expected[:, 2] - expected[:, 1]).mean())),
                    percent_value(float(best - true.mean())), percent_value(float(steady - true.mean())))  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells_of)} |")
    return "\n".join(lines)


def _steady(cells: Sequence[dict[str, Any]], name: str) -> dict[int, float]:
    """By draw, the true accuracy of the one method that is best on average over the draws of a set."""
    mine = [one for one in cells if one["set"] == name]
    shared = set.intersection(*[{*one["true"]} for one in mine])
    best = max(shared, key=lambda method: float(np.mean([one["true"][method] for one in mine])))
    return {one["draw"]: one["true"][best] for one in mine}


def main() -> None:
    """Measure the cells that are missing, one draw of every set after the other, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fits", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    parser.add_argument("--sets", nargs="+", default=DRAWN, choices=SETS)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--encoders", nargs="*", default=["minilm"])
    asked = parser.parse_args()
    console.quiet = True
    cells = [
        measured_once(
            asked.runs / "fits" / f"{name}-{asked.labels}-{draw}.json",
            lambda name=name, draw=draw: cell(name, draw, asked.labels, asked.encoders, asked.runs),
        )
        for draw in range(asked.draws)
        for name in asked.sets
    ]
    print(table(cells))


if __name__ == "__main__":
    main()
