"""The table of heads, and making one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHead
from warmstart.heads.head import Head
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.per_text import ClassificationHead, MultilabelHead, RegressionHead
from warmstart.heads.per_token import TaggingHead
from warmstart.heads.settings import HeadConfig
from warmstart.registry import Registry

HEADS: Registry[Any] = Registry(
    "head",
    {
        "language-modeling": LMHead,
        "classification": ClassificationHead,
        "multilabel": MultilabelHead,
        "regression": RegressionHead,
        "tagging": TaggingHead,
        "embedding": EmbeddingHead,
    },
)
"""Every head's class, a subclass of ``Head``; its settings are its ``config_class``."""


def make_head(config: HeadConfig, width: int, embedding: Tensor) -> Head:
    """A freshly initialised head for hidden states of ``width`` (D); a tied one shares ``embedding`` (V, D)."""
    head: Head = HEADS[config.kind](config, width, embedding)
    return head


def head_config(values: dict[str, Any]) -> HeadConfig:
    """The settings of a head from plain values; their ``kind`` says which one.

    Raises ``ModelError`` if there is no ``kind``, ``ConfigError`` for an unknown one and for wrong values.
    """
    if "kind" not in values:
        raise ModelError(f"a head's settings must name its kind ({', '.join(HEADS)}), but have only {sorted(values)}")
    config_class: type[HeadConfig] = HEADS[values["kind"]].config_class
    return config_class.build(values, "head")
