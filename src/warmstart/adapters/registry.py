"""The table of adapters, and inserting one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warmstart.adapters.bottleneck import make_bottlenecks
from warmstart.adapters.insertion import Adapter, attach
from warmstart.adapters.lora import make_loras
from warmstart.adapters.scalar_mix import make_scalar_mix
from warmstart.adapters.settings import AdapterConfig, BottleneckConfig, LoraConfig, ScalarMixConfig
from warmstart.backbone.backbone import Backbone
from warmstart.errors import ConfigError, ModelError
from warmstart.registry import Registry
from warmstart.seeding import seed_torch

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
