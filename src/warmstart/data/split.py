"""Stratified choices: every class keeps its share, and the same seed makes the same choice.

    labels 0 0 0 0 0 0 1 1 1, a third held out  ->  2 of class 0 and 1 of class 1 held out

Seats are apportioned by largest remainder (Hamilton's method), so each class gets its exact share rounded down or up. Where
rounding leaves a choice, a class of two or more examples is given one on each side first, and a lone example stays on the kept
side, where training sees it. Then each class draws its own examples.

This file knows numbers only: no texts, no names, no files.
"""

from __future__ import annotations

import numpy as np

from warmstart.errors import DataError
from warmstart.seeding import rng


def stratified(labels: np.ndarray, share_or_count: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of the kept and of the held-out examples, each ascending; together they are all places, once.

    ``labels`` is (N,) int64; a number below 1 is the share to hold out, from 1 on it is the count. Each class has within one
    of its proportional count on either side. Raises ``DataError`` if one side would be empty.
    """
    held_out = held_out_count(len(labels), share_or_count)
    classes, sizes = np.unique(labels, return_counts=True)
    chosen = _draw(labels, classes, _apportion(sizes, held_out), seed, "held out")
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def sample(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The ascending places of ``count`` examples: proportional, but never less than one of each class.

    A class draws its examples in an order that does not depend on ``count``, so small samples nearly always lie inside larger
    ones. Raises ``DataError`` if ``count`` is below the number of classes or above that of examples.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    if not len(classes) <= count <= len(labels):
        raise DataError(
            f"a sample must have at least one example of each of the {len(classes)} classes and at most all "
            f"{len(labels)} examples; got {count}"
        )
    return _draw(labels, classes, _at_least_one(sizes, count), seed, "sample")


def held_out_count(total: int, share_or_count: float) -> int:
    """How many of ``total`` examples a share (below 1) or a count (from 1 on) holds out; both sides must get some."""
    count = round(share_or_count * total) if share_or_count < 1 else int(share_or_count)
    if not (0 < count < total and (share_or_count < 1 or count == share_or_count)):
        raise DataError(
            f"a held-out part must be a share between 0 and 1 or a whole number of examples, and leave some on both sides; "
            f"got {share_or_count} of {total} examples"
        )
    return count


def _apportion(sizes: np.ndarray, total: int) -> np.ndarray:
    """(C,) seats that sum to ``total``: each class's exact share, rounded down or up.

    ``_apportion([6, 3], 3)`` -> ``[2, 1]``. Of the classes that may be rounded up, those without a seat come first and those
    that would have nothing left on the other side last; between equals the larger remainder decides.
    """
    down, remainder = np.divmod(sizes * total, sizes.sum())
    empties_the_other_side = down + 1 == sizes
    rank = np.where(empties_the_other_side, 2, np.where(down == 0, 0, 1))
    order = np.lexsort((-remainder, rank, remainder == 0))  # without a remainder the share is exact already
    seats = down.copy()
    seats[order[: total - down.sum()]] += 1
    return seats


def _at_least_one(sizes: np.ndarray, total: int) -> np.ndarray:
    """(C,) seats that sum to ``total``, at least one each: classes whose share is below one get one, the others share the rest."""
    rare = np.zeros(len(sizes), dtype=bool)
    while True:
        seats = np.ones_like(sizes)
        seats[~rare] = _apportion(sizes[~rare], total - rare.sum())
        if seats.all():
            return seats
        rare |= seats == 0


def _draw(labels: np.ndarray, classes: np.ndarray, seats: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """The ascending places of ``seats[i]`` random examples of ``classes[i]``."""
    parts = []
    for name, count in zip(classes, seats, strict=True):
        places = np.flatnonzero(labels == name)
        parts.append(rng(seed, purpose, int(name)).permutation(places)[:count])
    return np.sort(np.concatenate(parts))
