"""A bound on what oneDNN, which multiplies matrices for torch, keeps of the shapes that a server has met."""

from __future__ import annotations

import os

KERNELS = 64
"""kept by each cache: about ten shapes of a network"""
CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""of oneDNN's cache and of torch's own above it, each of which holds what the other would drop; by these the user decides"""


def bound_kernel_caches() -> None:
    """Let both keep ``KERNELS``, unless the environment decides; before the first product, for then they read it.

    A server's batches have ever new numbers of rows, and for each number and each shape of weights oneDNN prepares machine code,
    some 0.7 MiB. By default 1,024 are kept, and their memory lies between that of the batches, which is then not given back
    (results/other.md has figures).
    """
    for name in CACHE_VARIABLES:
        os.environ.setdefault(name, str(KERNELS))
