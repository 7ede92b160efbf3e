"""A learned mix of all layers: what the head reads is no longer the last layer alone.

``gamma * sum_j softmax(s)_j h_j`` over the embedding and every block (Peters et al. 2018, equation 1). The last ``h`` is what the
head would read without a mix. The others are first layer-normalised, without parameters, which the paper allows (section 3.2) and
a backbone with pre-norm needs: its sum grows from block to block, so that the upper ones would drown the lower.

Letters: B batch, T tokens, D width, L depth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.backbone import Backbone, States
from warmstart.config import Config
from warmstart.inserts.host import Inserted


class MixConfig(Config):
    """One weight a layer, and one scale."""

    kind: Literal["mix"] = "mix"
    """names this insert in files"""


class Mix(Inserted):
    """Stands in the backbone itself and changes its ``last``; starts as the plain mean of all layers."""

    def __init__(self, config: MixConfig, depth: int) -> None:
        super().__init__(config)
        self.scores = nn.Parameter(torch.zeros(depth + 1))
        self.gamma = nn.Parameter(torch.ones(1))

    def weights(self) -> Tensor:
        """(L + 1,): the share of each layer, times gamma."""
        return self.gamma * self.scores.softmax(dim=0)

    def forward(self, given: Tensor, output: Any) -> Any:
        """``States`` whose ``last`` (B, T, D) is the mix."""
        assert isinstance(output, States)
        parts = zip(self.weights(), levelled(output), strict=True)
        return replace(output, last=torch.stack([weight * layer for weight, layer in parts]).sum(dim=0))


def levelled(states: States) -> list[Tensor]:
    """L + 1 tensors (B, T, D) of like size: each layer with mean 0 and variance 1 over D, and last what the backbone ends in."""
    return [*(F.layer_norm(layer, layer.shape[-1:]) for layer in states.layers[:-1]), states.last]


def unmixed(backbone: Backbone, states: States) -> Tensor:
    """(B, T, D): what ``last`` would be without a mix."""
    return backbone.norm(states.layers[-1])


def place_mix(config: MixConfig, backbone: Backbone) -> list[tuple[str, str, Inserted]]:
    """The backbone is the host."""
    return [("", "mix", Mix(config, backbone.config.depth))]
