"""What models of several objectives are worth with few labels, on the sets of development (few_label_tasks.py).

The models are those of ``study objectives`` in ``runs/tables/objectives``, which read texts of these sets. Each is adapted, whole
and frozen, with the fixed settings of a race. Models of one number have the same draw of labels. A run is kept in
``runs/tables/objectives-adapted``, and not measured again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from benchmarks.draws import fixed_accuracy, measured_once
from benchmarks.few_label_tasks import prepare
from benchmarks.harness import table
from benchmarks.table import paragraph

from warmstart.data.budget import label_budget
from warmstart.data.splits import stratified_sample
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.interop.load import load_model
from warmstart.stats.formatting import percent, percent_interval
from warmstart.stats.intervals import t_interval
from warmstart.tasks.load import load_task

OBJECTIVES = ("causal", "masked", "hybrid", "detect")
SETS = ("r8", "emotion", "20newsgroups-train", "imdb-train")
CASES = tuple((name, 100) for name in SETS)
"""(set, labels)"""
SCHEMES = {"full": "fine-tuned", "probe": "frozen"}
MODELS, TEXTS = 3, 500
STUDY = Path("tables") / "objectives"


def run(runs: Path = Path("runs")) -> str:
    """A row for each scheme, set and number of labels, and the mean over them."""
    rows = []
    for scheme, shown in SCHEMES.items():
        found = np.array(
            [[[accuracy(runs, case, model, scheme) for model in _models(name)] for name in OBJECTIVES] for case in CASES]
        )
        rows += [
            (f"{name}, {labels} labels", shown, *map(percent, each.mean(axis=1)))
            for (name, labels), each in zip(CASES, found, strict=True)
        ]
        ends = [t_interval(values.tolist()) for values in found.mean(axis=0)]
        rows.append(("**mean**", shown, *(percent_interval(one.mean, one.low, one.high) for one in ends)))
    said = (
        f"Accuracy on {TEXTS} test texts, mean over {MODELS} models of each objective, with a draw of labels for each, all that "
        f"anything looked at; the intervals of the means are over the {MODELS} models. All sets are sets of development."
    )
    return "\n\n".join([table(("", "backbone", *OBJECTIVES), rows), paragraph(said)])


def _models(objective: str) -> list[tuple[str, int]]:
    return [*product((objective,), range(MODELS))]


def accuracy(runs: Path, case: tuple[str, int], model: tuple[str, int], scheme: str) -> float:
    """Of one model after adaptation: measured, or read if it was measured before."""
    (name, labels), (objective, seed) = case, model

    def measure() -> float:
        task = load_task(prepare(name, runs))
        task = replace(task, test=task.test.take(stratified_sample(task.test.labels, TEXTS, 0)))
        bundle, config = load_model(str(runs / STUDY / "models" / f"{objective}-{seed}")), FineTuneConfig.build({"scheme": scheme})
        budget = label_budget(task, labels, "none", seed)
        encoded = EncodedTask.of(task, task_model(bundle, task, config, seed, scratch=False), bundle.tokenizer)
        return fixed_accuracy(bundle, encoded, budget, config)

    return float(measured_once(runs / f"{STUDY}-adapted" / f"{name}-{labels}-{objective}-{seed}-{scheme}.json", measure))


if __name__ == "__main__":
    print(run())
