"""The settings of fine-tuning."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field
from tyro.conf import arg

from warmstart.config import Advanced, InFile
from warmstart.data.windows import WindowSettings
from warmstart.finetuning.schemes import SchemeOptions, known_scheme
from warmstart.heads.per_text import HeadActivation
from warmstart.heads.pooled import POOLINGS
from warmstart.training.config import TrainConfig


class FineTuneConfig(WindowSettings):
    """How a model is fine-tuned on labelled texts."""

    scheme: Annotated[str, AfterValidator(known_scheme)] = "full"
    """what trains, and when: full, probe, scalar-mix, lp-ft, gradual, discriminative, houlsby, lora, lm-loss, contrast, dapt; a+b
    combines two"""
    options: Advanced[Annotated[SchemeOptions, arg(name="")]] = SchemeOptions()
    pooling: Advanced[Annotated[str, AfterValidator(POOLINGS.known)]] = "mean"
    """the state of a text that the head reads: mean, last, first, or appended (a classification token at the end)"""
    head_dropout: InFile[float] = Field(0.1, ge=0, lt=1)
    """dropout probability of the pooled state"""
    head_hidden: Advanced[HeadActivation] = "none"
    """one label per text: one more layer before the logits; tanh with the pooling first is BERT's head, which `export --to hf` can
    write"""
    head_start: Advanced[Literal["random", "class-means"]] = "random"
    """one label per text: with class-means the last layer starts at the mean state of each class, for few labels of many classes"""
    attention_direction: InFile[Literal["as-pretrained", "causal", "bidirectional"]] = "as-pretrained"
    """which tokens each token attends to: as in pretraining, only earlier ones, or all"""
    keep: InFile[Literal["best", "last"]] = "best"
    """which weights to keep: those with the best validation score, or the last ones; where no texts are set apart, best means that
    cross-validation, if there is any, chooses the length of the run"""
    class_weights: Advanced[Literal["none", "balanced"]] = "none"
    """balanced: every class counts equally in the loss, however rare it is"""
    label_smoothing: Advanced[float] = Field(0.0, ge=0, lt=1)
    """probability of each target that is spread over all classes"""
    patience: Advanced[int] = Field(0, ge=0)
    """stop after this many evaluations without improvement, counted once nothing is frozen any more; 0: never"""
    cache_features: InFile[bool] = True
    """probe, scalar-mix: the frozen backbone reads each text once, and the head trains on its features"""
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig(learning_rate=5e-4, warmup=0.1, weight_decay=0.01)

    def at_learning_rate(self, rate: float) -> Self:
        """The same settings at another learning rate of AdamW; that of Muon, if it is used, is scaled by the same factor."""
        scale = rate / self.train.learning_rate if self.train.optimizer == "muon" else 1.0
        rates = {"learning_rate": rate, "muon_learning_rate": self.train.muon_learning_rate * scale}
        return self.model_copy(update={"train": self.train.model_copy(update=rates)})
