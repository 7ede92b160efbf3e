"""Near-duplicate documents of a text of any size, found by sketches on disk.

A document's shingles are its word 5-grams, or its word 2-grams with the ends if it has fewer than ``LONG`` / 2 words.
Its sketch is the ``SKETCH`` smallest hashes of them (bottom-k: Broder 1997, "On the resemblance and containment of documents").
From two sketches the ``SKETCH`` smallest hashes of both documents together are known, and J is about the fraction of these that is
in both: exact for documents with no more shingles than that, else with a standard error of at most 0.06. Two documents are compared
if one of their ``SKETCH_PROBES`` smallest hashes is the same, which with J = 1/2 fails for at most one pair in 250, with J = 3/4
for one in 65,000; of many documents with one common hash, each is compared with the first ``FIRST_OF_MANY``. As everywhere, they
are nearly the same from J = 1/2 on. Of documents that are nearly the same, the first is kept.

Memory holds ``HASHES_AT_ONCE`` hashes, however many documents there are; the disk 512 bytes for each document.

Letters: N documents of a piece, K hashes of a sketch, P pairs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from warmstart.data.near_duplicates import LONG, SHORTEST, SIMILAR, ngram_hashes
from warmstart.data.text_key import text_words
from warmstart.errors import DataError
from warmstart.system.storage import atomic_folder

SKETCH = 64
"""hashes of a document that are kept"""
SKETCH_PROBES = 8
"""of these, the smallest, by which documents find each other"""
HASHES_AT_ONCE = 1 << 18
"""hashes in memory, of all documents"""
FIRST_OF_MANY = 16
"""documents with a common hash that each later one is compared with"""
CANDIDATES_AT_ONCE = 1 << 11
"""pairs whose sketches are in memory"""
DOCUMENTS_AT_ONCE = 1 << 13
"""documents whose sketches are in memory"""
NO_HASH = np.uint64((1 << 64) - 1)
"""fills up the sketch of a document with fewer shingles"""


def sketch(text: str) -> np.ndarray:
    """(K,) uint64 in ascending order; nothing but ``NO_HASH`` for a text too short to be like another."""
    words = text_words(text)
    found = np.full(SKETCH, NO_HASH)
    if len(words) < SHORTEST:
        return found
    numbers = np.array([zlib.crc32(word.encode(errors="replace")) + 1 for word in words], dtype=np.int64)
    size = 5 if len(words) >= LONG // 2 else 2
    if size == 2:
        numbers = np.concatenate([[0], numbers, [0]])
    hashes = np.unique(_scattered(ngram_hashes(numbers, size).astype(np.uint64) * np.uint64(8) + np.uint64(size)))[:SKETCH]
    found[: len(hashes)] = hashes
    return found


def _scattered(hashes: np.ndarray) -> np.ndarray:
    """Hashes whose order has nothing to do with that of the n-grams."""
    mixed = (hashes ^ (hashes >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.minimum(mixed ^ (mixed >> np.uint64(32)), NO_HASH - np.uint64(1))


def write_sketches(texts: Iterable[str], folder: Path) -> None:
    """The sketches of a piece as a folder of (N, K) files with ``DOCUMENTS_AT_ONCE`` documents each, and their sorted probes."""
    with atomic_folder(folder) as aside:
        for number, rows in enumerate(_batched(map(sketch, texts))):
            probes = rows[:, :SKETCH_PROBES].ravel()
            owners = np.repeat(np.arange(len(rows), dtype=np.uint64), SKETCH_PROBES)
            order = np.flatnonzero(probes != NO_HASH)
            order = order[np.argsort(probes[order], kind="stable")]
            np.save(aside / f"{number:05}.sketches.npy", rows)
            np.save(aside / f"{number:05}.probes.npy", np.stack([probes[order], owners[order]]))


def _batched(rows: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Sketches in arrays of ``DOCUMENTS_AT_ONCE``."""
    while found := list(islice(rows, DOCUMENTS_AT_ONCE)):
        yield np.stack(found)


@dataclass(frozen=True)
class _Sketches:
    """Those of up to ``DOCUMENTS_AT_ONCE`` documents, on disk."""

    file: Path
    first: int
    """number of the first document"""
    documents: int
    hashes: int
    """by which they find each other"""

    @property
    def rows(self) -> np.ndarray:
        """(N, K), mapped anew each time: a map takes a file handle, of which there are few."""
        return _mapped(self.file)

    @property
    def probes(self) -> np.ndarray:
        """(2, H) hashes in ascending order, and the document of each; mapped in the same way."""
        return _mapped(_probes_of(self.file))

    @classmethod
    def read(cls, file: Path, first: int) -> _Sketches:
        """The sketches in a file. Raises ``DataError`` if they are damaged."""
        try:
            rows, probes = _mapped(file), _mapped(_probes_of(file))
            if rows.shape[1:] != (SKETCH,) or len(probes) != 2 or (len(probes[1]) and probes[1].max() >= len(rows)):
                raise ValueError(f"they have the shapes {rows.shape} and {probes.shape}")
            return cls(file, first, len(rows), probes.shape[1])
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"the sketches {file} cannot be read: {error}; remove {file.parent}, and they are made again") from None


def _mapped(file: Path) -> np.ndarray:
    """An array on disk."""
    found: np.ndarray = np.load(file, mmap_mode="r")
    return found


def _probes_of(file: Path) -> Path:
    return file.with_name(file.name.replace(".sketches.", ".probes."))


def near_copies(folders: Sequence[Path]) -> list[np.ndarray]:
    """For each piece (N,) bool: documents that are nearly the same as one before them, in the same piece or an earlier one."""
    found, firsts = list[_Sketches](), [0]
    for folder in folders:
        first = firsts[-1]
        for file in sorted(folder.glob("*.sketches.npy")):
            found.append(_Sketches.read(file, first))
            first += found[-1].documents
        firsts.append(first)
    copies = np.zeros(firsts[-1], dtype=bool)  # one byte for each document
    for earlier, later in _candidates(found):
        new = ~copies[later]
        earlier, later = earlier[new], later[new]
        for start in range(0, len(earlier), CANDIDATES_AT_ONCE):
            part = slice(start, start + CANDIDATES_AT_ONCE)
            near = _similarity(_rows(found, earlier[part]), _rows(found, later[part])) >= SIMILAR
            copies[later[part][near]] = True
    return [copies[start:end] for start, end in pairwise(firsts)]


def _candidates(found: Sequence[_Sketches]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(P,) documents and (P,) later ones with a common hash among their smallest, from one range of hashes after the other.

    The smallest of many hashes lie close to 0, so that the ranges are those of equal numbers in a sample.
    """
    total = sum(one.hashes for one in found)
    count = -(-total // HASHES_AT_ONCE)
    if not count:
        return
    sample = np.sort(np.concatenate([np.array(one.probes[0, :: 64 * count]) for one in found]))
    cuts = [np.uint64(0), *(sample[len(sample) * i // count] for i in range(1, count)), NO_HASH]
    for low, high in pairwise(cuts):
        hashes, owners = [], []
        for one in found:
            probes = one.probes
            own = slice(*np.searchsorted(probes[0], np.array([low, high])))
            hashes.append(np.array(probes[0, own]))
            owners.append(probes[1, own].astype(np.int64) + one.first)
        yield from _pairs(np.concatenate(hashes), np.concatenate(owners))


def _pairs(hashes: np.ndarray, owners: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The pairs of owners of one hash: each with the first, then each with the second, and so on up to ``FIRST_OF_MANY``."""
    order = np.lexsort((owners, hashes))
    hashes, owners = hashes[order], owners[order]
    new = np.append(True, hashes[1:] != hashes[:-1]) if len(hashes) else np.empty(0, dtype=bool)
    start = np.maximum.accumulate(np.where(new, np.arange(len(hashes)), 0))
    place = np.arange(len(hashes)) - start
    for offset in range(FIRST_OF_MANY):
        own = np.flatnonzero(place > offset)
        if not len(own):
            return
        pairs = np.unique(np.stack([owners[start[own] + offset], owners[own]]), axis=1)
        yield pairs[0], pairs[1]


def _rows(found: Sequence[_Sketches], documents: np.ndarray) -> np.ndarray:
    """(P, K) the sketches of some documents."""
    rows = np.empty((len(documents), SKETCH), dtype=np.uint64)
    owners = np.searchsorted([one.first for one in found], documents, "right") - 1
    for number in np.unique(owners):
        own, one = owners == number, found[number]
        rows[own] = one.rows[documents[own] - one.first]
    return rows


def _similarity(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(P,) about J: of the K smallest different hashes in both sketches (P, K), the fraction that is in both."""
    both = np.sort(np.concatenate([one, other], axis=1), axis=1)
    different = np.concatenate([np.ones((len(both), 1), dtype=bool), both[:, 1:] != both[:, :-1]], axis=1) & (both != NO_HASH)
    repeated = ~different & (both != NO_HASH)
    rank = np.cumsum(different, axis=1)
    known = np.minimum(rank[:, -1], SKETCH)
    similarity: np.ndarray = (repeated & (rank <= SKETCH)).sum(axis=1) / np.maximum(known, 1)
    return similarity
