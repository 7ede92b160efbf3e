"""Fine-tuning on draws of labels, as a race does it where nothing is chosen; and files of what was measured, so that it is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.data.budget import LabelBudget
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.methods import learning_rates_for
from warmstart.experiment.trial import Method
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.model.model import swap_head
from warmstart.system.storage import atomic_write
from warmstart.tasks import task_type_of


def measured_once(file: Path, measure: Callable[[], Any]) -> Any:
    """What is in the JSON file, or what ``measure`` finds, which is kept there."""
    if not file.is_file():
        found = json.dumps(measure())
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, found.encode())
    return json.loads(file.read_text(encoding="utf-8"))


def remembered(bundle: Bundle) -> Callable[[Sequence[str]], np.ndarray]:
    """Texts -> (N, D), their vectors by a frozen model, which reads each text once."""
    if not isinstance(bundle.model.head, EmbeddingHead):
        bundle = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(pooling="mean"), 0).eval(), bundle.tokenizer)
    known = dict[str, np.ndarray]()

    def vectors(texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, embed(bundle, new).numpy() if new else [], strict=True))
        return np.array([known[text] for text in texts])

    return vectors


def rates_of(bundle: Bundle, scheme: str) -> tuple[float, ...]:
    """The learning rates of a race, first the one that is taken if nothing chooses."""
    size = sum(parameter.numel() for parameter in bundle.model.backbone.parameters())
    method = Method(name=scheme, family="adapted", scheme=scheme, backbone_parameters=size)
    return learning_rates_for(method, RaceConfig.model_fields["learning_rates"].default)


def fixed_accuracy(bundle: Bundle, encoded: EncodedTask, budget: LabelBudget, config: FineTuneConfig) -> float:
    """On the test texts, after fine-tuning with the labels of a draw at the first learning rate of a race."""
    (rate, *_), task = rates_of(bundle, config.scheme), encoded.task
    run = fine_tune_within(bundle, encoded, budget, config.at_learning_rate(rate), SelectionSettings("none"))
    return task_type_of(task).scores(task.test, run.final.test_predictions, task).score("accuracy")
