"""What label names are worth with very few labels, on the sets of development: 0 to 500 labels, vectors of an imported encoder.

Every method chooses its settings within the labels, by cross-validation. With no label there is the name alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.draws import remembered
from benchmarks.few_label_tasks import shortened
from benchmarks.harness import table
from benchmarks.table import paragraph

from warmstart.baselines import BASELINES
from warmstart.baselines.baseline import Readable
from warmstart.baselines.choice import run_baseline
from warmstart.baselines.vectors import nearest_prototype, with_names
from warmstart.data.budget import label_budget
from warmstart.data.pool import task_pool
from warmstart.data.task import Task
from warmstart.interop.load import load_model
from warmstart.stats.formatting import percent
from warmstart.tasks.load import load_task

SETS: dict[str, dict[str, str]] = {
    "emotion": {},
    "20newsgroups-train": {},
    "r8": {
        "earn": "company earnings and dividends", "acq": "mergers and acquisitions of companies", "crude": "crude oil",
        "trade": "international trade", "money-fx": "money market and foreign exchange", "interest": "interest rates",
        "ship": "shipping", "grain": "grain and wheat",
    },
    "imdb-train": {"0": "a bad, boring film", "1": "a great, wonderful film"},
}  # fmt: skip
"""set of development -> descriptions of its labels, where their names are codes"""
LABELS, DRAWS = (8, 20, 50, 100, 500), 5
TEXTS, WORDS_OF_TEXT = (3000, 500), 60
"""training and test texts at most, and the words of each that are read"""
NAMELESS = "without names"
"""frozen vectors of the same texts, whose labels are numbers"""
VECTORS = ("frozen vectors", "frozen vectors + EM")
WORDS = ("majority", "TF-IDF + logistic regression", "naive Bayes + EM")


def run(runs: Path = Path("runs")) -> str:
    """A row for each set and number of labels."""
    rows = []
    for name, described in SETS.items():
        few = replace(load_task(shortened(name, runs, WORDS_OF_TEXT, TEXTS)), label_descriptions=described)
        vectors, pool = remembered(load_model(str(runs / "minilm"))), task_pool(few)
        budgets = {
            count: [label_budget(few, count, "cross-validation", seed) for seed in range(DRAWS)]
            for count in LABELS
            if count >= 2 * len(few.labels)
        }
        reading = with_names(Readable(few, few.train.texts, vectors=vectors))
        alone = percent(_accuracy(nearest_prototype(reading.names)(reading.rows(few.test.texts)), few))
        rows.append((f"{name}, 0 labels", alone, *["-"] * (1 + len(VECTORS) + len(WORDS))))
        for count, drawn in budgets.items():
            numbers = tuple(map(str, range(len(few.labels))))
            bare = [replace(one, whole=replace(one.whole, labels=numbers, label_descriptions={})) for one in drawn]
            found = [percent(_mean(VECTORS[0], bare, pool, vectors))]
            found += [percent(_mean(method, drawn, pool, vectors)) for method in (*VECTORS, *WORDS)]
            rows.append((f"{name}, {count} labels", alone, *found))
    said = (
        f"Accuracy on {TEXTS[1]} test texts, mean over {DRAWS} draws of labels; the first {WORDS_OF_TEXT} words of each text, at "
        f"most {TEXTS[0]:,} training texts, of which those without labels are the pool; all sets are sets of development, and "
        "labels that are codes are described. Where names alone are below majority or naive Bayes with EM, they are no substitute "
        "for a few labels."
    )
    return "\n\n".join([table(("set", "names alone", NAMELESS, *VECTORS, *WORDS), rows), paragraph(said)])


def _mean(method: str, budgets: Sequence[Any], pool: Any, vectors: Callable[..., np.ndarray]) -> float:
    found = [run_baseline(BASELINES[method], budget, pool.without(budget).texts, vectors) for budget in budgets]
    return float(np.mean([_accuracy(one.test, budget.whole) for one, budget in zip(found, budgets, strict=True)]))


def _accuracy(predictions: np.ndarray, task: Task) -> float:
    return float((predictions.argmax(axis=1) == task.test.labels).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.label_names", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    print(run(parser.parse_args().runs))
