"""Cross-entropy over a large vocabulary without ever holding all its logits.

Only positions with a target are scored (a masked objective has few), and those in chunks: the forward pass of each chunk also
computes its gradients, so logits live for one chunk only. Peak memory is ``chunk x V`` instead of ``B T V``.

Letters: B batch, T tokens, N positions with a target, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warmstart.system.products import multiply, outer
from warmstart.types import IGNORE

CHUNK = 512
"""positions scored at once; larger chunks gain nothing"""


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of ``hidden_states @ weight.T + bias``; the forward pass computes the gradients too."""

    @staticmethod
    def forward(ctx: Any, hidden_states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        needs_grad = ctx.needs_input_grad
        dtype, rows = hidden_states.dtype, min(CHUNK, len(hidden_states))
        narrow_weight = weight.to(dtype)  # bfloat16 under autocast: one cast for all chunks
        total = torch.zeros((), dtype=torch.float32, device=hidden_states.device)
        d_states = torch.empty_like(hidden_states) if needs_grad[0] else None
        d_weight = torch.zeros_like(weight) if needs_grad[1] else None
        d_bias = torch.zeros_like(bias) if bias is not None and needs_grad[2] else None
        # buffers for one chunk's logits, allocated once: allocating this much memory costs more than computing in it
        narrow = torch.empty(rows, len(weight), dtype=dtype, device=hidden_states.device)
        wide = narrow if dtype is torch.float32 else torch.empty_like(narrow, dtype=torch.float32)
        for start in range(0, len(hidden_states), CHUNK):
            x, y = hidden_states[start : start + CHUNK], targets[start : start + CHUNK, None]
            logits = multiply(x, narrow_weight, out=narrow[: len(x)])  # (chunk, V)
            logits = logits if wide is narrow else wide[: len(x)].copy_(logits)
            if bias is not None:
                logits += bias
            target_logits = logits.gather(-1, y)
            highest = logits.amax(dim=-1, keepdim=True)  # (chunk, 1)
            sums = logits.sub_(highest).exp_().sum(dim=-1, keepdim=True)
            total += (sums.log() + highest - target_logits).sum()
            if not any(needs_grad):
                del logits  # oneDNN makes new ones for the next chunk, in memory of their own
                continue
            error = logits.div_(sums)  # softmax
            error.scatter_add_(-1, y, torch.full_like(y, -1, dtype=error.dtype))
            if d_bias is not None:
                d_bias += error.sum(dim=0)
            narrow_error = error if wide is narrow else narrow[: len(x)].copy_(error)
            if d_states is not None:
                d_states[start : start + CHUNK] = multiply(narrow_error, narrow_weight.T)
            if d_weight is not None:
                d_weight += outer(narrow_error, x)
            del logits, error, narrow_error
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        return (*(None if part is None else part * grad.to(part.dtype) for part in ctx.saved_tensors), None)


def language_loss(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    transform: Callable[[Tensor], Tensor] | None = None,
    places: Tensor | None = None,
) -> Tensor:
    """Summed cross-entropy in nats of ``targets`` (B, T), ``IGNORE`` left out, given ``hidden_states`` (B, T, D); a scalar.

    ``weight`` is (V, D), ``bias`` (V,). A ``transform`` is applied first, only to the states that have a target. Equals
    ``F.cross_entropy(hidden_states @ weight.T + bias, targets, ignore_index=IGNORE, reduction="sum")``, with its gradients.

    ``places`` (N,) are those of the targets that count, among all B T, if they are known: to find them, a program waits for a GPU.
    """
    if places is None:
        chosen = targets != IGNORE
        hidden_states, targets = hidden_states[chosen], targets[chosen]  # (N, D), (N,)
    else:
        hidden_states, targets = hidden_states.flatten(0, -2), targets.flatten()
        if len(places) < len(targets):
            hidden_states, targets = hidden_states.index_select(0, places), targets.index_select(0, places)
    if transform is not None:
        hidden_states = transform(hidden_states)
    device = hidden_states.device.type
    if torch.is_autocast_enabled(device):
        hidden_states = hidden_states.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(hidden_states, weight, bias, targets)  # type: ignore[no-untyped-call]
    return loss
