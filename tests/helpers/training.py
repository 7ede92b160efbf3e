"""A tiny training job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from warmstart.seeding import rng
from warmstart.training.loop import TrainingJob
from warmstart.types import IGNORE, Batch


def ragged_batch(step: int, part: int = 0, rows: int = 4) -> Batch:
    """Random rows of random lengths; every real token predicts the next."""
    draw = rng(0, "ragged", step, part)
    lengths = draw.integers(2, 9, rows)
    ids = torch.from_numpy(draw.integers(5, 60, (rows, 9)))
    real = torch.from_numpy(np.arange(9) < lengths[:, None])
    targets = torch.where(real[:, 1:], ids[:, 1:], IGNORE)
    return Batch(ids[:, :-1], targets, real[:, :-1], count=int((targets != IGNORE).sum()))


def packed_batch(step: int) -> Batch:
    """Full rows, of which every token or every third has a target."""
    ids = torch.randint(5, 60, (4, 12), generator=torch.Generator().manual_seed(step))
    targets = ids if step % 2 else ids.masked_fill(torch.arange(12) % 3 > 0, IGNORE)
    return Batch(ids, targets, causal=bool(step % 2), count=int((targets != IGNORE).sum()))


def job(steps: int | None = 12, **changes: object) -> TrainingJob:
    return replace(TrainingJob(lambda step: [ragged_batch(step)], steps, seed=0, identity="a", progress_bar=False), **changes)


class KilledError(Exception):
    """A kill in the middle of a run."""


def killed_at(
    stop: int | None, batches: Callable[[int], list[Batch]] = lambda step: [ragged_batch(step)]
) -> Callable[[int], list[Batch]]:
    """The batches of a run that is killed at a step."""

    def of(step: int) -> list[Batch]:
        if step == stop:
            raise KilledError
        return batches(step)

    return of
