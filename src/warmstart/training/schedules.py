"""Learning-rate schedules: pure functions from progress (0 to 1) to a fraction of the peak learning rate (0 to 1)."""

from __future__ import annotations

import math
from collections.abc import Callable

from warmstart.registry import Registry

Schedule = Callable[[float], float]
"""a factor of the learning rate at some progress of the run (0 to 1)"""


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


SCHEDULES: Registry[Schedule] = Registry(
    "schedule", {"cosine": cosine, "linear": linear, "trapezoid": trapezoid, "constant": constant}
)


def learning_rate_factor(progress: float, schedule: str, warmup: float, minimum: float) -> float:
    """The fraction of the peak learning rate at ``progress``: a linear rise over ``warmup``, then the schedule down to ``minimum``.

    ``learning_rate_factor(0.05, "linear", warmup=0.1, minimum=0.0)`` -> ``0.5``.
    """
    if progress < warmup:
        return progress / warmup
    after = min(1.0, (progress - warmup) / max(1e-9, 1 - warmup))
    return minimum + (1 - minimum) * SCHEDULES[schedule](after)
