"""The detection head: for each token a logit that it was replaced (ELECTRA: Clark et al. 2020, section 2; appendix A).

Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.heads.head import HeadConfig, LossHead
from warmstart.system.products import Linear
from warmstart.types import IGNORE


class DetectionHeadConfig(HeadConfig):
    """A head that tells which tokens were replaced."""

    kind: Literal["detection"] = "detection"
    """name of this head in files"""


class DetectionHead(LossHead):
    """Linear, gelu and one logit, for every token alone."""

    config_class: ClassVar = DetectionHeadConfig
    per_token: ClassVar = True
    hub_task: ClassVar = "feature-extraction"
    onnx_outputs: ClassVar = ("logits",)

    def __init__(self, config: DetectionHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__()
        self.config: DetectionHeadConfig = config
        self.dense, self.score = Linear(width, width), Linear(width, 1)
        for layer in (self.dense, self.score):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``hidden_states`` (..., D) -> (..., 1) logits; ``attention_mask`` (B, T) is not read, because tokens do not mix."""
        logits: Tensor = self.score(F.gelu(self.dense(hidden_states)))
        return logits

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed binary cross-entropy in nats, a scalar: logits (B, T, 1) against targets (B, T), 1 at replaced tokens, else 0.

        Tokens with ``IGNORE`` do not count. The mask (B, T) is not read.
        """
        counts = targets != IGNORE
        return F.binary_cross_entropy_with_logits(logits[..., 0].float()[counts], targets[counts].float(), reduction="sum")

    def random_targets(self, rows: int, tokens: int, generator: np.random.Generator) -> Tensor:
        """(B, T) zeros and ones."""
        return torch.from_numpy(generator.integers(2, size=(rows, tokens)))

    def description(self) -> str:
        """For the model card."""
        return "tells which tokens of a text were replaced"

    def parameter_formula(self) -> str:
        """Two linear layers."""
        return "D D + 2 D + 1"
