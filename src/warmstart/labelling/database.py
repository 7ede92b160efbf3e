"""One SQLite file: the texts of a pool, and all events of its labelling in their order. Nothing there is ever changed or removed.

- An event is on the disk when ``record`` returns (``journal_mode=WAL``, ``synchronous=FULL``), so a killed process loses none.
- Each event carries a checksum of itself and of all before it, and the texts have a digest: a flipped bit is noticed.
- A copy, made now and then, takes the place of a damaged file; the damaged one is kept beside it.

What the events mean is in ``project.py``.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from warmstart.errors import ConfigError, DataError, StorageError
from warmstart.system.locks import LOCK, hold, release
from warmstart.system.storage import atomic_file, make_folder

DATABASE, BACKUP = "project.sqlite", "project.backup.sqlite"
"""in the folder of a project: its database, and the last good copy of it"""
DATABASE_FORMAT = 1
"""version of the tables and events; SQLite keeps it as ``user_version``"""
APPLICATION = 0x5741524D
"""says in the file's header that it is ours"""
COPY_AFTER = 50
"""events that add an answer, after which a copy is made; as many again for every 16 MiB of the file"""
_TABLES = """
create table texts (id integer primary key, text text not null) strict;
create table events (
    id integer primary key, at text not null, kind text not null, body text not null, checksum integer not null
) strict;
"""


_as_json = json.JSONEncoder(ensure_ascii=False).encode
_as_ascii = json.JSONEncoder().encode


class Event(NamedTuple):
    """Something that happened to a project."""

    id: int
    at: str
    """time in UTC, as ISO 8601"""
    kind: str
    body: Mapping[str, Any]


class _DamagedError(Exception):
    """The file is not what was written."""


class Database:
    """The texts and events of one project; its methods may be called from several threads."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, notice: str = "") -> None:
        self.folder, self.notice = folder, notice
        self.lock = threading.RLock()
        self._connection = connection
        self._since_copy, self._closed = 0, False
        self.texts, self.events = _contents(connection)
        self._last, self._checksum = self._end()
        self._copied = self._last

    @classmethod
    def create(cls, folder: Path, entries: Iterable[tuple[str, Mapping[str, Any]]], texts: Sequence[str]) -> Database:
        """A new database with its first events, in place as a whole. Raises ``ConfigError`` if the folder has one."""
        if (folder / DATABASE).exists() or (folder / BACKUP).exists():
            raise ConfigError(f"a new project needs a folder without one, but {folder} has one; open it, or choose another folder")
        make_folder(folder)
        hold(folder / LOCK, f"the project in {folder}")
        with atomic_file(folder / DATABASE) as aside, closing(_connect(aside)) as connection, _storing(folder):
            connection.executescript(f"pragma application_id={APPLICATION}; pragma user_version={DATABASE_FORMAT}; {_TABLES}")
            made = cls(folder, connection)
            with made.at_once():
                for kind, body in entries:
                    made.record(kind, body)
                made.add_texts(texts)
        opened = cls.open(folder)
        opened.copy()
        return opened

    @classmethod
    def open(cls, folder: Path) -> Database:
        """The database of a folder, locked until ``close``.

        A damaged one is put aside, and the last good copy takes its place; ``notice`` then says so. Raises ``DataError`` if there
        is none, if it has another format, or if both are damaged; ``StorageError`` if another process has it open.
        """
        file, backup = folder / DATABASE, folder / BACKUP
        if not (file.exists() or backup.exists()):
            raise DataError(f"{folder} must hold a project ({DATABASE}), but holds none; check the folder, or make a new project")
        hold(folder / LOCK, f"the project in {folder}")
        try:
            return cls(folder, *_opened_or_restored(file, backup))
        except DataError:
            release(folder / LOCK)
            raise

    def record(self, kind: str, body: Mapping[str, Any]) -> Event:
        """Write an event; it is on the disk when this returns (inside ``at_once``: when that ends)."""
        with self.lock:
            event = Event(self._last + 1, datetime.now(UTC).isoformat(timespec="milliseconds"), kind, body)
            row = _row(event)
            checksum = _checksum(row, self._checksum)
            with _storing(self.folder):
                self._connection.execute("insert into events values (?, ?, ?, ?, ?)", (*row, checksum))
            self._last, self._checksum = event.id, checksum
            self.events.append(event)
            self._since_copy += kind == "answer"
        return event

    def add_texts(self, texts: Sequence[str]) -> Event:
        """Write texts behind those there are, and the event ``texts`` that holds their number and digest."""
        with self.lock, self.at_once():
            start = len(self.texts)
            with _storing(self.folder):
                self._connection.executemany("insert into texts values (?, ?)", enumerate(texts, start))
            self.texts = (*self.texts, *texts)
            return self.record("texts", {"count": len(texts), "digest": _texts_digest(texts)})

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """All events that are recorded inside are written at the end, or none of them if it raises."""
        with self.lock:
            if self._in_transaction():
                yield
                return
            texts, count, end = self.texts, len(self.events), (self._last, self._checksum)
            try:
                with _storing(self.folder):
                    self._connection.execute("begin immediate")
                yield
                with _storing(self.folder):
                    self._connection.execute("commit")
            except BaseException:
                if self._in_transaction():
                    self._connection.execute("rollback")
                self.texts, (self._last, self._checksum) = texts, end
                del self.events[count:]
                raise

    def copy_if_due(self) -> None:
        """Make a copy if there are enough answers since the last one."""
        with self.lock:
            if self._since_copy < COPY_AFTER or self._in_transaction():
                return
            size = (self.folder / DATABASE).stat().st_size
            if self._since_copy >= COPY_AFTER * (1 + (size >> 24)):
                self.copy()

    def copy(self) -> None:
        """Write the copy that a damaged database is restored from, atomically."""
        with self.lock, atomic_file(self.folder / BACKUP) as aside, _storing(self.folder), closing(_connect(aside)) as target:
            self._connection.backup(target)
            target.execute("pragma journal_mode=delete")
            self._since_copy, self._copied = 0, self._last

    def close(self) -> None:
        """Make a copy if anything was added since the last one, and unlock the folder; again does nothing."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._last != self._copied:
                    self.copy()
            finally:
                self._connection.close()
                release(self.folder / LOCK)

    def _in_transaction(self) -> bool:
        return self._connection.in_transaction

    def _end(self) -> tuple[int, int]:
        """Number and checksum of the last event."""
        last = self._connection.execute("select id, checksum from events order by id desc limit 1").fetchone()
        return tuple(last) if last else (0, 0)


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=0)


def _opened_or_restored(file: Path, backup: Path) -> tuple[sqlite3.Connection, str]:
    """The database, or the last good copy in its place if it is damaged; and what there is to say about that."""
    try:
        return _opened(file), ""
    except _DamagedError as error:
        what = str(error)
    try:
        with closing(_opened(backup)) as copy:
            answers = sum(event.kind == "answer" for event in _contents(copy)[1])
            copy.execute("pragma journal_mode=delete")
    except _DamagedError as error:
        raise DataError(
            f"{file} is damaged ({what}), and so is its copy {backup.name} ({error}); restore one of them from a backup of your own"
        ) from None
    aside = _put_aside(file)
    with atomic_file(file) as temporary:
        temporary.write_bytes(backup.read_bytes())
    notice = (
        f"{file} was damaged ({what}); it is now called {aside.name}, and the last good copy, which has {answers:,} answers, is in "
        "its place: answers given after that copy was made are lost"
    )
    return _opened(file), notice


def _opened(file: Path) -> sqlite3.Connection:
    """A checked database. Raises ``_DamagedError`` if it is not whole, ``DataError`` if it has another format."""
    if not file.exists():
        raise _DamagedError("it is missing")
    connection = _connect(file)
    try:
        connection.execute("pragma locking_mode=exclusive")  # a second project in this process is refused too
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=full")
        connection.execute("pragma foreign_keys=on")
        connection.execute("begin immediate")
        connection.execute("commit")
        (found,) = connection.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise _DamagedError(found)
        _check_format(connection, file)
        _check_contents(connection)
    except sqlite3.Error as error:
        connection.close()
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StorageError(f"{file} is open elsewhere; close it there, and run the command again") from None
        if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorname", "SQLITE_ERROR") != "SQLITE_ERROR":
            raise StorageError(f"cannot open {file}: {error}; check the folder's permissions and the space on the disk") from None
        raise _DamagedError(str(error)) from None
    except (_DamagedError, DataError):
        connection.close()
        raise
    return connection


def _check_format(connection: sqlite3.Connection, file: Path) -> None:
    (application,), (version,) = (connection.execute(f"pragma {name}").fetchone() for name in ("application_id", "user_version"))
    if application != APPLICATION:
        raise DataError(f"{file} must be a project of `warmstart label`, but is another SQLite file; name another folder")
    if version != DATABASE_FORMAT:
        raise DataError(
            f"{file} has format {version}, but this warmstart reads format {DATABASE_FORMAT}; use the version that wrote it"
        )


def _check_contents(connection: sqlite3.Connection) -> None:
    """Raise ``_DamagedError`` if an event or a text is not what was written."""
    checksum = 0
    for place, (*row, found) in enumerate(connection.execute("select id, at, kind, body, checksum from events order by id"), 1):
        checksum = _checksum(tuple(row), checksum)
        if row[0] != place or found != checksum:
            raise _DamagedError(f"event {place} is not what was written")
    texts, events = _contents(connection)
    start = 0
    for event in events:
        if event.kind == "texts":
            end = start + int(event.body["count"])
            if _texts_digest(texts[start:end]) != event.body["digest"]:
                raise _DamagedError("its texts are not what was written")
            start = end
    if start != len(texts):
        raise _DamagedError(f"it must hold {start} texts, but holds {len(texts)}")


def _contents(connection: sqlite3.Connection) -> tuple[tuple[str, ...], list[Event]]:
    texts = tuple(text for (text,) in connection.execute("select text from texts order by id"))
    rows = connection.execute("select id, at, kind, body from events order by id")
    return texts, [Event(number, at, kind, json.loads(body)) for number, at, kind, body in rows]


def _row(event: Event) -> tuple[int, str, str, str]:
    return event.id, event.at, event.kind, _as_json(event.body)


def _checksum(row: tuple[Any, ...], before: int) -> int:
    return zlib.crc32(_as_ascii(row).encode(), before)


def _texts_digest(texts: Sequence[str]) -> int:
    return zlib.crc32(json.dumps(texts).encode())


def _put_aside(file: Path) -> Path:
    """Rename a damaged database, with its log, so that nothing of it is lost or read again; returns its new name."""
    number = 1
    while (aside := file.with_name(f"project.damaged-{number}.sqlite")).exists():
        number += 1
    for ending in ("", "-wal", "-shm"):
        one = file.with_name(file.name + ending)
        if one.exists():
            os.replace(one, aside.with_name(aside.name + ending))
    return aside


@contextmanager
def _storing(folder: Path) -> Iterator[None]:
    """What SQLite says of a full or read-only disk becomes ``StorageError``."""
    try:
        yield
    except sqlite3.Error as error:
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        cure = "free some space" if full else "check that you may write to this folder, and that its disk is sound"
        raise StorageError(f"cannot write {folder / DATABASE}: {error}; {cure}") from None
