"""Choosing the next token: greedy, or drawn with temperature, top-k and top-p.

Letters: V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from warmstart.config import Config


class GenerateConfig(Config):
    """How text is written."""

    tokens: int = Field(60, gt=0)
    """most tokens to write"""
    greedy: bool = False
    """always take the likeliest token"""
    temperature: float = Field(1.0, gt=0)
    """below 1: safer choices, above 1: bolder ones"""
    top_k: int | None = Field(None, gt=0)
    """choose among the k likeliest tokens only"""
    top_p: float | None = Field(None, gt=0, le=1)
    """choose among the likeliest tokens that together have this probability (Holtzman et al. 2020, section 3.1)"""
    seed: int = 0
    """start of the random choices"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: half as much to read for every token; the text may differ in places, and with the rows beside it"""


def keep_likeliest(logits: Tensor, config: GenerateConfig) -> Tensor:
    """Probabilities (V,) after temperature, top-k and top-p; what is left out has probability 0.

    With logits ``log([.5 .3 .2])`` and top_p 0.6: the two likeliest are kept -> ``[.625 .375 0]``.
    """
    ranked, order = (logits.double() / config.temperature).sort(descending=True, stable=True)  # of equals the first wins
    ranked, order = ranked[: config.top_k], order[: config.top_k]
    shares = ranked.softmax(dim=-1)
    if config.top_p is not None:
        shares = shares.where(shares.cumsum(dim=-1) - shares < config.top_p, 0.0)  # left: probability of all that is likelier
    return torch.zeros(len(logits), dtype=shares.dtype).index_copy(0, order, shares / shares.sum())


def pick(shares: Tensor, draw: np.random.Generator) -> int:
    """One index, drawn with these probabilities (V,)."""
    place = int(np.searchsorted(shares.cumsum(dim=-1).numpy(), draw.random(), side="right"))
    return min(place, len(shares) - 1)
