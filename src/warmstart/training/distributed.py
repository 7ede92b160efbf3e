"""Several processes that train one model: which one this is, how many there are, and what all agree on.

``torchrun`` starts them and gives each its rank. A process group of torch connects them: gloo for tensors on a CPU, NCCL for those
on a GPU. One process is the same code without a group. All processes run the same command; rank 0 alone writes and prints; where
one fails, all fail, with the same error.

How a step is spread is in ``parallel.py``, what is written in ``checkpoint.py``.
"""

from __future__ import annotations

import inspect
import os
import platform
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from warmstart.dropout import BatchShare, RowRange, drawing_for
from warmstart.errors import ConfigError, LostProcessError, WarmstartError
from warmstart.system.processes import wanted_processes
from warmstart.system.trouble import explain_trouble
from warmstart.types import Batch

PATIENCE = timedelta(days=7)
"""longest wait for another process: rank 0 may tokenize for hours; a process that ends is noticed by its closed connection"""
LONGEST_PAUSE = 0.05
"""seconds between two looks whether the others are here"""
HEAD_START = 1.0
"""seconds that the others leave to rank 0, which speaks for all: a launcher ends all processes once one has left"""
_LOST = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "Broken pipe", "TCPStore", "failed to recv")
"""parts of torch's errors when a connection is lost"""
_T = TypeVar("_T")


@dataclass(frozen=True)
class World:
    """The processes of this run, seen from one of them."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """number of this process on its machine"""

    @property
    def leads(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there are other processes."""
        return self.size > 1

    @property
    def name(self) -> str:
        """Rank and machine, for people."""
        return f"rank {self.rank} on {platform.node()}"

    def share(self, count: int) -> RowRange:
        """The part of ``count`` rows that this process computes: adjacent ones; each row is computed once.

        8 rows for 3 processes are 0 to 1, 2 to 4 and 5 to 7.
        """
        return RowRange(count * self.rank // self.size, count * (self.rank + 1) // self.size, count)

    # ------------------------------------------------------------------------------------------------ values

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes; collective, as are all methods below."""
        if not self.several:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total

    def largest(self, number: int) -> int:
        """The largest of the numbers of all processes."""
        if not self.several:
            return number
        largest = torch.tensor(number)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return int(largest)

    def from_first(self, value: _T) -> _T:
        """The value in rank 0."""
        if not self.several:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def gather(self, value: _T) -> list[_T]:
        """The value in each process, in the order of their ranks."""
        if not self.several:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def tensors_of_all(self, own: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """The tensors that any process has, by name, on ``device``; what not all have is sent by the first that has it."""
        if not self.several:
            return dict(own)
        listed = self.gather({name: (tensor.shape, tensor.dtype) for name, tensor in own.items()})
        tensors = dict[str, Tensor]()
        for owner, names in enumerate(listed):
            for name, (shape, dtype) in names.items():
                if all(name in others for others in listed):
                    tensors[name] = own[name]
                elif name not in tensors:
                    mine = own[name].to(device).contiguous() if owner == self.rank else None
                    tensors[name] = torch.empty(shape, dtype=dtype, device=device) if mine is None else mine
                    dist.broadcast(tensors[name], src=owner)
        return tensors

    # ------------------------------------------------------------------------------------------------ work

    def together(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` in every process. If it fails in any, it fails in all, with the error of the first that failed."""
        if not self.several:
            return work()
        value, own = None, None
        try:
            value = work()
        except Exception as error:
            own = error
        self._meet()
        reports = [report for report in self.gather(self._report(own) if own else None) if report]
        if reports:
            if own and not isinstance(own, WarmstartError) and explain_trouble(own) is None:
                raise own  # a fault of ours: its traceback is shown where it is known
            cls, sentence = reports[0]
            raise cls(sentence)
        return value  # type: ignore[return-value]

    def _meet(self) -> None:
        """Wait until all processes are here. A signal ends the wait: one inside of torch would hear of it when all is over."""
        here, pause = dist.all_reduce(torch.zeros(1), async_op=True), 1e-4
        assert here is not None
        while not here.is_completed():
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        here.wait()

    def _report(self, error: Exception) -> tuple[type[WarmstartError], str]:
        """The class and the sentence by which the others hear of an error."""
        sentence = str(error) if isinstance(error, WarmstartError) else explain_trouble(error) or f"{type(error).__name__}: {error}"
        cls = type(error) if isinstance(error, WarmstartError) else LostProcessError
        return cls, sentence if self.leads else f"{self.name}: {sentence}"

    def first_alone(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` in rank 0 while the others wait, and give all what it returns; if it fails there, it fails in all."""
        results = self.together(lambda: [work()] if self.leads else [])
        return self.from_first(results)[0]

    def in_turns(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` in rank 0, then in the first process of each other machine, then in the rest, which find what is written."""
        if not self.several:
            return work()
        turn = 0 if self.leads else 1 if self.local_rank == 0 else 2
        done: list[_T] = []
        for now in range(3):
            self.together(lambda now=now: done.append(work()) if now == turn else None)  # type: ignore[misc]
        return done[0]

    def require_equal(self, facts: Mapping[str, Any]) -> None:
        """Raise ``ConfigError`` that names the first fact in which processes differ."""
        by_rank = self.gather(dict(facts))
        for rank, others in enumerate(by_rank):
            for name in {**by_rank[0], **others}:
                here, there = by_rank[0].get(name), others.get(name)
                if here != there:
                    raise ConfigError(
                        f"all processes must begin alike, but {name} differs: {there} in rank {rank}, {here} in rank 0; start all "
                        "with the same command, version and files"
                    )

    def take_gpus(self) -> None:
        """Give each process a GPU of its own, where there are any. Raises ``ConfigError`` if a machine has fewer than processes."""
        count = torch.cuda.device_count() if torch.cuda.is_available() else None

        def take() -> None:
            if count is not None and self.local_rank >= count:
                raise ConfigError(
                    f"each process needs a GPU of its own, but {platform.node()} has {count}; start torchrun with "
                    f"--nproc-per-node {count}"
                )
            if count is not None:
                torch.cuda.set_device(self.local_rank)

        self.together(take)
        if len(set(self.gather(count is None))) > 1:
            raise ConfigError("processes must compute on GPUs or on CPUs, but only some machines have GPUs; leave the others out")

    # ------------------------------------------------------------------------------------------------ the end

    def finish(self, code: int) -> NoReturn:
        """End this process, whose work is done, without taking the interpreter apart.

        torch keeps the threads that exchange tensors once a ``DistributedDataParallel`` was there. One that lets go of a tensor
        while the interpreter ends would abort the process, and a launcher would call the run a failure.
        """
        self._flush()
        os._exit(code)

    def leave(self, error: BaseException, code: int, sentence: str | None, say: Callable[[str], None]) -> NoReturn:
        """End this process by an error: ``say`` the ``sentence``; without one, show the traceback.

        Rank 0 speaks for all of an error that all have (``together``), of signals and of lost connections; others speak of what
        happened to them alone: no memory, a bug. What is still being exchanged is not waited for: its end may never come.
        """
        if is_lost_connection(error) and not isinstance(error, WarmstartError):
            sentence = (
                f"another process of this run ended before its work was done: it was killed, or its machine failed ({error}); the "
                "same command goes on from the last checkpoint"
            )
            of_all = True
        else:
            of_all = isinstance(error, (WarmstartError, KeyboardInterrupt))
        if sentence is None:
            traceback.print_exception(error)
        elif self.leads:
            say(sentence)
        elif not of_all:
            say(f"{self.name}: {sentence}")
        else:
            time.sleep(HEAD_START)
        self._flush()
        os._exit(code)

    @staticmethod
    def _flush() -> None:
        with suppress(BrokenPipeError):  # nobody reads our output any more
            sys.stdout.flush()
            sys.stderr.flush()


_world = World()


def world() -> World:
    """The processes of this run; one, unless ``joined`` is open."""
    return _world


@contextmanager
def joined() -> Iterator[World]:
    """Inside, the processes that a launcher started are connected; all but rank 0 are silent. A single process is as it was."""
    global _world
    if wanted_processes() == 1:
        yield World()
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, store=store_of_attempt(store, rank, size), rank=rank, world_size=size, timeout=PATIENCE)
    _world = World(dist.get_rank(), dist.get_world_size(), local_rank)
    # outside of a command the process ends by itself, having said why; a launcher kills it if that takes too long
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with nullcontext() if _world.leads else _silence():
            yield _world
        dist.destroy_process_group()
    finally:
        _world = World()


def store_of_attempt(store: Store, rank: int, size: int) -> Store:
    """The part of a store that only the ``size`` processes of this attempt use, which all of them call this.

    A launcher that replaces processes keeps its store, with the addresses of those that ended: new ones may wait for these.
    So rank 0 draws a name, and says who is here once each of the others has answered to this name.
    """
    mine = uuid.uuid4().hex
    others = [f"answer of {other}" for other in range(1, size)]
    if rank == 0:
        store.set("name", mine)
        answers = [""] * len(others)
        while not all(answer.startswith(mine) for answer in answers):
            time.sleep(LONGEST_PAUSE)
            answers = [store.get(key).decode() for key in others]
        store.set("present", " ".join([mine, *answers]))
        return PrefixStore(mine, store)
    present: list[str] = []
    while mine not in present:
        store.set(f"answer of {rank}", f"{store.get('name').decode()} {mine}")
        time.sleep(LONGEST_PAUSE)
        present = store.get("present").decode().split() if store.check(["present"]) else []
    return PrefixStore(present[0], store)


@contextmanager
def _silence() -> Iterator[None]:
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def is_lost_connection(error: BaseException) -> bool:
    """Whether an error says that another process is gone."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and any(word in str(error) for word in _LOST))


# --------------- How the batches of a step are spread over the processes of a run: torch's DistributedDataParallel (DDP)
# Each process computes the loss of its share of the rows of every batch, and gradients are summed: not averaged, as DDP does by
# itself, because the loss of a step is a sum over all targets, divided by their number. So several processes take the same step
# as one. A batch with fewer rows than processes leaves some without any; they compute one row and multiply its loss by zero, so
# that they take part in the sum. Gradients are exchanged once a step, however many batches it has.


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
    """The process's part of a batch, its rows, and whether they count: a process without a row gets the first, uncounted."""
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
    changes = {field.name: _part(getattr(batch, field.name), rows if field.name in BY_ROW else texts) for field in fields(batch)}
    changes["target_places"] = None  # the places of the whole batch do not fit its share
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
