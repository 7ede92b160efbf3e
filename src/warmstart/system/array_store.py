"""Arrays that took long to compute, kept for every later run in the user's folder of caches: one SQLite file, bounded in size.

What is read has the bits of what was written: each entry has a checksum. Several processes read and write at once. A damaged file
is removed, and one that cannot be read or written counts as empty: it only saves time.
"""

from __future__ import annotations

import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from warmstart.system.storage import cache_folder

LIMIT = 2 * 2**30
"""bytes of the user's file; beyond, what was used longest ago is dropped"""
KEPT = 0.9
"""part of the limit that is left then"""
WAIT = 5.0
"""seconds to wait for another process that writes"""
_DAY = 86_400
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""SQLite's codes for a damaged file; SQLITE_ERROR: there is another table"""
_SECONDS = struct.Struct("<d")
_TABLE = """
create table if not exists arrays (
    family text not null, key blob not null, day integer not null, checksum integer not null, value blob not null,
    primary key (family, key)
) strict
"""
_T = TypeVar("_T")


class Kept(NamedTuple):
    """An entry."""

    values: np.ndarray
    """(N,) float32"""
    seconds: float
    """seconds of computing them"""


class ArrayStore:
    """Arrays by a family, whose arrays have one size, and a key; without a file it is always empty."""

    def __init__(self, file: Path | None = None, limit: int = LIMIT) -> None:
        self.file = file
        self.limit = limit

    @classmethod
    def of_user(cls) -> ArrayStore:
        """The store that all runs of a user share."""
        folder = cache_folder()
        return cls(folder / "vectors.sqlite" if folder else None)

    def read(self, family: str, keys: Sequence[bytes], size: int) -> dict[bytes, Kept]:
        """The entries of these keys, as arrays of ``size`` numbers."""

        def read(connection: sqlite3.Connection) -> dict[bytes, Kept]:
            length, today = _SECONDS.size + 4 * size, int(time.time() // _DAY)
            entries, old = dict[bytes, Kept](), list[tuple[int, int]]()
            for query, part in _queries("rowid, key, day, checksum, value", keys):
                for row, key, day, checksum, value in connection.execute(f"{query} and length(value) = ?", (family, *part, length)):
                    if zlib.crc32(value) == checksum:
                        entries[key] = Kept(np.frombuffer(value, "<f4", offset=_SECONDS.size).copy(), *_SECONDS.unpack_from(value))
                        old += [(today, row)] if day < today else []
            with suppress(sqlite3.OperationalError):  # a file that can only be read
                connection.executemany("update arrays set day = ? where rowid = ?", old)
            return entries

        return self._call(read, {})

    def count(self, family: str, keys: Sequence[bytes]) -> int:
        """The number of these keys that are kept."""

        def count(connection: sqlite3.Connection) -> int:
            return sum(connection.execute(query, (family, *part)).fetchone()[0] for query, part in _queries("count(*)", keys))

        return self._call(count, 0)

    def write(self, family: str, entries: Mapping[bytes, Kept]) -> None:
        """Add these, in one transaction; if there is no room left, what was used longest ago gives way."""

        def write(connection: sqlite3.Connection) -> None:
            values = ((key, _SECONDS.pack(entry.seconds) + entry.values.astype("<f4").tobytes()) for key, entry in entries.items())
            today = int(time.time() // _DAY)
            rows = ((family, key, today, zlib.crc32(value), value) for key, value in values)
            connection.executemany("insert or replace into arrays values (?, ?, ?, ?, ?)", rows)
            self._drop_oldest(connection)

        self._call(write, None)

    def _drop_oldest(self, connection: sqlite3.Connection) -> None:
        facts = ("page_count", "freelist_count", "page_size")
        pages, free, size = (connection.execute(f"pragma {name}").fetchone()[0] for name in facts)
        if (used := (pages - free) * size) <= self.limit:
            return
        (rows,) = connection.execute("select count(*) from arrays").fetchone()
        surplus = int(rows * (1 - KEPT * self.limit / used)) + 1
        oldest = "select rowid from arrays order by day, rowid limit ?"
        connection.execute(f"delete from arrays where rowid in ({oldest})", (surplus,))

    def _call(self, work: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """The answer of ``work``, committed; ``otherwise`` if the file cannot be used. A damaged one is removed."""
        if self.file is None:
            return otherwise
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=WAIT)) as connection, connection:
                connection.execute(_TABLE)
                return work(connection)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                _remove(self.file)
            else:
                self.file = None  # not to wait for it again
        except OSError:
            self.file = None
        return otherwise


def _queries(columns: str, keys: Sequence[bytes]) -> Iterator[tuple[str, Sequence[bytes]]]:
    """A query for each group of keys that fits into one."""
    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        yield f"select {columns} from arrays where family = ? and key in ({', '.join('?' * len(part))})", part


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()
        file.with_name(f"{file.name}-journal").unlink(missing_ok=True)
