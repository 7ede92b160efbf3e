"""Stratified splits, samples and folds: every class keeps its proportion, and the same seed gives the same examples.

    labels 0 0 0 0 0 0 1 1 1, a third held out  ->  2 of class 0 and 1 of class 1 held out

Numbers are apportioned by largest remainder (Hamilton's method): each class gets its exact proportion, rounded down or up. If
rounding leaves a choice, a class of two or more examples gets one on each side first, and a single example stays on the kept side,
where training sees it. Then each class draws its own examples.

Examples that belong together (of one document, of one author) stay on one side in ``grouped_split``.

Letters: N examples, C classes.
"""

from __future__ import annotations

import math

import numpy as np

from warmstart.errors import DataError
from warmstart.seeding import rng

NO_TEXTS = np.array([], dtype=np.int64)
"""indices of no text"""


def stratified_split(labels: np.ndarray, fraction_or_count: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the kept and of the held-out examples, each ascending; together they are all indices, once.

    ``labels`` is (N,) int64. A number below 1 is the fraction to hold out, from 1 on the count. On either side each class has its
    proportional count, to within one. Raises ``DataError`` if one side would be empty.
    """
    held_out = held_out_count(len(labels), fraction_or_count)
    classes, sizes = np.unique(labels, return_counts=True)
    chosen = _draw(labels, classes, _apportion(sizes, held_out), seed, "held out")
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def grouped_split(labels: np.ndarray, groups: np.ndarray, fraction_or_count: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Like ``stratified_split``, but all examples of one of the ``groups`` (N,) are on one side.

    Groups are taken in random order; one is held out if that brings the counts of the classes nearer to their proportions (sum of
    squares), and it would not be most of the held-out part. So sizes are only about those asked for. Raises ``DataError`` if one
    side would be empty.
    """
    _, classes = np.unique(labels, return_inverse=True)
    names, owners = np.unique(groups, return_inverse=True)
    table = np.zeros((len(names), classes.max() + 1))
    np.add.at(table, (owners, classes), 1)
    held_out = held_out_count(len(labels), fraction_or_count)
    missing = table.sum(axis=0) * held_out / len(labels)
    chosen, large = np.zeros(len(names), dtype=bool), table.sum(axis=1) > max(1, held_out / 2)
    for group in rng(seed, "held out", "groups").permutation(len(names)):
        if not large[group] and ((missing - table[group]) ** 2).sum() < (missing**2).sum():
            chosen[group], missing = True, missing - table[group]
    if not chosen.any():  # all are large: the one that comes nearest
        chosen[((missing - table) ** 2).sum(axis=1).argmin()] = True
    if chosen.all():
        raise DataError(
            "examples of a single group, or copies of a single text, cannot be split; name a file for each split, or, "
            "if a group is no reason, take each text by itself: --group-column none (in a manifest no 'group')"
        )
    return np.flatnonzero(~chosen[owners]), np.flatnonzero(chosen[owners])


def calibration_split(units: np.ndarray, fraction_or_count: float) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the texts kept, and of those set apart for a guarantee; both ascending, the same for every seed.

    They are drawn without regard to labels: a bound on the error rate holds for a simple random sample only. Of ``units`` (N,),
    copies of a text and the texts of a group, whole ones are held out, and of each a single text is set apart, because errors
    within a unit depend on each other; a guarantee is then for texts of new units, each unit counting once. Simulation:
    tests/test_groups.py: ``test_the_guarantee_holds_for_grouped_texts``. Raises ``DataError`` if either side would be empty.
    """
    alike = np.zeros(len(units), dtype=np.int64)
    if len(np.unique(units)) == len(units):
        return stratified_split(alike, fraction_or_count, 0)
    kept, held_out = grouped_split(alike, units, fraction_or_count, 0)
    shuffled = rng(0, "held out", "one of each group").permutation(held_out)
    return kept, np.sort(shuffled[np.unique(units[shuffled], return_index=True)[1]])


def stratified_sample(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The ascending indices of ``count`` examples: proportional, but at least one of each class.

    A class draws its examples in an order that does not depend on ``count``, so a small sample is nearly always part of a larger
    one. Raises ``DataError`` if ``count`` is below the number of classes or above that of examples.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    if not len(classes) <= count <= len(labels):
        raise DataError(
            f"a sample must have at least one example of each of the {len(classes)} classes and at most all "
            f"{len(labels)} examples; got {count}"
        )
    return _draw(labels, classes, _at_least_one(sizes, count), seed, "sample")


def held_out_count(total: int, fraction_or_count: float) -> int:
    """Number of ``total`` examples that a fraction (below 1) or a count (from 1 on) holds out; neither side may be empty."""
    count = 0
    if 0 < fraction_or_count < math.inf:
        count = round(fraction_or_count * total) if fraction_or_count < 1 else int(fraction_or_count)
    if not (0 < count < total and (fraction_or_count < 1 or count == fraction_or_count)):
        raise DataError(
            "a held-out part must be a fraction between 0 and 1 or a whole number of examples, and leave some on both sides; "
            f"got {fraction_or_count} of {total} examples"
        )
    return count


def _apportion(sizes: np.ndarray, total: int) -> np.ndarray:
    """(C,) counts that sum to ``total``: each class's exact proportion, rounded down or up.

    ``_apportion([6, 3], 3)`` -> ``[2, 1]``. Classes with no example yet are rounded up first, classes that would have none left on
    the other side last; among equals the larger remainder decides.
    """
    down, remainder = np.divmod(sizes * total, sizes.sum())
    empties_the_other_side = down + 1 == sizes
    rank = np.where(empties_the_other_side, 2, np.where(down == 0, 0, 1))
    order = np.lexsort((-remainder, rank, remainder == 0))  # without a remainder the proportion is exact already
    counts = down.copy()
    counts[order[: total - down.sum()]] += 1
    return counts


def _at_least_one(sizes: np.ndarray, total: int) -> np.ndarray:
    """(C,) counts that sum to ``total``, each at least 1: classes whose proportion is below 1 get 1, the others divide the rest."""
    rare = np.zeros(len(sizes), dtype=bool)
    while True:
        counts = np.ones_like(sizes)
        counts[~rare] = _apportion(sizes[~rare], total - rare.sum())
        if counts.all():
            return counts
        rare |= counts == 0


def _draw(labels: np.ndarray, classes: np.ndarray, counts: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """The ascending indices of ``counts[i]`` random examples of ``classes[i]``."""
    parts = []
    for name, count in zip(classes, counts, strict=True):
        indices = np.flatnonzero(labels == name)
        parts.append(rng(seed, purpose, int(name)).permutation(indices)[:count])
    return np.sort(np.concatenate(parts))


def strata(labels: np.ndarray) -> np.ndarray:
    """(N,) int64 classes to stratify by: those of the examples if each has one, else a single class."""
    return labels if labels.ndim == 1 and labels.dtype == np.int64 else np.zeros(len(labels), dtype=np.int64)


# Folds for cross-validation: stratified, with copies of a text and the texts of a group in the same fold.


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
            f"cross-validation needs two independent texts of one class, but among the {len(labels)} labelled ones every class has "
            "one ((near) copies and the texts of a group count once); use more labels"
        )
    target, filled = table[~alone].sum(axis=0) / count, np.zeros((count, table.shape[1]))
    fold_of = np.full(len(names), -1)
    order = rng(seed, "folds").permutation(np.flatnonzero(~alone))
    for unit in order[np.argsort(-table[order].sum(axis=1), kind="stable")]:  # large units first
        missing = ((filled + table[unit] - target) ** 2 - (filled - target) ** 2).sum(axis=1)
        fold_of[unit] = np.lexsort((filled.sum(axis=1), missing))[0]  # of equals, the smallest fold
        filled[fold_of[unit]] += table[unit]
    return [np.flatnonzero(fold_of[owners] == fold) for fold in range(count)]
