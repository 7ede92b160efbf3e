"""One fine-tuning run: a model, a labelled task, a scheme and a seed in; scores out. Every comparison is made of these."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor
from tyro.conf import arg

from warmstart.config import Config
from warmstart.data import Task, sample
from warmstart.data.batch import Encoded, labelled_batches
from warmstart.data.numbering import strata
from warmstart.engine import TrainConfig, Trained, Work, pick_device, train
from warmstart.errors import ConfigError
from warmstart.heads import POOLINGS, TaskHeadConfig
from warmstart.kinds import Result, kind_of
from warmstart.kinds.kind import Reading, loss_by, said_by
from warmstart.model import Bundle, Model
from warmstart.schemes import (
    Features,
    Language,
    Scheme,
    SchemeOptions,
    apply_scheme,
    known_scheme,
    l2_sp,
    make_scheme,
    read_features,
    settled,
)
from warmstart.schemes.language import LanguageBatch, needed, text_loss, tokens_per_text, with_language
from warmstart.schemes.task_loss import TaskLoss, class_weights, task_loss
from warmstart.tokenizer import Tokenizer
from warmstart.types import Batch
from warmstart.workflows.keeper import Keeper


class FineTuneConfig(Config):
    """How a model is fitted to labels."""

    scheme: Annotated[str, AfterValidator(known_scheme)] = "full"
    """what trains, and when: full, probe, mix, lp-ft, gradual, discriminative, houlsby, pfeiffer, lora, bitfit, lm-loss, l2-sp,
    dapt; a+b does both"""
    options: Annotated[SchemeOptions, arg(name="")] = SchemeOptions()
    pooling: Annotated[str, AfterValidator(POOLINGS.known)] = "mean"
    """which state of a text the head reads: mean, last, first, or appended (a classification token at the end)"""
    head_dropout: float = Field(0.1, ge=0, lt=1)
    """share of the pooled state dropped in training"""
    head_hidden: Literal["none", "tanh", "relu"] = "none"
    """labels: one more layer before the scores; tanh with the pooling first is BERT's own head, which `export --to hf` can write"""
    reading: Literal["as pretrained", "causal", "both"] = "as pretrained"
    """which way the backbone looks: as in pretraining, back only, or both ways"""
    keep: Literal["best", "last"] = "best"
    """keep the weights of the evaluation with the best validation score, or the last ones"""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every class counts alike in the loss, however rare it is"""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """share of each target spread over all classes"""
    patience: int = Field(0, ge=0)
    """stop after so many evaluations without a gain, once every part is awake; 0: never"""
    read_once: bool = True
    """probe, mix: the frozen backbone reads each text once, and the head trains on what it said"""
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig(learning_rate=5e-4, warmup=0.1, weight_decay=0.01)


DEFAULT_EPOCHS = 10
LEAST_STEPS = 200
EVALUATIONS = 20


@dataclass(frozen=True)
class FineTuned:
    """What came of one run."""

    model: Model
    seed: int
    test: Result
    validation: float
    """the task's metric on the validation split, at the kept weights"""
    curve: tuple[tuple[int, float], ...]
    """(step, validation metric) of every evaluation"""
    trained: Trained
    trainable: int
    """number of parameters that trained, of those that the model keeps"""
    probabilities: Any
    """what is said of the test split; (N, C) probabilities where each text has one label"""
    held: Any
    """the same of the validation split, by the kept weights"""


@dataclass(frozen=True)
class Splits:
    """A task's texts as one tokenizer and one row length encode them; encoded once, used by every run."""

    task: Task
    train: Encoded
    validation: Encoded
    test: Encoded
    pad_id: int
    features: Features = field(default_factory=Features)
    """what a frozen backbone said of each text; shared by all runs on these splits"""

    @classmethod
    def of(cls, task: Task, model: Model, tokenizer: Tokenizer) -> Splits:
        """Encode all three splits as ``model`` reads them."""
        parts = (task.train, task.validation, task.test)
        train_, validation, test = (kind_of(task).encode(model, tokenizer, part.texts) for part in parts)
        return cls(task, train_, validation, test, tokenizer.specials.pad)

    def sample(self, labels: int, seed: int) -> Splits:
        """The same with a stratified subset of so many training texts, which are not encoded again."""
        places = sample(strata(self.task.train.labels), labels, seed)
        return replace(self, task=self.task.with_train(self.task.train.take(places)), train=self.train.take(places))


def head_for(task: Task, config: FineTuneConfig) -> TaskHeadConfig:
    """The settings of the head that this task needs."""
    return kind_of(task).head(task, Reading(config.pooling, config.head_dropout, config.head_hidden))


def looks_back_only(pretrained_causal: bool, config: FineTuneConfig) -> bool:
    """Which way a backbone looks in this adaptation."""
    return pretrained_causal if config.reading == "as pretrained" else config.reading == "causal"


def check_scheme(bundle: Bundle, config: FineTuneConfig) -> None:
    """Before anything is written or trained: the scheme fits the model. Raises what ``fine_tune`` would raise."""
    scheme = make_scheme(config.scheme, config.options)
    if scheme.lm_weight or scheme.continued:
        needed(Language.of(bundle))
    apply_scheme(copy.deepcopy(bundle.model), scheme)


def fine_tune(
    model: Model, splits: Splits, config: FineTuneConfig, seed: int, title: str = "fine-tuning", language: Language | None = None
) -> FineTuned:
    """Fit ``model`` (with its classification head) to the training split, in place.

    Which weights are kept is decided on the validation split; the test split is scored once, at the end. ``language`` is the
    pretrained language head for a scheme with ``lm-loss``; it is gone from the model afterwards. Raises ``ModelError`` without it.
    Without a ``title`` there is no progress bar.
    """
    model.to(pick_device())
    task, scheme = splits.task, make_scheme(config.scheme, config.options)
    kind = kind_of(task)
    _check_kind(task, config)
    if scheme.lm_weight:
        needed(language).attach(model)
    groups = apply_scheme(model, scheme, seed)
    awake = settled(scheme, model.backbone.config.depth)
    keeper = Keeper(model, config.keep, config.patience, awake)
    steps, settings = _pace(splits, config, scheme)
    cached = scheme.still and config.read_once and kind.pooled
    lessons = _cached(model, splits, config, seed) if cached else _live(model, splits, config, seed)
    if scheme.lm_weight:
        lessons = _with_language(lessons, model, splits, needed(language), (scheme.lm_weight, seed))

    def validate() -> dict[str, Any]:
        return {task.metric: kind.scores(task.validation, lessons.validation(), task).score(task.metric)}

    work = Work(
        lessons.batches,
        steps,
        seed,
        title,
        evaluate=validate,
        groups=groups,
        loss=lessons.loss,
        penalty=l2_sp(model, *scheme.pull) if scheme.pull else None,
        enough=keeper.enough,
        observers=[lambda step, figures: keeper.offer(step, figures[task.metric])],
        show=bool(title),
    )
    trained = train(model, work, settings)
    if scheme.lm_weight:
        del model.language
    keeper.restore()
    held = lessons.validation()
    said = kind.said(model, splits.test, splits.pad_id)
    kept = {id(parameter) for parameter in model.parameters()}
    return FineTuned(
        model.cpu().eval(),
        seed,
        kind.scores(task.test, said, task),
        keeper.score,
        tuple(keeper.curve),
        trained,
        sum(p.numel() for group in groups for p in group.parameters.values() if id(p) in kept),
        said,
        held,
    )


def _pace(splits: Splits, config: FineTuneConfig, scheme: Scheme) -> tuple[int | None, TrainConfig]:
    """How many steps, and the settings of the loop.

    Where no budget is named, it is ten epochs, but at least 200 steps: few texts need many passes (Mosbach et al. 2021). Where
    nothing else is said, each epoch ends with an evaluation, but a run has no more than twenty.
    """
    mean_tokens = splits.train.group * float(np.mean([len(row) for row in splits.train.rows]))
    per_epoch = -(-len(splits.train) // (config.train.batch * config.train.accumulate))
    steps = config.train.count_text_steps(len(splits.train), mean_tokens, max(DEFAULT_EPOCHS, LEAST_STEPS / per_epoch))
    every = config.train.evaluate_every or max(per_epoch, -(-(steps or 0) // EVALUATIONS))
    decay = 0.0 if scheme.pull else config.train.weight_decay  # a pull towards the pretrained weights leaves none towards zero
    return steps, config.train.model_copy(update={"evaluate_every": every, "weight_decay": decay})


@dataclass(frozen=True)
class _Lessons:
    """What a run reads, what its loss is, and what it says of the validation split."""

    batches: Callable[[int], list[Batch]]
    loss: Callable[[Batch], Tensor]
    validation: Callable[[], Any]


def _check_kind(task: Task, config: FineTuneConfig) -> None:
    """Raise ``ConfigError`` where loss or head are to be changed in a way that this kind of task does not know."""
    if task.kind != "label" and (config.class_weights != "none" or config.label_smoothing or config.head_hidden != "none"):
        raise ConfigError(
            "--class-weights, --label-smoothing and --head-hidden are for tasks with one label a text, "
            f"but '{task.name}' is of kind '{task.kind}'; leave them out"
        )


def _live(model: Model, splits: Splits, config: FineTuneConfig, seed: int) -> _Lessons:
    """The whole model reads every text at every step."""
    score = _score(splits, config, model)
    plain = config.class_weights == "none" and not config.label_smoothing

    def loss(batch: Batch) -> Tensor:
        assert batch.targets is not None
        return model.loss(batch) if plain else score(model(batch.ids, batch.mask, batch.types), batch.targets)

    kind, size = kind_of(splits.task), (config.train.batch, config.train.accumulate)
    validation = partial(kind.said, model, splits.validation, splits.pad_id, config.train.precision)
    batches = kind.batches(splits.task.train, splits.train, size, seed, splits.pad_id, causal=model.causal)
    return _Lessons(batches, loss, validation)


def _cached(model: Model, splits: Splits, config: FineTuneConfig, seed: int) -> _Lessons:
    """The same texts in the same order, but the frozen backbone has read them already: batches carry their numbers."""
    device = next(model.parameters()).device
    train_, held = (splits.features.of(model, part, splits.pad_id) for part in (splits.train, splits.validation))
    labels = torch.from_numpy(splits.task.train.labels).to(device)
    score = _score(splits, config, model)

    def loss(batch: Batch) -> Tensor:
        assert batch.targets is not None
        return score(read_features(model, train_[batch.targets]), labels[batch.targets])

    @torch.inference_mode()
    def validation() -> np.ndarray:
        return said_by(model, read_features(model, held)).numpy()

    size, places = (config.train.batch, config.train.accumulate), np.arange(len(splits.train))
    batches = labelled_batches(splits.train, places, size, seed, splits.pad_id, causal=model.causal)
    return _Lessons(batches, loss, validation)


def _with_language(lessons: _Lessons, model: Model, splits: Splits, language: Language, how: tuple[float, int]) -> _Lessons:
    """The same, and each batch's texts once more as pretraining read text; ``how`` is (weight, seed)."""
    weight, seed = how
    share = weight / (splits.train.group * tokens_per_text(language, splits.train.rows, model))

    def loss(batch: Batch) -> Tensor:
        return share * text_loss(model, batch) if isinstance(batch, LanguageBatch) else lessons.loss(batch)

    return replace(lessons, batches=with_language(lessons.batches, language, model, seed), loss=loss)


def _score(splits: Splits, config: FineTuneConfig, model: Model) -> TaskLoss:
    """The summed loss of scores against targets: the head's own, or with weights and smoothing where each text has one label."""
    task, device = splits.task, next(model.parameters()).device
    if task.kind != "label":
        return partial(loss_by, model)
    weights = class_weights(task.train.labels, len(task.labels)).to(device) if config.class_weights == "balanced" else None
    return task_loss(weights, config.label_smoothing)
