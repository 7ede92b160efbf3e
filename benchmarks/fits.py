"""How good and how honest ``fit`` is: ``python -m benchmarks.fits [--sets NAME …] [--draws 3] [--labels 100 …] [--encoders …]``.

Each cell is a user with some labels of a set, drawn at random, who fits and then predicts 1,000 other texts of the same training
split, which choose nothing. It compares what the fit said with what is true: accuracy and its range, the mean probability of
answers, how many are answered alone and how many of those are wrong; and says how long the fit took the processor. The minutes are
not limited, so that a busy machine leaves nothing out. Cells are kept in ``--runs`` and resumed; the last lines are the table.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.draws import measured_once
from benchmarks.few_label_tasks import SETS, prepare

import warmstart as ws
from warmstart.seeding import rng
from warmstart.stats.formatting import percent
from warmstart.system.console import console
from warmstart.tasks.load import load_task

DEVELOPMENT = tuple(name for name, one in SETS.items() if one.development)
OTHERS = 1000
"""texts of the training split that nobody labels; the test split of some sets is another population"""
MINUTES = 60.0


def processor_seconds() -> float:
    """Of this process and its children."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def cell(name: str, draw: int, labels: int, encoders: Sequence[str], pool: int, runs: Path) -> dict[str, Any]:
    """One user: what the fit says, and what is true."""
    task = load_task(prepare(name, runs))
    rest, others = np.split(rng(0, f"others of {name}").permutation(len(task.train)), [-OTHERS])
    mine, unlabelled = np.split(rng(draw, f"labels of a user of {name}").permutation(rest), [labels])
    texts, truth = ([*task.train.take(others).texts], task.train.labels[others])
    known = task.train.take(np.sort(mine))
    start = processor_seconds()
    result = ws.fit(
        [*known.texts], [task.labels[label] for label in known.labels], encoders=encoders, minutes=MINUTES,
        unlabelled=[*map(str, task.train.take(unlabelled[:pool]).texts)],
    )  # fmt: skip
    seconds = processor_seconds() - start
    said = {
        "set": name, "draw": draw, "labels": labels, "seconds": seconds, "chosen": result.best.name,
        "range": [*result.expected], "learned": result.model is not None,
    }  # fmt: skip
    if result.model is None:
        return said
    probabilities = np.asarray(ws.predict(result.model, texts).probabilities)
    columns = [result.model.labels.index(one) if one in result.model.labels else -1 for one in task.labels]
    right = probabilities.argmax(axis=1) == np.array(columns)[truth]
    confidence = probabilities.max(axis=1)
    alone = confidence.round(6) >= (result.alone.threshold if result.alone else np.inf)
    return said | {
        "accuracy": float(right.mean()), "confidence": float(confidence.mean()),
        "answered": float(alone.mean()), "wrong": float((~right[alone]).mean()) if alone.any() else 0.0,
        "answered_said": result.alone.answered / result.alone.examples if result.alone else 0.0,
    }  # fmt: skip


Cell = dict[str, Any]
COLUMNS: dict[str, Callable[[Sequence[Cell]], str]] = {
    "users": lambda cells: str(len(cells)),
    "processor seconds": lambda cells: f"{_mean(cells, lambda one: one['seconds']):.0f}",
    "right on": lambda cells: percent(_mean(cells, lambda one: one["accuracy"])),
    "expected": lambda cells: percent(_mean(cells, lambda one: one["range"][0])),
    "range holds it": lambda cells: str(sum(one["range"][1] <= one["accuracy"] <= one["range"][2] for one in cells)),
    "width": lambda cells: percent(_mean(cells, lambda one: one["range"][2] - one["range"][1])),
    "probability less accuracy": lambda cells: f"{100 * _mean(cells, lambda one: one['confidence'] - one['accuracy']):+.1f}",
    "answers alone: said": lambda cells: percent(_mean(cells, lambda one: one["answered_said"])),
    "true": lambda cells: percent(_mean(cells, lambda one: one["answered"])),
    "over 5% of them wrong": lambda cells: f"{sum(one['wrong'] > 0.05 for one in cells)} of {len(_alone(cells))}",
}  # fmt: skip


def _alone(cells: Sequence[Cell]) -> list[Cell]:
    return [one for one in cells if one["answered"] > 0]


def _mean(cells: Sequence[Cell], figure: Callable[[Cell], float]) -> float:
    return float(np.mean([figure(one) for one in cells]))


def table(cells: Sequence[Cell]) -> str:
    """A row for each set and number of labels, and for each number of labels the mean."""
    lines = [f"| set | labels | {' | '.join(COLUMNS)} |", "| --- " * (len(COLUMNS) + 2) + "|"]
    learned = [one for one in cells if one["learned"]]
    for labels in sorted({one["labels"] for one in learned}):
        of_labels = [one for one in learned if one["labels"] == labels]
        for name in (*dict.fromkeys(one["set"] for one in of_labels), "all"):
            mine = [one for one in of_labels if name in (one["set"], "all")]
            lines.append(f"| {name} | {labels} | {' | '.join(figure(mine) for figure in COLUMNS.values())} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the cells that are missing, one draw of every set after the other, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fits", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    parser.add_argument("--sets", nargs="+", default=DEVELOPMENT, choices=SETS)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--labels", type=int, nargs="+", default=[100])
    parser.add_argument("--encoders", nargs="*", default=["minilm"])
    parser.add_argument("--unlabelled", type=int, default=0, help="texts without labels")
    asked = parser.parse_args()
    console.quiet = True
    folder = asked.runs / "fits" / ("-".join(asked.encoders) or "words")
    cells = [
        measured_once(
            folder / f"{name}-{labels}-{asked.unlabelled}-{draw}.json",
            partial(cell, name, draw, labels, asked.encoders, asked.unlabelled, asked.runs),
        )
        for draw in range(asked.draws)
        for labels in asked.labels
        for name in asked.sets
    ]
    print(table(cells))


if __name__ == "__main__":
    main()
