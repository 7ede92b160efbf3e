"""Weights laid out for reading: while a model only reads, its products in float32 need not go the way that training takes.

torch hands products in float32 to MKL, which holds itself back on processors that Intel did not make. oneDNN, which comes with
torch too, lays a weight out once and then multiplies 2.3 times as fast there, and 1.5 times where a single row waits for memory
(docs/performance.md). The products are the same up to the order of their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from warmstart.heads import LanguageHead
from warmstart.model.model import Model

Product = Callable[[Tensor], Tensor]


@contextmanager
def packed(model: Model, rows: int = 512) -> Iterator[None]:
    """While it is open, the model's linear layers read such copies of their weights, if they are on a processor.

    For reading alone: no gradient flows through them, and a change of the weights is not seen. ``rows`` is how many tokens are
    read at once, about.
    """
    changed: list[nn.Module] = []
    try:
        for module in model.modules():
            if type(module) is nn.Linear and _fits(module.weight):
                module.forward = _product(module.weight, module.bias, rows)  # type: ignore[method-assign, assignment]
                changed.append(module)
        head = model.head
        if isinstance(head, LanguageHead) and _fits(head.weight):
            score, transform = _product(head.weight, head.bias, rows), head.transform
            head.forward = lambda states, mask=None: score(transform(states) if transform else states)  # type: ignore[method-assign]
            changed.append(head)
        yield
    finally:
        for module in changed:
            del module.forward


def _fits(weight: Tensor) -> bool:
    known = weight.dtype is torch.float32 or (weight.dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return known and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()


def _product(weight: Tensor, bias: Tensor | None, rows: int) -> Product:
    """``x W^T + b`` with ``W`` (out, in) laid out for so many rows."""
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    plain = None if bias is None else bias.detach()
    return lambda x: multiply(x, laid_out, plain, "none", [], "")
