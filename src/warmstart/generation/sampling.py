"""Choosing the next token: greedy, or sampled with temperature, top-k and top-p.

Letters: V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from warmstart.config import Advanced, Config


class GenerateConfig(Config):
    """How text is generated."""

    max_new_tokens: int = Field(60, gt=0)
    """generate at most this many tokens"""
    greedy: bool = False
    """always choose the most probable token"""
    temperature: float = Field(1.0, gt=0)
    """divides the logits; below 1: less random, above 1: more random"""
    top_k: int | None = Field(None, gt=0)
    """sample from the k most probable tokens only"""
    top_p: float | None = Field(None, gt=0, le=1)
    """sample from the most probable tokens that together have this probability (Holtzman et al. 2020, section 3.1)"""
    seed: int = 0
    """seed of the sampling"""
    precision: Advanced[Literal["float32", "bfloat16"]] = "float32"
    """bfloat16 halves the memory read for every token; the text may differ slightly, and may depend on the other prompts"""


def sampling_probabilities(logits: Tensor, config: GenerateConfig) -> Tensor:
    """Probabilities (V,) after temperature, top-k and top-p; tokens that are cut off have probability 0.

    With logits ``log([.5 .3 .2])`` and top_p 0.6, the two most probable tokens are left: ``[.625 .375 0]``.
    """
    ranked, order = (logits.double() / config.temperature).sort(descending=True, stable=True)  # the first of equals wins
    ranked, order = ranked[: config.top_k], order[: config.top_k]
    kept = ranked.softmax(dim=-1)
    if config.top_p is not None:
        more_probable = kept.cumsum(dim=-1) - kept
        kept = kept.where(more_probable < config.top_p, 0.0)
    return torch.zeros(len(logits), dtype=kept.dtype).index_copy(0, order, kept / kept.sum())


def draw_token(probabilities: Tensor, rng: np.random.Generator) -> int:
    """One token id, drawn with these probabilities (V,)."""
    token = int(np.searchsorted(probabilities.cumsum(dim=-1).numpy(), rng.random(), side="right"))
    return min(token, len(probabilities) - 1)
