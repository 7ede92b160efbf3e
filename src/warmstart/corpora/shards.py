"""Token shards as one text that pretraining reads, without ever being whole in memory.

Each shard is mapped into memory when one of its rows is first read. Notable:

- At the start of a run every shard must be there with its size. The first time a shard is read, every byte of it is checked.
- The order of rows (``order.py``) reads few shards at a time.
- A row lies in one shard. The last tokens of a shard, fewer than a row, are read only where rows may be ragged.

Letters: B rows, T predicted tokens of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.corpora.order import ShardOrder
from warmstart.data.token_store import gather
from warmstart.errors import DataError
from warmstart.system.storage import file_sha256

MAPPED = 16
"""shards that are mapped into memory at a time"""
TOKENS_AT_ONCE = 1 << 22
"""tokens that are checked at a time"""


@dataclass(frozen=True)
class Shard:
    """One shard."""

    place: Path
    tokens: int
    dtype: str
    documents: int
    sha256: str
    unknown: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.tokens * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class TokenShards:
    """Shards of one tokenizer as a text (``TokenizedText``)."""

    shards: tuple[Shard, ...]
    vocab_size: int
    eos: int
    unk: int
    digest: str
    """a hash of all shards"""
    words: int
    bytes: int

    @cached_property
    def documents(self) -> int:
        """Number of documents."""
        return sum(one.documents for one in self.shards)

    @cached_property
    def unknown(self) -> int:
        """Number of unknown tokens."""
        return sum(one.unknown for one in self.shards)

    @cached_property
    def total_tokens(self) -> int:
        """All tokens."""
        return sum(one.tokens for one in self.shards)

    @property
    def predicted_tokens(self) -> int:
        """All but the first token of each shard."""
        return self.total_tokens - len(self.shards)

    def check_places(self) -> None:
        """Raise ``DataError`` unless every shard is there, and has its size."""
        for shard in self.shards:
            try:
                size = shard.place.stat().st_size
            except OSError as error:
                raise DataError(
                    f"the shard {shard.place} cannot be read ({error.strerror}); copy it again, or tokenize again"
                ) from None
            if size != shard.bytes:
                raise DataError(f"the shard {shard.place} must have {shard.bytes:,} bytes, but has {size:,}; {_AGAIN}")

    def rows(self, length: int, *, ragged: bool = False) -> int:
        """The number of rows of ``length`` predicted tokens; with ``ragged`` the shorter last row of each shard counts too."""
        return int(self._counts(length, ragged).sum())

    @cached_property
    def _counts(self) -> Callable[[int, bool], np.ndarray]:
        """Length of rows, and whether the last may be shorter -> (shards,) rows of each."""
        predicted = np.array([one.tokens - 1 for one in self.shards], dtype=np.int64)
        return lru_cache(maxsize=4)(lambda length, ragged: -(-predicted // length) if ragged else predicted // length)

    def row_block(self, indices: np.ndarray, length: int, pad_id: int, *, ragged: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Rows by number: ids (B, T + 1) int64, and the number of ids of each row that are not padding (B,).

        As in a token store, each row of a shard begins with the last token of the row before it.
        """

        def read(shard: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            tokens, starts = self._tokens(shard), numbers * length
            return gather(tokens, starts, np.minimum(length + 1, len(tokens) - starts), length + 1, pad_id)

        return _by_shard(indices, self._counts(length, ragged), length + 1, read)

    def documents_block(self, indices: np.ndarray, length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Documents by number: ids (B, ``length``) int64, and the number of ids of each row that are not padding (B,).

        A row is ``[EOS] text [EOS]``, cut at ``length`` and padded with ``pad_id``.
        """

        def read(shard: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            starts, ends = (bounds[numbers] for bounds in self._bounds(shard))
            inside, _ = gather(self._tokens(shard), starts, np.minimum(length - 1, ends - starts), length - 1, pad_id)
            ids = np.concatenate([np.full((len(numbers), 1), self.eos), inside], axis=1)
            whole = np.flatnonzero(ends - starts + 2 <= length)
            ids[whole, (ends - starts)[whole] + 1] = self.eos
            return ids, np.minimum(length, ends - starts + 2)

        return _by_shard(indices, np.array([one.documents for one in self.shards], dtype=np.int64), length, read)

    def order(self, seed: int, epoch: int, length: int | None) -> ShardOrder:
        """The order of an epoch, for rows of ``length`` predicted tokens; None: for rows of one document."""
        if length is None:
            return ShardOrder([one.documents for one in self.shards], seed, epoch)
        return ShardOrder(self._counts(length, False).tolist(), seed, epoch)

    # ------------------------------------------------------------------------------------------------ single shards

    @cached_property
    def _tokens(self) -> Callable[[int], np.ndarray]:
        """Shard number -> its tokens, mapped into memory."""
        return lru_cache(maxsize=MAPPED)(self._map)

    @cached_property
    def _bounds(self) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
        """Shard number -> the first token of each document, and the token behind its last."""
        return lru_cache(maxsize=MAPPED)(self._find_bounds)

    @cached_property
    def _checked(self) -> set[int]:
        return set()

    def _map(self, number: int) -> np.ndarray:
        shard = self.shards[number]
        try:
            size = shard.place.stat().st_size
            if size != shard.bytes:
                raise DataError(f"the shard {shard.place} must have {shard.bytes:,} bytes, but has {size:,}; {_AGAIN}")
            tokens = np.memmap(shard.place, dtype=np.dtype(shard.dtype).newbyteorder("<"), mode="r", shape=(shard.tokens,))
            if number not in self._checked:
                self._check(shard, tokens)
                self._checked.add(number)
            return tokens
        except (OSError, ValueError) as error:
            raise DataError(f"the shard {shard.place} cannot be read: {error}; {_AGAIN}") from None

    def _check(self, shard: Shard, tokens: np.ndarray) -> None:
        """Every byte of a shard, against its index and the vocabulary."""
        if file_sha256(shard.place) != shard.sha256:
            raise DataError(f"the shard {shard.place} was changed after it was written; {_AGAIN}")
        ends = unknown = highest = 0
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            part = np.asarray(tokens[start : start + TOKENS_AT_ONCE])
            highest = max(highest, int(part.max()))
            ends += int((part == self.eos).sum())
            unknown += int((part == self.unk).sum())
        if highest >= self.vocab_size:
            raise DataError(
                f"every token of {shard.place} must be below {self.vocab_size}, the size of the vocabulary, but one is {highest}; "
                f"{_AGAIN}"
            )
        if (ends, unknown) != (shard.documents + 1, shard.unknown):
            raise DataError(
                f"the shard {shard.place} must hold {shard.documents} documents and {shard.unknown} unknown tokens, as its index "
                f"says, but holds {ends - 1} and {unknown}; {_AGAIN}"
            )

    def _find_bounds(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = self._tokens(number)
        marks = [np.flatnonzero(tokens[at : at + TOKENS_AT_ONCE] == self.eos) + at for at in range(0, len(tokens), TOKENS_AT_ONCE)]
        edges = np.concatenate(marks)
        return edges[:-1] + 1, edges[1:]

    def __reduce__(self) -> tuple[Any, ...]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return partial(type(self), **values), ()  # another process maps the same files


_AGAIN = "copy it again, or tokenize the text again"


def _by_shard(
    indices: np.ndarray, counts: np.ndarray, width: int, read: Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are numbered through all shards: each shard reads its own, and they come together in the order of ``indices``."""
    indices, ends = np.asarray(indices, dtype=np.int64), np.cumsum(counts)
    assert len(indices) == 0 or (indices.min() >= 0 and indices.max() < ends[-1]), f"rows must be below {ends[-1]}"
    owners = np.searchsorted(ends, indices, "right")
    ids, lengths = np.empty((len(indices), width), dtype=np.int64), np.empty(len(indices), dtype=np.int64)
    for shard in np.unique(owners):
        own = owners == shard
        ids[own], lengths[own] = read(int(shard), indices[own] - (ends[shard] - counts[shard]))
    return ids, lengths


def same_tokenizer(digests: Sequence[str], places: Sequence[str]) -> None:
    """Raise ``DataError`` unless all shards are of one tokenizer."""
    for digest, place in zip(digests, places, strict=True):
        if digest != digests[0]:
            raise DataError(
                f"all shards must be of one tokenizer, but those of {place} are of another than those of {places[0]}; "
                "tokenize one of them again with the tokenizer.json of the other (--tokenizer-file)"
            )
