"""Pooling: from one state per token to one state per text.

Letters: B batch, T tokens, D width. ``mask`` (B, T) is True at real tokens, None where all are real.
"""

from __future__ import annotations

import torch
from torch import Tensor

from warmstart.registry import Registry


def pool_first(states: Tensor, mask: Tensor | None) -> Tensor:
    """The state of each text's first real token: (B, T, D) -> (B, D)."""
    if mask is None:
        return states[:, 0]
    return _pick(states, mask.int().argmax(dim=1))


def pool_last(states: Tensor, mask: Tensor | None) -> Tensor:
    """The state of each text's last real token, wherever padding stands: (B, T, D) -> (B, D)."""
    if mask is None:
        return states[:, -1]
    return _pick(states, mask.shape[1] - 1 - mask.int().flip(1).argmax(dim=1))


def pool_mean(states: Tensor, mask: Tensor | None) -> Tensor:
    """The mean state of each text's real tokens: (B, T, D) -> (B, D)."""
    if mask is None:
        return states.mean(dim=1)
    share = mask.to(states.dtype) / mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B, T)
    return (states * share[..., None]).sum(dim=1)


def _pick(states: Tensor, places: Tensor) -> Tensor:
    return states[torch.arange(states.shape[0], device=states.device), places]


POOLINGS = Registry(
    "pooling",
    {
        "mean": pool_mean,
        "last": pool_last,
        "first": pool_first,
        # a classification token is appended to every text and its state is read (the NAACL 2019 tutorial's way)
        "appended": pool_last,
    },
)
"""How a text's states become one."""
