"""Matrix products on a CPU, in float32 by the library that is faster there: the one that torch prefers (MKL on x86), or oneDNN.

MKL is slow on processors that Intel did not make; oneDNN, which is part of torch, multiplies more than twice as fast there
(lab note "performance"). The products are equal up to the order of their sums. Which is faster is measured once for a processor and
kept in the user's cache folder; a checkpoint records it, so that a resumed run goes on with the same bits.

torch has no public call for this. This is the only file that uses private operators of torch, three of them (torch 2.13):

- ``torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")``: the product
- ``torch.ops.mkldnn._reorder_linear_weight(weight, rows)``: a copy of a weight in a layout that is faster still
- ``torch.ops.mkldnn._is_mkldnn_bf16_supported()``: whether oneDNN multiplies bfloat16 here

If one of them is missing or raises, the plain product takes its place, and only the speed differs.

Letters: N rows, I inputs, O outputs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.errors import StorageError
from warmstart.system.device import processor
from warmstart.system.storage import atomic_write, cache_folder

Library = Literal["default", "onednn"]
Product = Callable[[Tensor], Tensor]

ENOUGH = 2**20
"""multiplications in a product from which on oneDNN is faster: it prepares each for some 10 microseconds"""
CLEARLY = 1.1
"""speed-up from which on oneDNN is chosen: measured again, two equal ones would change places"""
LAYOUT_ROWS = 512
"""number of rows that the layout of a reordered weight is chosen for; for one, oneDNN does not reorder, and is a third slower"""
UNAVAILABLE = (AttributeError, RuntimeError, TypeError)
"""torch's errors for an operator that is missing, or that does not take these arguments"""
_in_use: Library | None = None
"""the library in use; None: not yet chosen"""


class Linear(nn.Linear):
    """torch's linear layer; float32 products on a CPU are computed by the faster library, forward and backward."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        return linear_product(x, self.weight, self.bias)


def linear_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b``, (..., I) and (O, I) -> (..., O), as ``F.linear`` computes it, by the faster library."""
    if torch.is_autocast_enabled("cpu") or not _by_onednn(x, weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _onednn(x, weight, bias)
    product: Tensor = _LinearFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return product


class _LinearFunction(torch.autograd.Function):
    """``x W^T + b`` and its gradients by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight = ctx.saved_tensors
        rows, grad = x.reshape(-1, x.shape[-1]), grads[0].reshape(-1, len(weight))  # (N, I), (N, O)
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            multiply(grad, weight.T).view_as(x) if of_x else None,
            outer(grad, rows) if of_weight else None,
            grad.sum(dim=0) if of_bias else None,
        )


def multiply(x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """``x W^T``, (N, I) and (O, I) -> (N, O), in memory that may be that of ``out``. No gradient flows through it."""
    if _by_onednn(x, weight):
        return _onednn(x, weight)
    return torch.mm(x, weight.T) if out is None else torch.mm(x, weight.T, out=out)


def outer(grad: Tensor, x: Tensor) -> Tensor:
    """``G^T X``, (N, O) and (N, I) -> (O, I): the gradient of a weight. No gradient flows through it."""
    if not _by_onednn(grad, x.T):
        return grad.T @ x
    return _onednn(grad.T, x.T) if grad.shape[1] <= x.shape[1] else _onednn(x.T, grad.T).T  # the smaller one first is faster


def product_library() -> Library:
    """The library that multiplies float32 matrices in this process."""
    return _in_use or _faster_library()


def use_product_library(library: Library) -> None:
    """Let this library multiply float32 matrices from now on: that of a run which is resumed."""
    global _in_use
    _in_use = library


def product_rate(dtype: torch.dtype) -> float:
    """Floating-point operations per second of a matrix product on this CPU, as a model's layers get them: the best of five."""
    x, weight = torch.randn(1024, 256, dtype=dtype), torch.randn(1024, 256, dtype=dtype)
    return 2 * x.numel() * len(weight) / _seconds(lambda: multiply(x, weight))


def reordered_product(weight: Tensor, bias: Tensor | None) -> Product | None:
    """``x W^T + b`` by oneDNN with a reordered copy of the weight (O, I), for inference; None if it cannot do it here."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    if weight.dtype not in (torch.float32, torch.bfloat16) or (weight.dtype is torch.float32 and product_library() == "default"):
        return None
    try:
        if weight.dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return None
        reordered = torch.ops.mkldnn._reorder_linear_weight(weight, LAYOUT_ROWS)
        multiply_reordered = torch.ops.mkldnn._linear_pointwise.default
    except UNAVAILABLE:
        return None

    def product(x: Tensor) -> Tensor:
        try:
            return multiply_reordered(x, reordered, bias, "none", [], "")
        except UNAVAILABLE:
            return F.linear(x, weight, bias)

    return product


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    """True if oneDNN is to multiply these."""
    if torch.compiler.is_compiling():  # the graph being traced has no sizes yet
        return False
    enough = x.dtype is torch.float32 is weight.dtype and x.device.type == "cpu" and x.numel() * len(weight) >= ENOUGH
    return enough and product_library() == "onednn"


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b``, (..., I) and (O, I) -> (..., O)."""
    operands = (x if x.is_contiguous() else _dense(x), _dense(weight))
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(*operands, bias, "none", [], "")
    return result


def _dense(x: Tensor) -> Tensor:
    """The matrix, copied unless it or its transpose is contiguous: oneDNN is very slow with other strides."""
    return x if x.is_contiguous() or (x.ndim == 2 and x.T.is_contiguous()) else x.contiguous()


@cache
def _faster_library() -> Library:
    """The faster library, as measured before on this processor with this version of torch, or now."""
    folder = cache_folder()
    file, key = folder / "products.json" if folder else None, f"{processor()}, torch {torch.__version__}"
    known: dict[str, Library] = {}
    with suppress(OSError, ValueError, TypeError):  # not measured yet, or damaged: it is only a cache
        known = dict(json.loads(file.read_bytes())) if file else {}
    if known.get(key) not in ("default", "onednn"):
        known[key] = _measure()
        with suppress(OSError, StorageError):
            if file:
                atomic_write(file, json.dumps(known, indent=1).encode())
    return known[key]


def _measure() -> Library:
    """The faster library, by a product of the size that models have."""
    if not torch.backends.mkldnn.is_available():
        return "default"
    x, weight = torch.randn(1024, 256), torch.randn(1024, 256)
    try:
        return "onednn" if _seconds(lambda: F.linear(x, weight)) > CLEARLY * _seconds(lambda: _onednn(x, weight)) else "default"
    except UNAVAILABLE:
        return "default"


@torch.inference_mode()
def _seconds(call: Callable[[], Tensor]) -> float:
    """The shortest of five calls after two to warm up; of one thread the processor's time, which other programs disturb less.

    Not that of the process: under a limit of processor time (``ulimit -t``) Linux counts it in whole ticks, as Windows always does.
    """
    fine = time.get_clock_info("thread_time").resolution < 1e-5
    clock, times = time.thread_time if fine and torch.get_num_threads() == 1 else time.perf_counter, list[float]()
    for _ in range(7):
        started = clock()
        call()
        times.append(clock() - started)
    return min(times[2:])
