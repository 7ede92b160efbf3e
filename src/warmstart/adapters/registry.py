"""The table of adapters, and inserting one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.adapters.insertion import Adapter, attach
from warmstart.adapters.scalar_mix import make_scalar_mix
from warmstart.adapters.settings import AdapterConfig, BottleneckConfig, LoraConfig, ScalarMixConfig, Target
from warmstart.backbone.attention import Attention
from warmstart.backbone.backbone import Backbone
from warmstart.dropout import Dropout
from warmstart.errors import ConfigError, ModelError
from warmstart.registry import Registry
from warmstart.seeding import seed_torch
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


_PARTS = ("q", "k", "v")


class Lora(Adapter):
    """One low-rank pair, for the rows ``start`` to ``start + rows`` of its host's weight."""

    def __init__(self, config: LoraConfig, host: nn.Linear, start: int, rows: int) -> None:
        super().__init__(config)
        self.scale = config.alpha / config.rank
        self.margins = (start, host.out_features - start - rows)  # outputs of the host on either side that stay the same
        self.dropout = Dropout(config.dropout)
        self.lora_A = Linear(host.in_features, config.rank, bias=False)
        self.lora_B = Linear(config.rank, rows, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, inputs: Tensor, output: Any) -> Any:
        """Input ``inputs`` (B, T, in) and ``output`` (B, T, out) of the host -> (B, T, out)."""
        change = self.lora_B(self.lora_A(self.dropout(inputs))) * self.scale  # (B, T, rows)
        return output + F.pad(change, self.margins)

    def weight_change(self) -> Tensor:
        """(out, in): the change that the pair adds to its host's weight."""
        return F.pad(self.lora_B.weight @ self.lora_A.weight * self.scale, (0, 0, *self.margins))


def make_loras(config: LoraConfig, backbone: Backbone) -> list[tuple[str, str, Adapter]]:
    """(host, name, module) of every pair. Raises ``ConfigError`` if the backbone's attention has no such matrix."""
    modules: list[tuple[str, str, Adapter]] = []
    for i, block in enumerate(backbone.blocks):
        for target in config.targets:
            for path, part in _hosts(target, block):
                host = block.get_submodule(path)
                assert isinstance(host, nn.Linear)
                start, rows = _rows(block, host, part)
                name = "lora" if part is None else f"lora_{target}"
                modules.append((f"blocks.{i}.{path}", name, Lora(config, host, start, rows)))
    return modules


def _rows(block: nn.Module, host: nn.Linear, part: int | None) -> tuple[int, int]:
    """The first row and the number of rows of a part of ``host``: 0 queries, 1 keys, 2 values; None: all rows."""
    if part is None:
        return 0, host.out_features
    attention = block.get_submodule("attention")
    assert isinstance(attention, Attention)
    return sum(attention.parts[:part]), attention.parts[part]


def _hosts(target: Target, block: nn.Module) -> list[tuple[str, int | None]]:
    """The linear layers of a block that a target names, each with the part of it that is meant; None: the whole."""
    if target == "out":
        return [("attention.out", None)]
    if target == "feedforward":
        return [("feedforward.inner", None), ("feedforward.out", None)]
    names = dict(block.named_modules())
    if "attention.qkv" in names:
        return [("attention.qkv", _PARTS.index(target) if target in _PARTS else None)]
    if target == "v":
        return [("attention.value", None)]
    raise ConfigError(f"synthesizer attention has no queries and keys, so LoRA cannot target {target}; use v, out or feedforward")


Make = Callable[[Any, Backbone], list[tuple[str, str, Adapter]]]

ADAPTERS: Registry[tuple[type[AdapterConfig], Make]] = Registry(
    "adapter",
    {
        "bottleneck": (BottleneckConfig, make_bottlenecks),
        "lora": (LoraConfig, make_loras),
        "scalar-mix": (ScalarMixConfig, make_scalar_mix),
    },
)
"""Each adapter's settings, and the function that makes its modules: (host's name, own name, module) of each."""

_DRAWS = {"bottleneck": "adapter", "scalar-mix": "mix"}
"""names of random draws, where they differ from the adapter's: changing them would change every result"""


def insert_adapter(backbone: Backbone, config: AdapterConfig, seed: int) -> None:
    """Insert an adapter into ``backbone``, in place, initialised from the seed.

    The backbone's outputs stay the same, except with a scalar mix. Raises ``ModelError`` if the backbone has this adapter already,
    ``ConfigError`` if it has no modules for it.
    """
    seed_torch(seed, "insert", _DRAWS.get(config.kind, config.kind))
    modules = ADAPTERS[config.kind][1](config, backbone)
    if not modules:
        raise ConfigError(f"there is nowhere to insert '{config.kind}': the backbone has no blocks")
    for host, name, module in modules:
        attach(backbone.get_submodule(host), name, module)


def adapter_config(values: dict[str, Any]) -> AdapterConfig:
    """The settings of an adapter from plain values; their ``kind`` says which one. Raises ``ConfigError`` for wrong values."""
    if "kind" not in values:
        raise ModelError(f"an adapter's settings must name its kind ({', '.join(ADAPTERS)}), but have only {sorted(values)}")
    return ADAPTERS[values["kind"]][0].build(values, "adapter")
