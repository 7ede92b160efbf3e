"""``adapt`` in several processes: results, scorings and the saved model are those of one; by every scheme, for every task type."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

from helpers.bundles import language_bundle
from helpers.models import SENTENCES
from helpers.processes import run_processes
from helpers.tasks import cats, tune, write_task
from warmstart.commands.adapt.command import adapt
from warmstart.data.task import Task
from warmstart.experiment.adaptation import AdaptConfig
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import fine_tune, task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.schemes import SCHEMES
from warmstart.model.files import save
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training import loop
from warmstart.training.distributed import world

CASES: dict[str, dict[str, Any]] = {
    "holdout": {"calibration_fraction": 0.5},
    "soup, dapt": {"labels": 20, "ensemble": "soup", "scratch": False, "baselines": False, "tune": tune("dapt+full", epochs=1)},
    "teacher": {"distil": {"teacher": "holdout-1", "pool": "pool.txt"}, "scratch": False, "baselines": False},
}
"""settings of an adaptation"""


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, a task and a pool."""
    monkeypatch.chdir(tmp_path)
    save(language_bundle(tokenizer), tmp_path / "lm")
    manifest = save_task(cats(), tmp_path / "task")
    manifest.write_text(f"{manifest.read_text()}unlabelled: ../pool.txt\n")
    (tmp_path / "pool.txt").write_text("\n\n".join(f"{sentence} {i * i}" for i in range(30) for sentence in SENTENCES))
    return tmp_path


def settings(out: str, **changes: Any) -> AdaptConfig:
    """A short run of two seeds."""
    short = {"model": "lm", "task": "task", "out": out, "seeds": 2, "tune": tune(epochs=1)}
    return AdaptConfig.build(short | changes)


def outcomes(place: Path) -> dict[str, Any]:
    """What each case gives, with a checkpoint after every step; each in a folder named by the number of processes."""
    os.chdir(place)
    loop.FIRST_CHECKPOINT, loop.CHECKPOINT_SHARE = 0.0, 1e9
    found = dict[str, Any]()
    for name, changes in CASES.items():
        result = adapt(settings(f"{name}-{world().size}", **changes))
        scores = {row.name: row.scores for row in result.comparison.rows}
        found[name] = scores, result.saved, result.ledger.scorings
    return found


@pytest.mark.journeys
def test_several_processes_adapt_as_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores, the choice of what is saved and its weights; each model is scored once, and the same files are left."""
    for name in ("FIRST_CHECKPOINT", "CHECKPOINT_SHARE"):
        monkeypatch.setattr(loop, name, getattr(loop, name))
    alone = outcomes(place)
    first, second = run_processes(2, place, outcomes, place, start="spawn", seconds=200)
    assert first == second
    scored = alone["teacher"][2]
    for name, (scores, saved, _) in alone.items():
        assert first[name][1] == saved, name
        assert first[name][2] == scored, f"{name}: the same models"
        for method, found in scores.items():
            np.testing.assert_allclose(first[name][0][method], found, atol=0.04, err_msg=f"{name}: {method}")  # one of 30 texts
        one, two = (place / f"{name}-{count}" for count in (1, 2))
        for file in (one / "bundle").rglob("weights.safetensors"):
            weights = load_file(two / file.relative_to(one))
            for key, tensor in load_file(file).items():
                assert_close(weights[key], tensor, atol=5e-4, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
        left = [{file.name for file in run.iterdir() if not file.name.startswith(".")} for run in (one, two)]
        assert left[0] == left[1]


Found = tuple[float, Any, dict[str, Tensor]]


def fine_tuned(tokenizer: Tokenizer, runs: dict[str, tuple[Task, dict[str, Any]]]) -> dict[str, Found]:
    """The validation score, the test predictions and the weights of each run; a batch of seven is no multiple of two."""
    found = dict[str, Found]()
    for name, (task, tuning) in runs.items():
        bundle, config = language_bundle(tokenizer), FineTuneConfig.build(tuning)
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


def tuning(scheme: str = "full", batch: int = 7, accumulate: int = 1, **changes: Any) -> dict[str, Any]:
    length = {"epochs": 2, "batch": batch, "accumulate": accumulate, "learning_rate": 1e-3}
    return {**tune(scheme, **length), "head_dropout": 0.2, "keep": "last", **changes}


@pytest.mark.journeys
def test_several_processes_fine_tune_as_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """By every scheme, for every task type, and for texts in windows; contrast also compares the batches of a step."""
    runs = {scheme: (cats(), tuning(scheme)) for scheme in SCHEMES if scheme != "dapt"}
    runs["contrast, two batches"] = cats(), tuning("contrast", batch=4, accumulate=2)
    for kind in TASK_TYPES:
        runs[kind] = load_task(write_task(tmp_path / kind, kind)), tuning()
    long = replace_texts(cats())
    runs["windows"] = long, tuning(windows="attention", window_overlap=0.25)
    runs["windows, frozen"] = long, tuning("probe", windows="mean")
    alone = fine_tuned(tokenizer, runs)
    for found in run_processes(2, tmp_path, partial(fine_tuned, tokenizer, runs), seconds=200):
        assert_same(alone, found)


def replace_texts(task: Task) -> Task:
    """Every third text is three times as long as the others, and longer than the model reads."""

    def longer(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(" ".join([text] * (3 if number % 3 == 0 else 1)) for number, text in enumerate(texts))

    parts = {name: getattr(task, name) for name in ("train", "validation", "test")}
    return replace(task, **{name: replace(part, texts=longer(part.texts)) for name, part in parts.items()})
