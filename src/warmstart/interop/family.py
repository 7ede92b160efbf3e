"""What is written down of a family of foreign models; ``families`` holds the tables themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warmstart.interop.rules import NO_RULES, Rules

Names = Mapping[str, str | tuple[str, ...]]


class Setting(NamedTuple):
    """A key of their ``config.json``, and the value that it has where it is missing."""

    key: str
    default: Any


@dataclass(frozen=True)
class Family:
    """Models of one architecture, whatever their size."""

    title: str
    """how people call it"""
    causal: bool
    """they write from left to right"""
    prefix: str
    """stands before a backbone's names where the file has a head too"""
    fixed: Mapping[str, Any]
    """switches that all members share"""
    settings: Mapping[str, Setting]
    """our settings by their keys"""
    names: Names
    """our parts of the backbone by their names"""
    head: Names
    """our parts of the language head by their names"""
    transform: Mapping[str, Any] = field(default_factory=dict)
    """settings of the language head"""
    classify: Names = field(default_factory=dict)
    """our parts of the classification head by their names; none: their head is not of our kind"""
    hidden: str = "none"
    """the classification head's setting of that name; it reads the first token"""
    must: Mapping[str, Any] = field(default_factory=dict)
    """keys that must have this value where they stand; another is a model that we do not have"""
    left_out: tuple[str, ...] = ()
    """patterns of tensors that are copies, buffers, or parts of another head"""
    flipped: tuple[str, ...] = ()
    """parts whose matrices they keep transposed"""
    tied: bool = True
    """their default for ``tie_word_embeddings``"""
    architectures: Mapping[str, str] = field(default_factory=dict)
    """their classes by our heads"""
    rules: Rules = NO_RULES


ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu_fast": "gelu-tanh", "relu": "relu",
}  # fmt: skip
"""Their words for our activations; of several words for one, the first is written."""
