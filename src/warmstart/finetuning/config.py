"""The settings of fine-tuning on one task and on several."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field
from tyro.conf import Positional, arg

from warmstart.config import Advanced, Config, Effectless, FileInput, InFile, TaskInput
from warmstart.finetuning.schemes.registry import SchemeOptions, known_scheme
from warmstart.heads.settings import HeadActivation, PoolingName, WindowSettings
from warmstart.registry import Registry
from warmstart.training.config import RunLength, TrainConfig

STRATEGY_NAMES = Registry("strategy", dict.fromkeys(("none", "joint", "alone")))
"""the names of ``STRATEGIES``"""
StrategyName = Annotated[str, AfterValidator(STRATEGY_NAMES.known)]


class RaceTuneConfig(WindowSettings):
    """Settings of fine-tuning that are the same for all methods of a race, each of which has a scheme and learning rates."""

    options: Advanced[Annotated[SchemeOptions, arg(name="")]] = SchemeOptions()
    pooling: Advanced[PoolingName] = "mean"
    """the state of a text that the head reads: mean, last, first, or appended (a classification token at the end)"""
    class_weights: Advanced[Literal["none", "balanced"]] = "none"
    """balanced: every class counts equally in the loss, however rare it is"""
    train: Annotated[RunLength, arg(name="")] = RunLength()

    def complete(self) -> FineTuneConfig:
        """These settings with the defaults of all others."""
        default = FineTuneConfig()
        return default.model_copy(update=dict(self) | {"train": default.train.model_copy(update=dict(self.train))})


class FineTuneConfig(RaceTuneConfig):
    """The fine-tuning of a model on labelled texts."""

    scheme: Annotated[str, AfterValidator(known_scheme)] = "full"
    """parameters that train, and when: full, upper-half, probe, scalar-mix, lp-ft, gradual, discriminative, houlsby, lora,
    lm-loss, contrast; a+b combines two"""
    head_dropout: InFile[float] = Field(0.1, ge=0, lt=1)
    """dropout probability of the pooled state"""
    head_hidden: Advanced[HeadActivation] = "none"
    """one label per text: one more layer before the logits; tanh with the pooling first is BERT's head, which `export --to hf` can
    write"""
    head_start: Advanced[Literal["random", "class-means"]] = "random"
    """one label per text: with class-means the last layer starts at the mean state of each class, for few labels of many classes"""
    attention_direction: InFile[Literal["as-pretrained", "causal", "bidirectional"]] = "as-pretrained"
    """tokens that each token attends to: as in pretraining, only earlier ones, or all"""
    keep: InFile[Literal["best", "last"]] = "best"
    """weights to keep: those with the best validation score, or the last ones; where no texts are set apart, best means that
    cross-validation, if there is any, chooses the length of the run"""
    label_smoothing: Advanced[float] = Field(0.0, ge=0, lt=1)
    """probability of each target that is spread over all classes"""
    patience: Advanced[int] = Field(0, ge=0)
    """stop after this many evaluations without improvement, counted once nothing is frozen any more; 0: never"""
    cache_features: InFile[bool] = True
    """probe, scalar-mix: the frozen backbone reads each text once, and the head trains on its features"""
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig(learning_rate=5e-4, warmup=0.1, weight_decay=0.01)

    def at_learning_rate(self, rate: float) -> Self:
        """These settings at another learning rate of AdamW; that of Muon, if it is used, is scaled by the same factor."""
        scale = rate / self.train.learning_rate if self.train.optimizer == "muon" else 1.0
        rates = {"learning_rate": rate, "muon_learning_rate": self.train.muon_learning_rate * scale}
        return self.model_copy(update={"train": self.train.model_copy(update=rates)})


class TasksTrainConfig(Config):
    """The training on several tasks, of which each step reads a batch of one."""

    epochs: float | None = Field(None, gt=0)
    """budget in passes over the data"""
    batch: int = Field(16, gt=0, le=1_000_000)
    """texts in a batch"""
    learning_rate: float = Field(5e-4, gt=0)
    """peak learning rate of AdamW"""
    optimizer: Advanced[Literal["adamw", "muon"]] = "adamw"
    """AdamW for all parameters, or Muon for the matrices inside the blocks and AdamW for the rest"""
    precision: Advanced[Literal["auto", "float32", "bfloat16"]] = "auto"
    """precision of matrix products in training; auto: bfloat16 where the hardware multiplies it natively"""

    def complete(self, evaluate_every: int) -> TrainConfig:
        """The settings of a run that is evaluated after so many steps, with those of fine-tuning for all others."""
        return FineTuneConfig().train.model_copy(update=dict(self) | {"evaluate_every": evaluate_every})


class ContinualConfig(Config):
    """Learn tasks one after another on one backbone, and measure what is forgotten."""

    model: Positional[FileInput[str]]
    """the pretrained model: a bundle, or the folder of a run"""
    tasks: Positional[TaskInput[Annotated[tuple[str, ...], Field(min_length=2)]]]
    """manifests of the tasks (YAML)"""
    out: Effectless[str] = "runs/continual"
    """folder of the run"""
    labels: int | None = Field(None, gt=1)
    """number of labelled texts of each task that anything may look at, to learn or to choose; each seed draws its own;
    default: all"""
    selection: Literal["holdout", "none"] = "holdout"
    """texts that choose the weights to keep and, without --labels, the seed to save: a holdout, with --labels a fifth of them,
    otherwise the validation split; or none: the last weights and the first seed"""
    seeds: int = Field(3, gt=0)
    """number of seeds; fewer than three give wide intervals"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    train: Annotated[TasksTrainConfig, arg(name="")] = TasksTrainConfig()
    text: FileInput[str | None] = None
    """text that was never trained on, to measure the pretrained language head's loss on after each task"""
    strategies: Annotated[tuple[StrategyName, ...], Field(min_length=1)] = tuple(STRATEGY_NAMES)
    """ways to learn the tasks; several are compared. In turn: none (nothing is done against forgetting); as references: joint
    (all tasks at once), alone (each on a backbone of its own)"""
