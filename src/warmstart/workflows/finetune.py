"""One fine-tuning run: a model, a labelled task, a scheme and a seed in; scores out. Every comparison is made of these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field
from torch import Tensor
from tyro.conf import arg

from warmstart.config import Config
from warmstart.data import Task, sample
from warmstart.data.batch import Encoded, labelled_batches
from warmstart.engine import TrainConfig, Trained, Work, pick_device, train
from warmstart.evaluate import Scores, classification
from warmstart.evaluate.predict import encode_for, probabilities
from warmstart.heads import POOLINGS, ClassifyHeadConfig
from warmstart.model import Model
from warmstart.schemes import SCHEMES, apply_scheme
from warmstart.tokenizer import Tokenizer


class FineTuneConfig(Config):
    """How a model is fitted to labels."""

    scheme: Annotated[str, AfterValidator(SCHEMES.known)] = "full"
    """full: everything trains; probe: the backbone is frozen, only the head trains"""
    pooling: Annotated[str, AfterValidator(POOLINGS.known)] = "mean"
    """which state of a text the head reads: mean, last, first, or appended (a classification token at the end)"""
    head_dropout: float = Field(0.1, ge=0, lt=1)
    """share of the pooled state dropped in training"""
    reading: Literal["as pretrained", "causal", "both"] = "as pretrained"
    """which way the backbone looks: as in pretraining, back only, or both ways"""
    keep: Literal["best", "last"] = "best"
    """keep the weights of the evaluation with the best validation score, or the last ones"""
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig(learning_rate=5e-4, warmup=0.1, weight_decay=0.01)


DEFAULT_EPOCHS = 10


@dataclass(frozen=True)
class FineTuned:
    """What came of one run."""

    model: Model
    seed: int
    test: Scores
    validation: float
    """the task's metric on the validation split, at the kept weights"""
    curve: tuple[tuple[int, float], ...]
    """(step, validation metric) of every evaluation"""
    trained: Trained
    trainable: int
    """number of parameters that trained"""
    probabilities: np.ndarray
    """(N, C) on the test split"""


@dataclass(frozen=True)
class Splits:
    """A task's texts as one tokenizer and one row length encode them; encoded once, used by every run."""

    task: Task
    train: Encoded
    validation: Encoded
    test: Encoded
    pad_id: int

    @classmethod
    def of(cls, task: Task, model: Model, tokenizer: Tokenizer) -> Splits:
        """Encode all three splits as ``model`` reads them."""
        train_, validation, test = (encode_for(model, tokenizer, part.texts) for part in (task.train, task.validation, task.test))
        return cls(task, train_, validation, test, tokenizer.specials.pad)

    def sample(self, labels: int, seed: int) -> Splits:
        """The same with a stratified subset of so many training texts, which are not encoded again."""
        places = sample(self.task.train.labels, labels, seed)
        return replace(self, task=self.task.with_train(self.task.train.take(places)), train=self.train.take(places))


def head_for(task: Task, config: FineTuneConfig) -> ClassifyHeadConfig:
    """The settings of the head that this task needs."""
    return ClassifyHeadConfig(classes=len(task.labels), pooling=config.pooling, dropout=config.head_dropout)


def looks_back_only(pretrained_causal: bool, config: FineTuneConfig) -> bool:
    """Which way a backbone looks in this adaptation."""
    return pretrained_causal if config.reading == "as pretrained" else config.reading == "causal"


def fine_tune(model: Model, splits: Splits, config: FineTuneConfig, seed: int, title: str = "fine-tuning") -> FineTuned:
    """Fit ``model`` (with its classification head) to the training split, in place.

    Which weights are kept is decided on the validation split; the test split is scored once, at the end.
    """
    model.to(pick_device())
    task, keeper = splits.task, _Keeper(model, config.keep)
    groups = apply_scheme(model, SCHEMES[config.scheme])
    size = (config.train.batch, config.train.accumulate)
    batches_per_epoch = -(-len(splits.train) // size[0])  # the last one may be short, and is a whole step all the same
    mean_tokens = float(np.mean([len(row) for row in splits.train.rows]))
    steps = config.train.count_steps(batches_per_epoch * size[0], mean_tokens, DEFAULT_EPOCHS)
    every = config.train.evaluate_every or -(-batches_per_epoch // size[1])
    settings = config.train.model_copy(update={"evaluate_every": every})

    def validate() -> dict[str, Any]:
        said = probabilities(model, splits.validation, splits.pad_id, config.train.precision)
        return {task.metric: classification(task.validation.labels, said, task.labels).score(task.metric)}

    def note(step: int, figures: dict[str, Any]) -> None:
        keeper.offer(step, figures[task.metric])

    batches = labelled_batches(splits.train, task.train.labels, size, seed, splits.pad_id, causal=model.causal)
    trained = train(model, Work(batches, steps, seed, title, evaluate=validate, observers=[note], groups=groups), settings)
    keeper.restore()
    said = probabilities(model, splits.test, splits.pad_id)
    return FineTuned(
        model.cpu().eval(),
        seed,
        classification(task.test.labels, said, task.labels),
        keeper.score,
        tuple(keeper.curve),
        trained,
        sum(parameter.numel() for group in groups for parameter in group.parameters.values()),
        said,
    )


class _Keeper:
    """Remembers the weights of the best evaluation. Ties go to the later one, which has seen more."""

    def __init__(self, model: Model, keep: str) -> None:
        self.model, self.keep = model, keep
        self.score, self.best = float("-inf"), dict[str, Tensor]()
        self.curve: list[tuple[int, float]] = []

    def offer(self, step: int, score: float) -> None:
        """One more evaluation of the weights as they are now."""
        self.curve.append((step, score))
        if self.keep == "last" or score >= self.score:
            self.score = score
            self.best = {name: tensor.detach().clone() for name, tensor in self.model.weights().items()}

    def restore(self) -> None:
        """Put the kept weights back."""
        self.model.load_state_dict(self.best, strict=False)
