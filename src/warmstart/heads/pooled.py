"""What heads that read one pooled hidden state per text share.

Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field
from torch import Tensor, nn

from warmstart.heads.head import TaskHead, TaskHeadConfig
from warmstart.heads.pooling import POOLINGS, Pooling
from warmstart.products import Linear


class PooledHeadConfig(TaskHeadConfig):
    """The settings that they share."""

    pooling: Annotated[str, AfterValidator(POOLINGS.known)] = "mean"
    """which hidden state of a text is read: mean, last, first, or appended (a classification token at the end)"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """dropout probability of the pooled state"""


class PooledHead(TaskHead):
    """Pooling, dropout, one linear layer with ``size`` outputs."""

    per_token: ClassVar = False

    def __init__(self, config: PooledHeadConfig, width: int, size: int) -> None:
        super().__init__()
        self.pooling: Pooling = POOLINGS[config.pooling]
        self.dropout = nn.Dropout(config.dropout)
        self.score = Linear(width, size)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``hidden_states`` (B, T, D) and ``attention_mask`` (B, T) -> (B, size); padding never counts."""
        return self.score(self.dropout(self.pooling(hidden_states, attention_mask)))
