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
from warmstart.heads.pooled import ChooseHead as ChooseHead
from warmstart.heads.pooled import ChooseHeadConfig as ChooseHeadConfig
from warmstart.heads.pooled import RegressHead as RegressHead
from warmstart.heads.pooled import RegressHeadConfig as RegressHeadConfig
from warmstart.heads.pooled import SeveralHead as SeveralHead
from warmstart.heads.pooled import SeveralHeadConfig as SeveralHeadConfig
from warmstart.heads.pooling import POOLINGS as POOLINGS
from warmstart.heads.token import SpanHead as SpanHead
from warmstart.heads.token import SpanHeadConfig as SpanHeadConfig
from warmstart.heads.token import TagHead as TagHead
from warmstart.heads.token import TagHeadConfig as TagHeadConfig
from warmstart.registry import Registry

TaskHeadConfig = ClassifyHeadConfig | SeveralHeadConfig | RegressHeadConfig | ChooseHeadConfig | TagHeadConfig | SpanHeadConfig
TaskHead = ClassifyHead | SeveralHead | RegressHead | ChooseHead | TagHead | SpanHead
HeadConfig = LanguageHeadConfig | EmbedHeadConfig | TaskHeadConfig
Head = LanguageHead | EmbedHead | TaskHead

HEADS: Registry[tuple[type[HeadConfig], type[Head]]] = Registry(
    "head",
    {
        "language": (LanguageHeadConfig, LanguageHead),
        "classify": (ClassifyHeadConfig, ClassifyHead),
        "several": (SeveralHeadConfig, SeveralHead),
        "regress": (RegressHeadConfig, RegressHead),
        "choose": (ChooseHeadConfig, ChooseHead),
        "tag": (TagHeadConfig, TagHead),
        "span": (SpanHeadConfig, SpanHead),
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
