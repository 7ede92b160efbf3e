"""In which arithmetic a run multiplies matrices: chosen before the first step, kept in every checkpoint, the same when resumed.

Another precision, or another library, sums in another order: a run that changed it on the way would not repeat its own bits. So
does another number of threads, which a machine that goes on need not have: it is said.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch

from warmstart.system.console import console
from warmstart.system.device import autocast, in_bfloat16
from warmstart.system.products import Library, product_library, use_product_library


@dataclass(frozen=True)
class Arithmetic:
    """What decides the bits of a product."""

    precision: str
    """of products: float32 or bfloat16"""
    library: Library
    """that multiplies float32 matrices on a CPU"""
    threads: int = field(default_factory=torch.get_num_threads)
    """of a CPU"""

    @classmethod
    def choose(cls, precision: str, device: torch.device) -> Arithmetic:
        """For a new run: ``precision`` is auto, float32 or bfloat16; of the libraries the faster one."""
        return cls("bfloat16" if in_bfloat16(precision, device) else "float32", product_library())

    def resumed(self, device: torch.device) -> Arithmetic:
        """The same with as many threads as there are now; a note if that is another number, and matters."""
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
