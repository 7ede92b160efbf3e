"""The registry of schemes. A new scheme is one function and one row here; its options join the bases of ``SchemeOptions``."""

from __future__ import annotations

from functools import reduce
from itertools import combinations

from warmstart.errors import ConfigError
from warmstart.finetuning.scheme import NamedScheme, Scheme
from warmstart.finetuning.schemes import additions, weights
from warmstart.registry import Registry

SCHEMES: Registry[NamedScheme] = Registry(
    "scheme",
    {
        "full": NamedScheme("which parameters train", weights.full, backbone="all"),
        "probe": NamedScheme("which parameters train", weights.probe, backbone="none"),
        "scalar-mix": NamedScheme("which layers the head reads", additions.scalar_mix, alone="probe"),
        "lp-ft": NamedScheme("when parameters are unfrozen", weights.lp_ft, needs="part"),
        "gradual": NamedScheme("when parameters are unfrozen", weights.gradual, needs="part"),
        "discriminative": NamedScheme("learning rates by depth", weights.discriminative, needs="part"),
        "houlsby": NamedScheme("where bottleneck adapters are inserted", additions.houlsby, backbone="part"),
        "lora": NamedScheme("low-rank changes", additions.lora, backbone="part"),
        "dapt": NamedScheme("continued pretraining", additions.dapt),
        "lm-loss": NamedScheme("the language-model loss", additions.lm_loss, needs="part"),
        "contrast": NamedScheme("the contrastive loss", additions.contrast, needs="part"),
    },
)
"""every name; ``+`` combines them"""


class SchemeOptions(
    additions.BottleneckOptions,
    additions.LoraOptions,
    additions.LanguageLossOptions,
    additions.ContrastOptions,
    additions.DaptOptions,
    weights.LpFtOptions,
    weights.DiscriminativeOptions,
):
    """Options of single schemes; each help names the schemes that read it. docs/explanation/schemes.md has the defaults."""


# Schemes by name: ``lora``, or several joined by ``+``: ``gradual+discriminative``.

TRAINS = {"all": "trains the whole backbone", "part": "trains only a part of the backbone", "none": "freezes the backbone"}


def make_scheme(names: str, options: SchemeOptions | None = None) -> Scheme:
    """The scheme of one name, or of several: ``make_scheme("lora+scalar-mix")``.

    Names that do not say how much of the backbone trains are combined with ``full``; ``scalar-mix`` alone with ``probe``. Raises
    ``ConfigError`` for an unknown name, a name that is given twice, and names that contradict each other.
    """
    chosen = [name.strip() for name in names.split("+")]
    _check_names(chosen)
    options = options or SchemeOptions()
    return reduce(Scheme.merge, (SCHEMES[name].make(options) for name in [*_implied(chosen), *chosen]), Scheme())


def known_scheme(names: str) -> str:
    """The names themselves, if they make a scheme: validates settings."""
    make_scheme(names)
    return names


def _check_names(chosen: list[str]) -> None:
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


def _implied(chosen: list[str]) -> list[str]:
    """The name that says how much of the backbone trains, if no chosen one does."""
    rows = [SCHEMES[name] for name in chosen]
    if any(row.backbone for row in rows):
        return []
    return ["probe"] if not any(row.needs for row in rows) and any(row.alone == "probe" for row in rows) else ["full"]
