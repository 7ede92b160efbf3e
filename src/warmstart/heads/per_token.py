"""What heads that read the hidden state of every token share.

Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from warmstart.dropout import Dropout
from warmstart.heads.head import TaskHead, TaskHeadConfig
from warmstart.system.products import Linear


class PerTokenHeadConfig(TaskHeadConfig):
    """The settings that they share."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """dropout probability of each hidden state"""


class PerTokenHead(TaskHead):
    """Dropout and one linear layer with ``size`` outputs, for every token alone."""

    per_token: ClassVar = True

    def __init__(self, config: PerTokenHeadConfig, width: int, size: int) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.score = Linear(width, size)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``hidden_states`` (B, T, D) -> (B, T, size); ``attention_mask`` (B, T) is not read, because tokens do not mix."""
        return self.score(self.dropout(hidden_states))
