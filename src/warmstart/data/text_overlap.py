"""Texts that occur in a large plain text, such as the one that a model was pretrained on, and their documents.

Texts are looked for by their word 5-grams. The plain text is read once, in parts, and may be larger than memory. With s the
position of a 5-gram in the plain text and o its position in a text of n words, a copy of the text gives n - 4 hits with the same
s - o. A text nearly occurs if at least half of its 5-grams have hits whose s - o differ by less than n words.

Letters: N texts, D documents, G 5-grams of all texts, S words of a part of the plain text, H hits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat

import numpy as np

SHORTEST_FOUND = 5
"""words, and those of an n-gram; shorter texts occur anywhere, and are not looked for"""
SHORTEST_NEAR = 14
"""words; one other word in a shorter text changes more than half of its 5-grams"""
WORDS_AT_ONCE = 1 << 20
"""words of the plain text that are searched at once"""
DOCUMENTS_AT_ONCE = 1 << 10
HASH_BITS = 40
"""two given 5-grams get the same hash with a probability of 1e-12"""


def occurrences(texts: Sequence[Sequence[str]], documents: Iterable[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) bool: texts that occur word for word; (N,) bool: others that nearly do. Everything is given as words.

    Neighbouring documents are read as one. A text of 14 words or more is found although one word was changed.

    >>> exact, near = occurrences([["a", "b", "c", "d", "e"]], [["x", "a", "b"], ["c", "d", "e"]])
    >>> exact.tolist(), near.tolist()
    ([True], [False])
    """
    number_of, ngrams, lengths = _read(texts)
    wanted = lengths - SHORTEST_FOUND + 1
    exact, near = np.zeros(len(texts), dtype=bool), np.zeros(len(texts), dtype=bool)
    for words in _parts(documents, number_of, overlap=2 * int(lengths.max(initial=1))):
        owners, offsets, positions = ngrams.find(words)
        shifts, width = positions - offsets + lengths[owners], lengths[owners]
        exact[_with_different(owners, shifts, offsets, wanted)[0]] = True
        for start in (0, width // 2):  # two grids: shifts that differ by less than half the width are in one cell of either
            near[_with_different(owners, (shifts + start) // width, offsets, wanted / 2)[0]] = True
    return exact, near & ~exact


def documents_with(texts: Sequence[Sequence[str]], documents: Sequence[Sequence[str]], shortest_near: int = 0) -> np.ndarray:
    """(D,) bool: documents in which one of the texts occurs or nearly does, by half of its 5-grams. Everything is given as words.

    Texts of fewer than ``shortest_near`` words must occur with all of their 5-grams.

    >>> documents_with([["a", "b", "c", "d", "e"]], [["x", "a", "b", "c", "d", "e"], ["a", "b", "c"]]).tolist()
    [True, False]
    """
    number_of, ngrams, lengths = _read(texts)
    found, sizes = np.zeros(len(documents), dtype=bool), np.array([len(one) for one in documents], dtype=np.int64)
    needed = (lengths - SHORTEST_FOUND + 1) * np.where(lengths >= shortest_near, 0.5, 1.0)
    for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
        part = documents[start : start + DOCUMENTS_AT_ONCE]
        owners, offsets, positions = ngrams.find(np.fromiter(_numbers(chain.from_iterable(part), number_of), np.int64))
        where = np.repeat(np.arange(len(part)), sizes[start : start + DOCUMENTS_AT_ONCE])
        inside = where[positions] == where[positions + SHORTEST_FOUND - 1]  # not over the border of two documents
        found[start + _with_different(owners[inside], where[positions[inside]], offsets[inside], needed)[1]] = True
    return found


def _read(texts: Sequence[Sequence[str]]) -> tuple[Mapping[str, int], _Ngrams, np.ndarray]:
    """The number of each word of the texts, their 5-grams, and (N,) how many words each has."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    number_of: defaultdict[str, int] = defaultdict(count(1).__next__)
    numbers = np.fromiter(map(number_of.__getitem__, chain.from_iterable(texts)), np.int64, int(lengths.sum()))
    return dict(number_of), _Ngrams.of(numbers, lengths), lengths


def _numbers(words: Iterable[str], number_of: Mapping[str, int]) -> Iterator[int]:
    """Words as numbers, 0 if no text has them."""
    return map(number_of.get, words, repeat(0))


@dataclass(frozen=True)
class _Ngrams:
    """The n-grams of all texts, sorted by their hashes."""

    hashes: np.ndarray
    """(G,)"""
    owners: np.ndarray
    """(G,) the text of each"""
    offsets: np.ndarray
    """(G,) its position in the text"""

    @classmethod
    def of(cls, words: np.ndarray, lengths: np.ndarray) -> _Ngrams:
        hashes = _ngram_hashes(words)
        owners = np.repeat(np.arange(len(lengths)), lengths)[: len(hashes)]
        offsets = np.arange(len(hashes)) - (np.cumsum(lengths) - lengths)[owners]
        inside = offsets <= lengths[owners] - SHORTEST_FOUND
        order = np.flatnonzero(inside)[np.argsort(hashes[inside], kind="stable")]
        return cls(hashes[order], owners[order], offsets[order])

    def find(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every hit in words (S,): (H,) texts, (H,) positions in the text, (H,) positions in the words."""
        hashes = _ngram_hashes(words)
        start = np.searchsorted(self.hashes, hashes, "left")
        found = np.searchsorted(self.hashes, hashes, "right") - start
        ngrams = np.repeat(start - np.cumsum(found) + found, found) + np.arange(found.sum())
        return self.owners[ngrams], self.offsets[ngrams], np.repeat(np.arange(len(hashes)), found)


def _parts(documents: Iterable[Sequence[str]], number_of: Mapping[str, int], overlap: int) -> Iterator[np.ndarray]:
    """The words of all documents as numbers, 0 if no text has them; each part begins with the end of the one before."""
    waiting: list[int] = []
    for words in documents:
        waiting.extend(_numbers(words, number_of))
        if len(waiting) >= WORDS_AT_ONCE + overlap:
            yield np.array(waiting, dtype=np.int64)
            waiting = waiting[-overlap:]
    yield np.array(waiting, dtype=np.int64)


def _with_different(
    owners: np.ndarray, cells: np.ndarray, offsets: np.ndarray, needed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Texts and cells, with hits for at least ``needed`` (N,) different n-grams of a text in a cell."""
    different = np.unique(np.stack([owners, cells, offsets]), axis=1)
    (rows, columns), counts = np.unique(different[:2], axis=1, return_counts=True)
    enough = counts >= needed[rows]
    return rows[enough], columns[enough]


def _ngram_hashes(words: np.ndarray) -> np.ndarray:
    """(W - 4,) a number of ``HASH_BITS`` bits for each 5-gram of ``words`` (W,) int64."""
    mixed = words.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    total = np.zeros(max(len(words) - SHORTEST_FOUND + 1, 0), dtype=np.uint64)
    for start in range(SHORTEST_FOUND):
        total = total * np.uint64(0x100000001B3) + mixed[start : start + len(total)]
    return total >> np.uint64(64 - HASH_BITS)
