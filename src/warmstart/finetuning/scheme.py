"""What a scheme is: what trains during adaptation, at which learning rate, from when on, with which adapters and extra losses.

A scheme is a value. The files of ``schemes`` make one for each name, ``compose`` merges those of ``a+b``, and ``apply`` turns a
scheme and a model into groups of parameters. Nothing here touches a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from torch import Tensor

from warmstart.adapters import AdapterConfig
from warmstart.adapters.scalar_mix import ScalarMixConfig
from warmstart.finetuning.contrast import Contrast
from warmstart.finetuning.unfreezing import ALL_AT_ONCE, Unfreezing
from warmstart.model.model import Model

Selection = Callable[[Model], set[str]]
"""the names of the parameters of the pretrained backbone that a scheme trains; adapters are not inserted yet"""
Penalty = Callable[[], Tensor]
"""what is added to the mean loss of a step, a scalar"""


@dataclass(frozen=True)
class Scheme:
    """How a model is adapted. The default is a frozen backbone under a head that trains."""

    trains: tuple[Selection, ...] = ()
    """which parameters of the pretrained backbone train; none: it is frozen"""
    adapters: tuple[AdapterConfig, ...] = ()
    """modules that are inserted into the backbone, and train"""
    rate_factors: Mapping[str, float] = field(default_factory=dict)
    """learning rate of ``backbone``, ``head`` and each kind of adapter, times that of the run; 1 if not named"""
    unfreezing: Unfreezing = ALL_AT_ONCE
    """when each part begins to train"""
    layer_decay: float = 1.0
    """learning rate of each level, as a fraction of that of the level above it"""
    min_steps_factor: float = 1.0
    """the least length of a run whose budget is not named, times the usual one: few parameters need more steps"""
    weight_decay: float | None = None
    """replaces the weight decay of the run"""
    penalty: Callable[[Model], Penalty] | None = None
    """a regulariser; it is given the model before training"""
    language_weight: float = 0.0
    """weight of the language-model loss of the same texts"""
    contrast: Contrast | None = None
    """a contrastive loss beside the head's; for tasks with one label per text"""
    continued_pretraining: bool = False
    """pretraining continues on the task's own text first"""

    @property
    def keeps_features(self) -> bool:
        """Whether nothing below the head trains but a scalar mix: the features of a text stay the same through the whole run."""
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


@dataclass(frozen=True)
class NamedScheme:
    """One row of the table of schemes."""

    decides: str
    """what the scheme decides; two that decide the same cannot be combined"""
    make: Callable[[Any], Scheme]
    """the scheme itself, from the options"""
    backbone: Literal["all", "part", "none", ""] = ""
    """how much of the backbone the scheme trains; empty: it leaves that to the scheme it is combined with"""
    needs: Literal["all", "part", ""] = ""
    """how much of the backbone must train at least, for the scheme to have any effect"""
    alone: Literal["full", "probe"] = "full"
    """the scheme it is combined with if no other says how much of the backbone trains"""
