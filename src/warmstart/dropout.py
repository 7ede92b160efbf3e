"""Dropout whose draws belong to the rows of a batch, not to the process that computes them.

Where several processes share a batch, each draws for all rows of the batch and takes its own: so it drops what one process alone
would drop, and the number of processes changes no result. In one process it is torch's dropout, to the bit. (On a GPU torch draws
in the kernel that multiplies, in an order of its own: there one process and several drop different numbers, equally many.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class RowRange:
    """The numbers ``start`` to ``stop`` of ``total``, which one process computes."""

    start: int
    stop: int
    total: int


@dataclass(frozen=True)
class BatchShare:
    """The part of a batch that one process computes."""

    rows: RowRange
    texts: RowRange
    """range of the texts; each may have several rows"""


_present: BatchShare | None = None
"""the share of the batch that this process computes; None: the whole batch"""


@contextmanager
def drawing_for(share: BatchShare | None) -> Iterator[None]:
    """Let tensors hold this share of a batch inside the context."""
    global _present
    before, _present = _present, share
    try:
        yield
    finally:
        _present = before


def shares_batches() -> bool:
    """Whether a tensor holds only a share of a batch at present."""
    return _present is not None


def dropout(x: Tensor, probability: float, *, texts: bool = False) -> Tensor:
    """``x`` (B, ...) with elements set to 0 at random and the others scaled up; ``texts``: its first dimension counts texts."""
    if _present is None:
        return F.dropout(x, probability)
    share = _present.texts if texts else _present.rows
    assert len(x) == share.stop - share.start, f"dropout is for {share}, but got {len(x)} rows"
    draws = x.new_empty((share.total, *x.shape[1:])).bernoulli_(1 - probability).div_(1 - probability)
    return x * draws[share.start : share.stop]


class Dropout(nn.Dropout):
    """torch's layer, by ``dropout``."""

    def forward(self, input: Tensor, *, texts: bool = False) -> Tensor:
        """(B, ...) -> (B, ...)."""
        return dropout(input, self.p, texts=texts) if self.training and self.p else input
