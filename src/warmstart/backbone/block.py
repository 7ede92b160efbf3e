"""One block: attention and a feed-forward layer, each added to its input.

Letters: B batch, T query tokens, S key tokens, D width, H heads, K head width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.backbone.attention import ATTENTIONS, AttentionMask, LayerKVCache
from warmstart.backbone.config import BackboneConfig
from warmstart.dropout import Dropout
from warmstart.system.products import Linear

GATED = ("swiglu", "geglu")
"""activations whose inner layer is twice as wide: one half is a gate for the other"""


def make_norm(config: BackboneConfig) -> nn.Module:
    """The normalisation that the config names, over the last dimension of (B, T, D)."""
    if config.norm_type == "rms":
        return nn.RMSNorm(config.width, eps=config.norm_eps)
    return nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)


class FeedForward(nn.Module):
    """Two linear layers and a non-linearity, applied to each token alone."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.activation = config.activation
        halves = 2 if config.activation in GATED else 1  # gate and value, multiplied (Shazeer 2020, equation 6)
        self.inner = Linear(config.width, halves * config.feedforward, bias=config.bias)
        self.out = Linear(config.feedforward, config.width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        hidden = self.inner(x)
        if self.activation in GATED:
            gate, value = hidden.chunk(2, dim=-1)
            return self.out((F.silu(gate) if self.activation == "swiglu" else F.gelu(gate)) * value)
        if self.activation == "relu":
            return self.out(F.relu(hidden))
        return self.out(F.gelu(hidden, approximate="tanh" if self.activation == "gelu-tanh" else "none"))


class Block(nn.Module):
    """Two residual sums, normalised before each branch (GPT-2) or after each sum (Vaswani et al. 2017)."""

    def __init__(self, config: BackboneConfig, *, first: bool = False) -> None:
        super().__init__()
        self.norm_first = config.norm == "pre"
        self.attention = ATTENTIONS[config.attention](config)
        self.feedforward = FeedForward(config)
        self.norm_1 = make_norm(config) if config.first_norm or not first else nn.Identity()
        self.norm_2 = make_norm(config)
        self.dropout = Dropout(config.dropout)

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
        if self.norm_first:
            attended, weights = self.attention(self.norm_1(x), mask, cos_sin, kv_cache, need_weights=need_weights)
            x = x + self.dropout(attended)
            return x + self.dropout(self.feedforward(self.norm_2(x))), weights
        attended, weights = self.attention(x, mask, cos_sin, kv_cache, need_weights=need_weights)
        x = self.norm_1(x + self.dropout(attended))
        return self.norm_2(x + self.dropout(self.feedforward(x))), weights
