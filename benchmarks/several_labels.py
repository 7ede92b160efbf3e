"""What thresholds bring where a text may have several labels: a logistic regression of 200 texts, at a half and at thresholds.

    python -m benchmarks.several_labels TABLE.csv [ENCODER]

The table has the columns text and labels (``a|b``). Three draws of 200 texts; the last 600 score. With an encoder its frozen
vectors are read, otherwise words.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars
from benchmarks.harness import table

from warmstart.baselines import BASELINES
from warmstart.baselines.baseline import Vectors
from warmstart.baselines.choice import run_baseline
from warmstart.data.budget import label_budget
from warmstart.data.task import Task
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.model.model import swap_head
from warmstart.stats.formatting import percent_value
from warmstart.stats.scores import HALF, SHARED_FOR_ALL, SHARED_TEXTS, label_thresholds, without_label
from warmstart.tasks import task_type_of

LABELLED, SCORED, DRAWS = 200, 600, 3
METRICS = ("macro_f1", "micro_f1", "subset")


def vectors_of(encoder: str) -> Vectors:
    """Texts -> (N, D)."""
    bundle = load_model(encoder)
    reader = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(normalize=False), 0), bundle.tokenizer)
    return lambda inputs: np.asarray(embed(reader, inputs).double().numpy())


def measure(task: Task, vectors: Vectors | None, seed: int) -> dict[str, list[float]]:
    """Test scores by how thresholds are chosen."""
    name = "frozen vectors + logistic regression" if vectors else "TF-IDF + logistic regression"
    budget = label_budget(task, LABELLED, "cross-validation", seed)
    run = run_baseline(BASELINES[name], budget, (), vectors)
    ways: dict[str, float | np.ndarray] = {"a half": HALF}
    for what, shared in (("each its own", 0.0), ("`macro_f1`", SHARED_TEXTS), ("`micro_f1`", SHARED_FOR_ALL)):
        ways[what] = label_thresholds(run.choosing, budget.choosing.labels, shared)
    found = dict[str, list[float]]()
    for what, limits in ways.items():
        given = (run.test >= limits).astype(float)
        scores = task_type_of(task).scores(task.test, given, task)
        found[what] = [*(scores.score(one) for one in METRICS), float(1 - given.max(axis=1).mean())]
        print(seed, what, found[what], without_label(given), file=sys.stderr, flush=True)
    return found


def main(file: str, encoder: str = "") -> str:
    """The means over draws."""
    frame = polars.read_csv(file)
    labels = [[name for name in (cell or "").split("|") if name] for cell in frame["labels"]]
    texts, test = frame["text"].to_list(), slice(-SCORED, None)
    task = Task.from_lists(texts[:-SCORED], labels[:-SCORED], test=(texts[test], labels[test]), name=Path(file).stem)
    found = [measure(task, vectors_of(encoder) if encoder else None, seed) for seed in range(DRAWS)]
    means = {what: np.mean([one[what] for one in found], axis=0) for what in found[0]}
    rows = [[what, *map(percent_value, map(float, values))] for what, values in means.items()]
    return table(["thresholds", *METRICS, "texts without a label"], rows)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
