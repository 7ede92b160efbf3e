"""Adapters: small bottlenecks inside the blocks, trained in place of the backbone.

Two publications differ in where they stand: after attention and after the feed-forward layer (Houlsby et al. 2019, section 2.1), or
after the feed-forward layer only (Pfeiffer et al. 2021). Both stand before the residual sum. The projection back up starts at
zero, so that an adapter begins as the identity exactly.

Letters: B batch, T tokens, D width, W width of the bottleneck.
"""

from __future__ import annotations

from typing import Any, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from warmstart.backbone import Backbone
from warmstart.config import Config
from warmstart.inserts.host import Inserted

Branch = Literal["attention", "feedforward"]


class AdapterConfig(Config):
    """Bottlenecks after the branches of every block."""

    kind: Literal["adapter"] = "adapter"
    """names this insert in files"""
    width: int = Field(64, gt=0)
    """size of the bottleneck (W)"""
    after: tuple[Branch, ...] = ("attention", "feedforward")
    """the branches whose output passes through one"""
    activation: Literal["gelu", "relu"] = "gelu"
    """non-linearity inside"""


class Adapter(Inserted):
    """``output + up(activation(down(output)))``; the identity at the start, since ``up`` is zero."""

    def __init__(self, config: AdapterConfig, width: int) -> None:
        super().__init__(config)
        self.activation = F.gelu if config.activation == "gelu" else F.relu
        self.down = nn.Linear(width, config.width)
        self.up = nn.Linear(config.width, width)
        nn.init.normal_(self.down.weight, std=width**-0.5)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, given: Tensor, output: Any) -> Any:
        """(B, T, D) -> (B, T, D); attention's weights, which come along with its output, are handed on."""
        if isinstance(output, tuple):
            return (self.forward(given, output[0]), *output[1:])
        return output + self.up(self.activation(self.down(output)))


def place_adapters(config: AdapterConfig, backbone: Backbone) -> list[tuple[str, str, Inserted]]:
    """(host, name, module) of every adapter: ``blocks.0.attention``, ``blocks.0.feedforward``, ..."""
    hosts = [f"blocks.{i}.{branch}" for i in range(backbone.config.depth) for branch in config.after]
    return [(host, "adapter", Adapter(config, backbone.config.width)) for host in hosts]
