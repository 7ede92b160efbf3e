"""Weights laid out for reading: while a model only reads, its products in float32 need not go the way that training takes.

torch hands products in float32 to MKL, which holds itself back on processors that Intel did not make. oneDNN, which comes with
torch too, lays a weight out once and then multiplies 2.3 times as fast there, and twice as fast where a single row waits for memory
(docs/performance.md). The products are the same up to the order of their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.heads import LanguageHead
from warmstart.model.model import Model

Product = Callable[[Tensor], Tensor]

TOKENS = 512
"""how many tokens a layout is asked for; for a single one oneDNN leaves the weight as it is, and reads it a third slower"""


@contextmanager
def packed(model: Model, *, half: bool = False) -> Iterator[None]:
    """While it is open, the model's linear layers read such copies of their weights, if they are on a processor.

    ``half``: the copies are in bfloat16, on any device, and only the products are made in it; what stands between them stays as it
    is. For reading alone: no gradient flows through them, and a change of the weights is not seen.
    """
    changed: list[nn.Module] = []
    try:
        for module in model.modules():
            if type(module) is nn.Linear and (product := _product(module.weight, module.bias, half)):
                module.forward = product  # type: ignore[method-assign, assignment]
                changed.append(module)
        head = model.head
        if isinstance(head, LanguageHead) and (score := _product(head.weight, head.bias, half)):
            transform = head.transform
            head.forward = lambda states, mask=None: score(transform(states) if transform else states)  # type: ignore[method-assign]
            changed.append(head)
        yield
    finally:
        for module in changed:
            del module.forward


def _product(weight: Tensor, bias: Tensor | None, half: bool) -> Product | None:
    """``x W^T + b`` with a copy of ``W`` (out, in); None where a copy is of no use."""
    kind = torch.bfloat16 if half else weight.dtype
    if not _fits(kind, weight.device) and not half:
        return None
    copied, plain = weight.detach().to(kind), None if bias is None else bias.detach().to(kind)
    if _fits(kind, weight.device):
        laid_out, multiply = torch.ops.mkldnn._reorder_linear_weight(copied, TOKENS), torch.ops.mkldnn._linear_pointwise.default

        def product(x: Tensor) -> Tensor:
            return multiply(x, laid_out, plain, "none", [], "")
    else:

        def product(x: Tensor) -> Tensor:
            return F.linear(x, copied, plain)

    return (lambda x: product(x.to(kind)).to(x.dtype)) if half else product


def _fits(kind: torch.dtype, device: torch.device) -> bool:
    known = kind is torch.float32 or (kind is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return known and device.type == "cpu" and torch.backends.mkldnn.is_available()
