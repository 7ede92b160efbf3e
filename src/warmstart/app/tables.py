"""The rows of a labelling project, and the SQLite file with its tables. Rows are added; one that counts no longer says so.

- A row is on the disk when the call that writes it returns (WAL, ``synchronous=FULL``): a killed process loses none.
- A damaged file is refused, and never written to. A copy is made now and then, to go on from.
- A file of another format is refused, and never written to either.

What the rows mean is in ``project.py``.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, TypedDict

from warmstart.data.annotations import OUTSIDE_NAME
from warmstart.errors import ConfigError, DataError, StorageError
from warmstart.system.locks import LOCK, hold, release
from warmstart.system.storage import atomic_file, make_folder

Value = int | tuple[int, ...]
"""a label id, or one for each word"""
ProjectType = Literal["classification", "tagging"]
MOST_TEXT_BYTES = 1 << 20
"""bytes of a text in UTF-8"""
MOST_COMMENT = 10_000
"""characters of a comment, or of a person's or a label's name (a hundredth of them)"""
MOST_PEOPLE = 1_000
"""people who may join"""
OUTSIDE = 0
"""the label of words that have no other, in tagging"""
OUTSIDE_LABEL = (OUTSIDE, OUTSIDE_NAME, "0")
"""its id, name and key"""
KEYS = "123456789abdefghijklmnopqrtvwxyz"
"""keys that choose labels on the page, which has other uses for c, s and u"""
IMPORTED, DISAGREEMENT, CORRECTION, TRIED = "imported", "disagreement", "correction", "tried"
"""queues of draws that mean more than where a text came from"""


@dataclass(frozen=True)
class Draw:
    """A text that was shown to a person, or whose answer was imported."""

    id: int
    text: int
    person: str
    at: str
    """time in UTC, as ISO 8601"""
    queue: str
    """new: of texts that nobody answered; overlap: for a second answer; doubtful: for a second look; disagreement; imported;
    correction: of a label in the list; tried: a prediction for it was wrong, in the eyes of who chose the text"""
    component: str = ""
    """component of the mixture: random, uncertain or diverse; empty for other queues than new"""
    probability: float | None = None
    """probability of this text among the ``remaining``, by the whole mixture; None except for new ones, and if ``suggested``"""
    remaining: int = 0
    """texts from which it was drawn"""
    predicted: int | None = None
    """label id by the model at that time (after merges: the one that stands now); None without a model"""
    confidence: float | None = None
    """confidence of that prediction"""
    mean_confidence: float | None = None
    """over the remaining texts"""
    version: int = 0
    """version of the model; 0: none"""
    random_share: float | None = None
    """share of the draws among new texts that were random; None for other queues than new"""
    named: bool = False
    """True if the model was that of the names of the labels"""

    @property
    def suggested(self) -> bool:
        """True if the prediction is shown to the person."""
        return self.queue == "new" and self.predicted is not None and self.probability is None

    @property
    def row(self) -> tuple[Any, ...]:
        """Its fields, in the order of its table."""
        return (*vars(self).values(),)


class KnownOfDraw(TypedDict, total=False):
    """Fields of a draw beside text, person and queue, as in ``Draw``."""

    component: str
    probability: float | None
    remaining: int
    predicted: int | None
    confidence: float | None
    mean_confidence: float | None
    version: int
    random_share: float | None
    named: bool


class AboutProject(TypedDict, total=False):
    """Fields of a project beside its name, type, labels and texts."""

    guidelines: str
    price: float | None
    task: str
    """the manifest that it belongs to"""
    table: Mapping[str, Any]
    """flags by which the task is read, if it is a table"""


@dataclass(frozen=True)
class ProjectSettings:
    """Settings with which a project goes on until they are changed."""

    vectors: str = ""
    """a model whose frozen vectors the learner reads; empty: vectors made from the words of the pool"""
    target: float | None = None
    """accuracy to reach"""
    mixture: Mapping[str, float] = field(default_factory=dict)
    """shares of the ways to choose the next text; empty: the default"""
    suggest: Literal["", "yes"] = ""
    """True if the likely label stands beside texts that are not drawn at random; only the others then tell the accuracy"""
    judge: str = ""
    """person who decides disagreements; empty: anybody who has not answered the text"""


@dataclass(frozen=True)
class GivenAnswer:
    """A person's answer to a text."""

    id: int
    draw: int
    text: int
    person: str
    at: str
    value: Value | None
    """label id (after merges: the one that stands now), or those of the words; None: skipped"""
    seconds: float
    comment: str = ""


@dataclass(frozen=True)
class LabelName:
    """A label that stands."""

    id: int
    name: str
    key: str
    """chooses it on the page; empty if all keys are in use"""


def free_key(used: Iterable[str]) -> str:
    """The first key that chooses no label; empty if all are in use."""
    taken = {*used}
    return next((key for key in KEYS if key not in taken), "")


@dataclass(frozen=True)
class LabelChange:
    """A change of the label names."""

    at: str
    """time in UTC, as ISO 8601"""
    person: str
    """empty: whoever made the project"""
    words: str
    """change in words"""


# ------------------------------------------------------------------------------------------------ what may be written


def now() -> str:
    """The time in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def check_label_name(name: str, used: Iterable[str]) -> None:
    """Raise ``ConfigError`` if a label's name is empty, too long or in use."""
    _check_words(name, "a label")
    if name in used:
        raise ConfigError(f"each label needs its own name, but there is a label '{name}' already; choose another name")


def _check_words(name: str, what: str) -> None:
    most = MOST_COMMENT // 100
    if not name or len(name) > most or not name.isprintable():
        raise ConfigError(f"the name of {what} must have 1 to {most} characters that can be printed, but is {name[: 2 * most]!r}")


def person_name(person: str, *, empty: bool = False) -> str:
    """A person's name. Raises ``ConfigError`` if it is too long or empty (unless ``empty``: the program itself acts)."""
    person = person.strip()
    if person or not empty:
        _check_words(person, "a person")
    return person


def check_price(price: float | None) -> None:
    """Raise ``ConfigError`` unless a price is above 0, if there is one."""
    if price is not None and not (math.isfinite(price) and price > 0):
        raise ConfigError(f"the price of a label must be a number above 0, but is {price}")


def check_texts(texts: Sequence[str]) -> None:
    """Raise ``DataError`` that names the first text that cannot be labelled."""
    for number, text in enumerate(texts, 1):
        check_text(text, f"text {number}")


def check_text(text: str, where: str) -> None:
    """Raise ``DataError`` that says ``where`` unless a text is Unicode, not blank, and at most ``MOST_TEXT_BYTES`` long."""
    if not is_unicode(text):
        raise DataError(f"{where} must be Unicode, but has half of a surrogate pair; correct it")
    if (size := len(text.encode())) > MOST_TEXT_BYTES:
        raise DataError(f"{where} must have at most {MOST_TEXT_BYTES:,} bytes, but has {size:,}; cut it into parts")
    if not text.strip():
        raise DataError(f"{where} must have words, but is blank; remove it")


def is_unicode(text: str) -> bool:
    """True if a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


DATABASE, BACKUP = "project.sqlite", "project.backup.sqlite"
"""in the folder of a project: its database, and the last copy of it"""
DATABASE_FORMAT, EVENTS_FORMAT = 2, 1
"""version of the tables, and of one list of all that happened, which was before; SQLite keeps it as ``user_version``"""
APPLICATION = 0x5741524D
"""says in the file's header that it is ours"""
COPY_AFTER = 50
"""answers after which a copy is made; as many again for every 16 MiB of the file"""
TABLES = """
create table setting (name text primary key, value text not null) strict;
create table label (id integer primary key, name text not null, key text not null, stands_for integer references label) strict;
create table change (
    id integer primary key, at text not null, person text not null, label integer not null references label, name text not null,
    stands_for integer references label
) strict;
create table text (id integer primary key, text text not null) strict;
create table person (name text primary key, browser text not null) strict;
create table draw (
    id integer primary key, text integer not null references text, person text not null references person, at text not null,
    queue text not null, component text not null, probability real, remaining integer not null, predicted integer,
    confidence real, mean_confidence real, version integer not null, random_share real, named integer not null
) strict;
create table answer (
    id integer primary key, draw integer not null references draw, value any, seconds real not null, comment text not null,
    at text not null, undone integer not null
) strict;
"""
TableRows = Mapping[str, Iterable[tuple[Any, ...]]]
"""table -> its rows"""


class DamagedError(Exception):
    """The file is not what was written."""


class Database:
    """The tables of one project; methods may be called from several threads."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self._connection, self._since_copy, self._changed, self._closed = connection, 0, False, False

    @classmethod
    def create(cls, folder: Path, rows: TableRows) -> Self:
        """A new database, in place as a whole. Raises ``ConfigError`` if the folder has one."""
        if (folder / DATABASE).exists() or (folder / BACKUP).exists():
            raise ConfigError(f"a new project needs a folder without one, but {folder} has one; open it, or choose another folder")
        make_folder(folder)
        hold(folder / LOCK, f"the project in {folder}")
        with storing(folder):
            _write(folder / DATABASE, rows)
        database = cls.open(folder)
        database.copy()
        return database

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The database of a folder, locked until ``close``.

        Raises ``DataError`` if there is none, if it is damaged or has another format; ``StorageError`` if it is open elsewhere.
        """
        if not ((folder / DATABASE).exists() or (folder / BACKUP).exists()):
            raise DataError(f"{folder} must hold a project ({DATABASE}), but holds none; check the folder, or make a new project")
        hold(folder / LOCK, f"the project in {folder}")
        try:
            _check(folder)
            return cls(folder, _opened(folder))
        except DamagedError as error:
            release(folder / LOCK)
            raise damaged(folder, error) from None
        except DataError:  # a project that is open in this process holds the lock, too
            release(folder / LOCK)
            raise

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of a table, in the order in which they were added."""
        return self._connection.execute(f"select * from {table} order by rowid").fetchall()

    def insert(self, table: str, *row: Any) -> None:
        """Write a row; it is on the disk when this returns (inside ``at_once``: when that ends)."""
        self.execute(f"insert into {table} values ({', '.join('?' * len(row))})", *row)
        self._since_copy += table == "answer"

    def execute(self, statement: str, *values: Any) -> None:
        """Change rows, in the same way."""
        with self.lock, storing(self.folder):
            self._connection.execute(statement, values)
            self._changed = True

    @contextmanager
    def at_once(self, undone: Callable[[], None]) -> Iterator[None]:
        """All that is written inside is written at the end, or nothing of it if it raises; then ``undone`` is called."""
        with self.lock:
            if self._connection.in_transaction:
                yield
                return
            self.execute("begin immediate")
            try:
                yield
                self.execute("commit")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have ended it already
                    self._connection.execute("rollback")
                undone()
                raise

    def copy_if_due(self) -> None:
        """Make a copy if there are enough answers since the last one."""
        with self.lock:
            size = (self.folder / DATABASE).stat().st_size
            if self._since_copy >= COPY_AFTER * (1 + (size >> 24)) and not self._connection.in_transaction:
                self.copy()

    def copy(self) -> None:
        """Write the copy, atomically."""
        with self.lock, storing(self.folder):
            _copy(self._connection, self.folder / BACKUP)
            self._since_copy, self._changed = 0, False

    def close(self) -> None:
        """Make a copy if anything was written since the last one, and unlock the folder; again does nothing."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._changed:
                    self.copy()
            finally:
                self._connection.close()
                release(self.folder / LOCK)


def damaged(folder: Path, what: object) -> DataError:
    """The error for a damaged database, with the way out."""
    file, copy = folder / DATABASE, folder / BACKUP
    cure = "put a copy of your own in its place"
    if copy.exists():
        when = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
        cure = (
            f"to go on from the copy of {when:%d %B %Y, %H:%M} UTC, move {DATABASE} and {DATABASE}-wal (where they are there) "
            f"into another folder, and rename {BACKUP} to {DATABASE}"
        )
    return DataError(f"{file} is damaged ({what}), and is left as it is; {cure}")


def _connect(file: Path, *, writes: bool = True) -> sqlite3.Connection:
    place = file.absolute().as_uri() + ("" if writes else "?mode=ro")
    return sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=0, uri=True)


def _write(file: Path, rows: TableRows) -> None:
    """A new file with the tables, in place as a whole."""
    with atomic_file(file) as aside, closing(_connect(aside)) as connection:
        connection.executescript(f"pragma application_id={APPLICATION}; pragma user_version={DATABASE_FORMAT}; {TABLES}")
        connection.execute("begin")
        for table, some in rows.items():
            for row in some:
                connection.execute(f"insert into {table} values ({', '.join('?' * len(row))})", row)
        connection.execute("commit")


def _copy(connection: sqlite3.Connection, file: Path) -> None:
    with atomic_file(file) as aside, closing(_connect(aside)) as target:
        connection.backup(target)
        target.execute("pragma journal_mode=delete")


def _check(folder: Path) -> None:
    """Read a database and no more. Raises ``DamagedError`` if it is not whole, ``DataError`` if it is not one of this version."""
    file = folder / DATABASE
    if not file.exists():
        raise DamagedError("it is missing")
    with _opening(file), closing(_connect(file, writes=False)) as connection:
        (problem,) = connection.execute("pragma quick_check(1)").fetchone()
        if problem != "ok":
            raise DamagedError(" ".join(problem.split()))
        (application,), (version,) = (
            connection.execute(f"pragma {name}").fetchone() for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise DataError(f"{file} must be a project of `warmstart label`, but is another SQLite file; name another folder")
        if version == EVENTS_FORMAT:
            raise DataError(
                f"{file} must have the tables of this version, but was written before them, and is left as it is; the last commit "
                f"that opens it is 5cb677ad: there run `warmstart label --out {folder} --export labels`, and here "
                f"`warmstart label --import labels/train.csv --out {folder}-2`"
            )
        if version != DATABASE_FORMAT:
            raise DataError(
                f"{file} has format {version}, but this warmstart reads format {DATABASE_FORMAT}; use the version that wrote it"
            )
        if connection.execute("pragma foreign_key_check").fetchone():
            raise DamagedError("a row names one that is not there")


def _opened(folder: Path) -> sqlite3.Connection:
    """The database to write to, which nobody else can open meanwhile."""
    connection = _connect(folder / DATABASE)
    try:
        with _opening(folder / DATABASE):
            connection.execute("pragma locking_mode=exclusive")  # a second project in this process is refused too
            for setting in ("journal_mode=wal", "synchronous=full", "foreign_keys=on"):
                connection.execute(f"pragma {setting}")
            connection.execute("begin immediate")
            connection.execute("commit")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _opening(file: Path) -> Iterator[None]:
    """Turn SQLite's error on a file that it cannot open into ``StorageError``, or ``DamagedError``."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StorageError(f"{file} is open elsewhere; close it there, and run the command again") from None
        if isinstance(error, sqlite3.OperationalError) and name != "SQLITE_ERROR":
            raise StorageError(f"cannot open {file}: {error}; check the folder's permissions and the space on the disk") from None
        raise DamagedError(str(error)) from None


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turn SQLite's error on a full or read-only disk into ``StorageError``."""
    try:
        yield
    except sqlite3.Error as error:
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        cure = "free some space" if full else "check that you may write to this folder, and that its disk is sound"
        raise StorageError(f"cannot write {folder / DATABASE}: {error}; {cure}") from None
