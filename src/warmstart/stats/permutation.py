"""A permutation test of whether labels depend on their texts, exact for any number of texts and classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PERMUTATIONS = 999
_BATCH = 100
"""permutations at once"""


def p_of_no_signal(
    kernels: Sequence[np.ndarray], labels: np.ndarray, chance: np.random.Generator, permutations: int = PERMUTATIONS
) -> float:
    """The p-value against the hypothesis that N ``labels`` have nothing to do with their texts.

    ``kernels`` are K matrices (N, N) of inner products of texts, one for each representation: words, characters, vectors. Each is
    centred and scaled to a mean diagonal of 1. Kernel ridge regression predicts every text from all others, linearly in the
    labels, so that no permutation needs a fit (Ojala and Garriga 2010). With Y (N, C) the centred one-hot
    labels, or those of several per text,

        H = K (K + I)^-1,    S = (H - diag H) / (1 - diag H) by rows,    agreement = sum Y * S Y.

    The agreement with each representation is standardised over the labels as they are and all permutations, and the largest one
    counts, so that the p-value holds for the best of them: (1 + permutations at least as large) / (1 + permutations) (Westfall and
    Young 1993). 1 if there is no representation, or a single class. Exact for texts that are exchangeable: give one of each group
    of copies. Simulation: tests/test_stats_simulations.py: ``test_labels_at_random_are_seldom_called_learnable``.

    >>> chance = np.random.default_rng(0)
    >>> rows = chance.normal(size=(40, 5))
    >>> p_values = [p_of_no_signal([rows @ rows.T], labels, chance) for labels in (rows[:, 0] > 0, np.arange(40) % 2)]
    >>> p_values[0] < 0.01, p_values[1] > 0.05
    (True, True)
    """
    one_hot = labels.astype(float) if labels.ndim == 2 else (labels[:, None] == np.unique(labels)).astype(float)
    targets = one_hot - one_hot.mean(axis=0)  # (N, C)
    orders = np.stack([np.arange(len(labels)), *(chance.permutation(len(labels)) for _ in range(permutations))])
    smoothers, largest = [_left_out(kernel) for kernel in kernels], np.zeros(len(orders))
    if smoothers:
        largest = np.max([_standardised(_agreement(smoother, targets, orders)) for smoother in smoothers], axis=0)
    return float((largest >= largest[0] - 1e-9).mean())


def _left_out(kernel: np.ndarray) -> np.ndarray:
    """(N, N) the weight of each label in the prediction of each text, 0 in that of its own."""
    centred = kernel - kernel.mean(axis=0) - kernel.mean(axis=1, keepdims=True) + kernel.mean()
    scaled = centred / max(float(np.diag(centred).mean()), 1e-12)
    smoother = np.eye(len(kernel)) - np.linalg.inv(scaled + np.eye(len(kernel)))
    own = np.diag(smoother)
    return np.asarray((smoother - np.diag(own)) / (1 - own)[:, None])


def _agreement(smoother: np.ndarray, targets: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """(P,) the agreement of the predictions with the labels, for each order (P, N) of them."""
    agreements = []
    for part in np.array_split(orders, -(-len(orders) // _BATCH)):
        permuted = targets[part.T].reshape(len(targets), -1)  # (N, b C) for b orders
        agreements.append((permuted * (smoother @ permuted)).sum(axis=0).reshape(len(part), -1).sum(axis=1))
    return np.concatenate(agreements)


def _standardised(values: np.ndarray) -> np.ndarray:
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 1e-12 else np.zeros(len(values))
