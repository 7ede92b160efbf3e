"""Keeps freed memory in the process while a model trains on a CPU.

The C library returns large freed blocks to the system, and every step then requests them again, page by page: a tenth of a step
for a small model, a quarter with a large vocabulary (lab note "performance"). ``keep_freed_memory`` stops that while it is open.

glibc's ``mallopt`` is called through ctypes: no Python library offers it. This is the only file that does so. On other systems, and
where the C library has no ``mallopt``, nothing happens, and training is the same but slower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""the settings of ``mallopt``, as malloc.h names them"""
NEVER_TRIM, DEFAULT_TRIM_THRESHOLD, DEFAULT_MMAP_MAX = -1, 128 * 1024, 65_536


@contextmanager
def keep_freed_memory(device: torch.device) -> Iterator[None]:
    """Keep freed memory in the process while this is open, if ``device`` is the CPU; give it back at the end."""
    glibc = _glibc() if device.type == "cpu" else None
    if glibc is None:
        yield
        return
    glibc.mallopt(M_MMAP_MAX, 0)
    glibc.mallopt(M_TRIM_THRESHOLD, NEVER_TRIM)
    try:
        yield
    finally:
        glibc.mallopt(M_MMAP_MAX, DEFAULT_MMAP_MAX)
        glibc.mallopt(M_TRIM_THRESHOLD, DEFAULT_TRIM_THRESHOLD)
        release_freed_memory()


def release_freed_memory() -> None:
    """Return freed memory to the system, if the C library can."""
    if hasattr(psutil, "heap_trim"):
        psutil.heap_trim()


def _glibc() -> ctypes.CDLL | None:
    """The C library, or None if it has no ``mallopt``."""
    try:
        library = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return library if hasattr(library, "mallopt") else None
