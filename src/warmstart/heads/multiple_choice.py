"""The multiple-choice head: one logit per alternative.

Letters: B questions, A alternatives, T tokens.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from warmstart.heads.pooled import PooledHead, PooledHeadConfig


class MultipleChoiceHeadConfig(PooledHeadConfig):
    """A head that chooses among alternatives, each of which is a row of its own."""

    kind: Literal["multiple-choice"] = "multiple-choice"
    """name of this head in files"""
    alternatives: int = Field(gt=1)
    """alternatives per question (A)"""


class MultipleChoiceHead(PooledHead):
    """A logit for each row; the rows of one question are adjacent, and their logits compete."""

    config_class: ClassVar = MultipleChoiceHeadConfig
    hub_task: ClassVar = "multiple-choice"
    onnx_outputs: ClassVar = ("logits",)

    def __init__(self, config: MultipleChoiceHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, 1)
        self.config: MultipleChoiceHeadConfig = config
        self.rows_per_target = config.alternatives

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy in nats, a scalar: logits (B A, 1) against indices of the right alternatives (B,).

        The mask (B A, T) is not read.
        """
        return F.cross_entropy(logits.float().view(-1, self.config.alternatives), targets, reduction="sum")

    def random_targets(self, rows: int, tokens: int, generator: np.random.Generator) -> Tensor:
        """(B,) indices of alternatives, from B A rows."""
        return torch.from_numpy(generator.integers(self.config.alternatives, size=rows // self.config.alternatives))

    def example(self) -> tuple[str, ...]:
        """For the model card."""
        return ("a text", *(f"alternative {number}" for number in range(1, self.config.alternatives + 1)))

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, A) probabilities from (B A, 1) logits."""
        return logits.view(-1, self.config.alternatives).softmax(dim=-1)

    def description(self) -> str:
        """For the model card."""
        return f"chooses among {self.config.alternatives} alternatives"

    def parameter_formula(self) -> str:
        """One linear layer with one output."""
        return "D + 1"
