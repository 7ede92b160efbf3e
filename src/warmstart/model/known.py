"""Texts unlike those that a model has learned from: the cosine of a text's vector with the nearest mean of a class tells them.

On development sets that finds more of the texts of a class left out than the confidence does (results/baselines.md).

Letters: N texts, M texts that learn, D width, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warmstart.model.readout import of_unit_length
from warmstart.stats.abstention import conformal_p_values


@dataclass(frozen=True, eq=False)
class KnownTexts:
    """A summary of the vectors of the texts that a model has learned from."""

    means: np.ndarray
    """(C, D) the sum of the vectors of each class, each of length 1; zeros for a class without a text"""
    left_out: np.ndarray
    """(M,) the largest cosine of each text with a mean that does not hold it, in ascending order; of copies, that of one"""

    @classmethod
    def of(cls, vectors: np.ndarray, labels: np.ndarray, units: np.ndarray, classes: int) -> KnownTexts:
        """The summary of (M, D) vectors, (M,) classes and (M,) units; texts of a unit, such as copies, are left out together."""
        unit = of_unit_length(vectors)  # (M, D)
        together = np.unique(np.stack([units, labels]), axis=1, return_inverse=True)[1].ravel()
        sums, own = np.zeros((classes, unit.shape[1])), np.zeros((together.max() + 1, unit.shape[1]))
        np.add.at(sums, labels, unit)
        np.add.at(own, together, unit)
        others = sums[labels] - own[together]  # (M, D): a text's class without its own unit
        others[np.linalg.norm(others, axis=1) < 1e-9] = 0.0  # a class of one unit counts as a class without a text
        cosines = unit @ of_unit_length(sums).T  # (M, C)
        cosines[np.arange(len(labels)), labels] = (unit * of_unit_length(others)).sum(axis=1)
        return cls(sums, np.sort(cosines[np.unique(units, return_index=True)[1]].max(axis=1)))

    def cosines(self, vectors: np.ndarray) -> np.ndarray:
        """(N, D) vectors -> (N,) the largest cosine of each with a mean."""
        return np.asarray((of_unit_length(vectors) @ of_unit_length(self.means).T).max(axis=1))

    def typicality(self, vectors: np.ndarray) -> np.ndarray:
        """(N, D) vectors -> (N,) the share of the texts left out that are no nearer to a mean; see ``conformal_p_values``."""
        return conformal_p_values(self.left_out, self.cosines(vectors))
