"""A table, a view or a query of a SQLite file. The file is opened read-only, and a query can do nothing but read it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.files import is_compressed, most_bytes, open_bytes
from warmstart.data.watched import READ_WITHIN_SECONDS
from warmstart.errors import DataError, suggest

_SIGNATURE = b"SQLite format 3\0"
"""with which every such file begins"""
_STEPS = 100_000
"""instructions of SQLite's machine between two looks at the clock"""
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def read_sqlite(file: Path, table: str | None = None, query: str | None = None) -> pl.DataFrame:
    """The rows of a table or view, or of a query. Without either, those of the only table.

    Raises ``DataError`` for a file that is none or damaged, a table that is missing or not named, and a query that is refused.
    """
    _check_file(file)
    with _opened(file) as (connection, restart):
        try:
            if query is None:
                name = _chosen(file, table, _tables(connection)).replace('"', '""')
                query = f'SELECT * FROM "{name}"'
            cursor = connection.execute(query)
            if cursor.description is None:
                raise DataError(f"the query of {file} must be a SELECT, but is {query[:80]!r}; it gives no rows")
            columns = [str(column[0]) for column in cursor.description]
            rows = [*_bounded(cursor, file, restart)]
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise DataError(_refused(file, error)) from None
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise DataError(f"the columns of {file} must have different names, but two are called {twice[0]}; write AS in the query")
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return pl.DataFrame([_series(name, list(column), file) for name, column in zip(columns, values, strict=True)])


def _check_file(file: Path) -> None:
    if is_compressed(file):
        raise DataError(f"a SQLite file is read where it lies, but {file} is compressed; decompress it")
    with open_bytes(file) as binary:
        if binary.read(len(_SIGNATURE)) != _SIGNATURE:
            raise DataError(f"{file} must be a SQLite file, but is not; correct the file or name its format")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[sqlite3.Connection, Callable[[], None]]]:
    """A connection that can only read, and what starts its clock again."""
    started = [time.monotonic()]

    def restart() -> None:
        started[0] = time.monotonic()

    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise DataError(_refused(file, error)) from None
    with closing(connection):
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(most_bytes(file), 1 << 30))
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        connection.set_progress_handler(lambda: time.monotonic() - started[0] > READ_WITHIN_SECONDS, _STEPS)
        yield connection, restart


def _tables(connection: sqlite3.Connection) -> list[str]:
    """The tables and views, without SQLite's own and the hidden ones of its full-text search."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name").fetchall()
    names = [str(name) for name, _ in rows if not str(name).startswith("sqlite_")]
    searched = [str(name) for name, sql in rows if str(sql).upper().startswith("CREATE VIRTUAL TABLE")]
    return [name for name in names if not any(name.startswith(f"{one}_") for one in searched)]


def _chosen(file: Path, wanted: str | None, tables: Sequence[str]) -> str:
    how = "'sqlite_table: …' in a manifest, or in a file for --config"
    if not tables:
        raise DataError(f"{file} must hold a table, but holds none; name another file")
    if wanted is None:
        if len(tables) > 1:
            raise DataError(f"{file} holds {len(tables)} tables: {', '.join(tables)}; name the one to read with {how}")
        return tables[0]
    if wanted not in tables:
        raise DataError(f"{file} has no table '{wanted}'; {suggest(wanted, tables)}; name the table to read with {how}")
    return wanted


def _bounded(cursor: sqlite3.Cursor, file: Path, restart: Callable[[], None]) -> Iterator[tuple[Any, ...]]:
    """The rows; ``DataError`` once they hold more than ``most_bytes``, as those of a query or a view may."""
    left = most_bytes(file)
    for row in cursor:
        left -= sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if left < 0:
            raise DataError(f"{file} must give at most {most_bytes(file):,} bytes, but its rows hold more; read fewer with a query")
        restart()
        yield row


def _series(name: str, values: list[Any], file: Path) -> pl.Series:
    """One column: numbers if all its values are numbers, else strings, whatever was declared."""
    kinds = {type(value) for value in values if value is not None}
    if bytes in kinds:
        return pl.Series(name, [value if isinstance(value, bytes) else None for value in values], dtype=pl.Binary)
    if kinds == {int} and all(value is None or abs(value) < 2**63 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    if kinds and kinds <= {int, float}:
        return pl.Series(name, [None if value is None else float(value) for value in values], dtype=pl.Float64)
    return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)


def _refused(file: Path, error: Exception) -> str:
    reason = str(error)
    if reason == "interrupted":
        return f"a query of {file} must give a row within {READ_WITHIN_SECONDS} seconds, but takes longer; read a table instead"
    if "not authorized" in reason or "prohibited" in reason or "readonly" in reason:
        return f"a query of {file} may only read it, but {reason}; write a SELECT"
    return f"{file} cannot be read as SQLite: {reason}; correct the query, copy the file again, or close what is writing it"
