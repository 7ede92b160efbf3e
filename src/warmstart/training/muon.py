"""Muon (Jordan et al. 2024): momentum, of which every matrix is made nearly orthogonal before it is subtracted.

Rows that have moved more than others then move less, and the others more (NorMuon: Li et al. 2025, "NorMuon: Making Muon more
efficient and scalable"). Matrices of one shape are multiplied in one batched product, not one after the other: a GPU would be idle
while it multiplies a single small matrix.
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
"""norm below which a matrix is not scaled up"""
FORGETTING = 0.05
"""weight of the present step in the mean of the squares of a row"""


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
                changes = self._even(matrices, orthogonal(torch.stack(directions)).float())  # (N, A, B)
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(matrices, list(changes), alpha=-group["lr"] * math.sqrt(max(1, shape[0] / shape[1])))

    def _direction(self, matrix: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        """(A, B) the gradient after its momentum, which is kept."""
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(state["momentum_buffer"], momentum)

    def _even(self, matrices: list[Tensor], changes: Tensor) -> Tensor:
        """The ``changes`` (N, A, B) divided by the root mean square of each row, or column if these are more; the norms stay."""
        across = 2 if changes.shape[1] >= changes.shape[2] else 1
        means = changes.square().mean(dim=across, keepdim=True)
        kept = [self.state[one].setdefault("squares", torch.zeros_like(new)) for one, new in zip(matrices, means, strict=True)]
        torch._foreach_lerp_(kept, list(means), FORGETTING)
        even = changes * torch.stack(kept).clamp(min=SMALLEST**2).rsqrt()
        return even * (_norms(changes) / _norms(even).clamp(min=SMALLEST))


def _norms(matrices: Tensor) -> Tensor:
    """(N, 1, 1) Frobenius norms of the matrices (N, A, B)."""
    return matrices.norm(dim=(1, 2), keepdim=True)


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (N, A, B) with their singular values moved to between 0.7 and 1.2, in bfloat16, by Newton and Schulz's iteration."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16().mT if tall else matrices.bfloat16()
    x = x / _norms(x).clamp(min=SMALLEST)
    first, third, fifth = QUINTIC
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x.mT if tall else x
