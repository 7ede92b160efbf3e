"""Ablation: components of a model are replaced one at a time, and the model is evaluated again.

A component's states are replaced by zero (Michel et al. 2019), by their mean over the texts, or by those of another random token; a
block is skipped. A language model is evaluated by its loss on passages of a text.

Letters: B batch, T tokens, W numbers of a component, D width, H heads, L depth, N texts or passages, M predicted tokens, V
vocabulary, R resamples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.backbone.taps import tapped
from warmstart.data.encode import Encoded, padded
from warmstart.data.read import documents_of
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.errors import DataError, ModelError
from warmstart.inspection.tokens import token_chunks
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.masked import mask_tokens
from warmstart.seeding import rng
from warmstart.stats.differences import Difference, MethodScores, paired_difference
from warmstart.stats.multiple_testing import holm
from warmstart.stats.ratios import resampled_ratios
from warmstart.stats.resampling import resample_counts
from warmstart.system.console import console
from warmstart.training.progress import counting
from warmstart.types import IGNORE, Batch


@dataclass(frozen=True)
class Passages:
    """N passages as a language model reads them, with targets."""

    encoded: Encoded
    targets: tuple[np.ndarray, ...]
    """each (T,) int64: the token to be predicted at each position, or ``IGNORE``"""
    causal: bool
    """every token is predicted from those before it; if False, masked tokens are predicted from both sides"""

    @property
    def counts(self) -> np.ndarray:
        """(N,) predicted tokens of each passage."""
        return np.array([int((row != IGNORE).sum()) for row in self.targets])


def language_passages(bundle: Bundle, documents: Iterable[str], limit: int, seed: int, max_length: int | None = None) -> Passages:
    """The first ``limit`` passages of the documents: a passage is a document, or as much of one as fits into ``max_length`` tokens.

    ``max_length`` is the model's own by default. A causal model predicts every token; for a masked model 15% of each passage, but
    at least one token, are masked once. Raises ``DataError`` for fewer than two passages with a prediction, and ``ModelError``
    for a model that was not trained to predict plain text.
    """
    if bundle.likelihood is None:
        raise ModelError(
            "the loss of a text needs a model trained to predict text, but this one has no language head, or was trained on "
            "sentinel spans only; give it a task instead"
        )
    specials, vocabulary = bundle.tokenizer.specials, bundle.tokenizer.vocabulary()
    causal = bundle.likelihood == "causal"
    chunks = token_chunks(bundle.tokenizer, documents, (max_length or bundle.model.backbone.config.max_length) - 2)
    objective = ObjectiveConfig(name="masked", mask_rate=0.15)
    rows, targets = list[np.ndarray](), list[np.ndarray]()
    for number, chunk in enumerate(islice(chunks, limit)):
        if causal:
            rows.append(np.array([specials.begin, *chunk[:-1]], dtype=np.int64))
            targets.append(np.array(chunk, dtype=np.int64))
            continue
        ids = np.array([[specials.begin, *chunk, specials.eos]], dtype=np.int64)
        inputs, chosen = mask_tokens(ids, np.ones_like(ids, dtype=bool), rng(seed, "hidden", number), vocabulary, objective)
        if chosen.any():
            rows.append(inputs[0])
            targets.append(np.where(chosen, ids, IGNORE)[0])
    if len(rows) < 2:
        raise DataError(f"the loss of a text needs at least two passages, but there are {len(rows)}; give more text")
    return Passages(Encoded(tuple(rows), np.zeros(len(rows), dtype=np.int64)), tuple(targets), causal)


def passage_losses(model: Model, passages: Passages, pad_id: int) -> np.ndarray:
    """(N,) summed loss in nats over the predicted tokens of each passage."""

    def sums(batch: Batch, indices: np.ndarray) -> Tensor:
        targets = torch.from_numpy(padded([passages.targets[index] for index in indices], IGNORE)).to(batch.ids.device)
        predicted = targets != IGNORE
        states = model.backbone.forward_batch(batch, causal=passages.causal).last_hidden_state  # (B, T, D)
        logits = model.head(states[predicted]).float()  # (M, V)
        nats = logits.logsumexp(dim=-1) - logits.gather(-1, targets[predicted][:, None])[:, 0]
        return torch.zeros(targets.shape, device=nats.device).masked_scatter(predicted, nats).sum(dim=1)

    out = np.empty(len(passages.encoded))
    for indices, losses in run_in_batches(model, passages.encoded, pad_id, forward=sums):
        out[indices] = losses.numpy()
    return out


_SIGNIFICANCE = 0.05

ComponentType = Literal["head", "attention", "feed-forward", "block"]
Ablation = Literal["mean", "zero", "resample"]
Replacement = Callable[["Component", Tensor, Tensor | None], Tensor | float]
"""``replacement(component, states, mask)``: what replaces states (B, T, W); ``mask`` (B, T) is True at real tokens"""


@dataclass(frozen=True)
class Component:
    """A part of the model that can be ablated. Names count blocks and heads from 1."""

    name: str
    type: ComponentType
    module: str
    """the module of the backbone whose output it is; a head is a part of the input of ``attention.out``"""
    ends: tuple[int, int | None] = (0, None)
    """the first of the module's numbers that belong to it, and the one after the last"""
    block: int | None = None
    """from 0"""
    head: int | None = None
    """from 0"""

    @property
    def columns(self) -> slice:
        """The numbers that belong to it."""
        return slice(*self.ends)


def components_of(config: BackboneConfig) -> list[Component]:
    """Every head, attention, feed-forward layer and block, block by block."""
    components, width = list[Component](), config.per_head
    for i in range(config.depth):
        module, name = f"blocks.{i}", f"block {i + 1}"
        for j in range(config.heads):
            ends = (j * width, (j + 1) * width)
            components.append(Component(f"{name}, head {j + 1}", "head", f"{module}.attention.out", ends, i, j))
        components.append(Component(f"{name}, attention", "attention", f"{module}.attention", block=i))
        components.append(Component(f"{name}, feed-forward", "feed-forward", f"{module}.feedforward", block=i))
        components.append(Component(name, "block", module, block=i))
    return components


@contextmanager
def ablated(model: Model, component: Component, replacement: Replacement) -> Iterator[None]:
    """While open, the component's states are replaced; a block is skipped: its input is its output."""
    backbone = model.backbone
    with ExitStack() as stack:
        masks = stack.enter_context(_recorded_masks(backbone))
        if component.type == "block":
            hook = backbone.get_submodule(component.module).register_forward_hook(_skip)
            stack.callback(hook.remove)
        else:
            stack.enter_context(_edited(backbone, component, partial(_replaced, component, replacement, masks)))
        yield


def zero_states(component: Component, states: Tensor, mask: Tensor | None) -> float:
    """Zero ablation of states (B, T, W) under a mask (B, T): a scalar."""
    return 0.0


@dataclass
class MeanStates:
    """Mean ablation: the mean over real tokens of every component's states, recorded while a model reads. A ``Replacement``."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    """(W,) float64 by the component's name"""
    tokens: dict[str, int] = field(default_factory=dict)

    def __call__(self, component: Component, states: Tensor, mask: Tensor | None) -> Tensor:
        """(W,) the same for every token."""
        return (self.sums[component.name] / self.tokens[component.name]).to(states.dtype)

    def add(self, component: Component, states: Tensor, mask: Tensor | None) -> None:
        """Count the states (B, T, W) of one batch under its mask (B, T)."""
        real = states[mask] if mask is not None else states.flatten(0, 1)
        self.sums[component.name] = self.sums.get(component.name, 0) + real.sum(dim=0, dtype=torch.float64)
        self.tokens[component.name] = self.tokens.get(component.name, 0) + len(real)


@contextmanager
def recorded_means(model: Model, components: Iterable[Component]) -> Iterator[MeanStates]:
    """While open, the states of the components are averaged; the model's outputs do not change."""
    means = MeanStates()
    with ExitStack() as stack:
        masks = stack.enter_context(_recorded_masks(model.backbone))

        def record(component: Component, x: Tensor) -> Tensor:
            means.add(component, x[..., component.columns], masks[0])
            return x

        for component in components:
            if component.type != "block":
                stack.enter_context(_edited(model.backbone, component, partial(record, component)))
        yield means


def resampled_states(seed: int, repeat: int) -> Replacement:
    """Resample ablation: every real token gets the states of another one of its batch, drawn without replacement."""
    calls = count()

    def replacement(component: Component, states: Tensor, mask: Tensor | None) -> Tensor:
        real = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device) if mask is None else mask
        order = rng(seed, "resample", component.name, repeat, next(calls)).permutation(int(real.sum()))
        out = states.clone()
        out[real] = states[real][torch.from_numpy(order).to(states.device)]
        return out

    return replacement


def _replaced(component: Component, replacement: Replacement, masks: list[Tensor | None], x: Tensor) -> Tensor:
    out = x.clone()
    out[..., component.columns] = replacement(component, x[..., component.columns], masks[0])
    return out


def _skip(_module: nn.Module, inputs: Any, output: Any) -> Any:
    return (inputs[0], *output[1:])


@contextmanager
def _edited(backbone: Backbone, component: Component, edit: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """A component's states pass through ``edit``: a head's as the input of a module, all others as its output."""
    if component.type != "head":
        with tapped(backbone, {component.module: edit}):
            yield
        return
    hook = backbone.get_submodule(component.module).register_forward_pre_hook(lambda _, inputs: (edit(inputs[0]),))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _recorded_masks(backbone: Backbone) -> Iterator[list[Tensor | None]]:
    """A list whose one entry is the mask of the current batch."""
    masks = list[Tensor | None]([None])

    def record(_module: nn.Module, _inputs: Any, arguments: dict[str, Any]) -> None:
        masks[0] = arguments.get("attention_mask")

    hook = backbone.register_forward_pre_hook(record, with_kwargs=True)
    try:
        yield masks
    finally:
        hook.remove()


@dataclass(frozen=True)
class AblationMetric:
    """A metric, with the texts that it is measured on."""

    name: str
    unit: str
    digits: int
    """after the decimal point"""
    lower_is_better: bool
    encoded: Encoded
    """N texts"""
    evaluate: Callable[[Model], tuple[float, np.ndarray]]
    """the value, and the values (R,) on resamples of the texts"""
    task: Task | None = None
    """the task whose test texts are scored"""

    def score(self, model: Model) -> MethodScores:
        """Evaluate a model on all texts."""
        value, resampled = self.evaluate(model)
        return MethodScores(self.name, (value,), resampled[None])

    def effect(self, scores: MethodScores, full: MethodScores) -> Difference:
        """The loss of quality of ``scores`` against those of the full model, in the metric's unit."""
        return paired_difference(scores, full) if self.lower_is_better else paired_difference(full, scores)

    def written(self, value: float) -> str:
        """A value without its unit."""
        return f"{value:.{self.digits}f}"

    def effect_text(self, effect: Difference) -> str:
        """An effect with its interval: ``1.20 points (0.40 to 2.00)``."""
        return f"{self.written(effect.mean)} {self.unit} ({self.written(effect.low)} to {self.written(effect.high)})"


def loss_metric(bundle: Bundle, text: Sequence[str], limit: int, seed: int) -> AblationMetric:
    """Nats per predicted token, over all passages of some files together."""
    passages = language_passages(bundle, documents_of([Source(path=path) for path in text]), limit, seed)
    counts, pad = passages.counts, bundle.tokenizer.specials.pad
    weights = resample_counts(len(counts), rng(seed, "resample"))

    def evaluate(model: Model) -> tuple[float, np.ndarray]:
        losses = passage_losses(model, passages, pad)
        return float(losses.sum() / counts.sum()), resampled_ratios(losses, counts, weights)

    name = "loss" if passages.causal else "loss of masked tokens"
    return AblationMetric(name, "nats per token", 4, lower_is_better=True, encoded=passages.encoded, evaluate=evaluate)


@dataclass(frozen=True)
class ComponentEffect:
    """The effect of ablating one component."""

    component: Component
    scores: MethodScores
    """without the component"""
    difference: Difference
    """loss of quality against the full model"""
    p: float
    """corrected for the number of components (Holm 1979)"""

    @property
    def significant(self) -> bool:
        """The effect differs from 0."""
        return self.p < _SIGNIFICANCE

    @property
    def harmful(self) -> bool:
        """The model is significantly worse without the component."""
        return self.significant and self.difference.mean > 0


@dataclass(frozen=True)
class AblationMeasurement:
    """Everything that was measured."""

    metric: AblationMetric
    full: MethodScores
    effects: Sequence[ComponentEffect]
    """the largest first"""
    passes: int
    """over the texts, that of the full model included"""
    seconds: float

    @property
    def heads(self) -> list[ComponentEffect]:
        """The effects of single heads."""
        return [effect for effect in self.effects if effect.component.type == "head"]


@dataclass(frozen=True)
class Ablating:
    """Settings of an ablation."""

    ablation: Ablation = "mean"
    repeats: int = 3
    """draws of resample ablation"""
    seed: int = 0

    def replacements(self, component: Component, means: MeanStates) -> list[Replacement]:
        """One replacement, or several draws of one; a block is skipped, which is never repeated."""
        if self.ablation == "resample":
            return [resampled_states(self.seed, draw) for draw in range(1 if component.type == "block" else self.repeats)]
        return [means if self.ablation == "mean" else zero_states]


def ablate_each(model: Model, components: Sequence[Component], how: Ablating, metric: AblationMetric) -> AblationMeasurement:
    """Evaluate the full model, then ablate one component at a time; the largest effect comes first."""
    started = time.perf_counter()
    with recorded_means(model, components if how.ablation == "mean" else ()) as means:
        full = metric.score(model)
    seconds, scores = time.perf_counter() - started, list[MethodScores]()
    passes = sum(len(how.replacements(component, means)) for component in components)
    what = f"{len(components)} components on {len(metric.encoded):,} texts"
    console.print(f"{what}: at most about {seconds * passes:.0f} s")
    with counting("ablations", passes) as done:
        for component in components:
            trials = list[MethodScores]()
            for replacement in how.replacements(component, means):
                with ablated(model, component, replacement):
                    trials.append(metric.score(model))
                done(1)
            values = tuple(trial.scores[0] for trial in trials)
            scores.append(MethodScores(component.name, values, np.concatenate([trial.resampled for trial in trials])))
    differences = [metric.effect(ablated_scores, full) for ablated_scores in scores]
    rows = zip(components, scores, differences, holm([difference.p for difference in differences]), strict=True)
    effects = sorted((ComponentEffect(*row) for row in rows), key=lambda effect: -effect.difference.mean)
    return AblationMeasurement(metric, full, effects, passes + 1, time.perf_counter() - started)
