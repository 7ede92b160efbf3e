"""What heads that read one pooled hidden state per text share.

Letters: B batch, T tokens, D width, R rows: texts, or windows of N texts.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from warmstart.data.windows import WindowSettings
from warmstart.dropout import Dropout
from warmstart.heads.head import TaskHead, TaskHeadConfig
from warmstart.heads.pooling import POOLINGS, Pooling, join_windows
from warmstart.system.products import Linear


class PooledHeadConfig(WindowSettings, TaskHeadConfig):
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
        self.dropout = Dropout(config.dropout)
        self.score = Linear(width, size)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)
        self.windows = config.windows
        if config.windows == "attention":
            self.window_query = nn.Parameter(torch.zeros(width))  # at first the mean

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, windows: Tensor | None = None) -> Tensor:
        """``hidden_states`` (R, T, D) and ``attention_mask`` (R, T) -> (R, size); padding never counts.

        With ``windows`` (N,), the number of adjacent rows that are windows of each text: (N, size).
        """
        return self.score(self.dropout(self.pooled(hidden_states, attention_mask, windows), texts=windows is not None))

    def pooled(self, hidden_states: Tensor, attention_mask: Tensor | None, windows: Tensor | None) -> Tensor:
        """Each text's state: ``hidden_states`` (R, T, D), ``attention_mask`` (R, T), ``windows`` (N,) -> (R, D) or (N, D)."""
        states = self.pooling(hidden_states, attention_mask)
        if windows is None:
            return states
        assert self.windows != "none", "a head that pools no windows reads one row per text"
        return join_windows(states, windows, self.windows, getattr(self, "window_query", None))

    def window_formula(self) -> str:
        """The number of parameters that weigh windows, to be added to those of the head."""
        return " + D" if self.windows == "attention" else ""
