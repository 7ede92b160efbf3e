"""Gradual unfreezing from the top down (Howard and Ruder 2018, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme
from warmstart.finetuning.unfreezing import Unfreezing, frozen_until
from warmstart.training.schedules import Schedule


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
