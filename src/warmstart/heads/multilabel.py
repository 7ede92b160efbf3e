"""The multilabel head: one logistic regression per label.

Letters: B batch, T tokens, C classes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from warmstart.heads.pooled import PooledHead, PooledHeadConfig


class MultilabelHeadConfig(PooledHeadConfig):
    """A head that decides for each of ``classes`` labels whether a text has it."""

    kind: Literal["multilabel"] = "multilabel"
    """name of this head in files"""
    classes: int = Field(gt=0)
    """number of labels (C)"""


class MultilabelHead(PooledHead):
    """A logistic regression per label, each independent of the others."""

    config_class: ClassVar = MultilabelHeadConfig
    hub_task: ClassVar = "text-classification"
    onnx_outputs: ClassVar = ("logits", "probabilities")

    def __init__(self, config: MultilabelHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, config.classes)
        self.config: MultilabelHeadConfig = config

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed binary cross-entropy in nats, a scalar: logits (B, C) against targets (B, C) of 0 and 1.

        The mask (B, T) is not read.
        """
        return F.binary_cross_entropy_with_logits(logits.float(), targets.float(), reduction="sum")

    def random_targets(self, rows: int, tokens: int, generator: np.random.Generator) -> Tensor:
        """(B, C) of 0 and 1."""
        return torch.from_numpy(generator.integers(2, size=(rows, self.config.classes)))

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, C) probabilities from (B, C) logits; they need not sum to 1."""
        return logits.sigmoid()

    def description(self) -> str:
        """For the model card."""
        return f"decides for each of {self.config.classes} labels whether a text has it"

    def parameter_formula(self) -> str:
        """One linear layer."""
        return "D C + C" + self.window_formula()
