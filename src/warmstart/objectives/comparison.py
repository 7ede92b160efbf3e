"""A loss that compares all rows of a step: those of one group are drawn together, and apart from all others.

The supervised contrastive loss (Khosla et al. 2020, equation 2); with two rows in each group it is SimCLR's (Chen et al. 2020). A
step of several batches compares the rows of all of them, and holds the graph of one at a time: ``prepare`` computes the vectors of
every batch without a graph, and the loss' gradient at them; each batch is then read again, with the same dropout, and passes that
gradient on (Gao et al. 2021, 3.2).

Letters: B batch, N rows of a step, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.seeding import seed_torch
from warmstart.types import Batch


def contrastive_loss(vectors: Tensor, groups: Tensor, temperature: float) -> Tensor:
    """(N,) the loss of each row in nats, from vectors (N, D) of any length and the groups (N,) of rows.

    A row's loss is the mean, over the other rows of its group, of the negative log of their share in
    ``exp(cosine / temperature)`` over all other rows. A row that is alone in its group has no such pair: its loss is 0, and it
    counts only as one of the others.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        unit = F.normalize(vectors.float(), dim=1)
        cosines = unit @ unit.T / temperature  # (N, N)
        self_pairs = torch.eye(len(groups), dtype=torch.bool, device=groups.device)
        log_shares = cosines.masked_fill(self_pairs, -torch.inf).log_softmax(dim=1).masked_fill(self_pairs, 0.0)
        positive = (groups[:, None] == groups) & ~self_pairs  # (N, N)
        return -(log_shares * positive).sum(dim=1) / positive.sum(dim=1).clamp(min=1)


@dataclass(frozen=True)
class ComparedBatch(Batch):
    """A batch of a step with several, and its part in the comparison of all their rows."""

    contrast: Tensor | None = None
    """the contrastive loss of its rows, a scalar without a gradient"""
    gradient: Tensor | None = None
    """(B, D) of the contrastive loss of all rows of the step, at the vectors of these"""
    dropout: tuple[int, int] | None = None
    """the step's draw and the number of the batch, which seed what dropout drops; None for a single batch: the step's own draws"""


@dataclass(frozen=True)
class RowComparison:
    """The comparison of all rows of a step by their vectors."""

    temperature: float
    """divisor of the cosines"""
    vectors_of: Callable[[Batch], Tensor]
    """(B, D): the vectors of a batch's rows"""
    groups_of: Callable[[Batch], Tensor]
    """(B,): the groups of a batch's rows"""
    apart: bool = False
    """True if groups of different batches are different ones"""

    def prepare(self, batches: Sequence[Batch], *, several: bool = False) -> list[Batch]:
        """The batches of a step, each with its part in the comparison of all rows; a single batch, as it is, is all rows.

        Batches whose ``count`` is 0 stay as they are. Each of ``several`` processes reads all rows here, because it gets no more
        than its share of each batch afterwards.
        """
        compared = [batch for batch in batches if batch.count]
        alone = len(compared) < 2
        if not compared or (alone and not several):
            return list(batches)
        draw = None if alone else int(torch.randint(2**62, ()))
        ready = [ComparedBatch.of(batch, dropout=None if draw is None else (draw, number)) for number, batch in enumerate(compared)]
        with torch.no_grad(), torch.random.fork_rng() if alone else nullcontext():
            parts = [self._vectors(batch) for batch in ready]
        vectors = torch.cat(parts).float().requires_grad_()
        with torch.enable_grad():
            losses = contrastive_loss(vectors, self._groups(compared), self.temperature)
            (gradient,) = torch.autograd.grad(losses.sum(), vectors)
        sizes = [len(part) for part in parts]
        shares = zip(ready, losses.detach().split(sizes), gradient.split(sizes), strict=True)
        prepared = iter([replace(batch, contrast=own.sum(), gradient=ahead) for batch, own, ahead in shares])
        return [next(prepared) if batch.count else batch for batch in batches]

    def _vectors(self, batch: Batch) -> Tensor:
        self.begin(batch)
        return self.vectors_of(batch)

    def begin(self, batch: Batch) -> None:
        """Seed the dropout before a batch is read: a prepared batch gets that with which ``prepare`` read it."""
        if isinstance(batch, ComparedBatch) and batch.dropout is not None:
            seed_torch(batch.dropout[0], "contrast", batch.dropout[1])

    def loss(self, batch: Batch, vectors: Tensor) -> Tensor:
        """The summed loss of a batch's rows with ``vectors`` (B, D), a scalar; if it is not prepared, they alone are compared."""
        if not isinstance(batch, ComparedBatch):
            return contrastive_loss(vectors, self.groups_of(batch), self.temperature).sum()
        assert batch.contrast is not None
        assert batch.gradient is not None
        here = vectors.float()
        # its value is the loss of these rows; its gradient is that of the whole step's loss
        return batch.contrast + ((here - here.detach()) * batch.gradient).sum()

    def _groups(self, batches: Sequence[Batch]) -> Tensor:
        all_groups = [self.groups_of(batch) for batch in batches]
        if self.apart:
            first = 0
            for number, groups in enumerate(all_groups):
                all_groups[number], first = groups + first, first + int(groups.max()) + 1
        return torch.cat(all_groups)
