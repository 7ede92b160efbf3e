"""Learning-rate schedules: pure functions from progress (0 to 1) to a share of the full rate (0 to 1)."""

from __future__ import annotations

import math
from collections.abc import Callable

from warmstart.registry import Registry


def cosine(progress: float) -> float:
    """Half a cosine from 1 to 0 (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * progress))


def linear(progress: float) -> float:
    """A straight line from 1 to 0."""
    return 1 - progress


def trapezoid(progress: float, cooldown: float = 0.3) -> float:
    """Flat at 1, then a straight line to 0 over the last ``cooldown`` (Hägele et al. 2024; "warm-up, stable, decay")."""
    return min(1.0, (1 - progress) / cooldown)


def constant(progress: float) -> float:
    """Always 1."""
    return 1.0


SCHEDULES: Registry[Callable[[float], float]] = Registry(
    "schedule", {"cosine": cosine, "linear": linear, "trapezoid": trapezoid, "constant": constant}
)


def rate_at(progress: float, schedule: str, warmup: float, floor: float) -> float:
    """The share of the full rate at ``progress``: a straight rise over ``warmup``, then the schedule from 1 down to ``floor``.

    ``rate_at(0.05, "linear", warmup=0.1, floor=0.0)`` -> ``0.5``.
    """
    if progress < warmup:
        return progress / warmup
    after = min(1.0, (progress - warmup) / max(1e-9, 1 - warmup))
    return floor + (1 - floor) * SCHEDULES[schedule](after)
