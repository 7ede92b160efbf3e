"""Randomness that depends on names, not on what was drawn before.

Every random choice has a generator of its own, seeded with the run's seed and the names of what is chosen:
``rng(seed, "order", epoch)``. So resuming needs no generator state: step 700 draws the same numbers whether or not steps 1 to 699
ran in this process.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for one named choice.

    ``derive(0, "dropout", 7)`` never changes, in any version, and differs from ``derive(0, "dropout", 8)``.
    """
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def rng(seed: int, *names: str | int) -> np.random.Generator:
    """A numpy generator for one named choice."""
    return np.random.default_rng(derive(seed, *names))


def seed_torch(seed: int, *names: str | int) -> None:
    """Seed torch's global generators (initial weights, dropout) for one named choice."""
    import torch

    seed_all = torch.manual_seed if _has_accelerator() else torch.default_generator.manual_seed
    seed_all(derive(seed, *names))


@functools.cache
def _has_accelerator() -> bool:
    """Whether there are generators beside the processor's; without any, ``torch.manual_seed`` still spends 1 to 2 ms on them."""
    import torch

    return torch.accelerator.is_available()
