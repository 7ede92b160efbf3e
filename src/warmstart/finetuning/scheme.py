"""Schemes: the parameters that train, at which learning rate, from when on, with which adapters and extra losses.

A scheme is a value. The files of ``schemes`` make one for each name and merge those of ``a+b``; ``apply_scheme`` turns a scheme and
a model into groups of parameters, and ``EmbeddingRows`` leaves out what of the embedding a run does not read.

Letters: L layers, V vocabulary, R rows in use, D width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.adapters.insertion import Adapter
from warmstart.adapters.registry import insert_adapter
from warmstart.adapters.settings import AdapterConfig, ScalarMixConfig
from warmstart.backbone.backbone import EMBEDDING_MODULES, Backbone
from warmstart.errors import ConfigError
from warmstart.finetuning.losses import Contrast
from warmstart.model.model import Model
from warmstart.training.config import Schedule, constant
from warmstart.training.optimizers import ParameterGroup

# When each part of a model begins to train. Parts are ordered by their level, counted from the bottom: 0 the embedding, 1 to L the
# blocks, L + 1 the head.


@dataclass(frozen=True)
class Unfreezing:
    """All parts train from the start. Schemes that unfreeze parts later override both methods."""

    def schedule(self, part: str, level: int, depth: int, head_factor: float) -> Schedule:
        """A factor of a part's learning rate over the run; while it is 0 the part is frozen.

        ``part`` is ``head``, ``backbone`` or the kind of an adapter, ``depth`` the number of blocks, and ``head_factor`` what the
        head's learning rate is multiplied by already.
        """
        return constant

    def complete_at(self, depth: int) -> float:
        """The fraction of the run after which no part is frozen."""
        return 0.0


ALL_AT_ONCE = Unfreezing()


def frozen_until(start: float, rise: float = 0.0) -> Schedule:
    """0 before ``start``, then a linear rise to 1 over ``rise``; both are fractions of the run.

    ``frozen_until(0.5, 0.2)(0.6)`` -> ``0.5``.
    """

    def factor(progress: float) -> float:
        if progress < start:
            return 0.0
        return 1.0 if rise == 0 else min(1.0, (progress - start) / rise)

    return factor


Selection = Callable[[Model], set[str]]
"""the names of the parameters of the pretrained backbone that a scheme trains; adapters are not inserted yet"""


@dataclass(frozen=True)
class Scheme:
    """A way to adapt a model. The default is a frozen backbone under a head that trains."""

    trains: tuple[Selection, ...] = ()
    """trained parameters of the pretrained backbone; none: it is frozen"""
    adapters: tuple[AdapterConfig, ...] = ()
    """modules that are inserted into the backbone, and train"""
    rate_factors: Mapping[str, float] = field(default_factory=dict)
    """learning rate of ``backbone``, ``head`` and each kind of adapter, times that of the run; 1 if not named"""
    unfreezing: Unfreezing = ALL_AT_ONCE
    """start of training of each part"""
    layer_decay: float = 1.0
    """learning rate of each level, as a fraction of that of the level above it"""
    language_weight: float = 0.0
    """weight of the language-model loss of the same texts"""
    contrast: Contrast | None = None
    """a contrastive loss beside the head's, which reads by class means, and no dropout; for tasks with one label per text"""

    @property
    def keeps_features(self) -> bool:
        """True if nothing below the head trains but a scalar mix: the features of a text stay the same through the whole run."""
        return not self.trains and all(isinstance(config, ScalarMixConfig) for config in self.adapters)

    def merge(self, other: Scheme) -> Scheme:
        """Both schemes in one: tuples are joined, the highest rate factor counts, and each other field comes from who set it."""
        values = {one.name: getattr(other, one.name) for one in fields(other) if getattr(other, one.name) != one.default}
        for name, value in values.items():
            mine = getattr(self, name)
            if name == "rate_factors":
                values[name] = {**mine, **{part: max(factor, mine.get(part, 0.0)) for part, factor in value.items()}}
            elif isinstance(value, tuple):
                values[name] = (*mine, *value)
        return Scheme(**{one.name: getattr(self, one.name) for one in fields(self)} | values)


# Applying a scheme to a model: inserts its adapters, freezes what does not train, and groups the parameters that do.


def apply_scheme(model: Model, scheme: Scheme, seed: int = 0) -> list[ParameterGroup]:
    """Insert the scheme's adapters, freeze what does not train, and return the groups of parameters that do.

    Adapters of an earlier adaptation count as backbone. Raises ``ConfigError`` if the scheme finds nothing to train in this
    backbone, and ``ModelError`` if the backbone has its adapters already.
    """
    if model.backbone.config.ngrams and not scheme.keeps_features:
        raise ConfigError(
            "a backbone that is fine-tuned must have blocks, but this one (USE) is only read; take scheme probe, or another encoder"
        )
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


# Training only those rows of the token embedding that a run reads.
#
# A few hundred texts use a small part of the vocabulary. The other rows never get a gradient; passing over them in every step, to
# clear, clip and update them, takes a quarter of the step of a small encoder. They keep their pretrained values exactly: weight
# decay, which would shrink the vectors of all words that the training texts lack, does not reach them.

WORTHWHILE = 0.5
"""the largest fraction of the vocabulary in use for which the rows are set apart"""


class _Rows(nn.Module):
    """The rows in use, looked up by token id; raises ``IndexError`` for an id that is not in use."""

    def __init__(self, weight: Tensor, ids: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach()[ids], requires_grad=weight.requires_grad)  # (R, D)
        positions = torch.full((len(weight),), -1, device=weight.device)
        positions[ids] = torch.arange(len(ids), device=weight.device)
        self.register_buffer("positions", positions, persistent=False)  # (V,)

    def forward(self, ids: Tensor) -> Tensor:
        assert isinstance(self.positions, Tensor)
        return F.embedding(self.positions[ids], self.weight)


class EmbeddingRows:
    """A backbone whose embedding is replaced, while it trains, by its rows for the tokens ``ids`` (R,); None: for all.

    ``groups`` then has those rows in place of the embedding. Inside ``whole()``, and after ``restore()``, the backbone has its own
    embedding again, with the rows as they are. Nothing is replaced if the embedding does not train, or if most of it is in use.
    """

    def __init__(self, backbone: Backbone, groups: Sequence[ParameterGroup], ids: np.ndarray | None) -> None:
        self.backbone, self.embedding = backbone, backbone.embedding
        self.rows: _Rows | None = None
        weight = self.embedding.weight
        trains = any(parameter is weight for group in groups for parameter in group.parameters.values())
        if trains and ids is not None and len(ids) <= WORTHWHILE * len(weight):
            self.ids = torch.from_numpy(ids).to(weight.device)
            self.rows = _Rows(weight, self.ids)
        self.groups = [self._with_rows(group) for group in groups]
        self._replace()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, the backbone has its own embedding, with the present rows."""
        self.restore()
        try:
            yield
        finally:
            self._replace()

    def restore(self) -> None:
        """Put the rows back into the embedding, and the embedding into the backbone."""
        if self.rows is not None:
            with torch.no_grad():
                self.embedding.weight[self.ids] = self.rows.weight
            self.backbone.embedding = self.embedding

    def _replace(self) -> None:
        if self.rows is not None:
            self.backbone.embedding = self.rows  # type: ignore[assignment]

    def _with_rows(self, group: ParameterGroup) -> ParameterGroup:
        """The group with the rows in place of the embedding, under its name."""
        if self.rows is None:
            return group
        weight, rows = self.embedding.weight, self.rows.weight
        return replace(group, parameters={name: rows if p is weight else p for name, p in group.parameters.items()})
