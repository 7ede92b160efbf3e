"""Modules that a finished backbone is given from outside. A new one is one file and one row here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warmstart.backbone import Backbone
from warmstart.errors import ConfigError, ModelError
from warmstart.inserts.adapter import AdapterConfig as AdapterConfig
from warmstart.inserts.adapter import place_adapters
from warmstart.inserts.host import Inserted as Inserted
from warmstart.inserts.host import attach
from warmstart.inserts.host import inserted as inserted
from warmstart.inserts.host import merge as merge
from warmstart.inserts.host import undo as undo
from warmstart.inserts.lora import Lora as Lora
from warmstart.inserts.lora import LoraConfig as LoraConfig
from warmstart.inserts.lora import place_loras
from warmstart.inserts.mix import Mix as Mix
from warmstart.inserts.mix import MixConfig as MixConfig
from warmstart.inserts.mix import levelled as levelled
from warmstart.inserts.mix import place_mix
from warmstart.inserts.mix import unmixed as unmixed
from warmstart.registry import Registry
from warmstart.seeding import seed_torch

InsertConfig = AdapterConfig | LoraConfig | MixConfig
Place = Callable[[Any, Backbone], list[tuple[str, str, Inserted]]]

INSERTS: Registry[tuple[type[InsertConfig], Place]] = Registry(
    "insert",
    {
        "adapter": (AdapterConfig, place_adapters),
        "lora": (LoraConfig, place_loras),
        "mix": (MixConfig, place_mix),
    },
)
"""Each insert's settings, and which modules it puts where: (host's name, own name, module)."""


def insert(backbone: Backbone, config: InsertConfig, seed: int) -> None:
    """Insert the modules that ``config`` asks for, initialised from the seed; the backbone's outputs are as before, but for a mix.

    Raises ``ModelError`` where they stand already, ``ConfigError`` where the backbone has no place for them.
    """
    seed_torch(seed, "insert", config.kind)
    places = INSERTS[config.kind][1](config, backbone)
    if not places:
        raise ConfigError(f"there is nowhere to insert '{config.kind}': the backbone has no blocks")
    for host, name, module in places:
        attach(backbone.get_submodule(host), name, module)


def insert_config(values: dict[str, Any]) -> InsertConfig:
    """The settings of an insert from plain values, told apart by their ``kind``."""
    if "kind" not in values:
        raise ModelError(f"an insert's settings must name its kind ({', '.join(INSERTS)}), but hold {sorted(values)}")
    return INSERTS[values["kind"]][0].build(values, "inserted")
