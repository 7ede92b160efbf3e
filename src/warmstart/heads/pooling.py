"""Pooling: from one hidden state per token to one per text, and from one per window to one per text.

Letters: B batch, T tokens, D width, R rows: windows of B texts. ``attention_mask`` (B, T) is True at real tokens; None: all are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from warmstart.registry import Registry

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
"""How the hidden states of a text become one."""


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
