"""Attention: which tokens may attend to which, two ways to make the weights, and the KV cache that makes generation cheap.

Each attention has one fast path and one that also returns its weights; a test holds them equal. Masks are boolean: True = may
attend.

Letters: B batch, T query tokens, S key tokens (T and those in the cache), D width, H heads, G heads of keys and values, K head
width.
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
from warmstart.dropout import dropout, shares_batches
from warmstart.errors import ModelError
from warmstart.system.products import Linear

MAX_EXPLICIT_KEYS = 512
"""number of keys up to which plain matrix products on a CPU beat torch's fused kernel, for more than one query"""


@dataclass(frozen=True)
class AttentionMask:
    """The tokens that each token may attend to: causal or not, within a window or not, never to padding."""

    causal: bool
    """each token attends only to itself and the tokens before it"""
    queries: int
    """T, the number of query tokens"""
    device: torch.device
    real: Tensor | None = None
    """(B, S) bool, True at real tokens; None: all are real"""
    past: int = 0
    """number of key tokens before the first query token (those in the cache)"""
    window: int | None = None
    """number of tokens on either side that a token may attend to; None: all"""
    distances: Tensor | None = None
    """(1, H, T, S) added to the scores; None: nothing"""

    def __post_init__(self) -> None:
        if self.real is not None and self.real.dtype is not torch.bool:
            raise ModelError(
                f"an attention mask must be boolean, True at real tokens, but this one is {self.real.dtype}; write `mask.bool()`"
            )

    @cached_property
    def is_full(self) -> bool:
        """Every token attends to every other: there is nothing to mask, nor to add."""
        plain = self.real is None and self.window is None and self.distances is None
        return plain and (not self.causal or self.queries == 1)

    @cached_property
    def is_implicit(self) -> bool:
        """The fused kernel can apply the mask itself (nothing masked, or plainly causal): no matrix is needed."""
        plain = self.real is None and self.window is None and self.distances is None
        return self.is_full or (plain and self.past == 0)

    @cached_property
    def matrix(self) -> Tensor:
        """(B or 1, 1, T, S) bool. A token always attends to itself, so that rows of padding stay finite."""
        keys = self.past + self.queries
        key_positions = torch.arange(keys, device=self.device)
        query_positions = key_positions[self.past :, None]  # (T, 1)
        everything = (key_positions >= 0).expand(self.queries, -1)
        allowed = key_positions <= query_positions if self.causal else everything  # (T, S)
        if self.window is not None:
            allowed = allowed & ((key_positions - query_positions).abs() <= self.window)
        if self.real is not None:
            allowed = allowed & self.real[:, None, :] | (key_positions == query_positions)  # (B, T, S)
        return allowed.view(-1, 1, self.queries, keys)

    @cached_property
    def bias(self) -> Tensor:
        """(B or 1, H or 1, T, S) float32, added to the scores: minus infinity where a token may not attend, else its distance's."""
        allowed = torch.zeros_like(self.matrix, dtype=torch.float32).masked_fill(~self.matrix, -math.inf)
        return allowed if self.distances is None else allowed + self.distances.float()


@dataclass
class LayerKVCache:
    """Keys and values of the tokens that one block has read, in memory allocated once: a step copies only its own tokens."""

    capacity: int
    """tokens per row that fit"""
    keys: Tensor | None = None
    """(B, G, capacity, K); None: nothing is cached yet"""
    values: Tensor | None = None
    """(B, G, capacity, K); None: nothing is cached yet"""
    tokens: int = 0
    """tokens per row that are cached"""

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append ``keys`` (B, G, T, K) and ``values`` (B, G, T, K); returns all cached ones, each (B, G, S, K)."""
        if self.keys is None or self.values is None:
            shape = (*keys.shape[:2], self.capacity, keys.shape[3])
            self.keys, self.values = keys.new_empty(shape), values.new_empty(shape)
        start, self.tokens = self.tokens, self.tokens + keys.shape[2]
        for cached, new in ((self.keys, keys), (self.values, values)):
            cached.narrow(2, start, keys.shape[2]).copy_(new)
        return self.keys.narrow(2, 0, self.tokens), self.values.narrow(2, 0, self.tokens)


@dataclass
class KVCache:
    """One ``LayerKVCache`` per block. Give it to the backbone call after call, each time with the new tokens only."""

    layers: list[LayerKVCache]

    @classmethod
    def empty(cls, depth: int, capacity: int) -> KVCache:
        """A cache for a backbone of ``depth`` blocks and at most ``capacity`` tokens per row."""
        return cls([LayerKVCache(capacity) for _ in range(depth)])

    @property
    def tokens(self) -> int:
        """Tokens per row that are cached."""
        return self.layers[0].tokens if self.layers else 0

    def keep(self, rows: Tensor) -> None:
        """Drop every row but those where ``rows`` (B,) is True."""
        for layer in self.layers:
            if layer.keys is not None and layer.values is not None:
                layer.keys, layer.values = layer.keys[rows], layer.values[rows]


class Attention(nn.Module):
    """Softmax(Q K^T / sqrt(K)) V over ``heads`` heads (Vaswani et al. 2017, equation 1).

    Keys and values may have fewer heads (G), each shared by a group of query heads (Ainslie et al. 2023); the cache holds G heads.
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.drop = config.dropout
        self.parts = tuple(heads * config.per_head for heads in (config.heads, config.groups, config.groups))
        """rows of ``qkv`` that make queries, keys and values"""
        self.sharing = config.heads // config.groups
        self.qkv = Linear(config.width, sum(self.parts), bias=config.bias if config.qkv_bias is None else config.qkv_bias)
        self.out = Linear(self.parts[0], config.width, bias=config.bias)
        self.per_head = config.per_head
        if config.qk_norm:
            self.norm_q, self.norm_k = (nn.RMSNorm(config.per_head, eps=config.norm_eps) for _ in "qk")
        self.qk_norm = config.qk_norm

    def forward(
        self,
        x: Tensor,
        mask: AttentionMask,
        cos_sin: tuple[Tensor, Tensor] | None = None,
        kv_cache: LayerKVCache | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) -> (B, T, D), and the attention weights (B, H, T, S) if they are wanted.

        ``cos_sin`` are the cosines and sines of rotary positions, each (B or 1, 1, T, K); None: positions are not rotary.
        """
        split = self.qkv(x).split(self.parts, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.per_head)).transpose(1, 2) for part in split)  # (B, H, T, K), twice (B, G, T, K)
        if self.qk_norm:
            q, k = _normalized(q, self.norm_q), _normalized(k, self.norm_k)
        if cos_sin is not None:
            q, k = rotate(q, cos_sin), rotate(k, cos_sin)
        if kv_cache is not None:
            k, v = kv_cache.extend(k, v)  # (B, G, S, K)
        if self.sharing > 1:
            k, v = (part.repeat_interleave(self.sharing, dim=1) for part in (k, v))  # (B, H, S, K)
        drop = self.drop if self.training else 0.0
        plain = q.device.type == "cpu" and mask.queries > 1 and k.shape[2] <= MAX_EXPLICIT_KEYS
        if need_weights or plain or (drop and shares_batches()):  # the fused kernel draws for the rows that it gets
            mixed, weights = _attend(q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1), mask, v, drop)
        else:
            matrix = None if mask.is_implicit else mask.matrix if mask.distances is None else mask.bias.to(q.dtype)
            mixed, weights = F.scaled_dot_product_attention(q, k, v, matrix, drop, mask.is_implicit and not mask.is_full), None
        return self.out(mixed.transpose(1, 2).flatten(2)), weights if need_weights else None  # (B, T, D)


class Synthesizer(nn.Module):
    """Weights synthesised from each token alone: Softmax(ReLU(X A + a) B + b) V (Tay et al. 2020, "dense" form, equation 3).

    Column s of B belongs to the s-th token of the row, so every row must begin with a real token (pad on the right).
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.drop = config.dropout
        self.hidden = Linear(config.width, config.width)
        self.score = nn.Parameter(torch.empty(config.width // config.heads, config.max_length).uniform_(-0.001, 0.001))
        self.score_bias = nn.Parameter(torch.zeros(config.max_length))
        self.value = Linear(config.width, config.width, bias=config.bias)
        self.out = Linear(config.width, config.width, bias=config.bias)

    def forward(
        self,
        x: Tensor,
        mask: AttentionMask,
        cos_sin: tuple[Tensor, Tensor] | None = None,
        kv_cache: LayerKVCache | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) -> (B, T, D), and the attention weights (B, H, T, S) if they are wanted.

        There are no queries and keys to rotate: ``cos_sin``, each (B or 1, 1, T, K), is ignored.
        """
        if mask.real is not None and not torch.compiler.is_compiling() and not bool(mask.real[:, 0].all()):
            raise ModelError("synthesizer attention needs rows that begin with a real token; pad on the right")
        hidden = F.relu(self.hidden(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        v = self.value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        if kv_cache is not None:
            _, v = kv_cache.extend(v, v)  # there are no keys: the values take their place
        scores = (hidden @ self.score + self.score_bias)[..., : v.shape[2]]  # (B, H, T, S)
        mixed, weights = _attend(scores, mask, v, self.drop if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).flatten(2)), weights if need_weights else None  # (B, T, D)


def _normalized(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """``x`` normalised in its precision: under autocast the norm's weights are wider, and torch would take its slow path."""
    return F.rms_norm(x, x.shape[-1:], norm.weight.to(x.dtype), norm.eps)


def _attend(scores: Tensor, mask: AttentionMask, values: Tensor, drop: float) -> tuple[Tensor, Tensor]:
    """Softmax of the masked scores (B, H, T, S), applied to the values (B, H, S, K); also the weights before dropout."""
    if not mask.is_full:
        scores = scores + mask.bias.to(scores.dtype)
    weights = scores.softmax(dim=-1)
    dropped = dropout(weights, drop) if drop else weights
    return dropped.to(values.dtype) @ values, weights


ATTENTIONS: dict[str, type[Attention] | type[Synthesizer]] = {"dot-product": Attention, "synthesizer": Synthesizer}
"""The ways to make attention weights, by the value of ``BackboneConfig.attention``."""
