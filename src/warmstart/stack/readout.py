"""What turns rows into predictions, in a form that can be saved: arrays and a few settings, no code.

Letters: N texts, D dimensions, C classes, M known texts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

AT_ONCE = 256
"""texts of which the neighbours are searched at once"""
RESOLUTION = 1e-9
"""distances that differ by less are equal: rounding errors must not choose neighbours"""


@dataclass(frozen=True, eq=False)
class LinearReadout:
    """One matrix: softmax(x W + b), or the sums themselves for numbers."""

    weights: np.ndarray
    """(D, C)"""
    bias: np.ndarray
    """(C,); -inf for a class that never occurs"""
    link: Literal["softmax", "identity"] = "softmax"
    unit_length: bool = False
    """rows are divided by their length first"""

    @property
    def columns(self) -> int:
        """C."""
        return len(self.bias)

    def __call__(self, rows: Any) -> np.ndarray:
        """(N, D) -> (N, C)."""
        from scipy.special import softmax
        from sklearn.preprocessing import normalize

        sums = np.asarray((normalize(rows) if self.unit_length else rows) @ self.weights + self.bias)
        return np.asarray(softmax(sums, axis=1)) if self.link == "softmax" else sums

    def spread(self, present: np.ndarray, classes: int) -> LinearReadout:
        """The same for all ``classes``, of which these columns are the ones at ``present``."""
        weights, bias = np.zeros((len(self.weights), classes)), np.full(classes, -np.inf)
        weights[:, present], bias[present] = self.weights, self.bias
        return replace(self, weights=weights, bias=bias)


@dataclass(frozen=True, eq=False)
class NeighbourReadout:
    """The mean of what is known of the nearest texts: by cosine, the nearer ones counting more, or by distance, all alike."""

    rows: np.ndarray
    """(M, D)"""
    targets: np.ndarray
    """(M, C) what is known of these texts"""
    floor: np.ndarray
    """(C,) added to the mean; it decides where nothing is known of the neighbours"""
    count: int
    """neighbours"""
    metric: Literal["cosine", "euclidean"]
    numbers: bool = False
    """the means themselves, of numbers; otherwise what is known are shares of classes, and so is what is predicted"""

    @property
    def columns(self) -> int:
        """C."""
        return self.targets.shape[1]

    def __call__(self, rows: Any) -> np.ndarray:
        """(N, D) -> (N, C)."""
        parts = [self._means(rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE)]
        means = np.concatenate(parts or [np.zeros((0, self.columns))])
        if self.numbers:
            return means
        found = np.maximum(means, 0) + self.floor
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def _means(self, rows: np.ndarray) -> np.ndarray:
        """(N, C) means over neighbours; of equally near texts the first ones, on every machine: scikit-learn leaves that open."""
        from sklearn.metrics import pairwise_distances

        distances = np.rint(pairwise_distances(rows, self.rows, metric=self.metric) / RESOLUTION)
        order = distances.astype(np.int64) * len(self.rows) + np.arange(len(self.rows))
        nearest = np.argpartition(order, self.count - 1, axis=1)[:, : self.count]
        weights = np.ones(nearest.shape)
        if self.metric == "cosine":  # where some are the same text, these alone count
            near = np.take_along_axis(distances, nearest, axis=1)
            same = near == 0
            weights = np.where(same.any(axis=1, keepdims=True), same, 1 / np.where(same, 1, near))
        return np.asarray(np.einsum("nk,nkc->nc", weights, self.targets[nearest]) / weights.sum(axis=1, keepdims=True))

    def spread(self, present: np.ndarray, classes: int) -> NeighbourReadout:
        """The same for all ``classes``, of which these columns are the ones at ``present``."""
        targets, floor = np.zeros((len(self.targets), classes)), np.zeros(classes)
        targets[:, present], floor[present] = self.targets, self.floor
        return NeighbourReadout(self.rows, targets, floor, self.count, self.metric)


@dataclass(frozen=True, eq=False)
class ConstantReadout:
    """The same prediction for every text."""

    values: np.ndarray
    """(C,)"""

    @property
    def columns(self) -> int:
        """C."""
        return len(self.values)

    def __call__(self, rows: Any) -> np.ndarray:
        """(N, ·) -> (N, C)."""
        return np.tile(self.values, (rows.shape[0], 1))


ClassReadout = LinearReadout | NeighbourReadout
"""what a classifier gives for the classes that occur"""
Readout = ClassReadout | ConstantReadout


@dataclass(frozen=True, eq=False)
class PerLabelReadout:
    """For several labels per text: for each label a classifier of those without and with it."""

    parts: tuple[Readout, ...]
    """C classifiers of two classes"""

    @property
    def columns(self) -> int:
        """C."""
        return len(self.parts)

    def __call__(self, rows: Any) -> np.ndarray:
        """(N, D) -> (N, C)."""
        return np.stack([part(rows)[:, 1] for part in self.parts], axis=1)
