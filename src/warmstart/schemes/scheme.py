"""Schemes: what trains during adaptation, and at which rate. A scheme is a value; one function applies it to any model."""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Config
from warmstart.engine import Group
from warmstart.model import Model
from warmstart.registry import Registry


class Scheme(Config):
    """Which parts train, and how fast."""

    backbone_rate: float = Field(1.0, ge=0)
    """rate of the backbone, times the learning rate of the run; 0 freezes it"""
    head_rate: float = Field(1.0, gt=0)
    """rate of the head, times the learning rate of the run"""


SCHEMES: Registry[Scheme] = Registry(
    "scheme",
    {
        "full": Scheme(),
        # features stay as pretraining left them; a linear head reads them, at a rate that suits its few weights
        "probe": Scheme(backbone_rate=0.0, head_rate=10.0),
    },
)
"""Every scheme that can be named."""


def apply_scheme(model: Model, scheme: Scheme) -> list[Group]:
    """Freeze what the scheme freezes, wake the rest, and return the groups of parameters that train."""
    parts = {"backbone": scheme.backbone_rate, "head": scheme.head_rate}
    groups = []
    for part, rate in parts.items():
        module = model.get_submodule(part).requires_grad_(rate > 0)
        if rate > 0:
            groups.append(Group({f"{part}.{name}": parameter for name, parameter in module.named_parameters()}, rate))
    return groups
