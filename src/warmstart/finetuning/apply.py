"""Applying a scheme to a model: inserts its adapters, freezes what does not train, and groups the parameters that do."""

from __future__ import annotations

import re

from torch import nn

from warmstart.adapters import insert_adapter
from warmstart.adapters.insertion import Adapter
from warmstart.backbone.backbone import EMBEDDING_MODULES
from warmstart.finetuning.scheme import Scheme
from warmstart.model.model import Model
from warmstart.training.optimizers import ParameterGroup


def apply_scheme(model: Model, scheme: Scheme, seed: int = 0) -> list[ParameterGroup]:
    """Insert the scheme's adapters, freeze what does not train, and return the groups of parameters that do.

    Adapters of an earlier adaptation count as backbone. Raises ``ConfigError`` if the scheme finds nothing to train in this
    backbone, and ``ModelError`` if the backbone has its adapters already.
    """
    old = {name for name, _ in model.named_parameters()}
    parts = {name: "head" for name in old if not name.startswith("backbone.")}
    parts |= {name: "backbone" for select in scheme.trains for name in select(model)}
    for config in scheme.adapters:
        insert_adapter(model.backbone, config, seed)
    for path, module in model.named_modules():
        if isinstance(module, Adapter):
            new = (f"{path}.{name}" for name, _ in module.named_parameters())
            parts |= {name: module.config.to_dict()["kind"] for name in new if name not in old}
    model.requires_grad_(False)
    groups: dict[tuple[str, int], dict[str, nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if part := parts.get(name):
            parameter.requires_grad_(True)
            groups.setdefault((part, _level(name, model)), {})[name] = parameter
    depth = model.backbone.config.depth
    return [_group(part, level, depth, scheme, parameters) for (part, level), parameters in groups.items()]


def _level(name: str, model: Model) -> int:
    """The level of a parameter: 0 for the embedding and positions, 1 to L for the blocks, L + 1 for the head and a scalar mix."""
    depth = model.backbone.config.depth
    if inside := re.match(r"backbone\.blocks\.(\d+)\.", name):
        return int(inside[1]) + 1
    if name.startswith("backbone.norm."):
        return depth  # the last norm belongs to the last block
    return 0 if name.split(".")[1] in EMBEDDING_MODULES else depth + 1


def _group(part: str, level: int, depth: int, scheme: Scheme, parameters: dict[str, nn.Parameter]) -> ParameterGroup:
    factors = scheme.rate_factors
    rate_factor = factors.get(part, 1.0) * scheme.layer_decay ** (depth + 1 - level)
    schedule = scheme.unfreezing.schedule(part, level, depth, factors.get("head", 1.0))
    return ParameterGroup(parameters, rate_factor, schedule, muon=part == "backbone")
