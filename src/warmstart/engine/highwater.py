"""The most memory that a piece of work has taken: the process's own high-water mark, less what was there before.

On Linux the mark is ``VmHWM`` of the process itself (``resource.getrusage`` would hand a child its parent's mark, which is kept
across ``exec``), and it can be lowered to what is used now. Elsewhere it is ``ru_maxrss``, which only rises; on CUDA, the
allocator's.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch


class Mark:
    """Bytes that a piece of work took at its highest; None where the system does not tell."""

    taken: int | None = None


@contextmanager
def watched(device: torch.device) -> Iterator[Mark]:
    """Watch what is done inside; afterwards the mark says what it took."""
    mark = Mark()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield mark
        mark.taken = torch.cuda.max_memory_allocated(device) - before
        return
    lowered = lower()
    before = high_water()
    yield mark
    mark.taken = high_water() - before if lowered else None


def lower() -> bool:
    """Give back what is free and set the mark to what is used now; False where the system cannot (it is Linux's to do)."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def high_water() -> int:
    """The most resident memory that this process has had, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024
    except (OSError, StopIteration):
        import resource  # not on Windows

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
