"""Two tiny tasks on one tiny backbone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers.bundles import language_bundle
from helpers.models import SENTENCES, make_backbone
from helpers.tasks import cats
from warmstart.data.encode import collate
from warmstart.data.task import Split, Task
from warmstart.finetuning.task_suite import MultitaskModel, TaskBatch
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.model.files import save
from warmstart.model.model import fresh_head
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer


def multitask_model(classes: tuple[int, ...] = (2, 3)) -> MultitaskModel:
    backbone = make_backbone()
    heads = [fresh_head(ClassificationHeadConfig(classes=count), backbone, number) for number, count in enumerate(classes)]
    return MultitaskModel(backbone, heads, causal=False)


def task_batch(task: int, labels: list[int], seed: int = 0) -> TaskBatch:
    rows = list(np.random.default_rng(seed).integers(5, 60, (len(labels), 6)))
    return TaskBatch.of(collate(rows, np.array(labels), 0, causal=False), task=task)


def who() -> Task:
    """Sentences like those about cats, labelled by who does it: three classes."""
    base = cats(5)

    def relabelled(split: Split) -> Split:
        return Split(split.texts, np.array([0 if t.startswith("She") else 1 if t.startswith("He") else 2 for t in split.texts]))

    splits = {name: relabelled(split) for name, split in base.splits().items()}
    return replace(base, name="who", labels=("she", "he", "they"), **splits)


def write_inputs(folder: Path, tokenizer: Tokenizer) -> Path:
    """A language model, both tasks and a text, in ``folder``."""
    save_task(cats(), folder / "cats")
    save_task(who(), folder / "who")
    save(language_bundle(tokenizer), folder / "lm")
    (folder / "text.txt").write_text("\n\n".join(SENTENCES * 20))
    return folder


def task_settings(folder: Path, **changes: object) -> dict[str, object]:
    given = {
        "model": str(folder / "lm"),
        "tasks": [str(folder / "cats"), str(folder / "who")],
        "seeds": 2,
        "out": str(folder / "run"),
    }
    return given | {"train": {"epochs": 2, "batch": 8, "learning_rate": 5e-3, "precision": "float32"}} | changes
