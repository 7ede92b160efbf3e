"""Bottleneck adapters: small modules inside the blocks, trained instead of the backbone.

Two papers differ in where they go: after attention and after the feed-forward layer (Houlsby et al. 2019, section 2.1), or after
the feed-forward layer only (Pfeiffer et al. 2021); always before the residual sum. The projection back up starts at zero, so that
an adapter starts as exactly the identity.

Letters: B batch, T tokens, D width, W width of the bottleneck.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.adapters.insertion import Adapter
from warmstart.adapters.settings import BottleneckConfig
from warmstart.backbone.backbone import Backbone
from warmstart.system.products import Linear


class BottleneckAdapter(Adapter):
    """``output + up(activation(down(output)))``; the identity at the start, because ``up`` is zero."""

    def __init__(self, config: BottleneckConfig, width: int) -> None:
        super().__init__(config)
        self.activation = F.gelu if config.activation == "gelu" else F.relu
        self.down = Linear(width, config.width)
        self.up = Linear(config.width, width)
        nn.init.normal_(self.down.weight, std=width**-0.5)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, inputs: Tensor, output: Any) -> Any:
        """``output`` (B, T, D) -> (B, T, D), attention's weights beside it unchanged; ``inputs`` (B, T, D) is not read."""
        if isinstance(output, tuple):
            return (self.forward(inputs, output[0]), *output[1:])
        return output + self.up(self.activation(self.down(output)))


def make_bottlenecks(config: BottleneckConfig, backbone: Backbone) -> list[tuple[str, str, Adapter]]:
    """(host, name, module) of every bottleneck; hosts are ``blocks.0.attention``, ``blocks.0.feedforward``, ..."""
    hosts = [f"blocks.{i}.{branch}" for i in range(backbone.config.depth) for branch in config.after]
    return [(host, "adapter", BottleneckAdapter(config, backbone.config.width)) for host in hosts]
