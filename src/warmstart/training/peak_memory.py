"""The peak memory of a piece of work, on top of what was in use before it.

On a GPU the allocator of CUDA keeps the peak. On a CPU a thread reads the resident memory of the process every few milliseconds
(psutil), so a shorter peak is missed; memory that other threads of the process use meanwhile is counted too.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch

from warmstart.training.allocator import release_freed_memory

INTERVAL = 0.002
"""seconds between two readings of the resident memory"""


class PeakMemory:
    """``bytes``: the peak on top of what was in use before; set when the work has ended."""

    bytes: int = 0


@contextmanager
def track_peak_memory(device: torch.device) -> Iterator[PeakMemory]:
    """Track the memory that the code inside takes; the peak is in what this yields, once it is closed."""
    peak = PeakMemory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    gc.collect()
    release_freed_memory()
    sampler = _Sampler()
    sampler.start()
    try:
        yield peak
    finally:
        peak.bytes = sampler.stop()


class _Sampler(threading.Thread):
    """Remembers the highest resident memory of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process()
        self.ended = threading.Event()
        self.first = self.highest = self.process.memory_info().rss

    def run(self) -> None:
        """Read until stopped."""
        while not self.ended.wait(INTERVAL):
            self._read()

    def stop(self) -> int:
        """The highest reading less the first one, in bytes."""
        self.ended.set()
        self.join()
        self._read()
        return self.highest - self.first

    def _read(self) -> None:
        self.highest = max(self.highest, self.process.memory_info().rss)
