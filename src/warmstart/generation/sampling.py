"""Choosing the next token: greedy, or sampled with temperature, top-k and top-p.

Letters: V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from warmstart.generation.settings import GenerateConfig


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
