"""Freed memory stays at hand while a model trains on a processor.

The C library hands large blocks back to the system as soon as they are freed, and every step pays for them again, page by page: a
tenth of a step at a small size, a quarter with a large vocabulary (docs/performance.md). While ``kept`` is open they stay with the
process; what is free at its end goes back. Elsewhere than on Linux with glibc nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""names of ``mallopt``'s settings"""
NEVER, USUAL_TRIM, USUAL_MMAPS = -1, 128 * 1024, 65_536


@contextmanager
def kept(device: torch.device) -> Iterator[None]:
    """Keep freed memory while this is open, where the model is on a processor."""
    library = _library() if device.type == "cpu" else None
    if library is None:
        yield
        return
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        library.mallopt(MMAP_MAX, USUAL_MMAPS)
        library.mallopt(TRIM_THRESHOLD, USUAL_TRIM)
        library.malloc_trim(0)


def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except OSError:
        return None
