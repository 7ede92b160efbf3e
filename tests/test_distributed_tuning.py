"""Several processes fine-tune as one does: by every scheme, for every task type."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.bundles import language_bundle
from helpers.processes import run_processes
from helpers.tasks import cats, tune, write_task
from warmstart.data.task import Task
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.finetune import fine_tune, task_model
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.finetuning.schemes import SCHEMES
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import load_task
from warmstart.tokenizer.tokenizer import Tokenizer

Found = tuple[float, Any, dict[str, Tensor]]


def fine_tuned(tokenizer: Tokenizer, runs: dict[str, tuple[Task, dict[str, Any]]]) -> dict[str, Found]:
    """The validation score, the test predictions and the weights of each run; a batch of seven is no multiple of two."""
    found = dict[str, Found]()
    for name, (task, settings) in runs.items():
        bundle, config = language_bundle(tokenizer), FineTuneConfig.build(settings)
        model = task_model(bundle, task, config, 0, scratch=False)
        encoded = EncodedTask.of(task, model, tokenizer)
        result = fine_tune(model, encoded, config, 0, "", LanguageTask.of(bundle))
        weights = {key: tensor.detach().clone() for key, tensor in result.model.weights().items()}
        found[name] = result.validation_score, result.test_predictions, weights
    return found


def assert_same(alone: dict[str, Found], found: dict[str, Found]) -> None:
    for name, (score, predictions, weights) in alone.items():
        assert found[name][0] == pytest.approx(score, abs=1e-3), name
        if isinstance(predictions, np.ndarray) and predictions.dtype != object:  # those of taggers differ in length
            np.testing.assert_allclose(found[name][1], predictions, atol=1e-3, err_msg=name)
        for key, tensor in weights.items():
            if name in ("multiple-choice", "span") and key == "head.score.bias":
                continue  # it changes no choice: its gradient is what rounding leaves of zero, which AdamW makes a whole step
            torch.testing.assert_close(
                tensor, found[name][2][key], atol=5e-4, rtol=1e-3, msg=lambda text, where=f"{name} {key}": f"{where}: {text}"
            )


def settings(scheme: str = "full", batch: int = 7, accumulate: int = 1, **changes: Any) -> dict[str, Any]:
    length = {"epochs": 2, "batch": batch, "accumulate": accumulate, "learning_rate": 1e-3}
    return {**tune(scheme, **length), "head_dropout": 0.2, "keep": "last", **changes}


@pytest.mark.journeys
def test_several_processes_fine_tune_as_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """By every scheme, for every task type, and for texts in windows; contrast also compares the batches of a step."""
    runs = {scheme: (cats(), settings(scheme)) for scheme in SCHEMES if scheme != "dapt"}
    runs["contrast, two batches"] = cats(), settings("contrast", batch=4, accumulate=2)
    for kind in TASK_TYPES:
        runs[kind] = load_task(write_task(tmp_path / kind, kind)), settings()
    long = replace_texts(cats())
    runs["windows"] = long, settings(windows="attention", window_overlap=0.25)
    runs["windows, frozen"] = long, settings("probe", windows="mean")
    alone = fine_tuned(tokenizer, runs)
    for found in run_processes(2, tmp_path, partial(fine_tuned, tokenizer, runs)):
        assert_same(alone, found)


def replace_texts(task: Task) -> Task:
    """Every third text is three times as long as the others, and longer than the model reads."""

    def longer(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(" ".join([text] * (3 if number % 3 == 0 else 1)) for number, text in enumerate(texts))

    parts = {name: getattr(task, name) for name in ("train", "validation", "test")}
    return replace(task, **{name: replace(part, texts=longer(part.texts)) for name, part in parts.items()})
