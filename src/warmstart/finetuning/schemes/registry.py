"""The registry of schemes, and their options. It needs no torch: names are checked when settings are read."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from warmstart.adapters.settings import Targets
from warmstart.config import Config
from warmstart.errors import ConfigError
from warmstart.registry import Registry

if TYPE_CHECKING:
    from warmstart.finetuning.scheme import Scheme


@dataclass(frozen=True)
class NamedScheme:
    """One row of the table of schemes."""

    decides: str
    """decisions of the scheme; two that decide the same cannot be combined"""
    function: str
    """``file.name`` in this package: makes the scheme from the options; imported only then, as it needs torch"""
    backbone: Literal["all", "part", "none", ""] = ""
    """trained part of the backbone; empty: it leaves that to the scheme it is combined with"""
    needs: Literal["part", ""] = ""
    """part: at least a part of the backbone must train, for the scheme to have any effect"""
    alone: Literal["full", "upper-half", "probe"] = "full"
    """the scheme it is combined with if no other says how much of the backbone trains"""

    def make(self, options: Any) -> Scheme:
        """The scheme itself."""
        file, name = self.function.split(".")
        scheme: Scheme = getattr(importlib.import_module(f".{file}", __package__), name)(options)
        return scheme


SCHEMES: Registry[NamedScheme] = Registry(
    "scheme",
    {
        "full": NamedScheme("which parameters train", "weights.full", backbone="all"),
        "upper-half": NamedScheme("which parameters train", "weights.upper_half", backbone="part"),
        "probe": NamedScheme("which parameters train", "weights.probe", backbone="none"),
        "scalar-mix": NamedScheme("which layers the head reads", "additions.scalar_mix", alone="probe"),
        "lp-ft": NamedScheme("when parameters are unfrozen", "weights.lp_ft", needs="part"),
        "gradual": NamedScheme("when parameters are unfrozen", "weights.gradual", needs="part"),
        "discriminative": NamedScheme("learning rates by depth", "weights.discriminative", needs="part"),
        "houlsby": NamedScheme("where bottleneck adapters are inserted", "additions.houlsby", backbone="part"),
        "lora": NamedScheme("low-rank changes", "additions.lora", backbone="part"),
        "lm-loss": NamedScheme("the language-model loss", "additions.lm_loss", needs="part"),
        "contrast": NamedScheme("the contrastive loss", "additions.contrast", needs="part", alone="upper-half"),
    },
)
"""every name; ``+`` combines them"""


class BottleneckOptions(Config):
    """Options of ``houlsby``."""

    adapter_width: int = Field(64, gt=0)
    """houlsby: width of the bottleneck"""


class LoraOptions(Config):
    """Options of ``lora``."""

    lora_rank: int = Field(8, gt=0)
    """lora: rank of each change"""
    lora_targets: Targets = ("q", "v")
    """lora: which matrices to change: q, k, v, qkv (all three as one), out (of attention), feedforward"""


class DiscriminativeOptions(Config):
    """Options of ``discriminative``."""

    layer_decay: float = Field(0.8, gt=0, le=1)
    """discriminative: learning rate of each level, as a fraction of that of the level above it; ULMFiT's is 0.385"""


class SchemeOptions(BottleneckOptions, LoraOptions, DiscriminativeOptions):
    """Options of single schemes; each help names the schemes that read it. docs/explanation/schemes.md has the defaults."""


# Schemes by name: ``lora``, or several joined by ``+``: ``gradual+discriminative``.

TRAINS = {"all": "trains the whole backbone", "part": "trains only a part of the backbone", "none": "freezes the backbone"}


def make_scheme(names: str, options: SchemeOptions | None = None) -> Scheme:
    """The scheme of one name, or of several: ``make_scheme("lora+scalar-mix")``.

    Names that do not say how much of the backbone trains are combined with ``full``; ``contrast`` with ``upper-half``, and
    ``scalar-mix`` alone with ``probe``. Raises ``ConfigError`` for an unknown name, a name that is given twice, and names that
    contradict each other.
    """
    from warmstart.finetuning.scheme import Scheme

    chosen = _checked_names(names)
    options = options or SchemeOptions()
    return reduce(Scheme.merge, (SCHEMES[name].make(options) for name in [*_implied(chosen), *chosen]), Scheme())


def known_scheme(names: str) -> str:
    """The names themselves, if they make a scheme: validates settings."""
    _checked_names(names)
    return names


def _checked_names(names: str) -> list[str]:
    """The single names, if each is known and they go together."""
    chosen = [name.strip() for name in names.split("+")]
    rows = {name: SCHEMES[name] for name in chosen}
    if twice := sorted({name for name in chosen if chosen.count(name) > 1}):
        raise ConfigError(f"each scheme can be named only once, but {', '.join(twice)} is named twice in {'+'.join(chosen)}")
    for one, other in combinations(chosen, 2):
        if rows[one].decides == rows[other].decides:
            raise ConfigError(f"{one} and {other} both decide {rows[one].decides}; name only one of them")
    training = {name: row.backbone for name, row in rows.items() if row.backbone}
    for one, other in combinations(training, 2):
        if training[one] != training[other]:
            raise ConfigError(f"{one} {TRAINS[training[one]]}, but {other} {TRAINS[training[other]]}; name only one of them")
    for name, row in rows.items():
        for other, amount in training.items():
            if row.needs == "part" and amount == "none":
                raise ConfigError(
                    f"{name} needs at least a part of the backbone to train, but {other} {TRAINS[amount]}; name only one of them"
                )
    return chosen


def _implied(chosen: list[str]) -> list[str]:
    """The name that says how much of the backbone trains, if no chosen one does."""
    rows = [SCHEMES[name] for name in chosen]
    if any(row.backbone for row in rows):
        return []
    alone = {row.alone for row in rows}
    if "upper-half" in alone:
        return ["upper-half"]
    return ["probe"] if "probe" in alone and not any(row.needs for row in rows) else ["full"]
