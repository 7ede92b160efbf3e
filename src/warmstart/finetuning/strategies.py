"""Strategies by which several tasks are learned: in turn with or without something against forgetting, and the two references.

A strategy says which tasks each of its stages learns, in what order their batches are read, and what penalty is added. Replay adds
a few stored texts of earlier tasks to every step. Elastic weight consolidation (EWC) stores no text: it penalises the change of
each weight, as strongly as the earlier tasks depend on it. Joint learns all tasks at once, the usual upper bound; alone learns each
on a backbone of its own. A new strategy is a class and a row in ``STRATEGIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from warmstart.config import Config, InFile
from warmstart.data.encode import Encoded
from warmstart.data.splits import stratified_sample
from warmstart.errors import ConfigError
from warmstart.finetuning.task_suite import MultitaskModel, TaskBatch, TaskSuite
from warmstart.registry import Registry
from warmstart.seeding import derive, rng, seed_torch
from warmstart.stats.forgetting import ALONE, JOINT
from warmstart.types import Batch


class StrategyOptions(Config):
    """Options of single strategies; each help names the strategy that reads it."""

    replay_texts: InFile[int] = Field(100, ge=0)
    """replay: stored texts of each earlier task, stratified by label"""
    replay_ratio: InFile[float] = Field(0.5, gt=0, le=1)
    """replay: stored texts per new text in a step"""
    ewc_strength: InFile[float] = Field(1000.0, ge=0)
    """ewc: strength of the penalty (lambda)"""
    fisher_texts: InFile[int] = Field(200, gt=0)
    """ewc: training texts on which the Fisher information is estimated"""
    alpha: InFile[float] = Field(1.0, ge=0, le=1)
    """joint: how often each task is read, in proportion to its size to this power; 1: by size, 0: all equally often"""


class Strategy:
    """Plain fine-tuning on one task after another; the other strategies override what they change."""

    anew: ClassVar[bool] = False
    """whether each stage starts from the pretrained backbone"""

    def __init__(self, suite: TaskSuite, options: StrategyOptions, seed: int) -> None:
        self.suite, self.options, self.seed = suite, options, seed

    def stages(self) -> list[tuple[int, ...]]:
        """The tasks that each training run learns."""
        return [(task,) for task in range(len(self.suite.encoded))]

    def batches(self, tasks: tuple[int, ...]) -> tuple[Callable[[int], list[Batch]], int]:
        """The batches of each step of a stage, and its number of steps; each task's own texts come in their own order."""
        fractions = sampling_fractions([len(self.suite.encoded[task].train) for task in tasks], self.options.alpha)
        order = task_order(fractions, sum(map(self.suite.steps, tasks)), self.seed)
        numbers = np.cumsum(order == np.arange(len(tasks))[:, None], axis=1) - 1
        own = [self.suite.batches(task, self.seed) for task in tasks]
        return lambda step: [own[order[step]](int(numbers[order[step], step]))], len(order)

    def stream(self, tasks: tuple[int, ...]) -> int:
        """The seed of all else that is drawn in a stage, such as dropout."""
        return derive(self.seed, "stream", *tasks)

    def penalty(self, model: MultitaskModel) -> Callable[[], Tensor] | None:
        """What is added to the loss of each step of a stage."""
        return None

    def finish_task(self, model: MultitaskModel, task: int) -> None:
        """Called when a task has been learned in its turn."""


class Joint(Strategy):
    """All tasks at once: each step reads texts of one of them."""

    def stages(self) -> list[tuple[int, ...]]:
        """One, of all tasks."""
        return [tuple(range(len(self.suite.encoded)))]

    def stream(self, tasks: tuple[int, ...]) -> int:
        """That of the only stage."""
        return derive(self.seed, "together")


class Alone(Strategy):
    """Each task on a backbone of its own."""

    anew = True

    def stream(self, tasks: tuple[int, ...]) -> int:
        """Another one than in turn."""
        return derive(self.seed, "alone", *tasks)


class Replay(Strategy):
    """Stored texts of every earlier task in each step."""

    def __init__(self, suite: TaskSuite, options: StrategyOptions, seed: int) -> None:
        super().__init__(suite, options, seed)
        self.stored: list[StoredTexts] = []

    def batches(self, tasks: tuple[int, ...]) -> tuple[Callable[[int], list[Batch]], int]:
        """The task's batches, each followed by one batch of stored texts per earlier task."""
        (own, steps), suite, (task,) = super().batches(tasks), self.suite, tasks
        stored = list(self.stored)
        size = max(1, round(suite.config.train.batch * self.options.replay_ratio / max(1, len(stored))))

        def batches(step: int) -> list[Batch]:
            draws = [(texts, rng(self.seed, "replay", task, texts.task, step)) for texts in stored]
            pad_id, causal = suite.encoded[task].pad_id, suite.bundle.model.causal
            return [*own(step), *(texts.batch(size, pad_id, draw, causal=causal) for texts, draw in draws)]

        return batches, steps

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


IN_TURN = ("none", "replay", "ewc")
STRATEGIES: Registry[type[Strategy]] = Registry(
    "strategy", {"none": Strategy, "replay": Replay, "ewc": ElasticWeightConsolidation, JOINT: Joint, ALONE: Alone}
)


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


def sampling_fractions(sizes: Sequence[int], alpha: float) -> np.ndarray:
    """The fraction of batches from each task, proportional to ``size ** alpha``: 1 by size, 0.5 by its root, 0 all equal."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha must lie between 0 (all tasks equally often) and 1 (by size), but is {alpha}")
    weights = np.array(sizes, dtype=float) ** alpha
    return weights / weights.sum()


def task_order(fractions: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """(steps,) int64: the task of each of ``steps`` batches: exactly these fractions (largest remainder), in a random order.

    ``task_order([.75, .25], 4, 0)`` has three 0s and one 1.
    """
    exact = fractions * steps
    counts = np.floor(exact).astype(int)
    for task in np.argsort(counts - exact, kind="stable")[: steps - counts.sum()]:
        counts[task] += 1
    tasks = np.repeat(np.arange(len(fractions)), counts)
    return rng(seed, "turns").permutation(tasks)
