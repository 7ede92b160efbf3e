"""The settings of a training run that any model and any data share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from warmstart.config import Config
from warmstart.engine.schedule import SCHEDULES


class TrainConfig(Config):
    """How long to train, and how. Name at most one budget: steps, tokens, epochs or minutes."""

    steps: int | None = Field(None, gt=0)
    """budget in optimiser steps"""
    tokens: int | None = Field(None, gt=0)
    """budget in tokens read"""
    epochs: float | None = Field(None, gt=0)
    """budget in passes over the data"""
    minutes: float | None = Field(None, gt=0)
    """budget in minutes of training; such a run cannot be repeated to the bit"""
    batch: int = Field(16, gt=0)
    """rows or texts read at once"""
    accumulate: int = Field(1, gt=0)
    """batches summed up before each step"""
    learning_rate: float = Field(1e-3, gt=0)
    """highest rate of AdamW"""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW for all, or Muon for the matrices inside the blocks and AdamW for the rest"""
    muon_rate: float = Field(0.02, gt=0)
    """highest rate of Muon"""
    schedule: Annotated[str, AfterValidator(SCHEDULES.known)] = "cosine"
    """cosine, linear, trapezoid or constant"""
    warmup: float = Field(0.05, ge=0, lt=1)
    """share of the run in which the rate rises"""
    floor: float = Field(0.0, ge=0, le=1)
    """share of the highest rate at the end"""
    weight_decay: float = Field(0.1, ge=0)
    """pull of matrices towards zero; biases and norms are left alone"""
    beta_2: float = Field(0.98, gt=0, lt=1)
    """memory of AdamW's second moment"""
    clip: float = Field(1.0, ge=0)
    """largest norm of the gradient; 0 for no limit"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """arithmetic of matrix products in training; auto: bfloat16 where the processor multiplies it natively"""
    evaluate_every: int = Field(0, ge=0)
    """steps between held-out evaluations; 0: ten in a run"""
    checkpoint_every: int = Field(0, ge=0)
    """steps between checkpoints; 0: ten in a run"""

    @model_validator(mode="after")
    def _one_budget(self) -> TrainConfig:
        named = [name for name in ("steps", "tokens", "epochs", "minutes") if getattr(self, name) is not None]
        if len(named) > 1:
            raise ValueError(f"name one budget, but {len(named)} came: {', '.join(named)}; remove all but one")
        return self

    def count_steps(self, rows: int, row_tokens: float, epochs: float) -> int | None:
        """The budget in steps, given how many rows one epoch has and how many tokens a row; None for a budget in minutes.

        Where no budget is named, it is ``epochs`` passes.
        """
        if self.minutes is not None:
            return None
        per_step = self.batch * self.accumulate
        if self.tokens is not None:
            return max(1, round(self.tokens / (per_step * row_tokens)))
        return self.steps or max(1, round((self.epochs or epochs) * rows / per_step))

    def count_text_steps(self, texts: int, mean_tokens: float, epochs: float) -> int | None:
        """The same for texts that an epoch reads once each: its last batch may be short, and is a whole step all the same."""
        return self.count_steps(-(-texts // self.batch) * self.batch, mean_tokens, epochs)
