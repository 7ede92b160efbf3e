"""The arithmetic in which a run multiplies matrices: chosen before the first step, kept in every checkpoint, the same when resumed.

Another precision, or another library, sums in another order: a run that changed it on the way would not repeat its own bits. So
does another number of threads, which a machine that goes on need not have: it is said.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import psutil
import torch
from torch import nn

from warmstart.errors import ConfigError
from warmstart.system.console import console
from warmstart.system.device import autocast, in_bfloat16
from warmstart.system.products import Library, product_library, use_product_library


@dataclass(frozen=True)
class Arithmetic:
    """The settings that decide the bits of a product."""

    precision: str
    """precision of products: float32 or bfloat16"""
    library: Library
    """library that multiplies float32 matrices on a CPU"""
    threads: int = field(default_factory=torch.get_num_threads)
    """number of CPU threads"""

    @classmethod
    def choose(cls, precision: str, device: torch.device) -> Arithmetic:
        """The arithmetic of a new run: ``precision`` is auto, float32 or bfloat16; of the libraries the faster one."""
        return cls("bfloat16" if in_bfloat16(precision, device) else "float32", product_library())

    def resumed(self, device: torch.device) -> Arithmetic:
        """The arithmetic with as many threads as there are now; prints a note if that is another number, and matters."""
        now = replace(self, threads=torch.get_num_threads())
        if now != self and device.type == "cpu":
            console.print(
                f"note: this run goes on with {now.threads} instead of {self.threads} threads, so its last digits are not those "
                f"of a run that was never stopped; with OMP_NUM_THREADS={self.threads} they would"
            )
        return now

    def use(self, device: torch.device) -> AbstractContextManager[object]:
        """The context of a training step's forward pass. The library stays in use for this process."""
        use_product_library(self.library)
        return autocast(self.precision, device)


# ---------------------------------------------------------------------- torch.compile for the modules of a training step
# Only training steps run the compiled code; evaluation, taps and saving use the modules as they are. Each module is compiled
# once for all steps of a run.


def check_compiler(device: torch.device) -> None:
    """Raise ``ConfigError`` if code for the CPU cannot be compiled because there is no C++ compiler."""
    if device.type != "cpu":
        return
    from torch._inductor import exc  # takes seconds to import
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise ConfigError("--compile needs a C++ compiler, but none was found; install g++, or leave --compile out") from error


def compiles_by_default(device: torch.device) -> bool:
    """Whether steps are compiled unasked: on a GPU, if torch finds its compiler, and not with ``TORCHDYNAMO_DISABLE=1``."""
    return device.type == "cuda" and find_spec("triton") is not None


def compile_all(modules: Sequence[nn.Module]) -> list[tuple[nn.Module, Callable[..., Any]]]:
    """Each module with its compiled ``forward``, which torch compiles at the first call, once for each shape of input."""
    return [(module, torch.compile(module.forward)) for module in modules]


@contextmanager
def compiled(forwards: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Let the modules run their compiled ``forward`` while this is open."""
    for module, forward in forwards:
        module.__dict__["forward"] = forward
    try:
        yield
    finally:
        for module, _ in forwards:
            del module.__dict__["forward"]


# ------------------------------------------------------- Keeps freed memory in the process while a model trains on a CPU
# The C library returns large freed blocks to the system, and every step then requests them again, page by page: a tenth of a
# step for a small model, a quarter with a large vocabulary (lab note "performance"). ``keep_freed_memory`` stops that while it
# is open.
# glibc's ``mallopt`` is called through ctypes: no Python library offers it. This is the only file that does so. On other
# systems, and where the C library has no ``mallopt``, nothing happens, and training is the same but slower.


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
