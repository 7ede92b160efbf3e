"""Copies of the weights in a layout that is faster for inference.

oneDNN reorders a weight once and then multiplies faster than with the weight as it is, most of all a single row, which waits for
memory (docs/performance.md). The products are equal up to the order of their sums (``products``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.heads.language_modeling import LMHead
from warmstart.model.model import Model
from warmstart.products import Linear, Product, reordered_product


@contextmanager
def inference_weights(model: Model, *, bfloat16: bool = False) -> Iterator[None]:
    """Inside this context the linear layers of a model on the CPU multiply with reordered copies of their weights.

    ``bfloat16``: the copies are bfloat16, on any device, and only the products are; everything between them stays as it is. For
    inference only: no gradient flows through the copies, and they do not follow changes of the weights.
    """
    changed: list[nn.Module] = []
    try:
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
        yield
    finally:
        for module in changed:
            del module.forward


def _product(weight: Tensor, bias: Tensor | None, *, bfloat16: bool) -> Product | None:
    """``x W^T + b`` with a copy of ``W`` (out, in); None if a copy is of no use."""
    dtype = torch.bfloat16 if bfloat16 else weight.dtype
    copy = weight.detach().to(dtype)
    bias = None if bias is None else bias.detach().to(dtype)
    product = reordered_product(copy, bias)
    if not bfloat16:
        return product

    def rounded(x: Tensor) -> Tensor:
        x_rounded = x.to(dtype)
        return (product(x_rounded) if product else F.linear(x_rounded, copy, bias)).to(x.dtype)

    return rounded
