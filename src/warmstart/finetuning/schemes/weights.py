"""Schemes that choose which of the pretrained weights train, from when on, and at which learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from warmstart.backbone.backbone import EMBEDDING_MODULES
from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme, Unfreezing, frozen_until
from warmstart.finetuning.schemes.registry import DiscriminativeOptions
from warmstart.model.model import Model
from warmstart.training.config import Schedule, constant

# Full fine-tuning: every parameter of the backbone trains.


def all_parameters(model: Model) -> set[str]:
    """The names of all parameters of the backbone."""
    return {name for name, _ in model.named_parameters() if name.startswith("backbone.")}


def full(options: Config) -> Scheme:
    """Everything trains, at the learning rate of the run."""
    return Scheme(trains=(all_parameters,))


# The last half of the blocks trains. What is below gives general features, and is the half that costs most to train: gradients end
# above it, and without dropout each text is read by it once (``finetuning/inputs.py``).

DEEP = 4
"""blocks of a backbone from which on half of them is enough to train"""


def upper_parameters(model: Model) -> set[str]:
    """The names of the parameters of the last half of the blocks, and of what is above; of all in a backbone of fewer than four."""
    depth = model.backbone.config.depth
    if depth < DEEP:
        return all_parameters(model)
    below = (*(f"backbone.{name}." for name in EMBEDDING_MODULES), *(f"backbone.blocks.{n}." for n in range(depth // 2)))
    return {name for name in all_parameters(model) if not name.startswith(below)}


def upper_half(options: Config) -> Scheme:
    """The blocks of the last half train, at the learning rate of the run."""
    return Scheme(trains=(upper_parameters,))


# A probe: a linear head on frozen features, at a learning rate that suits its few weights.

PROBE_RATE = 20.0
"""a head alone trains at this many times the learning rate that suits a whole network"""


def probe(options: Config) -> Scheme:
    """The head alone trains."""
    return Scheme(rate_factors={"head": PROBE_RATE})


# Discriminative fine-tuning: lower layers learn more slowly (Howard and Ruder 2018, section 3.1).


def discriminative(options: DiscriminativeOptions) -> Scheme:
    """Twice the learning rate at the top, so that the middle of the network has the one that suits a whole network."""
    return Scheme(layer_decay=options.layer_decay, rate_factors={"backbone": 2.0, "head": 2.0})


# Gradual unfreezing from the top down (Howard and Ruder 2018, section 3.3).


@dataclass(frozen=True)
class TopDown(Unfreezing):
    """The head trains from the start; then one more level is unfrozen after each equal part of the run."""

    def schedule(self, part: str, level: int, depth: int, head_factor: float) -> Schedule:
        """Frozen until the level's turn."""
        return frozen_until(unfrozen_at(level, depth))

    def complete_at(self, depth: int) -> float:
        """When the embedding is unfrozen."""
        return unfrozen_at(0, depth)


def unfrozen_at(level: int, depth: int) -> float:
    """The fraction of the run after which a level is unfrozen.

    With two blocks: the head at 0, the upper block at 1/4, the lower one at 1/2, the embedding at 3/4.
    """
    return (depth + 1 - level) / (depth + 2)


def gradual(options: Config) -> Scheme:
    """Unfreeze the levels one after another."""
    return Scheme(unfreezing=TopDown())


# Linear probing, then fine-tuning (Kumar et al. 2022): the head trains alone first, so that it does not distort the backbone.

PROBE_FRACTION = 0.2
"""fraction of the run in which the head trains alone"""
RISE = 0.05
"""fraction of the run over which the learning rate of a backbone rises after it is unfrozen at once"""


@dataclass(frozen=True)
class ProbeFirst(Unfreezing):
    """The head trains alone at a probe's learning rate, then everything."""

    fraction: float = PROBE_FRACTION
    """fraction of the run in which only the head trains"""

    def schedule(self, part: str, level: int, depth: int, head_factor: float) -> Schedule:
        """Frozen at first for the backbone and adapters inside it; a faster start for the head."""
        if level <= depth:
            return frozen_until(self.fraction, RISE)
        return at_first(self.fraction, PROBE_RATE / head_factor) if part == "head" else constant

    def complete_at(self, depth: int) -> float:
        """When the backbone is unfrozen."""
        return self.fraction


def at_first(end: float, factor: float) -> Schedule:
    """``factor`` before ``end``, then 1."""
    return lambda progress: factor if progress < end else 1.0


def lp_ft(_: Config) -> Scheme:
    """Unfreeze the backbone after the head has trained alone."""
    return Scheme(unfreezing=ProbeFirst())
