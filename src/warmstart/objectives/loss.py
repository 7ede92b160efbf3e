"""Cross-entropy over a big vocabulary without ever holding all its logits.

Only positions with a target are scored (a masked objective has few), and those in chunks: the forward pass of each chunk also
computes its gradients, so logits live for one chunk only. Peak memory is ``chunk x V`` instead of ``B T V``.

Letters: N positions with a target, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.types import IGNORE

CHUNK = 512
"""positions scored at once; larger ones gain nothing"""


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of ``states @ weight.T + bias``, with gradients made in the forward pass."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        wants = ctx.needs_input_grad
        kind, many = states.dtype, min(CHUNK, len(states))
        weight_k = weight.to(kind)  # bf16 under autocast: one cast for all chunks
        total = torch.zeros((), dtype=torch.float32, device=states.device)
        d_states = torch.empty_like(states) if wants[0] else None
        d_weight = torch.zeros_like(weight) if wants[1] else None
        d_bias = torch.zeros_like(bias) if bias is not None and wants[2] else None
        # room for one chunk's logits, taken once: fresh memory of this size costs more than what is computed in it
        room_k = torch.empty(many, len(weight), dtype=kind, device=states.device)
        room = room_k if kind is torch.float32 else torch.empty_like(room_k, dtype=torch.float32)
        for start in range(0, len(states), CHUNK):
            x, y = states[start : start + CHUNK], targets[start : start + CHUNK, None]
            logits = room[: len(x)].copy_(torch.mm(x, weight_k.T, out=room_k[: len(x)]))  # (chunk, V)
            if bias is not None:
                logits += bias
            wanted = logits.gather(-1, y)
            highest = logits.amax(dim=-1, keepdim=True)  # (chunk, 1)
            sums = logits.sub_(highest).exp_().sum(dim=-1, keepdim=True)
            total += (sums.log() + highest - wanted).sum()
            if not any(wants):
                continue
            error = logits.div_(sums)  # softmax
            error.scatter_add_(-1, y, torch.full_like(y, -1, dtype=error.dtype))
            if d_bias is not None:
                d_bias += error.sum(dim=0)
            error_k = room_k[: len(x)].copy_(error)
            if d_states is not None:
                d_states[start : start + CHUNK] = error_k @ weight_k
            if d_weight is not None:
                d_weight += error_k.T @ x
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        return (*(None if part is None else part * grad.to(part.dtype) for part in ctx.saved_tensors), None)


def language_loss(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, transform: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Summed cross-entropy in nats of ``targets`` (B, T), ``IGNORE`` left out, given ``states`` (B, T, D); a scalar.

    A ``transform`` is applied first, to the states that have a target alone. Equals
    ``F.cross_entropy(states @ weight.T + bias, targets, ignore_index=IGNORE, reduction="sum")`` and its gradients.
    """
    wanted = targets != IGNORE
    states = states[wanted]  # (N, D)
    if transform is not None:
        states = transform(states)
    if torch.is_autocast_enabled(states.device.type):
        states = states.to(torch.get_autocast_dtype(states.device.type))
    with torch.autocast(states.device.type, enabled=False):
        return _ChunkedCrossEntropy.apply(states, weight, bias, targets[wanted])  # type: ignore[no-untyped-call]


def class_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Summed cross-entropy in nats of class numbers (B,), given logits (B, C); a scalar."""
    return F.cross_entropy(logits.float(), targets, reduction="sum")
