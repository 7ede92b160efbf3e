"""Attention: who may see whom, the two kinds of weights, and the cache that makes generation cheap.

Each kind has one fast path and one path that also returns its weights; a test holds them equal. Masks are boolean, True = may see.

Letters: B batch, T tokens asking, S tokens seen, D width, H heads, K head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.backbone.config import BackboneConfig
from warmstart.backbone.positions import rotate
from warmstart.errors import ModelError

EXPLICIT = 512
"""on a processor, plain matrix products are faster than torch's fused kernel up to about this many tokens, if more than one asks"""


@dataclass(frozen=True)
class Sight:
    """Which tokens each token may see: causal or not, and which of them are padding."""

    causal: bool
    asking: int
    """T, the number of asking tokens"""
    device: torch.device
    real: Tensor | None = None
    """(B, S) bool, True at real tokens; None where all are real"""
    past: int = 0
    """how many seen tokens stand before the first asking one (they are in the cache)"""
    window: int | None = None
    """how many tokens to either side may be seen; None: all"""

    def __post_init__(self) -> None:
        if self.real is not None and self.real.dtype is not torch.bool:
            came = self.real.dtype
            raise ModelError(f"a mask must be boolean, True at real tokens, but came as {came}; write `mask.bool()`")

    @cached_property
    def everything(self) -> bool:
        """Every token sees every other: no mask is needed."""
        return self.real is None and self.window is None and (not self.causal or self.asking == 1)

    @cached_property
    def plain(self) -> bool:
        """The fused kernel needs no explicit mask."""
        return self.everything or (self.real is None and self.window is None and self.past == 0)

    @cached_property
    def matrix(self) -> Tensor:
        """(B or 1, 1, T, S) bool. A token always sees itself, so that padding rows stay finite numbers."""
        seen = self.past + self.asking
        places = torch.arange(seen, device=self.device)
        here = places[self.past :, None]  # (T, 1)
        allowed = places <= here if self.causal else (places >= 0).expand(self.asking, -1)  # (T, S)
        if self.window is not None:
            allowed = allowed & ((places - here).abs() <= self.window)
        if self.real is not None:
            allowed = allowed & self.real[:, None, :] | (places == here)  # (B, T, S)
        return allowed.view(-1, 1, self.asking, seen)

    @cached_property
    def bias(self) -> Tensor:
        """What is added to scores: 0 where a token may see, minus infinity where not; (B or 1, 1, T, S)."""
        return torch.zeros_like(self.matrix, dtype=torch.float32).masked_fill(~self.matrix, -math.inf)


@dataclass
class Memory:
    """Keys and values of the tokens one block has read, in room taken once: a step copies its own tokens only."""

    room: int
    keys: Tensor | None = None
    values: Tensor | None = None
    tokens: int = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, T, K); returns all that is kept, (B, H, S, K)."""
        if self.keys is None or self.values is None:
            shape = (*keys.shape[:2], self.room, keys.shape[3])
            self.keys, self.values = keys.new_empty(shape), values.new_empty(shape)
        start, self.tokens = self.tokens, self.tokens + keys.shape[2]
        for kept, new in ((self.keys, keys), (self.values, values)):
            kept.narrow(2, start, keys.shape[2]).copy_(new)
        return self.keys.narrow(2, 0, self.tokens), self.values.narrow(2, 0, self.tokens)


@dataclass
class Cache:
    """One ``Memory`` per block: give it to the backbone call after call, with the new tokens only."""

    blocks: list[Memory]

    @classmethod
    def empty(cls, depth: int, room: int) -> Cache:
        """A cache for a backbone of ``depth`` blocks and at most ``room`` tokens a row."""
        return cls([Memory(room) for _ in range(depth)])

    @property
    def tokens(self) -> int:
        """How many tokens each row holds."""
        return self.blocks[0].tokens if self.blocks else 0

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but those where ``rows`` (B,) is True."""
        for memory in self.blocks:
            if memory.keys is not None and memory.values is not None:
                memory.keys, memory.values = memory.keys[rows], memory.values[rows]


class Attention(nn.Module):
    """Softmax(Q K^T / sqrt(K)) V over ``heads`` heads (Vaswani et al. 2017, equation 1).

    Keys and values may have fewer heads, G, each of which serves a group of queries (Ainslie et al. 2023); the cache holds those.
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.drop = config.dropout
        self.parts = tuple(heads * config.per_head for heads in (config.heads, config.groups, config.groups))
        """rows of ``qkv`` that make queries, keys and values"""
        self.sharing = config.heads // config.groups
        self.qkv = nn.Linear(config.width, sum(self.parts), bias=config.bias if config.qkv_bias is None else config.qkv_bias)
        self.out = nn.Linear(self.parts[0], config.width, bias=config.bias)
        self.per_head = config.per_head
        if config.qk_norm:
            self.norm_q, self.norm_k = (nn.RMSNorm(config.per_head, eps=config.norm_eps) for _ in "qk")
        self.qk_norm = config.qk_norm

    def forward(
        self, x: Tensor, sight: Sight, turn: tuple[Tensor, Tensor] | None, memory: Memory | None, want_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) -> (B, T, D), and the weights (B, H, T, S) where they are wanted."""
        split = self.qkv(x).split(self.parts, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.per_head)).transpose(1, 2) for part in split)  # (B, H, T, K), twice (B, G, T, K)
        if self.qk_norm:
            q, k = _normed(q, self.norm_q), _normed(k, self.norm_k)
        if turn is not None:
            q, k = rotate(q, turn), rotate(k, turn)
        if memory is not None:
            k, v = memory.extend(k, v)  # (B, G, S, K)
        if self.sharing > 1:
            k, v = (part.repeat_interleave(self.sharing, dim=1) for part in (k, v))  # (B, H, S, K)
        drop = self.drop if self.training else 0.0
        if want_weights or (q.device.type == "cpu" and sight.asking > 1 and k.shape[2] <= EXPLICIT):
            mixed, weights = _weigh(q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1), sight, v, drop)
        else:
            mask = None if sight.plain else sight.matrix
            mixed, weights = F.scaled_dot_product_attention(q, k, v, mask, drop, sight.plain and not sight.everything), None
        return self.out(mixed.transpose(1, 2).flatten(2)), weights if want_weights else None  # (B, T, D)


class Synthesizer(nn.Module):
    """Weights synthesised from each token alone: Softmax(ReLU(X A + a) B + b) V (Tay et al. 2020, "dense" form, equation 3).

    Column s of B belongs to the s-th token of the row, so rows must begin with a real token (padding stands on the right).
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.drop = config.dropout
        self.hidden = nn.Linear(config.width, config.width)
        self.score = nn.Parameter(torch.empty(config.width // config.heads, config.max_tokens).uniform_(-0.001, 0.001))
        self.score_bias = nn.Parameter(torch.zeros(config.max_tokens))
        self.value = nn.Linear(config.width, config.width, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(
        self, x: Tensor, sight: Sight, turn: tuple[Tensor, Tensor] | None, memory: Memory | None, want_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) -> (B, T, D), and the weights (B, H, T, S) where they are wanted."""
        if sight.real is not None and not torch.compiler.is_compiling() and not bool(sight.real[:, 0].all()):
            raise ModelError("synthesizer attention needs rows that begin with a real token; pad on the right")
        hidden = F.relu(self.hidden(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        v = self.value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        if memory is not None:
            _, v = memory.extend(v, v)  # there are no keys: the values stand in for them
        scores = (hidden @ self.score + self.score_bias)[..., : v.shape[2]]  # (B, H, T, S)
        mixed, weights = _weigh(scores, sight, v, self.drop if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).flatten(2)), weights if want_weights else None


def _normed(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """In the arithmetic of ``x``: under autocast the weights are wider than what they scale, and torch would go the slow way."""
    return F.rms_norm(x, x.shape[-1:], norm.weight.to(x.dtype), norm.eps)


def _weigh(scores: Tensor, sight: Sight, values: Tensor, drop: float) -> tuple[Tensor, Tensor]:
    """Softmax of the scores (B, H, T, S) over what may be seen, applied to the values (B, H, S, K); also the weights."""
    if not sight.everything:
        scores = scores + sight.bias.to(scores.dtype)
    weights = scores.softmax(dim=-1)
    dropped = F.dropout(weights, drop) if drop else weights
    return dropped.to(values.dtype) @ values, weights


ATTENTIONS: dict[str, type[Attention] | type[Synthesizer]] = {"dot-product": Attention, "synthesizer": Synthesizer}
