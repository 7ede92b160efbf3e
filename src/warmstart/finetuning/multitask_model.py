"""Several tasks on one backbone: a head for each task, and batches that say which task they belong to.

Letters: B batch, T tokens, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from warmstart.backbone.backbone import Backbone
from warmstart.errors import ConfigError
from warmstart.heads.per_text import ClassificationHead
from warmstart.model.model import Model
from warmstart.seeding import rng
from warmstart.types import Batch


@dataclass(frozen=True)
class TaskBatch(Batch):
    """Texts of one task."""

    task: int = 0
    """index of the task, and of its head"""


class MultitaskModel(nn.Module):
    """One backbone with a head for each task."""

    def __init__(self, backbone: Backbone, heads: Sequence[ClassificationHead], *, causal: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleList(heads)
        self.causal = causal

    def head(self, task: int) -> ClassificationHead:
        """The head of a task."""
        head = self.heads[task]
        assert isinstance(head, ClassificationHead)
        return head

    def logits(self, batch: Batch, task: int) -> Tensor:
        """(B, C): what a task's head computes for a batch."""
        states = self.backbone.forward_batch(batch, causal=self.causal).last_hidden_state
        return self.head(task)(states, batch.attention_mask)

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a task's batch in nats, with that task's head."""
        assert isinstance(batch, TaskBatch)
        assert batch.targets is not None
        return self.head(batch.task).loss(self.logits(batch, batch.task), batch.targets)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        return self.state_dict(keep_vars=True)

    def single_task(self, task: int) -> Model:
        """The backbone (the same object) with one task's head."""
        return Model(self.backbone, self.head(task), causal=self.causal)


def sampling_fractions(sizes: Sequence[int], alpha: float) -> np.ndarray:
    """The fraction of batches from each task, proportional to ``size ** alpha``: 1 by size, 0.5 by its root, 0 all equal."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha must lie between 0 (all tasks equally often) and 1 (by size), but is {alpha}")
    weights = np.array(sizes, dtype=float) ** alpha
    return weights / weights.sum()


def task_order(fractions: np.ndarray, steps: int, seed: int) -> list[int]:
    """The task of each of ``steps`` batches: exactly these fractions (largest remainder), in a random order.

    ``task_order([.75, .25], 4, 0)`` has three 0s and one 1.
    """
    exact = fractions * steps
    counts = np.floor(exact).astype(int)
    for task in np.argsort(counts - exact, kind="stable")[: steps - counts.sum()]:
        counts[task] += 1
    tasks = np.repeat(np.arange(len(fractions)), counts)
    return [int(task) for task in rng(seed, "turns").permutation(tasks)]
