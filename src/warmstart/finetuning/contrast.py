"""The supervised contrastive loss over all texts of a step (Khosla et al. 2020, equation 2; Gunel et al. 2021, equation 3).

Texts of one label are drawn together, and apart from all other texts of the step. A step of several batches compares the texts of
all of them, and holds the graph of one at a time: ``prepare`` computes the vectors of every batch without a graph, and the loss'
gradient at them; each batch is then read again, with the same dropout, and passes that gradient on (Gao et al. 2021, 3.2).

Letters: B batch, N texts of a step, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.finetuning.task_loss import TaskLoss
from warmstart.heads.pooled import PooledHead
from warmstart.model.model import Model
from warmstart.seeding import seed_torch
from warmstart.training.distributed import world
from warmstart.types import Batch


@dataclass(frozen=True)
class Contrast:
    """How much the comparison of texts counts."""

    weight: float
    """of the contrastive loss, for the backbone; that of the head's own loss is 1 - weight"""
    temperature: float
    """by which cosines are divided"""


def supervised_contrast(vectors: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """(N,) the loss of each text in nats, from vectors (N, D) of any length and labels (N,).

    A text's loss is the mean, over the other texts with its label, of the negative log of their share in
    ``exp(cosine / temperature)`` over all other texts. A text that is alone with its label has no such pair: its loss is 0, and it
    counts only as one of the others.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        unit = F.normalize(vectors.float(), dim=1)
        cosines = unit @ unit.T / temperature  # (N, N)
        self_pairs = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        log_shares = cosines.masked_fill(self_pairs, -torch.inf).log_softmax(dim=1).masked_fill(self_pairs, 0.0)
        positive = (labels[:, None] == labels) & ~self_pairs  # (N, N)
        return -(log_shares * positive).sum(dim=1) / positive.sum(dim=1).clamp(min=1)


@dataclass(frozen=True)
class ComparedBatch(Batch):
    """A batch of a step with several, and what the comparison of all their texts says of its own."""

    contrast: Tensor | None = None
    """the contrastive loss of its texts, a scalar without a gradient"""
    gradient: Tensor | None = None
    """(B, D) of the contrastive loss of all texts of the step, at the vectors of these"""
    dropout: tuple[int, int] | None = None
    """the step's draw and the number of the batch, which seed what dropout drops; None for a single batch: the step's own draws"""


class ContrastiveLoss:
    """The loss of a batch: the head learns from that of its logits, the backbone by ``weight`` from the contrastive one.

    The rest, 1 - weight, of the gradient at the vectors is that of the logits' loss (Gunel et al. 2021, equation 1). At a weight of
    1 the head reads vectors that the contrastive loss alone has made, as SetFit's does (Tunstall et al. 2022).
    """

    def __init__(self, model: Model, contrast: Contrast, label_loss: TaskLoss) -> None:
        assert isinstance(model.head, PooledHead)
        self.model, self.head, self.contrast, self.label_loss = model, model.head, contrast, label_loss

    def prepare(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches of a step, each with its part in the comparison of all texts; a single batch, as it is, is all texts.

        Batches whose ``count`` is 0 stay as they are. Each of several processes reads all texts here, because it gets no more than
        its share of each batch afterwards.
        """
        labelled = [batch for batch in batches if batch.count]
        alone = len(labelled) < 2
        if not labelled or (alone and not world().several):
            return list(batches)
        draw = None if alone else int(torch.randint(2**62, ()))
        seeds = [None if draw is None else (draw, number) for number in range(len(labelled))]
        with torch.no_grad(), torch.random.fork_rng() if alone else nullcontext():
            parts = [self._vectors(batch, seed) for batch, seed in zip(labelled, seeds, strict=True)]
        vectors = torch.cat(parts).float().requires_grad_()
        with torch.enable_grad():
            losses = self._contrast(vectors, torch.cat([_labels(batch) for batch in labelled]))
            (gradient,) = torch.autograd.grad(losses.sum(), vectors)
        sizes = [len(part) for part in parts]
        found = zip(labelled, losses.detach().split(sizes), gradient.split(sizes), seeds, strict=True)
        compared = iter(
            ComparedBatch.of(batch, contrast=own.sum(), gradient=ahead, dropout=seed) for batch, own, ahead, seed in found
        )
        return [next(compared) if batch.count else batch for batch in batches]

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch's texts, a scalar; of a batch that is not prepared, they alone are compared."""
        if isinstance(batch, ComparedBatch):
            assert batch.contrast is not None
            assert batch.gradient is not None
            vectors = self._vectors(batch, batch.dropout)
            here = vectors.float()
            # its value is the loss of these texts; its gradient is that of the whole step's loss
            contrast = batch.contrast + ((here - here.detach()) * batch.gradient).sum()
        else:
            vectors = self._vectors(batch)
            contrast = self._contrast(vectors, _labels(batch)).sum()
        seen = torch.lerp(vectors.detach(), vectors, 1 - self.contrast.weight)  # the same vectors, and a part of their gradient
        logits = self.model.head(seen[:, None])  # pooling a single state gives that state
        return self.contrast.weight * contrast + self.label_loss(logits, _labels(batch))

    def _contrast(self, vectors: Tensor, labels: Tensor) -> Tensor:
        return supervised_contrast(vectors, labels, self.contrast.temperature)

    def _vectors(self, batch: Batch, dropout: tuple[int, int] | None = None) -> Tensor:
        """(B, D): the pooled states of a batch's texts; ``dropout`` seeds what is dropped, from here on."""
        if dropout is not None:
            seed_torch(dropout[0], "contrast", dropout[1])
        return self.head.pooled(self.model.backbone.forward_batch(batch).last_hidden_state, batch.attention_mask, batch.windows)


def _labels(batch: Batch) -> Tensor:
    assert batch.targets is not None
    return batch.targets
