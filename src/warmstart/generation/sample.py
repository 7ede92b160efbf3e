"""Writing from left to right: greedy, or sampled with temperature, top-k and top-p.

Keys and values of what is read are kept, so that a new token costs the same however long the text is. When the backbone's window
is full, the newer half of it is read again and writing goes on.

Letters: B prompts, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from warmstart.backbone import Cache
from warmstart.config import Config
from warmstart.errors import ModelError
from warmstart.model import Bundle, Model
from warmstart.seeding import derive


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


def generate(bundle: Bundle, prompts: Sequence[str], config: GenerateConfig | None = None) -> list[str]:
    """Continue each prompt; returns the continuations alone. They end at an end-of-text token or after ``config.tokens``.

    A prompt's continuation does not depend on the prompts beside it. Raises ``ModelError`` where the model does not write.
    """
    config = config or GenerateConfig()
    if not bundle.generates:
        raise ModelError(
            "this bundle does not write text: it needs a language head pretrained with the objective causal, span or hybrid; "
            "pretrain one, or use `warmstart predict` if it was adapted to labels"
        )
    specials = bundle.tokenizer.specials
    rows = [[specials.eos, *ids] for ids in bundle.tokenizer.encode(prompts)]
    banned = torch.tensor(sorted(specials.all() - {specials.eos}))
    written = [_continue(bundle.model, row, config, banned, specials.eos, i) for i, row in enumerate(rows)]
    return [bundle.tokenizer.decode(ids) for ids in written]


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


@torch.inference_mode()
def _continue(model: Model, ids: list[int], config: GenerateConfig, banned: Tensor, eos: int, row: int) -> list[int]:
    """The token ids that follow ``ids``."""
    draw = np.random.default_rng(derive(config.seed, "generate", row))
    device = next(model.parameters()).device
    window, written = model.backbone.config.max_tokens, list[int]()
    unread, cache = ids[-window:], Cache.empty(model.backbone.config.depth, window)
    while len(written) < config.tokens:
        if cache.tokens + len(unread) > window:
            unread, cache = (ids + written)[-(window // 2 or 1) :], Cache.empty(model.backbone.config.depth, window)
        states = model.backbone(torch.tensor([unread], device=device), causal=True, cache=cache).last  # (1, T, D)
        logits = model.head(states[:, -1:])[0, -1].cpu().index_fill(0, banned, -math.inf)  # (V,)
        chosen = int(logits.argmax()) if config.greedy else _pick(keep_likeliest(logits, config), draw)
        if chosen == eos:
            break
        written.append(chosen)
        unread = [chosen]
    return written


def _pick(shares: Tensor, draw: np.random.Generator) -> int:
    """One index, drawn with these probabilities."""
    place = int(np.searchsorted(shares.cumsum(dim=-1).numpy(), draw.random(), side="right"))
    return min(place, len(shares) - 1)
