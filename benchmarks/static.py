"""What word vectors keep of an encoder with 100 labels, on the sets of development: ``python -m benchmarks.static [--encoder e5]``.

The vectors are learned from the training texts, of which all but 100 have no label.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from benchmarks.draws import remembered
from benchmarks.few_label_tasks import SETS, shortened
from benchmarks.harness import table

from warmstart.baselines import BASELINES
from warmstart.baselines.choice import run_baseline
from warmstart.data.budget import label_budget
from warmstart.interop.load import load_model
from warmstart.interop.static import static
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.stats.formatting import percent
from warmstart.tasks.load import load_task

LABELS, DRAWS, WORDS = 100, 3, 30
FROZEN = "frozen vectors"


def run(name: str, runs: Path = Path("runs")) -> str:
    """A row for each set and kind of vectors."""
    encoder, rows = load_model(name), []
    for one in (one for one, kept in SETS.items() if kept.development):
        task = load_task(shortened(one, runs))
        texts = [*task.train.texts, *task.validation.texts]
        small = static(encoder, texts)
        budgets = [label_budget(task, LABELS, "cross-validation", seed) for seed in range(DRAWS)]

        def score(method: str, vectors: object = None, budgets: object = budgets, truth: np.ndarray = task.test.labels) -> str:
            found = [run_baseline(BASELINES[method], budget, (), vectors).test for budget in budgets]
            return percent(float(np.mean([(one.argmax(axis=1) == truth).mean() for one in found])))

        short = [" ".join(text.split()[:WORDS]) for text in texts]
        rows.append((f"{one}, TF-IDF", score("TF-IDF + logistic regression"), "-", "-"))
        for kind, bundle, some in (("encoder", encoder, short[:200]), ("static", small.bundle, short)):
            vectors = remembered(bundle)
            near = f"{small.cosine:.2f}" if kind == "static" else "-"
            rows.append((f"{one}, {kind}", score(FROZEN, vectors), speed(bundle, some), near))
    return table(("vectors", "accuracy", "texts/s on a core", "cosine"), rows)


def speed(bundle: Bundle, texts: list[str]) -> str:
    """Texts of 30 words a second of processor time, tokens included."""
    embed(bundle, texts[:100])
    started = time.process_time()
    embed(bundle, texts)
    return f"{len(texts) / (time.process_time() - started):,.0f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.static", description=__doc__)
    parser.add_argument("--encoder", default="minilm", help="its name or folder")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    given = parser.parse_args()
    print(run(given.encoder, given.runs))
