"""Copies of the weights in a layout that is faster for inference.

torch gives float32 products on a CPU to MKL, which is slow on processors that Intel did not make. oneDNN, which is part of torch,
can reorder a weight once and then multiplies 2.3 times as fast there, and twice as fast when a single row waits for memory
(docs/performance.md). The products are equal up to the order of their sums.

torch has no public call for this. This is the only file that uses private operators of torch, three of them (torch 2.13):

- ``torch.ops.mkldnn._reorder_linear_weight(weight, rows)``: the reordered copy
- ``torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")``: the product with it
- ``torch.ops.mkldnn._is_mkldnn_bf16_supported()``: whether the processor has bfloat16 products

If one of them is missing or raises, the plain product takes its place, and only the speed differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.heads.language_modeling import LMHead
from warmstart.model.model import Model

Product = Callable[[Tensor], Tensor]

LAYOUT_ROWS = 512
"""number of rows that the layout is chosen for; for a single one oneDNN does not reorder, and is a third slower"""
UNAVAILABLE = (AttributeError, RuntimeError, TypeError)
"""what torch raises for an operator that is missing, or that does not take these arguments"""


@contextmanager
def inference_weights(model: Model, *, bfloat16: bool = False) -> Iterator[None]:
    """Inside this context the linear layers of a model on the CPU multiply with reordered copies of their weights.

    ``bfloat16``: the copies are bfloat16, on any device, and only the products are; everything between them stays as it is. For
    inference only: no gradient flows through the copies, and they do not follow changes of the weights.
    """
    changed: list[nn.Module] = []
    try:
        for module in model.modules():
            if type(module) is nn.Linear and (product := _product(module.weight, module.bias, bfloat16=bfloat16)):
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
    product = _onednn_product(copy, bias)
    if not bfloat16:
        return product

    def rounded(x: Tensor) -> Tensor:
        x_rounded = x.to(dtype)
        return (product(x_rounded) if product else F.linear(x_rounded, copy, bias)).to(x.dtype)

    return rounded


def _onednn_product(weight: Tensor, bias: Tensor | None) -> Product | None:
    """The product by oneDNN; None if it cannot do it here."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    try:
        if weight.dtype is not torch.float32 and not (weight.dtype is torch.bfloat16 and _bfloat16_supported()):
            return None
        reordered, multiply = (
            torch.ops.mkldnn._reorder_linear_weight(weight, LAYOUT_ROWS),
            torch.ops.mkldnn._linear_pointwise.default,
        )
    except UNAVAILABLE:
        return None

    def product(x: Tensor) -> Tensor:
        try:
            return multiply(x, reordered, bias, "none", [], "")
        except UNAVAILABLE:
            return F.linear(x, weight, bias)

    return product


def _bfloat16_supported() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
