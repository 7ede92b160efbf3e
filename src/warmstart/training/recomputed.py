"""Activation checkpointing: modules whose activations are computed again in the backward pass (Chen et al. 2016).

torch's ``checkpoint`` also draws the same dropout again. Only training steps do this, as with compiled code (``compiled.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_all(
    modules: Sequence[nn.Module], compiled: Sequence[tuple[nn.Module, Callable[..., Any]]]
) -> list[tuple[nn.Module, Callable[..., Any]]]:
    """Each of the ``modules`` with a ``forward`` that keeps its inputs only; and the others that are ``compiled``."""
    forwards = dict(compiled)
    return [
        *((module, partial(checkpoint, forwards.get(module, module.forward), use_reentrant=False)) for module in modules),
        *((module, forward) for module, forward in compiled if module not in modules),
    ]
