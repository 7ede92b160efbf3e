"""What describes a family of models; ``families`` holds the tables themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warmstart.interop.rules import NO_RULES, Rules

Names = Mapping[str, str | tuple[str, ...]]


class Setting(NamedTuple):
    """A key of their ``config.json``, and the value of a missing key."""

    key: str
    default: Any


@dataclass(frozen=True)
class Family:
    """Models of one architecture, whatever their size."""

    title: str
    """its usual name"""
    causal: bool
    """causal attention"""
    prefix: str
    """precedes the backbone's names if the file has a head too"""
    fixed: Mapping[str, Any]
    """settings that all members share"""
    settings: Mapping[str, Setting]
    """our settings -> their keys"""
    names: Names
    """our parts of the backbone -> their names"""
    head: Names
    """our parts of the language head -> their names"""
    transform: Mapping[str, Any] = field(default_factory=dict)
    """settings of the language head"""
    gelu: bool = True
    """its transform has gelu, whatever the activation of the backbone is"""
    classify: Names = field(default_factory=dict)
    """our parts of the classification head -> their names; empty: we have no such head"""
    hidden: str = "none"
    """the classification head's setting of that name; the head reads the first token"""
    must: Mapping[str, Any] = field(default_factory=dict)
    """keys that must have this value if present; other values are not supported"""
    stated: tuple[str, ...] = ()
    """of these the ones that must be present"""
    left_out: tuple[str, ...] = ()
    """patterns of tensors that are copies, buffers, or parts of another head"""
    flipped: tuple[str, ...] = ()
    """parts whose matrices are stored transposed"""
    tied: bool = True
    """their default for ``tie_word_embeddings``"""
    architectures: Mapping[str, str] = field(default_factory=dict)
    """our heads -> their classes"""
    rules: Rules = NO_RULES


ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu_fast": "gelu-tanh", "relu": "relu",
}  # fmt: skip
"""Their activations -> ours; of several names for one, the first is written."""
