"""Applying a scheme to a model: insert, freeze, and say what trains at which rate and when."""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import nn

from warmstart.backbone import BELOW
from warmstart.engine import Group
from warmstart.engine.schedule import constant
from warmstart.errors import ConfigError
from warmstart.inserts import Inserted, insert
from warmstart.model import Model
from warmstart.schemes.course import RISE, slows, top_down, wakes
from warmstart.schemes.scheme import PROBE_RATE, Scheme


def apply_scheme(model: Model, scheme: Scheme, seed: int = 0) -> list[Group]:
    """Insert the scheme's modules, freeze what does not train, and return the groups of parameters that do.

    The loop wakes and steps them. Modules that an earlier adaptation has inserted count as backbone. Raises ``ConfigError`` where
    the scheme finds nothing in this backbone to train, and ``ModelError`` where its modules stand there already.
    """
    old = {name for name, _ in model.named_parameters()}
    for config in scheme.inserts:
        insert(model.backbone, config, seed)
    parts = _parts(model, scheme, old)
    model.requires_grad_(False)
    groups: dict[tuple[str, int], dict[str, nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if part := parts.get(name):
            parameter.requires_grad_(True)
            groups.setdefault((part, _level(name, model)), {})[name] = parameter
    return [_group(key, chosen, scheme, model.backbone.config.depth) for key, chosen in groups.items()]


def _parts(model: Model, scheme: Scheme, old: set[str]) -> dict[str, str]:
    """Of every parameter that trains, the part that its rate is named for."""
    parts = {name: "head" for name in old if not name.startswith("backbone.")}
    parts |= dict.fromkeys(_of_backbone(model, scheme, old), "backbone")
    for path, module in model.named_modules():
        if isinstance(module, Inserted):
            new = (f"{path}.{name}" for name, _ in module.named_parameters())
            parts |= {name: module.config.plain()["kind"] for name in new if name not in old}
    return parts


def _of_backbone(model: Model, scheme: Scheme, old: set[str]) -> set[str]:
    """The parameters of the pretrained backbone that train."""
    own = {name for name in old if name.startswith("backbone.")}
    if "all" in scheme.trains:
        return own
    found = set[str]()
    if "biases" in scheme.trains:
        found = {name for name in own if name.endswith("bias")}
        if not found:
            raise ConfigError("bitfit trains biases, but this backbone has none; choose another scheme")
    if "norms" in scheme.trains:
        norms = {path for path, module in model.named_modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)}
        found |= {name for name in own if name.rpartition(".")[0] in norms}
    return found


def _level(name: str, model: Model) -> int:
    """The depth of a parameter: 0 for the embedding and positions, 1 to L for the blocks, L + 1 for the head and a mix."""
    depth = model.backbone.config.depth
    if inside := re.match(r"backbone\.blocks\.(\d+)\.", name):
        return int(inside[1]) + 1
    if name.startswith("backbone.norm."):
        return depth  # the last norm goes with the last block
    return 0 if name.split(".")[1] in BELOW else depth + 1


def _group(key: tuple[str, int], parameters: dict[str, nn.Parameter], scheme: Scheme, depth: int) -> Group:
    part, level = key
    rate = scheme.rates.get(part, 1.0) * scheme.depth_decay ** (depth + 1 - level)
    return Group(parameters, rate, _course(key, scheme, depth), muon=part == "backbone")


def _course(key: tuple[str, int], scheme: Scheme, depth: int) -> Callable[[float], float]:
    part, level = key
    if scheme.order == "top down":
        return wakes(top_down(level, depth))
    if scheme.order == "probe first":
        if level <= depth:
            return wakes(scheme.probe_share, RISE)
        if part == "head":
            return slows(scheme.probe_share, PROBE_RATE / scheme.rates.get("head", 1.0))
    return constant


def settled(scheme: Scheme, depth: int) -> float:
    """The share of the run after which everything that trains is awake."""
    if scheme.order == "top down":
        return top_down(0, depth)
    return scheme.probe_share if scheme.order == "probe first" else 0.0
