"""The batches of the next step, made by a thread while a GPU computes this one.

On a CPU nothing is prefetched: the thread would take time from the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from warmstart.types import Batch

_Batches = Callable[[int], Sequence[Batch]]


@contextmanager
def prefetched(batches: _Batches, device: torch.device, steps: int | None) -> Iterator[_Batches]:
    """``batches``, a pure function of the step's number; for a GPU those of the next step are made ahead, in pinned memory.

    None is made for a step that a run of so many ``steps`` does not have. What making them raises is raised at their step.
    """
    if device.type != "cuda":
        yield batches
        return
    with ThreadPoolExecutor(1, "batches") as thread:
        yield _Prefetched(lambda step: [batch.pinned() for batch in batches(step)], thread, steps)


class _Prefetched:
    def __init__(self, make: _Batches, thread: ThreadPoolExecutor, steps: int | None) -> None:
        self.make, self.thread, self.steps = make, thread, steps
        self.ahead: tuple[int, Future[Sequence[Batch]]] | None = None

    def __call__(self, step: int) -> Sequence[Batch]:
        """The batches of a step."""
        known, self.ahead = self.ahead, None
        found = known[1].result() if known and known[0] == step else self.thread.submit(self.make, step).result()
        if self.steps is None or step + 1 < self.steps:
            self.ahead = step + 1, self.thread.submit(self.make, step + 1)
        return found
