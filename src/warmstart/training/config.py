"""The settings of a training run that any model and any data share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from warmstart.config import Advanced, Config, Effectless, InFile
from warmstart.registry import Registry

Schedule = Callable[[float], float]
"""a factor of the learning rate at some progress of the run (0 to 1)"""


def cosine(progress: float) -> float:
    """Half a cosine from 1 to 0 (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * progress))


def linear(progress: float) -> float:
    """A straight line from 1 to 0."""
    return 1 - progress


def trapezoid(progress: float, cooldown: float = 0.3) -> float:
    """Flat at 1, then a straight line to 0 over the last ``cooldown`` (Hägele et al. 2024; "warm-up, stable, decay")."""
    return min(1.0, (1 - progress) / cooldown)


def constant(progress: float) -> float:
    """The constant 1."""
    return 1.0


SCHEDULES: Registry[Schedule] = Registry(
    "schedule", {"cosine": cosine, "linear": linear, "trapezoid": trapezoid, "constant": constant}
)


def learning_rate_factor(progress: float, schedule: str, warmup: float) -> float:
    """The fraction of the peak learning rate at ``progress``: a linear rise over ``warmup``, then the schedule.

    ``learning_rate_factor(0.05, "linear", warmup=0.1)`` -> ``0.5``.
    """
    if progress < warmup:
        return progress / warmup
    after = min(1.0, (progress - warmup) / max(1e-9, 1 - warmup))
    return SCHEDULES[schedule](after)


class RunLength(Config):
    """The length of a training run and its batches. Name at most one budget: steps, tokens, epochs or minutes."""

    steps: int | None = Field(None, gt=0)
    """budget in optimiser steps"""
    tokens: int | None = Field(None, gt=0)
    """budget in tokens read"""
    epochs: float | None = Field(None, gt=0)
    """budget in passes over the data"""
    minutes: float | None = Field(None, gt=0)
    """budget in minutes of training; such a run cannot be repeated bit for bit"""
    batch: int = Field(16, gt=0, le=1_000_000)
    """rows or texts in a batch"""
    accumulate: Advanced[int] = Field(1, gt=0)
    """batches whose gradients are summed before each step"""
    optimizer: Advanced[Literal["adamw", "muon"]] = "adamw"
    """AdamW for all parameters, or Muon for the matrices inside the blocks and AdamW for the rest"""
    precision: Advanced[Literal["auto", "float32", "bfloat16"]] = "auto"
    """precision of matrix products in training; auto: bfloat16 where the hardware multiplies it natively"""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        named = [name for name in ("steps", "tokens", "epochs", "minutes") if getattr(self, name) is not None]
        if len(named) > 1:
            raise ValueError(f"name one budget, not {len(named)}: {', '.join(named)}; remove all but one")
        return self


class TrainConfig(RunLength):
    """How long to train, and how. Name at most one budget: steps, tokens, epochs or minutes."""

    learning_rate: float = Field(1e-3, gt=0)
    """peak learning rate of AdamW"""
    muon_learning_rate: InFile[float] = Field(0.02, gt=0)
    """peak learning rate of Muon"""
    schedule: InFile[Annotated[str, AfterValidator(SCHEDULES.known)]] = "cosine"
    """learning-rate schedule: cosine, linear, trapezoid or constant"""
    warmup: InFile[float] = Field(0.05, ge=0, lt=1)
    """fraction of the run in which the learning rate rises to its peak"""
    weight_decay: InFile[float] = Field(0.1, ge=0)
    """weight decay of matrices and embeddings; biases and norms have none"""
    beta_2: InFile[float] = Field(0.98, gt=0, lt=1)
    """AdamW's second beta"""
    clip: InFile[float] = Field(1.0, ge=0)
    """largest gradient norm; 0: no limit"""
    evaluate_every: InFile[int] = Field(0, ge=0)
    """steps between held-out evaluations; 0: ten evaluations in a run"""
    checkpoint_every: InFile[int] = Field(0, ge=0)
    """steps between checkpoints; 0: ten checkpoints in a run, or fewer, a minute apart"""

    def count_steps(self, rows: int, row_tokens: float, epochs: float) -> int | None:
        """The budget in steps, for epochs of ``rows`` rows with ``row_tokens`` tokens each; None for a budget in minutes.

        ``epochs`` is the budget if the settings name none.
        """
        if self.minutes is not None:
            return None
        per_step = self.batch * self.accumulate
        if self.tokens is not None:
            return max(1, round(self.tokens / (per_step * row_tokens)))
        return self.steps or max(1, round((self.epochs or epochs) * rows / per_step))

    def count_text_steps(self, texts: int, mean_tokens: float, epochs: float) -> int | None:
        """The budget in steps for texts: the last batch of an epoch may be short, but is a full step."""
        return self.count_steps(-(-texts // self.batch) * self.batch, mean_tokens, epochs)


class PretrainTrainConfig(TrainConfig):
    """Length and settings of pretraining. The defaults needed the fewest tokens on a small text (results/performance.md)."""

    batch: int = Field(8, gt=0, le=1_000_000)
    """rows in a batch"""
    learning_rate: float = Field(1e-2, gt=0)
    """peak learning rate of AdamW"""
    muon_learning_rate: Advanced[float] = Field(0.01, gt=0)
    """peak learning rate of Muon"""
    optimizer: Advanced[Literal["adamw", "muon"]] = "muon"
    """Muon for the matrices inside the blocks and AdamW for the rest, or AdamW for all parameters, which needs a learning rate of
    1e-3 to 3e-3"""
    schedule: InFile[Annotated[str, AfterValidator(SCHEDULES.known)]] = "trapezoid"
    """learning-rate schedule: cosine, linear, trapezoid or constant"""
    compile: Effectless[Advanced[bool]] = False
    """compile the blocks with torch: half a minute before the first step, up to a twelfth less per step (docs: performance); on a
    GPU they always are, unless --minutes is given"""

    @model_validator(mode="after")
    def _budget_without_compiling(self) -> PretrainTrainConfig:
        if self.compile and self.minutes is not None:
            raise ValueError("with compile, a budget in minutes would be spent on compiling; name a budget in tokens instead")
        return self
