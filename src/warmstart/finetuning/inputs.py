"""Inputs of a fine-tuning run: a task as token ids, the head's first weights, batches, their loss, and predictions for validation.

Letters: B batch, N texts, L layers, D width, C classes, R token ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.adapters.insertion import inserted_adapters
from warmstart.adapters.scalar_mix import ScalarMix
from warmstart.backbone.backbone import EMBEDDING_MODULES
from warmstart.baselines.vectors import class_sums, held_out_scale, nearest_prototype
from warmstart.data.batches import labelled_batches, paired_batches
from warmstart.data.budget import Fold, LabelBudget
from warmstart.data.encode import Encoded
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Task
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import (
    FeatureCache,
    head_inputs,
    logits_from_features,
    pooled_layers,
    predict_from_features,
    row_keys,
    steady,
    tensors_digest,
)
from warmstart.finetuning.losses import (
    Contrast,
    ContrastiveLoss,
    LanguageBatch,
    LanguageTask,
    TaskLoss,
    class_weights,
    language_batch_loss,
    mean_targets,
    task_loss,
    with_language_batches,
)
from warmstart.heads.per_text import ClassificationHead
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.seeding import rng
from warmstart.system.array_store import ArrayStore
from warmstart.tasks import task_type_of
from warmstart.tasks.task_type import head_loss
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

KEPT_BYTES = 2**28
"""most bytes of states: 4,000 texts of 40 tokens at width 384"""


def frozen_blocks(model: Model) -> int:
    """The number of lowest blocks that give each text the same states throughout; 0 too where a scalar mix reads all of them."""
    backbone = model.backbone
    below = [getattr(backbone, name) for name in EMBEDDING_MODULES]
    if model.drops or any(isinstance(child, ScalarMix) for child in backbone.children()) or any(map(_trains, below)):
        return 0
    return next((number for number, block in enumerate(backbone.blocks) if _trains(block)), 0)


def _trains(module: nn.Module | None) -> bool:
    return module is not None and any(parameter.requires_grad for parameter in module.parameters())


class LowerStates:
    """States of texts by one backbone, the latest that was asked for. They are float32, whatever the precision of training."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.limit = limit
        self.texts_computed = 0
        self._digest = ""
        self._known: dict[bytes, Tensor] = {}
        """(T, D) by a hash of a text's tokens"""

    def added(self, model: Model, splits: Sequence[Encoded], pad_id: int) -> list[Encoded]:
        """The splits, each with its states if some blocks are frozen, and if they fit beside those of the splits before it."""
        blocks, room, sizes = frozen_blocks(model), self.limit, dict[int, int]()
        for number, encoded in enumerate(splits):
            size = 4 * model.backbone.config.width * sum(map(len, encoded.rows))
            if blocks and 0 < size <= room:
                sizes[number], room = size, room - size
        if not sizes:
            return list(splits)
        keys = {number: row_keys(splits[number]) for number in sizes}
        self._make_room(_digest(model, blocks), {key for each in keys.values() for key in each}, room)
        found = list(splits)
        for number, each in keys.items():
            self._compute(model, blocks, splits[number], each, pad_id)
            found[number] = replace(splits[number], states=tuple(self._known[key] for key in each), from_block=blocks)
        return found

    def _make_room(self, digest: str, asked: set[bytes], room: int) -> None:
        """Drop the states of another backbone, and those that are not asked for if there is no room beside those that are."""
        others = [4 * one.numel() for key, one in self._known.items() if key not in asked]
        if digest != self._digest:
            self._digest, self._known = digest, {}
        elif sum(others) > room:
            self._known = {key: one for key, one in self._known.items() if key in asked}

    def _compute(self, model: Model, blocks: int, encoded: Encoded, each: Sequence[bytes], pad_id: int) -> None:
        """The states of the rows that are not known yet."""
        places = {key: row for row, key in enumerate(each) if key not in self._known}
        missing, keys, training = encoded.by_row.take(np.array([*places.values()], dtype=np.int64)), list(places), model.training

        def lower(batch: Batch, _: np.ndarray) -> Tensor:
            return model.backbone.forward_part(steady(batch, model, pad_id), range(blocks), causal=model.causal).hidden_states[-1]

        for indices, states in run_in_batches(model, missing, pad_id, forward=lower):
            for index, row in zip(indices.tolist(), states, strict=True):
                self._known[keys[index]] = row[: len(missing.rows[index])].clone()
        model.train(training)
        self.texts_computed += len(places)


def _digest(model: Model, blocks: int) -> str:
    """A hash of all that the states depend on."""
    backbone = model.backbone
    above = ("norm.", *(f"blocks.{number}." for number in range(blocks, backbone.config.depth)))
    adapters = [config.to_dict() for config in inserted_adapters(backbone)]
    tensors = {name: one for name, one in backbone.state_dict().items() if not name.startswith(above)}
    return tensors_digest(json.dumps([backbone.config.to_dict(), model.causal, blocks, adapters], sort_keys=True), tensors)


@dataclass(frozen=True)
class EncodedTask:
    """A task with its splits as token ids."""

    task: Task
    train: Encoded
    validation: Encoded
    test: Encoded
    pad_id: int
    features: FeatureCache = field(default_factory=FeatureCache)
    """features of frozen backbones, shared by all runs on these texts"""
    lower: LowerStates = field(default_factory=LowerStates)
    """states below the blocks that train, shared likewise"""

    @classmethod
    def of(cls, task: Task, model: Model, tokenizer: Tokenizer) -> EncodedTask:
        """Encode all three splits as ``model`` reads them."""
        splits = (task.train, task.validation, task.test)
        train, validation, test = (task_type_of(task).encode(model, tokenizer, split.texts) for split in splits)
        return cls(task, train, validation, test, tokenizer.specials.pad, FeatureCache(ArrayStore.of_user()))

    def within(self, budget: LabelBudget) -> EncodedTask:
        """The texts of the last model of a budget of this task, and the test texts."""
        chosen = self.train.take(budget.train), self.validation.take(budget.validation)
        return replace(self, task=budget.task, train=chosen[0], validation=chosen[1])

    def with_lower_states(self, model: Model) -> EncodedTask:
        """The inputs of a run that begins with ``model``: what is frozen below the blocks that train has read the texts already."""
        train, validation = self.lower.added(model, (self.train, self.validation), self.pad_id)
        return replace(self, train=train, validation=validation)

    def training_ids(self) -> np.ndarray:
        """(R,), ascending: the ids of all tokens in batches of the training split, padding included."""
        return np.unique(np.concatenate([*self.train.rows, [self.pad_id]]))

    def fold(self, fold: Fold) -> EncodedTask:
        """The texts of a fold of a budget of this task: those that learn, those that choose, and no test texts."""
        choose = {"train": self.train, "validation": self.validation}[fold.of].take(fold.choose)
        task = fold.task(self.task)
        return replace(self, task=task, train=self.train.take(fold.learn), validation=choose, test=self.test.take(NO_TEXTS))


# A classification head that starts at the class means of what it reads, by a frozen backbone: few labels need not find them.
#
#     w_c = scale m_c / |x|,    so that the logits of a text of mean length |x| are scaled cosines with the class means m_c
#
# Mean and cosine are those of the baseline ``frozen vectors``, but vectors are not standardised, so that training begins close to
# where that baseline ends (class means as prototypes: Snell et al. 2017, equation 1).
#
# It wants a lower learning rate. On sets of development (60 words, 100 labels, full fine-tuning of minilm) at 2e-4, the default,
# 20newsgroups-train gains, from 40.6% to 44.0% (3 draws), emotion hardly, from 67.5% to 67.8%, and log losses get worse, so that
# it is no default; at 5e-5 they gain from 27.9% to 47.6%, and from 61.7% to 69.1% (2 draws): more than a random start at 2e-4.

MEAN_TEXTS = 2000
"""training texts that are read at most"""


def set_class_means(model: Model, encoded: EncodedTask, seed: int, *, trained: bool = False) -> None:
    """Set the last layer of the model's head, from features of the training texts, which are read by the model as it is.

    ``trained``: it keeps the mean length of its vectors, its bias, and the vector of a class without a text.
    """
    head, labels = model.head, encoded.task.train.labels
    assert isinstance(head, ClassificationHead), "only a head with one label per text has class means"
    chosen = np.sort(rng(seed, "head start").permutation(len(labels))[:MEAN_TEXTS])
    texts, labels = encoded.train.take(chosen), labels[chosen]
    with torch.no_grad():
        features = pooled_layers(model, texts, encoded.pad_id).to(head.score.weight.device)
        rows = head.read(*head_inputs(model, features, texts.windows)).double().cpu().numpy()  # (N, D)
        sums = class_sums(rows, labels, len(encoded.task.labels))
        weight = head.score.weight
        kept = float(weight.norm(dim=1).mean()) if trained else None
        scale = kept or held_out_scale(rows, labels, sums) / np.linalg.norm(rows, axis=1).mean()
        means = torch.from_numpy(nearest_prototype(sums, scale).weights.T).to(weight)  # (C, D)
        weight.copy_(torch.where(means.any(dim=1, keepdim=True), means, weight) if trained else means)


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
    """function that reads all batches of a step before the loss of each is computed"""

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
        """The texts in the same order, by the features of the frozen backbone: batches carry the indices of texts."""
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
        """The texts in batches with two of each of their classes, with the contrastive loss beside the head's."""
        both = ContrastiveLoss(model, contrast, _task_loss(encoded, config, model))
        size = (config.train.batch, config.train.accumulate)
        batches = paired_batches(encoded.train, encoded.task.train.labels, size, seed, encoded.pad_id, causal=model.causal)
        return replace(self, batches=batches, loss=both.loss, prepare=both.prepare)

    def with_language_loss(
        self, model: Model, encoded: EncodedTask, language: LanguageTask, weight: float, seed: int
    ) -> TrainingInputs:
        """The inputs with the language-model loss of each batch's texts."""
        factor = weight / (encoded.train.rows_per_example.mean() * mean_targets(language, encoded.train.rows, model))

        def loss(batch: Batch) -> Tensor:
            return factor * language_batch_loss(model, batch) if isinstance(batch, LanguageBatch) else self.loss(batch)

        return replace(self, batches=with_language_batches(self.batches, language, model, seed), loss=loss)


def _task_loss(encoded: EncodedTask, config: FineTuneConfig, model: Model) -> TaskLoss:
    """The summed loss of logits against targets: the head's own, or weighted and smoothed if each text has one label."""
    task, device = encoded.task, next(model.parameters()).device
    if not task_type_of(task).one_label:
        return partial(head_loss, model)
    weights = class_weights(task.train.labels, len(task.labels)).to(device) if config.class_weights == "balanced" else None
    return task_loss(weights, config.label_smoothing)
