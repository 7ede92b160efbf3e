"""Does choosing learning rate and length by cross-validation pay with a hundred labels? On development sets, shortened.

``BACKBONE`` names the model (default: runs/wikitext-2), ``SCHEME`` the scheme (default: full). Each draw of labels trains with the
fixed settings that ``--selection none`` takes, and with those that 5-fold cross-validation chooses among a race's learning rates.
What was measured is kept in ``FOLDER`` (default: runs/fixed), so that the command can be stopped and started again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.draws import measured_once, rates_of
from benchmarks.few_label_tasks import SETS, shortened
from benchmarks.harness import table

from warmstart.data.budget import label_budget
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.stats.formatting import percent_value
from warmstart.stats.intervals import t_interval
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task
from warmstart.types import SelectionName

LABELS, DRAWS, WORDS = 100, 5, 20
LEVEL = 0.8
"""of a two-sided interval whose upper end is the one-sided 90% bound"""
WAYS: dict[SelectionName, int | None] = {"none": 1, "cross-validation": None}
"""how settings are chosen, and among how many learning rates; None: all"""
Scores = dict[str, float]
"""what was measured on one draw, by name"""
Measure = Callable[[Bundle, str, Path, int], Scores]
"""model, scheme, the task's manifest, the draw's seed"""


def one_draw(bundle: Bundle, scheme: str, manifest: Path, seed: int) -> Scores:
    """Both ways on the labels of one draw."""
    task, config, rates = load_task(manifest), FineTuneConfig.build({"scheme": scheme}), rates_of(bundle, scheme)
    encoded = EncodedTask.of(task, task_model(bundle, task, config, 0, scratch=False), bundle.tokenizer)
    found = Scores()
    for name, tried in WAYS.items():
        budget, choice = label_budget(task, LABELS, name, seed), SelectionSettings(name, rates[:tried])
        run = fine_tune_within(bundle, encoded, budget, config.at_learning_rate(rates[0]), choice)
        scores = task_type_of(task).scores(task.test, run.final.test_predictions, task)
        found |= {name: scores.score("accuracy"), f"seconds, {name}": run.seconds}
    return found


def draws_of_sets(what: str, measure: Measure, backbone: Path, scheme: str, draws: int) -> dict[str, list[Scores]]:
    """What ``measure`` finds in each draw of each development set; found once, and kept under the name of ``what`` it is."""
    folder, found = Path(os.environ.get("FOLDER", "runs/fixed")), dict[str, list[Scores]]()
    bundle = load_model(str(backbone))
    for seed in range(draws):
        for name in [name for name, one in SETS.items() if one.development]:
            manifest = folder / "short" / name / "task.yaml"
            if not manifest.is_file():
                shortened(name, folder, WORDS, (3000, 400))
            file = folder / f"{what}-{backbone.name}-{scheme}-{name}-{seed}.json"
            found.setdefault(name, []).append(measured_once(file, partial(measure, bundle, scheme, manifest, seed)))
    return found


def run() -> str:
    """Mean accuracy of both ways on each set, what the choice gains with its interval, and seconds."""
    backbone, scheme = Path(os.environ.get("BACKBONE", "runs/wikitext-2")), os.environ.get("SCHEME", "full")
    found = draws_of_sets("selection", one_draw, backbone, scheme, DRAWS)
    columns = [*WAYS, *(f"seconds, {way}" for way in WAYS)]
    rows = [(name, *(_shown(column, draws) for column in columns)) for name, draws in found.items()]
    gains = [float(np.mean([draws[seed]["cross-validation"] - draws[seed]["none"] for draws in found.values()]))
             for seed in range(DRAWS)]  # fmt: skip
    gain = t_interval(gains, LEVEL)
    sentence = (
        f"Cross-validation gains {percent_value(gain.mean)} points over fixed settings (mean over sets and {DRAWS} draws); the "
        f"upper 90% bound is {percent_value(gain.high)} points."
    )
    return table((f"{LABELS} labels, {scheme}", "fixed, %", "cross-validation, %", "fixed, s", "cross-validation, s"), rows) + (
        f"\n\n{sentence}"
    )


def _shown(column: str, draws: list[Scores]) -> str:
    mean = float(np.mean([one[column] for one in draws]))
    return f"{mean:.1f}" if column.startswith("seconds") else percent_value(mean)


if __name__ == "__main__":
    print(run())
