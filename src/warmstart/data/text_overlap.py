"""Which texts occur in a large plain text, such as the one that a model was pretrained on, and in which documents.

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

from warmstart.data.near_duplicates import contained_pairs, ngram_hashes

SHORTEST_FOUND = 5
"""words, and those of an n-gram; shorter texts occur anywhere, and are not looked for"""
SHORTEST_NEAR = 14
"""words; one other word in a shorter text changes more than half of its 5-grams"""
WORDS_AT_ONCE = 1 << 20
"""words of the plain text that are searched at once"""


def occurrences(texts: Sequence[Sequence[str]], documents: Iterable[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) bool: texts that occur word for word; (N,) bool: others that nearly do. Everything is given as words.

    Neighbouring documents are read as one. A text of 14 words or more is found although one word was changed.

    >>> exact, near = occurrences([["a", "b", "c", "d", "e"]], [["x", "a", "b"], ["c", "d", "e"]])
    >>> exact.tolist(), near.tolist()
    ([True], [False])
    """
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    wanted = lengths - SHORTEST_FOUND + 1
    exact, near = np.zeros(len(texts), dtype=bool), np.zeros(len(texts), dtype=bool)
    number_of: defaultdict[str, int] = defaultdict(count(1).__next__)
    ngrams = _Ngrams.of(np.fromiter(map(number_of.__getitem__, chain.from_iterable(texts)), np.int64, int(lengths.sum())), lengths)
    for words in _parts(documents, dict(number_of), overlap=2 * int(lengths.max(initial=1))):
        owners, offsets, positions = ngrams.find(words)
        shifts, width = positions - offsets + lengths[owners], lengths[owners]
        exact |= _have_different(owners, shifts, offsets, wanted)
        for start in (0, width // 2):  # two grids: shifts that differ by less than half the width are in one cell of either
            near |= _have_different(owners, (shifts + start) // width, offsets, -(-wanted // 2))
    return exact, near & ~exact


def documents_with(texts: Sequence[Sequence[str]], documents: Sequence[Sequence[str]], shortest_near: int = 0) -> np.ndarray:
    """(D,) bool: documents in which one of the texts occurs or nearly does, by half of its 5-grams. Everything is given as words.

    Texts of fewer than ``shortest_near`` words must occur with all of their 5-grams.

    >>> documents_with([["a", "b", "c", "d", "e"]], [["x", "a", "b", "c", "d", "e"], ["a", "b", "c"]]).tolist()
    [True, False]
    """
    found = np.zeros(len(documents), dtype=bool)
    needed = np.array([0.5 if len(text) >= shortest_near else 1.0 for text in texts])
    for rows, columns, contained in contained_pairs(texts, documents, SHORTEST_FOUND):
        found[columns[contained >= needed[rows]]] = True
    return found


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
        hashes = ngram_hashes(words, SHORTEST_FOUND)
        owners = np.repeat(np.arange(len(lengths)), lengths)[: len(hashes)]
        offsets = np.arange(len(hashes)) - (np.cumsum(lengths) - lengths)[owners]
        inside = offsets <= lengths[owners] - SHORTEST_FOUND
        order = np.flatnonzero(inside)[np.argsort(hashes[inside], kind="stable")]
        return cls(hashes[order], owners[order], offsets[order])

    def find(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every hit in words (S,): (H,) texts, (H,) positions in the text, (H,) positions in the words."""
        hashes = ngram_hashes(words, SHORTEST_FOUND)
        start = np.searchsorted(self.hashes, hashes, "left")
        found = np.searchsorted(self.hashes, hashes, "right") - start
        ngrams = np.repeat(start - np.cumsum(found) + found, found) + np.arange(found.sum())
        return self.owners[ngrams], self.offsets[ngrams], np.repeat(np.arange(len(hashes)), found)


def _parts(documents: Iterable[Sequence[str]], number_of: Mapping[str, int], overlap: int) -> Iterator[np.ndarray]:
    """The words of all documents as numbers, 0 if no text has them; each part begins with the end of the one before."""
    waiting: list[int] = []
    for words in documents:
        waiting.extend(map(number_of.get, words, repeat(0)))
        if len(waiting) >= WORDS_AT_ONCE + overlap:
            yield np.array(waiting, dtype=np.int64)
            waiting = waiting[-overlap:]
    yield np.array(waiting, dtype=np.int64)


def _have_different(owners: np.ndarray, cells: np.ndarray, offsets: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """(N,) bool: the texts that have hits for at least ``needed`` (N,) of their n-grams in one cell."""
    different, rows = np.unique(np.stack([owners, cells, offsets]), axis=1), np.zeros(len(needed), dtype=bool)
    both, counts = np.unique(different[:2], axis=1, return_counts=True)
    rows[both[0][counts >= needed[both[0]]]] = True
    return rows
