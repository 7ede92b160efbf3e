"""What reads a backbone's states for one job. A new head is one file and one row here."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warmstart.errors import ModelError
from warmstart.heads.classify import ClassifyHead as ClassifyHead
from warmstart.heads.classify import ClassifyHeadConfig as ClassifyHeadConfig
from warmstart.heads.embed import EmbedHead as EmbedHead
from warmstart.heads.embed import EmbedHeadConfig as EmbedHeadConfig
from warmstart.heads.language import LanguageHead as LanguageHead
from warmstart.heads.language import LanguageHeadConfig as LanguageHeadConfig
from warmstart.heads.pooling import POOLINGS as POOLINGS
from warmstart.registry import Registry

HeadConfig = LanguageHeadConfig | ClassifyHeadConfig | EmbedHeadConfig
Head = LanguageHead | ClassifyHead | EmbedHead

HEADS: Registry[tuple[type[HeadConfig], type[Head]]] = Registry(
    "head",
    {
        "language": (LanguageHeadConfig, LanguageHead),
        "classify": (ClassifyHeadConfig, ClassifyHead),
        "embed": (EmbedHeadConfig, EmbedHead),
    },
)
"""Each head's settings and its module."""


def make_head(config: HeadConfig, width: int, embedding: Tensor) -> Head:
    """A freshly initialised head for states of ``width``; a tied one shares ``embedding`` (V, D)."""
    return HEADS[config.kind][1](config, width, embedding)  # type: ignore[arg-type]


def head_config(values: dict[str, Any]) -> HeadConfig:
    """The settings of a head from plain values, told apart by their ``kind``."""
    if "kind" not in values:
        raise ModelError(f"a head's settings must name its kind ({', '.join(HEADS)}), but hold {sorted(values)}")
    return HEADS[values["kind"]][0].build(values, "head")
