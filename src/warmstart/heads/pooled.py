"""The base of heads that read one pooled hidden state per text: pooling, of tokens and of windows, dropout and a linear layer.

Letters: B batch, T tokens, D width, R rows: windows of B or N texts. ``attention_mask`` (B, T) is True at real tokens; None: all
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from warmstart.dropout import Dropout
from warmstart.heads.head import TaskHead
from warmstart.heads.settings import PoolingName, TaskHeadConfig, WindowSettings
from warmstart.registry import Registry
from warmstart.system.products import Linear

Pooling = Callable[[Tensor, Tensor | None], Tensor]


def pool_first(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The state of each text's first real token: (B, T, D) and mask (B, T) -> (B, D)."""
    if attention_mask is None:
        return hidden_states[:, 0]
    return _pick(hidden_states, attention_mask.int().argmax(dim=1))


def pool_last(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The state of each text's last real token, on whichever side the padding is: (B, T, D) and mask (B, T) -> (B, D)."""
    if attention_mask is None:
        return hidden_states[:, -1]
    return _pick(hidden_states, attention_mask.shape[1] - 1 - attention_mask.int().flip(1).argmax(dim=1))


def pool_mean(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The mean state of each text's real tokens: (B, T, D) and mask (B, T) -> (B, D)."""
    if attention_mask is None:
        return hidden_states.mean(dim=1)
    weights = attention_mask.to(hidden_states.dtype) / attention_mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B, T)
    return (hidden_states * weights[..., None]).sum(dim=1)


def _pick(hidden_states: Tensor, positions: Tensor) -> Tensor:
    return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), positions]


POOLINGS: Registry[Pooling] = Registry(
    "pooling",
    {
        "mean": pool_mean,
        "last": pool_last,
        "first": pool_first,
        # a classification token is appended to every text and its state is read (as in the NAACL 2019 tutorial)
        "appended": pool_last,
    },
)
"""Ways to make one state of the hidden states of a text"""


def join_windows(states: Tensor, windows: Tensor, pooling: str, query: Tensor | None = None) -> Tensor:
    """The states (R, D) of windows as one of each text (B, D); ``windows`` (B,) is how many adjacent rows each text has.

    mean, max by dimension, or attention: the mean weighted by ``softmax(states @ query)`` with a learned ``query`` (D,), as for the
    sentences of a document (Yang et al. 2016, section 2.2). A text of one window keeps its state as it is.
    """
    if pooling != "attention":
        return torch.segment_reduce(states, pooling, lengths=windows, axis=0)
    assert query is not None
    scores = states @ query  # (R,)
    largest = torch.segment_reduce(scores.detach(), "max", lengths=windows, axis=0).repeat_interleave(windows)
    weights = (scores - largest).exp()
    weights = weights / torch.segment_reduce(weights, "sum", lengths=windows, axis=0).repeat_interleave(windows)
    return torch.segment_reduce(weights[:, None] * states, "sum", lengths=windows, axis=0)


class PooledHeadConfig(WindowSettings, TaskHeadConfig):
    """The settings of heads that read one pooled state per text."""

    pooling: PoolingName = "mean"
    """hidden state of a text that is read: mean, last, first, or appended (a classification token at the end)"""
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
