"""A folder of tokenised text: shards of tokens, and an index that says what each holds.

    index.json       the index, sealed
    tokenizer.json   the tokenizer of all shards
    shards/00000/    the shards of one piece of the text: raw token ids, uint16 or uint32, lowest byte first

A shard is ``[EOS] text [EOS] text [EOS]``. The index is written last: a folder without it is not complete. A text that is not cut
into pieces is one shard. The shards of one side, training or held out, are read as one text, which is never whole in memory:

- At the start of a run every shard must be there with its size. It is mapped into memory when one of its rows is first read, and
  then every byte of it is checked.
- A row lies in one shard. The last tokens of a shard, fewer than a row, are read only where rows may be ragged.

Letters: B rows, T predicted tokens of a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from warmstart.config import Config
from warmstart.corpora.order import ShardOrder
from warmstart.errors import ConfigError, DataError
from warmstart.notebook import Shown
from warmstart.seeding import rng
from warmstart.system.limits import TOKENIZER_BYTES
from warmstart.system.storage import SEAL, atomic_write, file_sha256, inside, require_format, sealed, sha256, unsealed
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer

SHARD_INDEX, TOKENIZER = "index.json", "tokenizer.json"
INDEX_BYTES = TOKENIZER_BYTES
"""largest size of an index, which may come from a stranger: about two hundred thousand shards"""
MAPPED = 16
"""shards that are mapped into memory at a time"""
TOKENS_AT_ONCE = 1 << 22
"""tokens that are checked at a time"""
_AGAIN = "copy it again, or tokenize the text again"


class TextCounts(Config):
    """Sizes of a text."""

    tokens: int = Field(0, ge=0)
    documents: int = Field(0, ge=0)
    words: int = Field(0, ge=0)
    bytes: int = Field(0, ge=0)
    unknown: int = Field(0, ge=0)


class ShardEntry(TextCounts):
    """One shard."""

    name: str
    """path in the folder"""
    held_out: bool = False
    """the documents of the shard are held out"""
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class LeftOut(Config):
    """Documents that are in no shard."""

    test_texts: int = Field(0, ge=0)
    """documents in which a test or validation text of the task occurs"""
    empty: int = Field(0, ge=0)
    """documents that become no token"""


class ShardIndex(Shown, Config, view="report.notebook:shards_view"):
    """Index of all shards of a folder."""

    format: int
    tokenizer: str
    """digest of the tokenizer"""
    dtype: Literal["uint16", "uint32"]
    document: str
    """unit of the text that is one document"""
    held_out: float | None
    """fraction of the documents that is held out; None: nothing is"""
    one_shard: bool = False
    """each side is one shard, whose rows an epoch shuffles whole"""
    filters: tuple[str, ...] = ()
    """descriptions of the documents left out"""
    left_out: LeftOut = LeftOut()
    shards: tuple[ShardEntry, ...] = Field(min_length=1)

    def side(self, *, held_out: bool) -> tuple[ShardEntry, ...]:
        """The shards that are held out, or those that are not."""
        return tuple(shard for shard in self.shards if shard.held_out == held_out)

    def counts(self, *, held_out: bool) -> TextCounts:
        """Sizes of one side."""
        return total_counts(self.side(held_out=held_out))

    def write(self, folder: Path) -> None:
        """Write ``index.json``, atomically."""
        atomic_write(
            folder / SHARD_INDEX, (json.dumps(sealed(self.to_dict()), indent=1) + "\n").encode(), "the index of the shards"
        )


def total_counts(shards: Sequence[TextCounts]) -> TextCounts:
    """Sizes of several shards together."""
    return TextCounts(**{name: sum(getattr(shard, name) for shard in shards) for name in TextCounts.model_fields})


def read_index(data: bytes, where: str) -> ShardIndex:
    """The index in the bytes of ``index.json``. Raises ``DataError`` if it is damaged, of another format or names no shard."""
    try:
        if len(data) > INDEX_BYTES:
            raise ValueError(f"it must have at most {INDEX_BYTES:,} bytes, but has {len(data):,}")
        values: dict[str, Any] = unsealed(data)
        require_format(values, where, DataError)
        index = ShardIndex.build(values, where)
    except (ValueError, TypeError, ConfigError) as error:
        raise DataError(
            f"the index of the shards, {where}, cannot be used: {error}; copy it again, or tokenize the text again"
        ) from None
    repeated = len(index.shards) - len({shard.name for shard in index.shards})
    if repeated:
        raise DataError(f"each shard must be named once in {where}, but {repeated} are repeated; tokenize the text again")
    return index


def is_whole(folder: Path, entry: ShardEntry) -> bool:
    """Whether a shard is there, byte for byte as it was written."""
    file = folder / entry.name
    return file.is_file() and file_sha256(file) == entry.sha256


@dataclass(frozen=True)
class TokenFolder:
    """A folder of shards with its index."""

    place: Path
    index: ShardIndex

    @classmethod
    def open(cls, place: Path) -> TokenFolder | None:
        """The folder, if it is one of shards; None if it is other text. Raises ``DataError`` if it is not complete, or damaged."""
        file = place / SHARD_INDEX
        if not file.is_file():
            if (place / "shards").is_dir() and (place / TOKENIZER).is_file():
                raise DataError(
                    f"{place} holds shards without an {SHARD_INDEX}: they are not complete; run the same tokenize command again"
                )
            return None
        if file.stat().st_size > INDEX_BYTES:
            return None
        data = file.read_bytes()
        ours = f'"{SEAL}"'.encode() in data and b'"shards"' in data  # other programs call theirs index.json, too
        return cls(place, read_index(data, str(file))) if ours else None

    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the shards. Raises ``DataError`` if it is not that of the index."""
        tokenizer = load_tokenizer(self.place / TOKENIZER)
        if tokenizer.digest != self.index.tokenizer:
            raise DataError(f"{self.place}/{TOKENIZER} must be the tokenizer of its shards, but is another; copy it again")
        return tokenizer

    def shards(self, *, held_out: bool) -> list[Shard]:
        """The shards of one side."""
        try:
            return [Shard(inside(self.place, entry.name), self.index.dtype, entry) for entry in self.index.side(held_out=held_out)]
        except ValueError as error:
            raise DataError(f"the index of the shards of {self.place} cannot be used: {error}") from None


def text_of_shards(folders: Sequence[TokenFolder], tokenizer: Tokenizer, *, held_out: bool) -> TokenText | None:
    """One side of the shards of some folders; None if it is empty. Raises ``DataError`` if a shard is not there."""
    shards = tuple(shard for folder in folders for shard in folder.shards(held_out=held_out))
    if not shards:
        return None
    one_shard = len(shards) == 1 and folders[0].index.one_shard
    text = TokenText(shards, tokenizer.vocab_size, tokenizer.specials.eos, tokenizer.specials.unk, one_shard)
    text.check_places()
    return text


@dataclass(frozen=True)
class Shard:
    """One shard."""

    place: Path
    dtype: str
    entry: ShardEntry

    def check_size(self) -> None:
        """Raise ``DataError`` unless it is there, and has its size."""
        expected = self.entry.tokens * np.dtype(self.dtype).itemsize
        try:
            size = self.place.stat().st_size
        except OSError as error:
            raise DataError(f"the shard {self.place} cannot be read ({error.strerror}); copy it again, or tokenize again") from None
        if size != expected:
            raise DataError(f"the shard {self.place} must have {expected:,} bytes, but has {size:,}; {_AGAIN}")


@dataclass(frozen=True, eq=False)
class TokenText:
    """The tokens of some shards as one text that is read by rows."""

    shards: tuple[Shard, ...]
    vocab_size: int
    eos: int
    unk: int
    one_shard: bool = False
    """an epoch shuffles the rows of its one shard whole"""

    @cached_property
    def counts(self) -> TextCounts:
        """Sizes of all shards together."""
        return total_counts([shard.entry for shard in self.shards])

    @cached_property
    def digest(self) -> str:
        """A hash of the tokens."""
        hashes = [shard.entry.sha256 for shard in self.shards]
        return hashes[0] if self.one_shard else sha256("/".join(hashes).encode())

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.counts.documents

    @property
    def total_tokens(self) -> int:
        """All tokens, those between documents included."""
        return self.counts.tokens

    @property
    def predicted_tokens(self) -> int:
        """The number of tokens that a language model predicts in it: all but the first of each shard."""
        return self.total_tokens - len(self.shards)

    def check_places(self) -> None:
        """Raise ``DataError`` unless every shard is there, and has its size."""
        for shard in self.shards:
            shard.check_size()

    def rows(self, length: int, *, ragged: bool = False) -> int:
        """The number of rows of ``length`` predicted tokens; with ``ragged`` the shorter last row of each shard counts too."""
        return int(self._rows_of_shards(length, ragged).sum())

    @cached_property
    def _rows_of_shards(self) -> Callable[[int, bool], np.ndarray]:
        """Length of rows, and whether the last may be shorter -> (shards,) rows of each."""
        predicted = np.array([shard.entry.tokens - 1 for shard in self.shards], dtype=np.int64)
        return lru_cache(maxsize=4)(lambda length, ragged: -(-predicted // length) if ragged else predicted // length)

    @cached_property
    def _documents_of_shards(self) -> np.ndarray:
        return np.array([shard.entry.documents for shard in self.shards], dtype=np.int64)

    def row_block(self, indices: np.ndarray, length: int, pad_id: int, *, ragged: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Rows by number: ids (B, T + 1) int64, and the number of ids of each row that are not padding (B,).

        Each row of a shard begins with the last token of the row before it, so that every token is predicted exactly once. With
        T = 2 the tokens ``[0 1 2 3 4 5]`` are the rows ``[0 1 2]``, ``[2 3 4]``, and, if ``ragged``, ``[4 5 pad]``.
        """

        def read(shard: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            tokens, starts = self.tokens(shard), numbers * length
            return _gather(tokens, starts, np.minimum(length + 1, len(tokens) - starts), length + 1, pad_id)

        return _by_shard(indices, self._rows_of_shards(length, ragged), length + 1, read)

    def documents_block(self, indices: np.ndarray, length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Documents by number: ids (B, ``length``) int64, and the number of ids of each row that are not padding (B,).

        A row is ``[EOS] text [EOS]``, cut at ``length`` and padded with ``pad_id``.
        """

        def read(shard: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            bounds = self.bounds(shard)
            starts, ends = bounds[numbers], bounds[numbers + 1] + 1
            return _gather(self.tokens(shard), starts, np.minimum(length, ends - starts), length, pad_id)

        return _by_shard(indices, self._documents_of_shards, length, read)

    def order(self, seed: int, epoch: int, length: int | None) -> ShardOrder | np.ndarray:
        """The order of an epoch, for rows of ``length`` predicted tokens; None: for rows of one document."""
        rows = self._documents_of_shards if length is None else self._rows_of_shards(length, False)
        if self.one_shard:
            return rng(seed, "rows", epoch).permutation(int(rows[0]))
        return ShardOrder(rows.tolist(), seed, epoch)

    # ------------------------------------------------------------------------------------------------ single shards

    @cached_property
    def tokens(self) -> Callable[[int], np.ndarray]:
        """Shard number -> its tokens, mapped into memory."""
        return lru_cache(maxsize=MAPPED)(self._map)

    @cached_property
    def bounds(self) -> Callable[[int], np.ndarray]:
        """Shard number -> (documents + 1,) the index of the [EOS] before each document, and of the last one."""
        return lru_cache(maxsize=MAPPED)(self._find_bounds)

    @cached_property
    def _checked(self) -> set[int]:
        return set()

    def _map(self, number: int) -> np.ndarray:
        shard = self.shards[number]
        shard.check_size()
        try:
            shape = (shard.entry.tokens,)
            tokens = np.memmap(shard.place, dtype=np.dtype(shard.dtype).newbyteorder("<"), mode="r", shape=shape)
            if number not in self._checked:
                self._check(shard, tokens)
                self._checked.add(number)
            return tokens
        except (OSError, ValueError) as error:
            raise DataError(f"the shard {shard.place} cannot be read: {error}; {_AGAIN}") from None

    def _check(self, shard: Shard, tokens: np.ndarray) -> None:
        """Every byte of a shard, against its index and the vocabulary."""
        place, entry = shard.place, shard.entry
        if file_sha256(place) != entry.sha256:
            raise DataError(f"the shard {place} was changed after it was written; {_AGAIN}")
        ends = unknown = highest = 0
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            part = np.asarray(tokens[start : start + TOKENS_AT_ONCE])
            highest = max(highest, int(part.max()))
            ends += int((part == self.eos).sum())
            unknown += int((part == self.unk).sum())
        if highest >= self.vocab_size:
            raise DataError(
                f"every token of {place} must be below {self.vocab_size}, the size of the vocabulary, but one is {highest}; "
                f"{_AGAIN}"
            )
        if (ends, unknown) != (entry.documents + 1, entry.unknown):
            raise DataError(
                f"the shard {place} must hold {entry.documents} documents and {entry.unknown} unknown tokens, as its index "
                f"says, but holds {ends - 1} and {unknown}; {_AGAIN}"
            )

    def _find_bounds(self, number: int) -> np.ndarray:
        tokens = self.tokens(number)
        starts = range(0, len(tokens), TOKENS_AT_ONCE)
        return np.concatenate([np.flatnonzero(tokens[at : at + TOKENS_AT_ONCE] == self.eos) + at for at in starts])

    def __reduce__(self) -> tuple[Any, ...]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return partial(type(self), **values), ()  # another process maps the same files


def _gather(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """(B, ``width``) ids from each start, int64; after the first ``lengths`` ids there is padding. And the lengths."""
    steps = np.arange(width)
    indices = np.minimum(starts[:, None] + steps, len(tokens) - 1)  # (B, width)
    ids = tokens[indices].astype(np.int64)
    ids[steps >= lengths[:, None]] = pad_id
    return ids, lengths


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
