"""When a part of a model begins to train: pure functions of how much of the run is spent (0 to 1).

A level is a depth, counted from the bottom: 0 the embedding, 1 to L the blocks, L + 1 the head. A course gives the factor of a
level's rate; 0 means that it sleeps.
"""

from __future__ import annotations

from collections.abc import Callable

RISE = 0.05
"""share of the run over which a whole backbone that wakes at once comes up to its rate"""


def wakes(start: float, rise: float = 0.0) -> Callable[[float], float]:
    """Asleep before ``start``, then up to 1 in a straight line over ``rise``.

    ``wakes(0.5, 0.2)(0.6)`` -> ``0.5``.
    """

    def course(progress: float) -> float:
        if progress < start:
            return 0.0
        return 1.0 if rise == 0 else min(1.0, (progress - start) / rise)

    return course


def slows(end: float, factor: float) -> Callable[[float], float]:
    """``factor`` before ``end``, then 1: a head that first trains alone does so at a probe's rate."""
    return lambda progress: factor if progress < end else 1.0


def top_down(level: int, depth: int) -> float:
    """Where gradual unfreezing wakes a level: the head at once, one more each equal share (Howard and Ruder 2018, section 3.3).

    With two blocks: the head at 0, the upper block at 1/4, the lower one at 1/2, the embedding at 3/4.
    """
    return (depth + 1 - level) / (depth + 2)
