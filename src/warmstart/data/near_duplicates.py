"""Texts that are nearly the same: at least half of their word n-grams (shingles) are common to both.

    J(a, b) = |A ∩ B| / |A ∪ B|, A and B the sets of shingles (Broder 1997, "On the resemblance and containment of documents")
    C(a, b) = |A ∩ B| / |A|, how much of a is contained in b (the same paper)

Two texts are compared by 5-grams if both have at least 30 words, and by 2-grams if both have 5 to 59; 2-grams include the text's
beginning and end, so that one other word is not most of a short text. J is exact. Candidates are found by prefix filtering, which
unlike MinHash misses none (Chaudhuri et al. 2006; Bayardo et al. 2007): with shingles ordered from the rarest to the most frequent,
two texts with J >= t have a common one among the first |A| - ceil(t |A|) + 1 of A and the first |B| - ceil(t |B|) + 1 of B. Few
texts have rare shingles in common.

Letters: N texts, S shingles of all texts, V different shingles, P pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from scipy.sparse import csr_array

SIMILAR = 0.5
"""J from which on two texts are nearly the same"""
SHORTEST = 5
"""words; in a shorter text one other word makes another text, so it is like no other"""
LONG = 60
"""words; a text of so many is compared by 5-grams only, one of half as many by 5-grams too"""
PAIRS_AT_ONCE = 1 << 16
"""candidates that are compared at once"""
SEARCHED_AT_ONCE = 1 << 10
"""documents in which texts are looked for at once"""
HASH_BITS = 40
"""two given n-grams get the same hash with a probability of 1e-12"""


def near_duplicates(texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> np.ndarray:
    """(N,) the index of the other text that each text is most like; -1 if none is nearly the same. Texts are given as words.

    >>> near_duplicates([["the", "cat", "sat", "on", "a", "mat"]], [["dogs"], ["the", "cat", "sat", "on", "the", "mat"]]).tolist()
    [1]
    """
    found, best = np.full(len(texts), -1), np.zeros(len(texts))
    for rows, columns, similarity in near_pairs(texts, others):
        order = np.argsort(similarity, kind="stable")  # of the pairs of a text, the best one is written last
        order = order[similarity[order] > best[rows[order]]]
        found[rows[order]], best[rows[order]] = columns[order], similarity[order]
    return found


def near_pairs(
    texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """All pairs that are nearly the same, in parts: (P,) texts, (P,) other texts, (P,) their J. A pair may occur more than once."""
    number_of: defaultdict[str, int] = defaultdict(count(1).__next__)
    sides = [_Words.of(side, number_of) for side in (texts, others)]
    # J >= 1/2 implies that no text has twice the words of the other: each pair is in the first round or in the second
    for size, shortest, longest in ((2, SHORTEST, LONG - 1), (5, LONG // 2, 1 << 40)):
        one, other = (side.shingles(size, shortest, longest) for side in sides)
        yield from _similar_pairs(one, other)


def contained_pairs(
    texts: Sequence[Sequence[str]], documents: Sequence[Sequence[str]], size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """All pairs with a common n-gram of ``size`` words, in parts: (P,) texts, (P,) documents, (P,) their C.

    Texts of fewer than ``size`` words are in no document.
    """
    number_of: defaultdict[str, int] = defaultdict(count(1).__next__)
    one, other = (_Words.of(side, number_of).shingles(size, size, 1 << 40) for side in (texts, documents))
    one, other = one.shared_with(other), other.shared_with(one)
    values, columns = np.unique(np.concatenate([one.hashes, other.hashes]), return_inverse=True)
    left = one.table(columns[: len(one.hashes)], len(values))
    right = other.table(columns[len(one.hashes) :], len(values))
    for start in range(0, len(documents), SEARCHED_AT_ONCE):
        common = (left @ right[start : start + SEARCHED_AT_ONCE].T).tocoo()
        rows, columns = common.coords
        yield rows, columns + start, common.data / one.sizes[rows]


@dataclass(frozen=True)
class _Words:
    """The words of all texts in a row, as numbers from 1 on, and how many each text has."""

    numbers: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]], number_of: defaultdict[str, int]) -> _Words:
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        return cls(np.fromiter(map(number_of.__getitem__, chain.from_iterable(texts)), np.int64, int(lengths.sum())), lengths)

    def shingles(self, size: int, shortest: int, longest: int) -> _Shingles:
        """The n-grams of texts that have so many words; 2-grams also with the ends of the text, which are word 0."""
        kept = (self.lengths >= shortest) & (self.lengths <= longest)
        words, lengths = self.numbers[np.repeat(kept, self.lengths)], np.where(kept, self.lengths, 0)
        if size == 2:
            ends = np.cumsum(lengths)[kept]
            words = np.insert(words, np.stack([ends - lengths[kept], ends], axis=1).ravel(), 0)
            lengths = np.where(kept, lengths + 2, 0)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        inside = owners[: 1 - size] == owners[size - 1 :]  # both ends in one text
        both = _different((owners[: 1 - size][inside] << HASH_BITS) + ngram_hashes(words, size)[inside])
        owners = both >> HASH_BITS
        return _Shingles(owners, both & ((1 << HASH_BITS) - 1), np.bincount(owners, minlength=len(lengths)))


def ngram_hashes(words: np.ndarray, size: int) -> np.ndarray:
    """(W - size + 1,) a number of ``HASH_BITS`` bits for each n-gram of ``words`` (W,) int64."""
    mixed = words.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    total = np.zeros(max(len(words) - size + 1, 0), dtype=np.uint64)
    for start in range(size):
        total = total * np.uint64(0x100000001B3) + mixed[start : start + len(total)]
    return (total >> np.uint64(64 - HASH_BITS)).astype(np.int64)


def _different(numbers: np.ndarray) -> np.ndarray:
    """The different numbers in ascending order. ``np.unique`` hashes them, which takes ten times as long for millions."""
    numbers = np.sort(numbers)
    return numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) else numbers


@dataclass(frozen=True)
class _Shingles:
    """The different shingles of each text, text after text."""

    owners: np.ndarray
    """(S,) the text of each"""
    hashes: np.ndarray
    """(S,)"""
    sizes: np.ndarray
    """(N,) different shingles of each text, also those taken out"""

    def shared_with(self, other: _Shingles) -> _Shingles:
        """Without those that no text of ``other`` has; a few of them may stay."""
        seen = np.zeros(1 << 26, dtype=bool)
        seen[other.hashes >> (HASH_BITS - 26)] = True
        kept = seen[self.hashes >> (HASH_BITS - 26)]
        return _Shingles(self.owners[kept], self.hashes[kept], self.sizes)

    def table(self, ranks: np.ndarray, different: int) -> csr_array:
        """(N, V) 1 where a text has a shingle; columns in the order of their ranks (S,)."""
        table = csr_array((np.ones(len(ranks), dtype=np.int32), (self.owners, ranks)), shape=(len(self.sizes), different))
        table.sort_indices()
        return table

    def prefixes(self, table: csr_array) -> tuple[np.ndarray, np.ndarray]:
        """The texts and columns of those shingles of which similar texts share at least one."""
        shared = np.diff(table.indptr)
        length = self.sizes - np.ceil(SIMILAR * self.sizes).astype(np.int64) + 1 - (self.sizes - shared)
        rows = np.repeat(np.arange(len(shared)), shared)
        first = np.arange(len(rows)) - table.indptr[rows] < length[rows]
        return rows[first], table.indices[first]


def _similar_pairs(one: _Shingles, other: _Shingles) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Those of one round."""
    one, other = one.shared_with(other), other.shared_with(one)  # shingles of one side only come first: they are the rarest
    values, column, counts = np.unique(np.concatenate([one.hashes, other.hashes]), return_inverse=True, return_counts=True)
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(counts, kind="stable")] = np.arange(len(values))
    left = one.table(ranks[column[: len(one.hashes)]], len(values))
    right = other.table(ranks[column[len(one.hashes) :]], len(values))
    rows, shingles = one.prefixes(left)
    other_rows, other_shingles = other.prefixes(right)
    order = np.argsort(other_shingles, kind="stable")
    start, end = (np.searchsorted(other_shingles[order], shingles, side) for side in ("left", "right"))
    total = np.cumsum(end - start)
    parts = np.searchsorted(total, np.arange(0, total[-1] if len(total) else 0, PAIRS_AT_ONCE))
    for part in np.split(np.arange(len(rows)), parts[1:]):
        found = (end - start)[part]
        offsets = np.arange(found.sum()) - np.repeat(np.cumsum(found) - found, found)
        pairs = np.repeat(rows[part], found) * len(other.sizes) + other_rows[order[np.repeat(start[part], found) + offsets]]
        first, second = np.divmod(_different(pairs), len(other.sizes))
        common = left[first].multiply(right[second]).sum(axis=1)
        similarity = common / (one.sizes[first] + other.sizes[second] - common)
        near = similarity >= SIMILAR
        yield first[near], second[near], similarity[near]
