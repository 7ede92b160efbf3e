"""In which arithmetic a run multiplies matrices: chosen before the first step, kept in every checkpoint, the same when resumed.

Another precision, or another library, sums in another order: a run that changed it on the way would not repeat its own bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from warmstart.device import autocast, in_bfloat16
from warmstart.products import Library, product_library, use_product_library


@dataclass(frozen=True)
class Arithmetic:
    """What decides the bits of a product, beside the number of threads, which config.yaml records."""

    precision: str
    """of products: float32 or bfloat16"""
    library: Library
    """that multiplies float32 matrices on a CPU"""

    @classmethod
    def choose(cls, precision: str, device: torch.device) -> Arithmetic:
        """For a new run: ``precision`` is auto, float32 or bfloat16; of the libraries the faster one."""
        return cls("bfloat16" if in_bfloat16(precision, device) else "float32", product_library())

    def use(self, device: torch.device) -> AbstractContextManager[object]:
        """The context of a training step's forward pass. The library stays in use for this process."""
        use_product_library(self.library)
        return autocast(self.precision, device)
