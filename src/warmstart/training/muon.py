"""Muon (Jordan et al. 2024): momentum, of which every matrix is made nearly orthogonal before it is subtracted.

The steps are those of ``torch.optim.Muon``. But matrices of one shape are multiplied in one batched product, not one after the
other: a GPU would be idle while it multiplies a single small matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""coefficients of x, x^3 and x^5: the steepest at 0 that keep singular values near 1"""
ITERATIONS = 5
SMALLEST = 1e-7
"""norm below which a matrix is not scaled up to 1"""


class Muon(torch.optim.Optimizer):
    """Nesterov momentum with decoupled weight decay, for matrices only."""

    def __init__(self, groups: Iterable[dict[str, Any]], weight_decay: float, momentum: float) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step for all matrices that have a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, tuple[list[Tensor], list[Tensor]]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    matrices, directions = alike.setdefault(matrix.shape, ([], []))
                    matrices.append(matrix)
                    directions.append(self._direction(matrix, matrix.grad, group["momentum"]))
            for shape, (matrices, directions) in alike.items():
                changes = orthogonal(torch.stack(directions))  # (N, A, B)
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(matrices, list(changes), alpha=-group["lr"] * math.sqrt(max(1, shape[0] / shape[1])))

    def _direction(self, matrix: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        """(A, B) the gradient after its momentum, which is kept."""
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(state["momentum_buffer"], momentum)


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (N, A, B) with their singular values moved to between 0.7 and 1.2, in bfloat16, by Newton and Schulz's iteration."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16().mT if tall else matrices.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST)
    first, third, fifth = QUINTIC
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x.mT if tall else x
