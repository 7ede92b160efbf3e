"""How the batches of a step are spread over the processes of a run: torch's DistributedDataParallel (DDP).

Each process computes the loss of its share of the rows of every batch, and gradients are summed: not averaged, as DDP does by
itself, because the loss of a step is a sum over all targets, divided by their number. So several processes take the same step as
one. A batch with fewer rows than processes leaves some without any; they compute one row and multiply its loss by zero, so that
they take part in the sum. Gradients are exchanged once a step, however many batches it has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from warmstart.dropout import BatchShare, RowRange, drawing_for
from warmstart.training.distributed import World
from warmstart.types import Batch

BY_ROW = ("ids", "attention_mask", "token_type_ids", "states")
"""fields of a batch that hold rows; other tensors hold texts"""


_ARGUMENTS = inspect.signature(DistributedDataParallel.__init__).parameters
_WITHOUT_BUFFERS: Any = {"forward_sync_buffers" if "forward_sync_buffers" in _ARGUMENTS else "broadcast_buffers": False}
"""lets DDP send no buffers at every step, as torch 2.13 and as older versions call it; ours never change"""


class LossModule(nn.Module):
    """A model whose ``forward`` is the loss of a batch: DDP watches ``forward``."""

    def __init__(self, model: nn.Module, loss: Callable[[Batch], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss_of = loss

    def forward(self, batch: Batch, counts: bool) -> Tensor:
        """The summed loss of a batch, a scalar; zero with zero gradients if it does not count."""
        loss = self.loss_of(batch)
        return loss if counts else loss * 0.0


class Parallel:
    """The losses of a run's batches, computed by all its processes."""

    def __init__(self, model: nn.Module, loss: Callable[[Batch], Tensor], world: World) -> None:
        self.world = world
        self.module = LossModule(model, loss)
        self.partly = any(name.endswith("window_query") for name, _ in model.named_parameters())
        self.replica: DistributedDataParallel | None = None

    def prepare(self, batches: Sequence[Batch], *, changed: bool) -> None:
        """Before a step: connect the parameters that train, if they have ``changed``."""
        if self.world.several and (changed or self.replica is None):
            # parts of the model that only some batches read have no gradient of the others; nor has a head's attention over
            # windows of a batch without windows
            partly = self.partly or len({type(batch) for batch in batches}) > 1
            self.replica = DistributedDataParallel(self.module, find_unused_parameters=partly, **_WITHOUT_BUFFERS)
            self.replica.register_comm_hook(None, lambda _, bucket: _summed(bucket))  # torch reads annotations, as types

    @contextmanager
    def batch(self, batch: Batch, *, last: bool) -> Iterator[Callable[[torch.device], Tensor]]:
        """A function that computes this process's share of a batch's loss on a device; its gradient must be taken inside too.

        Gradients are exchanged with the ``last`` batch of a step.
        """
        if not self.world.several:
            yield lambda device: self.module(batch.to(device), True)
            return
        mine, share, counts = share_of(batch, self.world)
        waiting: AbstractContextManager[Any] = nullcontext() if last or self.replica is None else self.replica.no_sync()
        with drawing_for(share), waiting:
            yield lambda device: (self.replica or self.module)(mine.to(device), counts)


def share_of(batch: Batch, world: World) -> tuple[Batch, BatchShare, bool]:
    """What this process computes of a batch, which rows these are, and whether they count: if it has none, the first does not."""
    count = len(batch.ids) if batch.targets is None else len(batch.targets)
    texts = world.share(count)
    counts = texts.stop > texts.start
    texts = texts if counts else RowRange(0, 1, count)
    if batch.windows is None:
        per_text = len(batch.ids) // count
        rows = RowRange(texts.start * per_text, texts.stop * per_text, len(batch.ids))
    else:
        ends = [0, *batch.windows.cumsum(0).tolist()]
        rows = RowRange(ends[texts.start], ends[texts.stop], len(batch.ids))
    changes = {one.name: _part(getattr(batch, one.name), rows if one.name in BY_ROW else texts) for one in fields(batch)}
    changes["target_places"] = None  # those of the share are others
    return replace(batch, **changes), BatchShare(rows, texts), counts


def _part(value: Any, share: RowRange) -> Any:
    """The rows of a tensor; a sum over the whole batch counts once, in the first share; all else as it is."""
    if not isinstance(value, Tensor):
        return value
    if value.ndim == 0:
        return value if share.start == 0 else torch.zeros_like(value)
    return value[share.start : share.stop]


def _summed(bucket: Any) -> torch.futures.Future[Tensor]:
    """DDP's exchange of gradients, as a sum."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])
