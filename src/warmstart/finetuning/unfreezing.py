"""When each part of a model begins to train.

Parts are ordered by their level, counted from the bottom: 0 the embedding, 1 to L the blocks, L + 1 the head.

Letters: L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmstart.training.schedules import Schedule, constant


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
