"""The index of a folder of token shards: what each holds, how the text was read, and what was left out.

    index.json       this index, sealed
    tokenizer.json   the tokenizer of all shards
    shards/00000/    the shards of one piece of the text: raw token ids, uint16 or uint32, lowest byte first

A shard is ``[EOS] text [EOS] text [EOS]``, as a token store is. The index is written last: a folder without it is not complete.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from warmstart.config import Config
from warmstart.errors import ConfigError, DataError
from warmstart.notebook import Shown
from warmstart.system.limits import TOKENIZER_BYTES
from warmstart.system.storage import SEAL, atomic_write, require_format, sealed, sha256, unsealed

SHARD_INDEX, TOKENIZER = "index.json", "tokenizer.json"
"""raised whenever the same text would be stored differently"""
INDEX_BYTES = TOKENIZER_BYTES
"""of an index, which may come from a stranger: about two hundred thousand shards"""


class TextCounts(Config):
    """What a text holds."""

    tokens: int = Field(0, ge=0)
    documents: int = Field(0, ge=0)
    words: int = Field(0, ge=0)
    bytes: int = Field(0, ge=0)
    unknown: int = Field(0, ge=0)


class ShardEntry(TextCounts):
    """One shard."""

    name: str
    """its path in the folder"""
    held_out: bool = False
    """its documents are held out"""
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class LeftOut(Config):
    """Documents that are in no shard."""

    test_texts: int = Field(0, ge=0)
    """in which a test or validation text of the task occurs"""
    empty: int = Field(0, ge=0)
    """that become no token"""

    def __add__(self, other: LeftOut) -> LeftOut:
        """Both together."""
        return LeftOut(**{name: getattr(self, name) + getattr(other, name) for name in LeftOut.model_fields})


class ShardIndex(Shown, Config, view="report.notebook:shards_view"):
    """All shards of a folder."""

    format: int
    tokenizer: str
    """digest of the tokenizer"""
    dtype: Literal["uint16", "uint32"]
    document: str
    """what one document is"""
    held_out: float | None
    """fraction of the documents that is held out; None: nothing is"""
    filters: tuple[str, ...] = ()
    """what was left out, in words"""
    left_out: LeftOut = LeftOut()
    shards: tuple[ShardEntry, ...] = Field(min_length=1)

    def side(self, *, held_out: bool) -> tuple[ShardEntry, ...]:
        """The shards that are held out, or those that are not."""
        return tuple(one for one in self.shards if one.held_out == held_out)

    def counts(self, *, held_out: bool) -> TextCounts:
        """What one side holds."""
        return total_counts(self.side(held_out=held_out))

    @property
    def digest(self) -> str:
        """A hash of everything."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode())

    def write(self, folder: Path) -> None:
        """Write ``index.json``, atomically."""
        atomic_write(
            folder / SHARD_INDEX, (json.dumps(sealed(self.to_dict()), indent=1) + "\n").encode(), "the index of the shards"
        )


def total_counts(shards: tuple[TextCounts, ...]) -> TextCounts:
    """What several shards hold together."""
    return TextCounts(**{name: sum(getattr(one, name) for one in shards) for name in TextCounts.model_fields})


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
    repeated = len(index.shards) - len({one.name for one in index.shards})
    if repeated:
        raise DataError(f"each shard must be named once in {where}, but {repeated} are repeated; tokenize the text again")
    return index


def looks_like_index(data: bytes) -> bool:
    """Whether a file called ``index.json`` is one of ours: other programs call theirs so, too."""
    return f'"{SEAL}"'.encode() in data and b'"shards"' in data
