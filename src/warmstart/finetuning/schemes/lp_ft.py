"""Linear probing, then fine-tuning (Kumar et al. 2022): the head trains alone first, so that it does not distort the backbone."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme
from warmstart.finetuning.schemes.probe import PROBE_RATE
from warmstart.finetuning.unfreezing import Unfreezing, frozen_until
from warmstart.training.schedules import Schedule, constant

RISE = 0.05
"""fraction of the run over which the learning rate of a backbone rises after it is unfrozen at once"""


class LpFtOptions(Config):
    """Options of ``lp-ft``."""

    probe_fraction: float = Field(0.2, gt=0, lt=1)
    """lp-ft: fraction of the run in which only the head trains"""


@dataclass(frozen=True)
class ProbeFirst(Unfreezing):
    """The head trains alone at a probe's learning rate, then everything."""

    fraction: float
    """of the run in which only the head trains"""

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


def lp_ft(options: LpFtOptions) -> Scheme:
    """Unfreeze the backbone after the head has trained alone."""
    return Scheme(unfreezing=ProbeFirst(options.probe_fraction))
