"""How long to train on a hundred labels: test accuracy and log loss after runs of several lengths, on development sets, shortened.

``BACKBONE`` names the model (default: runs/wikitext-2), ``SCHEME`` the scheme (default: full). Each run has the learning rate that
``--selection none`` takes. What was measured is kept in ``FOLDER`` (default: runs/fixed).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from benchmarks.draws import rates_of
from benchmarks.fixed_settings import LABELS, Scores, draws_of_sets
from benchmarks.harness import table

from warmstart.data.budget import label_budget
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.model.bundle import Bundle
from warmstart.stats.calibration import log_losses
from warmstart.stats.formatting import percent_value
from warmstart.tasks.load import load_task

STEPS, DRAWS = (60, 100, 200), 3


def one_draw(bundle: Bundle, scheme: str, manifest: Path, seed: int) -> Scores:
    """Accuracy, log loss and seconds after each length, on the labels of one draw."""
    task, config = load_task(manifest), FineTuneConfig.build({"scheme": scheme}).at_learning_rate(rates_of(bundle, scheme)[0])
    encoded = EncodedTask.of(task, task_model(bundle, task, config, 0, scratch=False), bundle.tokenizer)
    found = Scores()
    for steps in STEPS:
        length = config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})
        run = fine_tune_within(bundle, encoded, label_budget(task, LABELS, "none", seed), length, SelectionSettings("none"))
        predicted = run.final.test_predictions
        found[f"{steps} steps, accuracy"] = float((predicted.argmax(axis=1) == task.test.labels).mean())
        found[f"{steps} steps, log loss"] = float(log_losses(predicted, task.test.labels).mean())
    return found


def run() -> str:
    """One row per set and one for their mean: accuracy and log loss of every length."""
    backbone, scheme = Path(os.environ.get("BACKBONE", "runs/wikitext-2")), os.environ.get("SCHEME", "full")
    found = draws_of_sets("length", one_draw, backbone, scheme, DRAWS)
    columns = [f"{steps} steps, {what}" for what in ("accuracy", "log loss") for steps in STEPS]
    means = {name: {column: float(np.mean([one[column] for one in draws])) for column in columns} for name, draws in found.items()}
    overall = {column: float(np.mean([one[column] for one in means.values()])) for column in columns}
    header = (f"{LABELS} labels, {scheme}", *columns)
    return table(header, [(name, *_shown(one)) for name, one in (means | {"mean": overall}).items()])


def _shown(values: Mapping[str, float]) -> list[str]:
    return [percent_value(value) if column.endswith("accuracy") else f"{value:.2f}" for column, value in values.items()]


if __name__ == "__main__":
    print(run())
