"""What a fine-tuning run trains on: batches, their loss, and predictions for the validation split.

Letters: B batch, N texts, L layers, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warmstart.data.batches import labelled_batches, paired_batches
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.contrast import Contrast, ContrastiveLoss
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.features import logits_from_features, predict_from_features
from warmstart.finetuning.language_loss import (
    LanguageBatch,
    LanguageTask,
    language_batch_loss,
    mean_targets,
    with_language_batches,
)
from warmstart.finetuning.soft_labels import SoftBatch, SoftTexts
from warmstart.finetuning.task_loss import TaskLoss, class_weights, task_loss
from warmstart.model.model import Model
from warmstart.tasks import task_type_of
from warmstart.tasks.task_type import head_loss
from warmstart.types import Batch


@dataclass(frozen=True)
class TrainingInputs:
    """The batches of a run, the loss of each, and how the validation split is predicted."""

    batches: Callable[[int], list[Batch]]
    """the batches of a step"""
    loss: Callable[[Batch], Tensor]
    """the summed loss of a batch's targets"""
    predict_validation: Callable[[], Any]
    """predictions for the validation split, by the present weights"""
    prepare: Callable[[Sequence[Batch]], Sequence[Batch]] | None = None
    """what reads all batches of a step before the loss of each is computed"""

    @classmethod
    def from_texts(cls, model: Model, encoded: EncodedTask, config: FineTuneConfig, seed: int) -> TrainingInputs:
        """The whole model reads the texts at every step."""
        loss_of = _task_loss(encoded, config, model)
        plain = config.class_weights == "none" and not config.label_smoothing

        def loss(batch: Batch) -> Tensor:
            assert batch.targets is not None
            if plain:
                return model.loss(batch)
            return loss_of(model(batch.ids, batch.attention_mask, batch.token_type_ids, batch.windows), batch.targets)

        task_type, size = task_type_of(encoded.task), (config.train.batch, config.train.accumulate)
        batches = task_type.batches(encoded.task.train, encoded.train, size, seed, encoded.pad_id, causal=model.causal)
        predict = partial(task_type.predict, model, encoded.validation, encoded.pad_id, config.train.precision)
        return cls(batches, loss, predict)

    @classmethod
    def from_features(cls, model: Model, encoded: EncodedTask, config: FineTuneConfig, seed: int) -> TrainingInputs:
        """The same texts in the same order, but by the features of the frozen backbone: batches carry the indices of texts."""
        device = next(model.parameters()).device
        training, validation = encoded.features.get_each(model, (encoded.train, encoded.validation), encoded.pad_id)
        labels = torch.from_numpy(encoded.task.train.labels).to(device)
        loss_of = _task_loss(encoded, config, model)

        def loss(batch: Batch) -> Tensor:
            assert batch.targets is not None
            texts = batch.targets.cpu().numpy()
            features = training[torch.from_numpy(encoded.train.rows_of(texts)).to(device)]
            return loss_of(logits_from_features(model, features, encoded.train.windows_of(texts)), labels[batch.targets])

        size, indices = (config.train.batch, config.train.accumulate), np.arange(len(encoded.train))
        batches = labelled_batches(encoded.train, indices, size, seed, encoded.pad_id, causal=model.causal)
        return cls(batches, loss, partial(predict_from_features, model, validation, encoded.validation.windows))

    def with_contrast(
        self, model: Model, encoded: EncodedTask, config: FineTuneConfig, contrast: Contrast, seed: int
    ) -> TrainingInputs:
        """The same texts, in batches with two of each of their classes, with the contrastive loss beside the head's."""
        both = ContrastiveLoss(model, contrast, _task_loss(encoded, config, model))
        size = (config.train.batch, config.train.accumulate)
        batches = paired_batches(encoded.train, encoded.task.train.labels, size, seed, encoded.pad_id, causal=model.causal)
        return replace(self, batches=batches, loss=both.loss, prepare=both.prepare)

    def with_language_loss(
        self, model: Model, encoded: EncodedTask, language: LanguageTask, weight: float, seed: int
    ) -> TrainingInputs:
        """The same, with the language-model loss of each batch's texts."""
        factor = weight / (encoded.train.rows_per_example.mean() * mean_targets(language, encoded.train.rows, model))

        def loss(batch: Batch) -> Tensor:
            return factor * language_batch_loss(model, batch) if isinstance(batch, LanguageBatch) else self.loss(batch)

        return replace(self, batches=with_language_batches(self.batches, language, model, seed), loss=loss)

    def with_teacher(self, model: Model, soft: SoftTexts, size_and_seed: tuple[int, int], pad_id: int) -> TrainingInputs:
        """The same, with a teacher's probabilities for texts of the pool beside each batch."""

        def loss(batch: Batch) -> Tensor:
            return soft.loss(model, batch) if isinstance(batch, SoftBatch) else self.loss(batch)

        return replace(self, batches=soft.follow(self.batches, model, size_and_seed, pad_id), loss=loss)


def _task_loss(encoded: EncodedTask, config: FineTuneConfig, model: Model) -> TaskLoss:
    """The summed loss of logits against targets: the head's own, or weighted and smoothed if each text has one label."""
    task, device = encoded.task, next(model.parameters()).device
    if not task_type_of(task).one_label:
        return partial(head_loss, model)
    weights = class_weights(task.train.labels, len(task.labels)).to(device) if config.class_weights == "balanced" else None
    return task_loss(weights, config.label_smoothing)
