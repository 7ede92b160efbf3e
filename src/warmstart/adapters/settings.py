"""The settings of adapters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from warmstart.config import Config

Target = Literal["q", "k", "v", "qkv", "out", "feedforward"]
Branch = Literal["attention", "feedforward"]


def each_once(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """The targets themselves; raises ``ValueError`` if there is none, or one is named twice."""
    if len(set(targets)) != len(targets) or not targets:
        raise ValueError(f"must name at least one matrix, and each only once, but names {', '.join(targets) or 'none'}")
    return targets


Targets = Annotated[tuple[Target, ...], AfterValidator(each_once)]


class LoraConfig(Config):
    """Low-rank changes of linear layers in every block."""

    kind: Literal["lora"] = "lora"
    """name of this adapter in files"""
    rank: int = Field(8, gt=0)
    """rank of each change (R)"""
    alpha: float = Field(16.0, gt=0)
    """strength: each change is scaled by alpha / rank"""
    targets: Targets = ("q", "v")
    """matrices to adapt: q, k, v, qkv (all three as one), out (of attention), feedforward (both of its layers)"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """dropout probability of each change's input"""


class BottleneckConfig(Config):
    """Bottlenecks after the branches of every block."""

    kind: Literal["bottleneck"] = "bottleneck"
    """name of this adapter in files"""
    width: int = Field(64, gt=0)
    """width of the bottleneck (W)"""
    after: tuple[Branch, ...] = ("attention", "feedforward")
    """the branches whose output passes through one"""
    activation: Literal["gelu", "relu"] = "gelu"
    """non-linearity inside"""


class ScalarMixConfig(Config):
    """One weight per layer and one scale."""

    kind: Literal["scalar-mix"] = "scalar-mix"
    """name of this adapter in files"""


AdapterConfig = BottleneckConfig | LoraConfig | ScalarMixConfig
