"""Copies of the weights in a layout that is faster for inference.

oneDNN reorders a weight once and then multiplies faster than with the weight as it is, most of all a single row, which waits for
memory (results/performance.md). The products are equal up to the order of their sums (``products``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.heads.language_modeling import LMHead
from warmstart.model.model import Model
from warmstart.system.products import Linear, Product, reordered_product


@contextmanager
def inference_weights(model: Model, *, bfloat16: bool = False) -> Iterator[None]:
    """Inside this context the linear layers of a model on the CPU multiply with reordered copies of their weights.

    ``bfloat16``: the copies are bfloat16, on any device, and only the products are; everything between them stays as it is. For
    inference only: no gradient flows through the copies, and they do not follow changes of the weights.
    """
    changed = [] if model.reordered else _reorder(model, bfloat16=bfloat16)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def reordered_copy(model: Model) -> Model:
    """A copy that has its linear layers in this layout for good, for a program that serves it; it shares all parameters."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)
    _reorder(copied, bfloat16=False)
    copied.reordered = True
    return copied


def _reorder(model: Model, *, bfloat16: bool) -> list[nn.Module]:
    """Let the linear layers multiply with copies of their weights; returns the modules whose ``forward`` was replaced."""
    changed: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, Linear) and (product := _product(module.weight, module.bias, bfloat16=bfloat16)):
            module.forward = product  # type: ignore[method-assign, assignment]
            changed.append(module)
    head = model.head
    if isinstance(head, LMHead) and (logits := _product(head.weight, head.bias, bfloat16=bfloat16)):
        transform = head.transform
        head.forward = lambda states, mask=None: logits(  # type: ignore[method-assign, assignment]
            transform(states) if transform else states
        )
        changed.append(head)
    return changed


def _product(weight: Tensor, bias: Tensor | None, *, bfloat16: bool) -> Product | None:
    """``x W^T + b`` with a copy of ``W`` (out, in); None if a copy is of no use."""
    if hasattr(weight, "device_mesh"):  # several processes have a part each
        return None
    dtype = torch.bfloat16 if bfloat16 else weight.dtype
    copied = weight.detach().to(dtype)
    bias = None if bias is None else bias.detach().to(dtype)
    product = reordered_product(copied, bias)
    if not bfloat16:
        return product

    def rounded(x: Tensor) -> Tensor:
        x_rounded = x.to(dtype)
        return (product(x_rounded) if product else F.linear(x_rounded, copied, bias)).to(x.dtype)

    return rounded
