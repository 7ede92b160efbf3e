"""The regression head: a number per text.

Letters: B batch, T tokens.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from warmstart.heads.pooled import PooledHead, PooledHeadConfig


class RegressionHeadConfig(PooledHeadConfig):
    """A head that gives each text a number."""

    kind: Literal["regression"] = "regression"
    """name of this head in files"""
    mean: float = 0.0
    """mean of the training targets"""
    std: float = Field(1.0, gt=0)
    """their standard deviation: the network learns standardised numbers, predictions are in the user's units"""


class RegressionHead(PooledHead):
    """One number per text."""

    config_class: ClassVar = RegressionHeadConfig
    hub_task: ClassVar = "text-classification"
    onnx_outputs: ClassVar = ("logits", "number")

    def __init__(self, config: RegressionHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, 1)
        self.config: RegressionHeadConfig = config

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed squared error of standardised numbers, a scalar: logits (B, 1) against targets (B,) in the user's units.

        The mask (B, T) is not read.
        """
        # standardised in the targets' own precision: dates are large numbers
        standardised = ((targets - self.config.mean) / self.config.std).float()
        return (logits[:, 0].float() - standardised).square().sum()

    def random_targets(self, rows: int, tokens: int, generator: np.random.Generator) -> Tensor:
        """(B,) numbers around the mean of the training targets."""
        return torch.from_numpy(generator.normal(self.config.mean, self.config.std, rows))

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, 1) numbers in the units of the targets, from (B, 1) logits."""
        return logits * self.config.std + self.config.mean

    def description(self) -> str:
        """For the model card."""
        return "predicts a number for each text"

    def parameter_formula(self) -> str:
        """One linear layer with one output."""
        return "D + 1" + self.window_formula()
