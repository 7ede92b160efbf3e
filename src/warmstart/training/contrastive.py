"""The loss of contrastive pretraining: masked tokens are predicted, and the two crops of a document are alike.

``objectives/contrastive.py`` makes the batches and states the formula. The vector of a crop is the mean of its last hidden states,
as heads that pool by the mean read it. The sum over crops is multiplied by a constant, targets per crop, because a step is divided
by its targets: so the weight means the same for every mask rate and length.

Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warmstart.corpora.rows import PretrainingRows
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.pooled import pool_mean
from warmstart.model.model import Model
from warmstart.objectives.comparison import RowComparison
from warmstart.objectives.loss import language_loss
from warmstart.training.distributed import world
from warmstart.types import Batch

CONTRAST_WEIGHT = 1.0
"""weight of the mean loss of crops beside that of masked tokens, as in DeCLUTR"""
TEMPERATURE = 0.1
"""divisor of the cosines of crops"""


class ContrastivePretraining:
    """The loss of a language model on crops of documents."""

    def __init__(self, model: Model, rows: PretrainingRows) -> None:
        assert isinstance(model.head, LMHead)
        objective = rows.objective
        crop = rows.mean_tokens / 2
        self.model, self.head = model, model.head
        self.factor = CONTRAST_WEIGHT * objective.effective_mask_rate * crop
        """weight of the summed loss of crops"""
        self.comparison = RowComparison(TEMPERATURE, self._read, _documents, apart=True)

    def prepare(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches of a step, each with its part in the comparison of all crops (``RowComparison.prepare``)."""
        return self.comparison.prepare(batches, several=world().several)

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch in nats, a scalar, to be divided by the number of masked tokens."""
        assert batch.targets is not None
        self.comparison.begin(batch)
        states = self.model.backbone.forward_batch(batch).last_hidden_state  # (B, T, D)
        masked = language_loss(states, self.head.weight, self.head.bias, batch.targets, self.head.transform, batch.target_places)
        return masked + self.factor * self.comparison.loss(batch, pool_mean(states, batch.attention_mask))

    def _read(self, batch: Batch) -> Tensor:
        """(B, D): the vectors of a batch's crops."""
        return pool_mean(self.model.backbone.forward_batch(batch).last_hidden_state, batch.attention_mask)


def _documents(batch: Batch) -> Tensor:
    documents = getattr(batch, "documents", None)
    assert isinstance(documents, torch.Tensor), "only a batch of crops has documents"
    return documents
