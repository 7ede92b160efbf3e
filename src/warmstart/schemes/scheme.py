"""Schemes: what trains during adaptation, at which rate, when, with which inserted modules and which extra loss.

A scheme is a value. Each name is a row of one table and says one or two things; ``a+b`` says what both say, and names that
contradict each other are refused. ``apply`` turns a scheme and a model into groups of parameters; nothing here touches a model.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any, Literal, NamedTuple

from pydantic import Field

from warmstart.config import Config
from warmstart.errors import ConfigError
from warmstart.inserts import AdapterConfig, InsertConfig, LoraConfig, MixConfig
from warmstart.registry import Registry
from warmstart.schemes.options import SchemeOptions


class Scheme(Config):
    """What is done with a model; the defaults are a frozen backbone under a head that trains."""

    trains: tuple[Literal["all", "biases", "norms"], ...] = ()
    """which parameters of the pretrained backbone train; none: it is frozen"""
    inserts: tuple[InsertConfig, ...] = ()
    """modules that are put into the backbone, and train"""
    rates: dict[str, float] = Field(default_factory=dict)
    """rate of ``backbone``, ``head``, ``adapter``, ``lora``, ``mix``, times the learning rate of the run; 1 where none is named"""
    order: Literal["at once", "probe first", "top down"] = "at once"
    """when the parts begin to train"""
    probe_share: float = Field(0.2, gt=0, lt=1)
    """probe first: share of the run in which only the head trains"""
    depth_decay: float = Field(1.0, gt=0, le=1)
    """each level's rate is so much of the one above it"""
    continued: bool = False
    """pretraining goes on, on the task's own text, before any of this"""
    lm_weight: float = Field(0.0, ge=0)
    """weight of the language-model loss of the same texts"""
    pull: tuple[float, float] | None = None
    """strength of the pull of the backbone towards its pretrained weights, and of the head towards zero"""

    @property
    def still(self) -> bool:
        """Nothing below what the head reads trains: the features of a text stay the same through the whole run."""
        return not self.trains and all(config.kind == "mix" for config in self.inserts)


class Named(NamedTuple):
    """One row of the table of schemes."""

    says: str
    """what this name settles; of two names that settle the same, only one can stand"""
    values: Callable[[SchemeOptions], dict[str, Any]]
    """the fields of ``Scheme`` that it sets; tuples add up, of rates the highest counts"""
    apart: tuple[str, ...] = ()
    """the names that it cannot stand with,"""
    reason: str = ""
    """and why"""


PROBE_RATE = 20.0
"""a linear head alone learns at so many times the rate that suits a whole network"""
SMALL = ("houlsby", "pfeiffer", "lora", "bitfit")
"""they train little of the backbone, or something beside it"""
WHOLE = ("lp-ft", "gradual", "discriminative", "lm-loss", "l2-sp")
"""they say how a backbone trains; standing alone, all of it does"""


def _adapter(options: SchemeOptions, *, published: bool, **places: Any) -> dict[str, Any]:
    norms = published if options.adapter_norms == "as published" else options.adapter_norms == "yes"
    return {
        "inserts": (AdapterConfig(width=options.adapter_width, **places),),
        "trains": ("norms",) if norms else (),
        "rates": {"adapter": 10.0, "head": 10.0, "backbone": 10.0},
    }


def _lora(options: SchemeOptions) -> dict[str, Any]:
    lora = LoraConfig(rank=options.lora_rank, alpha=options.lora_alpha, targets=options.lora_targets, dropout=options.lora_dropout)
    return {"inserts": (lora,), "rates": {"lora": 10.0, "head": 10.0}}


SCHEMES: Registry[Named] = Registry(
    "scheme",
    {
        "full": Named(
            "what trains", lambda _: {"trains": ("all",)}, SMALL, "trains every weight of the backbone, and leaves nothing for"
        ),
        # features stay as pretraining left them; a linear head reads them, at a rate that suits its few weights
        "probe": Named(
            "what trains",
            lambda _: {"rates": {"head": PROBE_RATE}},
            (*SMALL, *WHOLE),
            "freezes the backbone, and leaves nothing for",
        ),
        "mix": Named("what the head reads", lambda _: {"inserts": (MixConfig(),), "rates": {"mix": 20.0}}),
        "lp-ft": Named("when parts wake", lambda options: {"order": "probe first", "probe_share": options.probe_share}),
        "gradual": Named("when parts wake", lambda _: {"order": "top down"}),
        # the rate that suits the whole network is that of its middle
        "discriminative": Named(
            "rates by depth",
            lambda options: {"depth_decay": options.depth_decay, "rates": {"backbone": 2.0, "head": 2.0}},
        ),
        "houlsby": Named("where adapters stand", lambda options: _adapter(options, published=True)),
        "pfeiffer": Named(
            "where adapters stand",
            lambda options: _adapter(options, published=False, after=("feedforward",), activation="relu"),
        ),
        "lora": Named("low-rank changes", _lora),
        "bitfit": Named("biases", lambda _: {"trains": ("biases",), "rates": {"backbone": 40.0, "head": 20.0}}),
        "dapt": Named("what comes first", lambda _: {"continued": True}),
        "lm-loss": Named("language loss", lambda options: {"lm_weight": options.lm_weight}),
        "l2-sp": Named(
            "pull",
            lambda options: {"pull": (options.pull, options.pull_head)},
            SMALL,
            "pulls a backbone that trains whole, and is nothing for",
        ),
    },
)
"""Every name; ``+`` composes them."""


def make_scheme(names: str, options: SchemeOptions | None = None) -> Scheme:
    """The scheme of one name, or of several: ``make_scheme("lora+mix")``.

    A name that only says how the backbone trains brings ``full`` along, ``mix`` alone brings ``probe``. Raises ``ConfigError`` for
    an unknown name, one that stands twice, and names that contradict each other.
    """
    chosen = _complete([name.strip() for name in names.split("+")])
    merged: dict[str, Any] = {}
    for name in chosen:
        for field, value in SCHEMES[name].values(options or SchemeOptions()).items():
            if field == "rates":
                old = merged.get(field, {})
                value = old | {part: max(rate, old.get(part, 0.0)) for part, rate in value.items()}
            elif field in ("trains", "inserts"):
                value = (*merged.get(field, ()), *value)
            merged[field] = value
    return Scheme(**merged)


def known_scheme(names: str) -> str:
    """The names themselves, if they make a scheme: the check of settings that name one."""
    make_scheme(names)
    return names


def _complete(chosen: list[str]) -> list[str]:
    """The names, checked, with the one that goes without saying."""
    if twice := sorted({name for name in chosen if chosen.count(name) > 1}):
        raise ConfigError(f"each scheme must be named once, but {', '.join(twice)} stands twice in {'+'.join(chosen)}")
    for one, other in permutations(chosen, 2):
        if other in SCHEMES[one].apart:
            raise ConfigError(
                f"the schemes of {'+'.join(chosen)} must go together, but {one} {SCHEMES[one].reason} {other}; drop one"
            )
        if SCHEMES[one].says == SCHEMES[other].says:
            raise ConfigError(f"{one} and {other} both settle the same ({SCHEMES[one].says}); name one of them")
    for name in chosen:
        SCHEMES[name]
    if not {"full", "probe", *SMALL} & set(chosen):
        return ["full" if set(WHOLE) & set(chosen) or chosen == ["dapt"] else "probe", *chosen]
    return chosen
