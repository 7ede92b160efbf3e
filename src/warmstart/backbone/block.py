"""One block: attention and a feed-forward layer, each added to what comes in.

Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.backbone.attention import ATTENTIONS, Memory, Sight
from warmstart.backbone.config import BackboneConfig

GATED = ("swiglu", "geglu")
"""activations whose inner layer is twice as wide: one half is a gate for the other"""


def make_norm(config: BackboneConfig) -> nn.Module:
    """The normalisation the config asks for."""
    if config.norm_kind == "rms":
        return nn.RMSNorm(config.width, eps=config.norm_eps)
    return nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)


class FeedForward(nn.Module):
    """Two linear layers and a non-linearity, for each token alone."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.activation = config.activation
        gates = 2 if config.activation in GATED else 1  # they multiply two halves (Shazeer 2020, equation 6)
        self.inner = nn.Linear(config.width, gates * config.feedforward, bias=config.bias)
        self.out = nn.Linear(config.feedforward, config.width, bias=config.bias)

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
    """Two residual sums. Normalise before each branch (GPT-2) or after each sum (Vaswani et al. 2017)."""

    def __init__(self, config: BackboneConfig, *, first: bool = False) -> None:
        super().__init__()
        self.norm_first = config.norm == "pre"
        self.attention = ATTENTIONS[config.attention](config)
        self.feedforward = FeedForward(config)
        self.norm_1 = make_norm(config) if config.first_norm or not first else nn.Identity()
        self.norm_2 = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, sight: Sight, turn: tuple[Tensor, Tensor] | None, memory: Memory | None, want_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) -> (B, T, D), and the attention weights (B, H, T, S) where they are wanted."""
        attend = partial(self.attention, sight=sight, turn=turn, memory=memory, want_weights=want_weights)
        if self.norm_first:
            mixed, weights = attend(self.norm_1(x))
            x = x + self.dropout(mixed)
            return x + self.dropout(self.feedforward(self.norm_2(x))), weights
        mixed, weights = attend(x)
        x = self.norm_1(x + self.dropout(mixed))
        return self.norm_2(x + self.dropout(self.feedforward(x))), weights
