"""A teacher's probabilities beside the labels: ``loss = labels' loss + weight * teacher's loss`` (Hinton et al. 2015, section 2).

Each batch of labelled texts is followed by as many texts of the pool, at most; both losses are divided by the number of labelled
texts. So the weight means the same for every batch size, and k batches of b count as one of k b. The teacher's loss is the
cross-entropy of its probabilities under the student's, both at one temperature, times the square of the temperature: that keeps the
size of gradients.

Letters: B batch, P texts of the pool, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.data.batches import length_buckets
from warmstart.data.encode import Encoded
from warmstart.model.model import Model
from warmstart.seeding import derive
from warmstart.types import Batch

POOL_PASSES, MOST_STEPS = 3, 300
"""a run whose budget is not named reads the pool so often, but takes no more steps for that"""


class SoftBatch(Batch):
    """Texts with a teacher's probabilities as targets (B, C); ``count`` is 0: a step's loss is divided by its labelled texts."""


@dataclass(frozen=True, eq=False)
class SoftTexts:
    """The pool as a student reads it, with what the teacher says."""

    encoded: Encoded
    probabilities: np.ndarray
    """(P, C) at ``temperature``"""
    weight: float
    temperature: float

    def least_steps(self, texts_per_step: int) -> int:
        """How long a run is at least whose budget is not named."""
        return min(MOST_STEPS, -(-POOL_PASSES * len(self.encoded) // texts_per_step))

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The summed and weighted loss of a batch, a scalar."""
        assert batch.targets is not None
        logits = model(batch.ids, batch.attention_mask, batch.token_type_ids, batch.windows)
        return self.weight * soft_cross_entropy(logits, batch.targets, self.temperature)

    def follow(
        self, batches: Callable[[int], list[Batch]], model: Model, size_and_seed: tuple[int, int], pad_id: int
    ) -> Callable[[int], list[Batch]]:
        """The same batches of at most ``size`` texts, and as many texts of the pool; also a pure function of the step."""
        size, seed = size_and_seed
        chosen = length_buckets(self.encoded.lengths, size, derive(seed, "pool"))

        def both(step: int) -> list[Batch]:
            given = batches(step)
            sizes = [batch.count for batch in given if batch.count]  # others hold no labels of their own
            drawn = (chosen(step * len(sizes) + part)[:count] for part, count in enumerate(sizes))
            return [*given, *(self.batch(indices, pad_id, causal=model.causal) for indices in drawn)]

        return both

    def batch(self, indices: np.ndarray, pad_id: int, *, causal: bool) -> SoftBatch:
        """The texts at ``indices``."""
        batch = self.encoded.batch(indices, None, pad_id, causal=causal)
        targets = torch.from_numpy(self.probabilities[indices]).float()
        return SoftBatch.of(batch, targets=targets, count=0)


def soft_cross_entropy(logits: Tensor, probabilities: Tensor, temperature: float) -> Tensor:
    """Summed cross-entropy in nats of ``probabilities`` (B, C) under ``logits`` (B, C) at a temperature, times its square.

    ``probabilities`` are at the temperature already. At temperature 1 it is torch's ``cross_entropy`` with probabilities.
    """
    return temperature**2 * F.cross_entropy(logits.float() / temperature, probabilities, reduction="sum")
