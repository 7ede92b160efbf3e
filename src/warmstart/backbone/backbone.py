"""The backbone: token ids in, one state per token out, after the embedding and after every block.

It knows nothing of heads, objectives or tokenizers. Whether attention looks back only (causal) or both ways is chosen per call.
It does not subclass, copy or fork for adaptation: schemes insert their modules from outside.

Letters: B batch, T tokens, S tokens seen (cached ones included), D width, H heads, L depth, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from warmstart.backbone.attention import Cache, Sight
from warmstart.backbone.block import Block, make_norm
from warmstart.backbone.config import BackboneConfig
from warmstart.backbone.positions import Rotary, Sinusoidal
from warmstart.errors import ModelError

BELOW = ("embedding", "types", "positions", "embedding_norm")
"""the parts of a backbone that stand below its blocks"""


@dataclass(frozen=True)
class States:
    """What a backbone returns, always in this form."""

    layers: tuple[Tensor, ...]
    """L + 1 tensors (B, T, D): the embedding first, then each block's sum"""
    last: Tensor
    """(B, T, D): the last of them, normalised where the backbone ends in a norm; what heads read"""
    weights: tuple[Tensor, ...] = ()
    """L tensors (B, H, T, S) of attention weights, where they were asked for"""


class Backbone(nn.Module):
    """A Transformer with the switches of ``BackboneConfig`` (Vaswani et al. 2017)."""

    def __init__(self, config: BackboneConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, config.width)
        self.types = nn.Embedding(config.types, config.width) if config.types else None
        self.positions = _make_positions(config)
        self.window_positions = Rotary(config.max_tokens, config.per_head, config.window_base) if _two_turns(config) else None
        self.embedding_norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, first=i == 0) for i in range(config.depth))
        self.norm = make_norm(config) if config.norm == "pre" else nn.Identity()
        self._start()

    def forward(
        self,
        ids: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = True,
        cache: Cache | None = None,
        weights: bool = False,
        types: Tensor | None = None,
    ) -> States:
        """States of the tokens ``ids`` (B, T).

        ``mask`` (B, S), True at real tokens, covers the cached tokens too; padding may stand on either side and never changes
        another token's state. With a ``cache`` only the new tokens are given. ``types`` (B, T) are the tokens' kinds, where the
        backbone has any; None: all are of kind 0. Raises ``ModelError`` for rows longer than
        ``max_tokens`` and for ids outside the vocabulary.
        """
        past = cache.tokens if cache else 0
        self._check(ids, past)
        sight = Sight(causal, ids.shape[1], ids.device, mask, past)
        places = self._places(ids, mask, past)
        x = self._embed(ids, places, types)  # (B, T, D)
        looks = self._looks(sight, places)
        layers, seen = [x], []
        for i, block in enumerate(self.blocks):
            look = looks[self.config.is_local(i)]
            x, weight = block(x, *look, cache.blocks[i] if cache else None, weights)  # (B, T, D)
            layers.append(x)
            if weight is not None:
                seen.append(weight)  # (B, H, T, S)
        return States(tuple(layers), self.norm(x), tuple(seen))

    def _embed(self, ids: Tensor, places: Tensor, types: Tensor | None) -> Tensor:
        x = self.embedding(ids)  # (B, T, D)
        if self.config.scale_embeddings:
            x = x * math.sqrt(self.config.width)
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        elif types is not None and bool(types.any()):
            raise ModelError("this backbone knows no types of tokens (its setting `types` is 0); leave them out")
        if not isinstance(self.positions, Rotary):
            x = x + self.positions(places + self.config.position_offset if self.config.position_offset else places)
        return self.dropout(self.embedding_norm(x))

    def _looks(self, sight: Sight, places: Tensor) -> tuple[tuple[Sight, tuple[Tensor, Tensor] | None], ...]:
        """What blocks may see and how their queries and keys are turned: those that see all, and those with a window."""
        turn = self.positions(places) if isinstance(self.positions, Rotary) else None
        if self.config.window is None:
            return ((sight, turn),)
        near = replace(sight, window=self.config.window)
        return (sight, turn), (near, self.window_positions(places) if self.window_positions is not None else turn)

    def _places(self, ids: Tensor, mask: Tensor | None, past: int) -> Tensor:
        """Positions (B or 1, T), counted over real tokens, so that padding on the left does not shift a text."""
        if mask is None:
            return torch.arange(past, past + ids.shape[1], device=ids.device)[None]
        return (mask.long().cumsum(dim=1) - 1).clamp(min=0)[:, past:]

    def _check(self, ids: Tensor, past: int) -> None:
        if torch.compiler.is_compiling():  # a graph is made of this: what it will be given is not known yet
            return
        longest = past + ids.shape[1]
        if longest > self.config.max_tokens:
            raise ModelError(
                f"a row must be at most max_tokens={self.config.max_tokens} tokens long, but one of {longest} came; "
                "cut the text, or pretrain with a larger max_tokens"
            )
        if ids.device.type == "cpu" and ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            raise ModelError(
                f"token ids must lie in 0..{self.vocab_size - 1}, but came from {int(ids.min())} to {int(ids.max())}; "
                "the tokenizer does not belong to this backbone"
            )

    def _start(self) -> None:
        """Initial weights: normal with ``init_std``; projections into the residual sum / sqrt(2 L) (GPT-2)."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                scale = math.sqrt(2 * self.config.depth) if name.endswith(".out") else 1.0
                nn.init.normal_(module.weight, std=self.config.init_std / scale)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


def _make_positions(config: BackboneConfig) -> nn.Module:
    if config.positions == "learned":
        return nn.Embedding(config.position_offset + config.max_tokens, config.width)
    if config.positions == "sinusoidal":
        return Sinusoidal(config.max_tokens, config.width)
    return Rotary(config.max_tokens, config.per_head, config.rotary_base, config.rotary_stretch)


def _two_turns(config: BackboneConfig) -> bool:
    return config.window is not None and config.positions == "rotary" and config.window_base != config.rotary_base
