"""The supervised contrastive loss over all texts of a step, beside the head's (Gunel et al. 2021, equation 3).

Texts of one label are drawn together, and apart from all other texts of the step (``objectives/comparison.py``).

Letters: B batch, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warmstart.finetuning.task_loss import TaskLoss
from warmstart.heads.pooled import PooledHead
from warmstart.model.model import Model
from warmstart.objectives.comparison import RowComparison
from warmstart.training.distributed import world
from warmstart.types import Batch


@dataclass(frozen=True)
class Contrast:
    """How much the comparison of texts counts."""

    weight: float
    """of the contrastive loss, for the backbone; that of the head's own loss is 1 - weight"""
    temperature: float
    """by which cosines are divided"""


class ContrastiveLoss:
    """The loss of a batch: the head learns from that of its logits, the backbone by ``weight`` from the contrastive one.

    The rest, 1 - weight, of the gradient at the vectors is that of the logits' loss (Gunel et al. 2021, equation 1). At a weight of
    1 the head reads vectors that the contrastive loss alone has made, as SetFit's does (Tunstall et al. 2022).
    """

    def __init__(self, model: Model, contrast: Contrast, label_loss: TaskLoss) -> None:
        assert isinstance(model.head, PooledHead)
        self.model, self.head, self.contrast, self.label_loss = model, model.head, contrast, label_loss
        self.comparison = RowComparison(contrast.temperature, self._vectors, _labels)

    def prepare(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches of a step, each with its part in the comparison of all texts (``RowComparison.prepare``)."""
        return self.comparison.prepare(batches, several=world().several)

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch's texts, a scalar; of a batch that is not prepared, they alone are compared."""
        self.comparison.begin(batch)
        vectors = self._vectors(batch)
        contrast = self.comparison.loss(batch, vectors)
        seen = torch.lerp(vectors.detach(), vectors, 1 - self.contrast.weight)  # the same vectors, and a part of their gradient
        logits = self.model.head(seen[:, None])  # pooling a single state gives that state
        return self.contrast.weight * contrast + self.label_loss(logits, _labels(batch))

    def _vectors(self, batch: Batch) -> Tensor:
        """(B, D): the pooled states of a batch's texts."""
        return self.head.pooled(self.model.backbone.forward_batch(batch).last_hidden_state, batch.attention_mask, batch.windows)


def _labels(batch: Batch) -> Tensor:
    assert batch.targets is not None
    return batch.targets
