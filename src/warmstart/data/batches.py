"""Batches of encoded texts: which examples a step reads, as a pure function of its number.

Texts differ in length, so batches are formed from texts of similar length: little of a batch is padding.

Letters: N examples, B batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from warmstart.data.encode import Encoded
from warmstart.seeding import rng
from warmstart.types import Batch

BUCKET = 50
"""number of batches that are shuffled together and then sorted by length"""
BATCH_COST = 40
"""fixed cost of a batch in tokens read in the same time, for a BERT of 22 million parameters on one core"""
TRAINING_COST = 100
"""fixed cost of a batch that trains, with its gradients"""


def labelled_batches(
    encoded: Encoded, labels: np.ndarray, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool
) -> Callable[[int], list[Batch]]:
    """``batches(step)`` for fine-tuning: an epoch reads every example once, in batches of similar length, in its own order.

    ``size`` is (examples per batch, batches per step). A batch of texts in windows comes in parts of at most as many rows as it
    has examples, or of one text: a step then needs no more memory than one without windows, and its loss is the same sum.
    """
    return bucketed_batches(encoded, lambda indices: encoded.batch(indices, labels[indices], pad_id, causal=causal), size, seed)


def bucketed_batches(
    encoded: Encoded, make: Callable[[np.ndarray], Batch], size: tuple[int, int], seed: int
) -> Callable[[int], list[Batch]]:
    """``batches(step)`` of examples of similar length; ``make(indices)`` makes a batch of those at these indices."""
    batch, accumulate = size
    chosen = length_buckets(encoded.lengths, batch, seed)

    def batches(step: int) -> list[Batch]:
        numbers = range(step * accumulate, (step + 1) * accumulate)
        return [make(part) for number in numbers for part in _parts(encoded, chosen(number), batch)]

    return batches


def _parts(encoded: Encoded, indices: np.ndarray, rows: int) -> list[np.ndarray]:
    """The examples in groups of at most ``rows`` windows, or of one example; without windows in one group."""
    if encoded.windows is None:
        return [indices]
    parts, filled = [list[int]()], 0
    for index, count in zip(indices.tolist(), encoded.windows[indices].tolist(), strict=True):
        if parts[-1] and filled + count > rows:
            parts.append([])
            filled = 0
        parts[-1].append(index)
        filled += count
    return [np.array(part) for part in parts]


def length_buckets(lengths: np.ndarray, batch: int, seed: int) -> Callable[[int], np.ndarray]:
    """``chosen(number)``: the indices of the examples in batch ``number``, counted through the epochs.

    ``lengths`` is (N,); each epoch has every example once.
    """
    per_epoch = -(-len(lengths) // batch)

    @lru_cache(maxsize=2)
    def order(epoch: int) -> list[np.ndarray]:
        draw = rng(seed, "texts", epoch)
        shuffled = draw.permutation(len(lengths))
        size = BUCKET * batch
        buckets = [shuffled[i : i + size] for i in range(0, len(shuffled), size)]
        ranked = np.concatenate([bucket[np.argsort(lengths[bucket], kind="stable")] for bucket in buckets])
        groups = [ranked[i : i + batch] for i in range(0, len(ranked), batch)]
        return [groups[i] for i in draw.permutation(per_epoch)]

    return lambda number: order(number // per_epoch)[number % per_epoch]


def paired_batches(
    encoded: Encoded, labels: np.ndarray, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool
) -> Callable[[int], list[Batch]]:
    """``batches(step)`` for a loss that compares texts of one class: as ``labelled_batches``, in pairs, whatever their length."""
    batch, accumulate = size
    per_epoch = -(-len(encoded) // batch)

    @lru_cache(maxsize=2)
    def order(epoch: int) -> np.ndarray:
        return class_pairs(labels, rng(seed, "pairs", epoch))

    def chosen(number: int) -> list[Batch]:
        start = number % per_epoch * batch
        parts = _parts(encoded, order(number // per_epoch)[start : start + batch], batch)
        return [encoded.batch(indices, labels[indices], pad_id, causal=causal) for indices in parts]

    return lambda step: [part for number in range(step * accumulate, (step + 1) * accumulate) for part in chosen(number)]


def class_pairs(labels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """(N,) an order of all examples with labels (N,): in pairs of one class; the odd one of each class comes at the end."""
    shuffled = draw.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, starts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    odd = starts[counts % 2 == 1]
    pairs = np.delete(by_class, odd).reshape(-1, 2)
    return np.concatenate([draw.permutation(pairs).ravel(), draw.permutation(by_class[odd])])


def sorted_batches(encoded: Encoded, tokens: int, pad_id: int, *, causal: bool) -> Iterator[tuple[np.ndarray, Batch]]:
    """Every example once, shortest first, in batches of at most ``tokens`` tokens with padding: (indices, batch)."""
    ranked = np.argsort(encoded.lengths, kind="stable")
    start = 0
    for end in _cheapest_cuts(encoded.lengths[ranked], encoded.rows_per_example[ranked], tokens):
        indices = ranked[start:end]
        yield indices, encoded.batch(indices, None, pad_id, causal=causal)
        start = end


def similar_lengths(lengths: np.ndarray) -> list[np.ndarray]:
    """The indices of rows of these lengths (B,) in groups that cost least in training, if each is padded to its own longest."""
    ranked, ones = np.argsort(lengths, kind="stable"), np.ones_like(lengths)
    cuts = _cheapest_cuts(lengths[ranked], ones, len(lengths) * int(lengths.max()), TRAINING_COST)
    return np.split(ranked, cuts[:-1])


def _cheapest_cuts(lengths: np.ndarray, rows: np.ndarray, tokens: int, cost: int = BATCH_COST) -> list[int]:
    """Ends of the batches of examples, sorted by length, with fewest tokens with padding and ``cost`` for each batch."""
    before = np.concatenate([[0], np.cumsum(rows)])
    costs, begins = np.zeros(len(lengths) + 1), np.zeros(len(lengths) + 1, int)
    for end, longest in enumerate(np.maximum(lengths, 1), 1):
        first = min(int(np.searchsorted(before, before[end] - tokens // longest)), end - 1)
        totals = costs[first:end] + (before[end] - before[first:end]) * longest
        best = int(totals.argmin())
        costs[end], begins[end] = totals[best] + cost, first + best
    ends = [len(lengths)] if len(lengths) else []
    while ends and begins[ends[-1]]:
        ends.append(int(begins[ends[-1]]))
    return ends[::-1]
