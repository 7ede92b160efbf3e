"""Token shards as one text that pretraining reads, without ever being whole in memory or, if it lies elsewhere, on this disk.

Each shard is mapped into memory when one of its rows is first read. Notable:

- At the start of a run every local shard must be there with its size. The first time a shard is read, every byte of it is checked.
- A shard elsewhere is brought to ``cache`` when one of its rows is read; of these copies the last ``LOCAL_COPIES`` are kept. The
  order of rows (``order.py``) reads few shards at a time, so that each comes once in an epoch.
- A row lies in one shard. The last tokens of a shard, fewer than a row, are read only where rows may be ragged.

Letters: B rows, T predicted tokens of a row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.corpora.order import SHARDS_AT_ONCE, ShardOrder
from warmstart.data.tokenized_text import gather
from warmstart.errors import DataError
from warmstart.system.storage import file_sha256, sha256
from warmstart.system.urls import bring, is_url

LOCAL_COPIES = 2 * SHARDS_AT_ONCE
"""shards from elsewhere that lie on this disk at a time"""
MAPPED = 16
"""shards that are mapped into memory at a time"""
TOKENS_AT_ONCE = 1 << 22
"""tokens that are checked at a time"""


@dataclass(frozen=True)
class Shard:
    """One shard, of any form."""

    place: str
    """its path, or its URL"""
    tokens: int
    dtype: str
    documents: int | None
    """None: it does not say where documents end"""
    sha256: str | None = None
    """None: it is not known"""
    header: int = 0
    """bytes before the first token"""
    ends: str | None = None
    """path or URL of the (documents,) uint64 ends of its documents; None: they end with [EOS]"""
    unknown: int | None = None

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.header + self.tokens * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class TokenShards:
    """Shards of one tokenizer as a text (``TokenizedText``)."""

    shards: tuple[Shard, ...]
    vocab_size: int
    eos: int
    unk: int
    digest: str
    """a hash of all shards"""
    cache: Path
    """folder for copies of shards from elsewhere"""
    words: int | None = None
    bytes: int | None = None
    unknown: int | None = None

    @cached_property
    def documents(self) -> int | None:
        """Number of documents; None if a shard does not say where they end."""
        known = [one.documents for one in self.shards if one.documents is not None]
        return sum(known) if len(known) == len(self.shards) else None

    @cached_property
    def total_tokens(self) -> int:
        """All tokens."""
        return sum(one.tokens for one in self.shards)

    @property
    def predicted_tokens(self) -> int:
        """All but the first token of each shard."""
        return self.total_tokens - len(self.shards)

    def check_places(self) -> None:
        """Raise ``DataError`` unless every shard on this machine is there, and has its size."""
        for shard in self.shards:
            if is_url(shard.place):
                continue
            try:
                size = Path(shard.place).stat().st_size
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
            return ShardOrder([one.documents or 0 for one in self.shards], seed, epoch)
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

    @cached_property
    def _copies(self) -> OrderedDict[str, Path]:
        """Those that earlier processes left, too; the oldest first."""
        places = [place for shard in self.shards for place in (shard.place, shard.ends) if place and is_url(place)]
        found = [(copy.stat().st_mtime, place, copy) for place in places if (copy := self._copy_of(place)).exists()]
        return OrderedDict((place, copy) for _, place, copy in sorted(found))

    def _copy_of(self, place: str) -> Path:
        """Where the copy of a shard lies: of one without a hash of its own, by the text that it is part of."""
        name = place if place in self._hashed else f"{self.digest}/{place}"
        return self.cache / f"{sha256(name.encode())[:24]}.shard"

    @cached_property
    def _hashed(self) -> frozenset[str]:
        """Places of shards whose hash is known."""
        return frozenset(shard.place for shard in self.shards if shard.sha256)

    def _map(self, number: int) -> np.ndarray:
        try:
            return self._mapped(number)
        except FileNotFoundError:  # another process has removed the copy, to make place for one of its own
            return self._mapped(number)

    def _mapped(self, number: int) -> np.ndarray:
        shard = self.shards[number]
        try:
            file = self._local(shard.place, shard.bytes, shard.sha256)
            size = file.stat().st_size
            if size != shard.bytes:
                raise DataError(f"the shard {shard.place} must have {shard.bytes:,} bytes, but has {size:,}; {_AGAIN}")
            tokens = np.memmap(
                file, dtype=np.dtype(shard.dtype).newbyteorder("<"), mode="r", offset=shard.header, shape=(shard.tokens,)
            )
            if number not in self._checked:
                self._check(shard, file, tokens)
                self._checked.add(number)
            return tokens
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and is_url(shard.place) and shard.place in self._copies:
                del self._copies[shard.place]
                raise
            raise DataError(f"the shard {shard.place} cannot be read: {error}; {_AGAIN}") from None

    def _check(self, shard: Shard, file: Path, tokens: np.ndarray) -> None:
        """Every byte of a shard, against its index and the vocabulary."""
        if shard.sha256 is not None and not is_url(shard.place) and file_sha256(file) != shard.sha256:
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
                "name the tokenizer it was made with (--tokenizer-file), and the right --token-size"
            )
        if shard.unknown is not None and (ends, unknown) != ((shard.documents or 0) + 1, shard.unknown):
            raise DataError(
                f"the shard {shard.place} must hold {shard.documents} documents and {shard.unknown} unknown tokens, as its index "
                f"says, but holds {ends - 1} and {unknown}; {_AGAIN}"
            )

    def _find_bounds(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        shard, tokens = self.shards[number], self._tokens(number)
        if shard.ends is None:
            marks = [
                np.flatnonzero(tokens[at : at + TOKENS_AT_ONCE] == self.eos) + at for at in range(0, len(tokens), TOKENS_AT_ONCE)
            ]
            edges = np.concatenate(marks)
            return edges[:-1] + 1, edges[1:]
        ends = np.fromfile(self._local(shard.ends, None, None), dtype="<u8").astype(np.int64)
        if len(ends) != shard.documents or len(ends) == 0 or ends[-1] > len(tokens) or (np.diff(ends, prepend=0) < 0).any():
            raise DataError(
                f"{shard.ends} must hold the ends of {shard.documents} documents in ascending order, but does not; {_AGAIN}"
            )
        starts = np.concatenate([[0], ends[:-1]])
        return starts, ends - ((ends > starts) & (tokens[np.maximum(ends - 1, 0)] == self.eos))

    def _local(self, place: str, size: int | None, digest: str | None) -> Path:
        """The file of a shard on this disk; one from elsewhere is brought, and the oldest copy goes."""
        if not is_url(place):
            return Path(place)
        copy = self._copies.pop(place, None) or self._copy_of(place)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            bring(place, copy, size, digest)
        elif digest is not None and place not in self._seen and file_sha256(copy) != digest:
            bring(place, copy, size, digest)
        self._seen.add(place)
        self._copies[place] = copy
        while len(self._copies) > LOCAL_COPIES:
            self._copies.popitem(last=False)[1].unlink(missing_ok=True)
        return copy

    @cached_property
    def _seen(self) -> set[str]:
        """Copies that were found whole in this process."""
        return set()

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
