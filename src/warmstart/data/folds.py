"""Folds for cross-validation: stratified, with copies of a text and the texts of a group in the same fold."""

from __future__ import annotations

import numpy as np

from warmstart.errors import DataError
from warmstart.seeding import rng


def cross_validation_folds(labels: np.ndarray, units: np.ndarray, folds: int, seed: int) -> list[np.ndarray]:
    """The ascending indices of the texts that choose in each fold; each text chooses at most once.

    ``labels`` (N,) are int64 classes, ``units`` (N,) say which texts belong together. Each fold has its share of every class, to
    within one if units are single texts; otherwise a fold may have all texts of a class. A class with one unit never chooses,
    because training would lack it. There are fewer folds if there are fewer units. Raises ``DataError`` if that leaves less than
    two.
    """
    _, classes = np.unique(labels, return_inverse=True)
    names, owners = np.unique(units, return_inverse=True)
    table = np.zeros((len(names), classes.max(initial=-1) + 1))
    np.add.at(table, (owners, classes), 1)
    alone = (table[:, (table > 0).sum(axis=0) == 1] > 0).any(axis=1)
    count = min(folds, int((~alone).sum()))
    if count < 2:
        raise DataError(
            f"cross-validation needs two labelled texts of one class, but among the {len(labels)} labels every class has one; use "
            "more labels"
        )
    target, filled = table[~alone].sum(axis=0) / count, np.zeros((count, table.shape[1]))
    fold_of = np.full(len(names), -1)
    order = rng(seed, "folds").permutation(np.flatnonzero(~alone))
    for unit in order[np.argsort(-table[order].sum(axis=1), kind="stable")]:  # large units first
        missing = ((filled + table[unit] - target) ** 2 - (filled - target) ** 2).sum(axis=1)
        fold_of[unit] = np.lexsort((filled.sum(axis=1), missing))[0]  # of equals, the smallest fold
        filled[fold_of[unit]] += table[unit]
    return [np.flatnonzero(fold_of[owners] == fold) for fold in range(count)]
