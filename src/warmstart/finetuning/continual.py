"""Strategies against forgetting when tasks are learned one after another: none, replay, elastic weight consolidation.

Replay adds a few stored texts of earlier tasks to every step. Elastic weight consolidation (EWC) stores no text: it penalises the
change of each weight, as strongly as the earlier tasks depend on it. A new strategy is a class and a row in ``STRATEGIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from warmstart.config import Advanced, Config
from warmstart.data.encode import Encoded
from warmstart.data.pretraining_rows import PretrainingRows
from warmstart.data.source import Source
from warmstart.data.splits import stratified_sample
from warmstart.data.token_store import prepare_store
from warmstart.errors import DataError
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.multitask_model import MultitaskModel, TaskBatch
from warmstart.finetuning.multitask_training import TaskSuite
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.registry import Registry
from warmstart.seeding import derive, rng, seed_torch
from warmstart.stats.ratios import resampled_ratios
from warmstart.stats.resampling import resample_counts
from warmstart.training.held_out import held_out_loss
from warmstart.types import Batch

HELD_OUT_TOKENS = 40_000
"""tokens of the held-out text on which the language-model loss is measured"""


class StrategyOptions(Config):
    """Options of single strategies; each help names the strategy that reads it."""

    replay_texts: Advanced[int] = Field(100, ge=0)
    """replay: stored texts of each earlier task, stratified by label"""
    replay_ratio: Advanced[float] = Field(0.5, gt=0, le=1)
    """replay: stored texts per new text in a step"""
    ewc_strength: Advanced[float] = Field(1000.0, ge=0)
    """ewc: strength of the penalty (lambda)"""
    fisher_texts: Advanced[int] = Field(200, gt=0)
    """ewc: training texts on which the Fisher information is estimated"""


class Strategy:
    """Plain fine-tuning on one task after another; the other strategies override what they change."""

    def __init__(self, suite: TaskSuite, options: StrategyOptions, seed: int) -> None:
        self.suite, self.options, self.seed = suite, options, seed

    def batches(self, task: int) -> Callable[[int], list[Batch]]:
        """The batches of each step while a task is learned."""
        own = self.suite.batches(task, self.seed)
        return lambda step: [own(step)]

    def penalty(self, model: MultitaskModel) -> Callable[[], Tensor] | None:
        """What is added to the loss of each step while a task is learned."""
        return None

    def finish_task(self, model: MultitaskModel, task: int) -> None:
        """Called when a task has been learned."""


class Replay(Strategy):
    """Stored texts of every earlier task in each step."""

    def __init__(self, suite: TaskSuite, options: StrategyOptions, seed: int) -> None:
        super().__init__(suite, options, seed)
        self.stored: list[StoredTexts] = []

    def batches(self, task: int) -> Callable[[int], list[Batch]]:
        """The task's batches, each followed by one batch of stored texts per earlier task."""
        own, suite = self.suite.batches(task, self.seed), self.suite
        stored = list(self.stored)
        size = max(1, round(suite.config.train.batch * self.options.replay_ratio / max(1, len(stored))))

        def batches(step: int) -> list[Batch]:
            draws = [(texts, rng(self.seed, "replay", task, texts.task, step)) for texts in stored]
            pad_id, causal = suite.encoded[task].pad_id, suite.bundle.model.causal
            return [own(step), *(texts.batch(size, pad_id, draw, causal=causal) for texts, draw in draws)]

        return batches

    def finish_task(self, model: MultitaskModel, task: int) -> None:
        """Store a stratified sample of the task's training texts; none of validation or test."""
        if not self.options.replay_texts:
            return
        encoded = self.suite.encoded[task]
        labels = encoded.task.train.labels
        count = max(len(encoded.task.labels), min(self.options.replay_texts, len(encoded.train)))
        chosen = stratified_sample(labels, count, derive(self.seed, "stored"))
        self.stored.append(StoredTexts(encoded.train.take(chosen), labels[chosen], task))


class ElasticWeightConsolidation(Strategy):
    """A penalty on the change of weights that earlier tasks depend on (Kirkpatrick et al. 2017)."""

    def __init__(self, suite: TaskSuite, options: StrategyOptions, seed: int) -> None:
        super().__init__(suite, options, seed)
        self.anchors: list[EwcAnchor] = []

    def penalty(self, model: MultitaskModel) -> Callable[[], Tensor] | None:
        """The penalty of all earlier tasks."""
        strength = self.options.ewc_strength
        return ewc_penalty(model, self.anchors, strength) if self.anchors and strength else None

    def finish_task(self, model: MultitaskModel, task: int) -> None:
        """Keep the weights, and how much the task depends on each."""
        encoded = self.suite.encoded[task].train
        chosen = rng(self.seed, "fisher", task).permutation(len(encoded))[: self.options.fisher_texts]
        fisher = fisher_information(model, task, encoded.take(np.sort(chosen)), self.suite.encoded[task].pad_id, self.seed)
        self.anchors.append(EwcAnchor.at(model, fisher))


STRATEGIES: Registry[type[Strategy]] = Registry("strategy", {"none": Strategy, "replay": Replay, "ewc": ElasticWeightConsolidation})


@dataclass(frozen=True)
class StoredTexts:
    """A few training texts of an earlier task."""

    rows: Encoded
    labels: np.ndarray
    task: int

    def batch(self, size: int, pad_id: int, draw: np.random.Generator, *, causal: bool) -> TaskBatch:
        """``size`` of them, or all if there are fewer, drawn without replacement."""
        chosen = draw.permutation(len(self.labels))[:size]
        return TaskBatch.of(self.rows.batch(chosen, self.labels[chosen], pad_id, causal=causal), task=self.task)


def fisher_information(model: MultitaskModel, task: int, rows: Encoded, pad_id: int, seed: int) -> dict[str, Tensor]:
    """The diagonal of the backbone's Fisher information for one task: the mean squared gradient of each weight, text by text.

    Labels are drawn from the model's own predictions, as the definition demands; the true labels would give the "empirical" Fisher,
    which measures something else (Kunstner et al. 2019).
    """
    seed_torch(seed, "fisher", task)
    model.eval()
    parameters = {name: p for name, p in model.backbone.named_parameters() if p.requires_grad}
    fisher = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for index in range(len(rows)):
        batch = rows.batch(np.array([index]), None, pad_id, causal=model.causal).to(next(model.parameters()).device)
        logits = model.logits(batch, task)
        drawn = torch.multinomial(logits.detach().softmax(dim=-1), 1)[:, 0]
        gradients = torch.autograd.grad(model.head(task).loss(logits, drawn), list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                fisher[name] += gradient.detach().square() / len(rows)
    return fisher


@dataclass(frozen=True)
class EwcAnchor:
    """The backbone's weights when a task had been learned, and how much the task depends on each."""

    weights: dict[str, Tensor]
    fisher: dict[str, Tensor]

    @classmethod
    def at(cls, model: MultitaskModel, fisher: dict[str, Tensor]) -> EwcAnchor:
        """The present weights."""
        return cls({name: p.detach().clone() for name, p in model.backbone.named_parameters() if name in fisher}, fisher)


def ewc_penalty(model: MultitaskModel, anchors: Sequence[EwcAnchor], strength: float) -> Callable[[], Tensor]:
    """The penalty ``strength / 2 * sum over tasks and weights of F (w - w*)^2`` (Kirkpatrick et al. 2017, equation 3)."""
    parameters = dict(model.backbone.named_parameters())

    def penalty() -> Tensor:
        terms = [
            (anchor.fisher[name] * (parameters[name] - weight).square()).sum()
            for anchor in anchors
            for name, weight in anchor.weights.items()
        ]
        return strength / 2 * torch.stack(terms).sum()

    return penalty


class PretrainingLoss:
    """The loss of the pretrained language head on a text, on top of a backbone that has been trained since."""

    def __init__(self, bundle: Bundle, text: str) -> None:
        if not Path(text).exists():
            raise DataError(f"there is no text at {text}; --text must name a file or a folder")
        self.language, self.bundle, self.text = LanguageTask.required(bundle), bundle, text

    def measure(self, model: MultitaskModel) -> tuple[float, np.ndarray]:
        """Mean nats per target, under the bundle's objective, with the model's backbone; and (R,) on resamples of the documents."""
        backbone, origin = model.backbone, self.bundle
        with_head = Model(backbone, origin.model.head, causal=origin.model.causal)
        self.language.attach(with_head)
        with_head = Model(backbone, with_head.get_submodule("language"), causal=origin.model.causal)  # type: ignore[arg-type]
        with TemporaryDirectory() as folder:
            store = prepare_store([Source(path=self.text)], origin.tokenizer, Path(folder))
            vocabulary = origin.tokenizer.vocabulary()
            rows = PretrainingRows(store, vocabulary, self.language.objective, origin.model.backbone.config.max_length)
            training = backbone.training
            with_head.eval()
            loss = held_out_loss(with_head, rows, HELD_OUT_TOKENS)
            backbone.train(training)
        weights = resample_counts(len(loss.sums), rng(len(loss.sums), "held-out documents"))
        return float(loss.value), resampled_ratios(loss.sums, loss.counts, weights)
