"""Centred kernel alignment (CKA): how similar two sets of hidden states of the same tokens are.

With linear kernels it is 1 if one is the other rotated, mirrored or scaled, and near 0 if they have nothing in common (Kornblith et
al. 2019, equation 4). Its biased estimate is far above 0 for noise if there are few tokens for the width, so HSIC is estimated
without bias (Song et al. 2007, equation 5), as Nguyen et al. 2021 do.

Each value comes for all tokens and for each passage left out, for the jackknife (Arvesen 1969). A bootstrap would draw passages
twice, and count the pairs of a token with its own copy as similarity.

Letters: N passages, n tokens, L depth, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Kernel:
    """Products of all pairs of n tokens' states, with their row sums over all passages and with each passage left out."""

    values: np.ndarray
    """(n, n) float32, 0 on the diagonal"""
    starts: np.ndarray
    """(N,) the first token of each passage"""
    sums: np.ndarray
    """(n, 1 + N) of each row: over all, then with each passage left out; 0 for the tokens left out"""

    @cached_property
    def own_hsic(self) -> np.ndarray:
        """(1 + N,) HSIC with itself."""
        return hsic(self, self)


def linear_kernel(states: np.ndarray, starts: np.ndarray) -> Kernel:
    """The linear kernel of states (n, D); ``starts`` (N,) is the first token of each passage.

    States are centred and scaled to a mean square of 1, which changes no CKA but keeps its digits.
    """
    x = states - states.mean(axis=0, dtype=np.float64)
    x = (x / max(float(np.sqrt((x**2).mean())), 1e-12)).astype(np.float32)
    values = x @ x.T
    np.fill_diagonal(values, 0)
    parts = np.add.reduceat(values, starts, axis=1, dtype=np.float64)  # (n, N)
    sums = parts.sum(axis=1, keepdims=True) - np.pad(parts, ((0, 0), (1, 0)))
    owner = np.searchsorted(starts, np.arange(len(x)), side="right")
    sums[np.arange(len(x)), owner] = 0
    return Kernel(values, starts, sums)


def hsic(one: Kernel, other: Kernel) -> np.ndarray:
    """(1 + N,) the unbiased estimate of HSIC (Song et al. 2007, equation 5): of all n tokens, then with each passage left out."""
    starts, count = one.starts, len(one.values)
    n = np.concatenate([[count], count - np.diff([*starts, count])]).astype(float)
    blocks = np.add.reduceat(np.add.reduceat(one.values * other.values, starts, axis=1, dtype=np.float64), starts, axis=0)  # (N, N)
    traces = blocks.sum() - np.concatenate([[0], 2 * blocks.sum(axis=1) - np.diag(blocks)])
    crossed = (one.sums * other.sums).sum(axis=0)
    total = traces + one.sums.sum(axis=0) * other.sums.sum(axis=0) / ((n - 1) * (n - 2)) - 2 * crossed / (n - 2)
    return np.asarray(total / (n * (n - 3)))


def cka(one: Kernel, other: Kernel) -> np.ndarray:
    """(1 + N,) unbiased linear CKA: of all tokens, then with each passage left out; nan if the states do not vary."""
    product = one.own_hsic * other.own_hsic
    scale = np.sqrt(np.maximum(product, 0))
    return np.divide(hsic(one, other), scale, out=np.full_like(product, np.nan), where=product > 1e-20)


def cka_grid(one: np.ndarray, other: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(L + 1, L + 1, 1 + N): CKA of every layer of ``one`` (n, L + 1, D) with every layer of ``other`` (n, L + 1, D).

    ``starts`` (N,) is the first token of each passage.
    """
    kernels = [linear_kernel(other[:, layer], starts) for layer in range(other.shape[1])]
    rows = (linear_kernel(one[:, layer], starts) for layer in range(one.shape[1]))
    return np.stack([np.stack([cka(row, kernel) for kernel in kernels]) for row in rows])


def cka_by_layer(one: np.ndarray, other: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(L + 1, 1 + N): CKA of each layer of ``one`` (n, L + 1, D) with the same layer of ``other`` (n, L + 1, D).

    ``starts`` (N,) is the first token of each passage.
    """
    layers = range(one.shape[1])
    return np.stack([cka(linear_kernel(one[:, i], starts), linear_kernel(other[:, i], starts)) for i in layers])
