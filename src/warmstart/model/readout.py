"""Maps from rows to predictions, in a form that can be saved: arrays and a few settings, no code.

Letters: N texts, D dimensions, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np


def of_unit_length(rows: Any) -> Any:
    """(N, D) rows, each divided by its length, or left as it is if that is 0; dense ones without the seconds that sklearn takes."""
    if not isinstance(rows, np.ndarray):
        from sklearn.preprocessing import normalize

        return normalize(rows)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows / np.where(lengths < 10 * np.finfo(lengths.dtype).eps, 1, lengths)


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
        """C, the number of columns."""
        return len(self.bias)

    def __call__(self, rows: Any) -> np.ndarray:
        """(N, D) rows -> (N, C) predictions."""
        from scipy.special import softmax

        sums = np.asarray((of_unit_length(rows) if self.unit_length else rows) @ self.weights + self.bias)
        return np.asarray(softmax(sums, axis=1)) if self.link == "softmax" else sums

    def spread(self, present: np.ndarray, classes: int) -> LinearReadout:
        """The readout for all ``classes``, of which its columns are those at ``present``."""
        weights, bias = np.zeros((len(self.weights), classes)), np.full(classes, -np.inf)
        weights[:, present], bias[present] = self.weights, self.bias
        return replace(self, weights=weights, bias=bias)


@dataclass(frozen=True, eq=False)
class ConstantReadout:
    """The same prediction for every text."""

    values: np.ndarray
    """(C,)"""

    @property
    def columns(self) -> int:
        """C, the number of columns."""
        return len(self.values)

    def __call__(self, rows: Any) -> np.ndarray:
        """(N, ·) rows -> (N, C) predictions."""
        return np.tile(self.values, (rows.shape[0], 1))


Readout = LinearReadout | ConstantReadout


@dataclass(frozen=True, eq=False)
class PerLabelReadout:
    """A readout of several labels per text: for each label a classifier of texts without and with it."""

    parts: tuple[Readout, ...]
    """C classifiers of two classes"""

    @property
    def columns(self) -> int:
        """C, the number of columns."""
        return len(self.parts)

    def __call__(self, rows: Any) -> np.ndarray:
        """(N, D) rows -> (N, C) predictions."""
        return np.stack([part(rows)[:, 1] for part in self.parts], axis=1)
