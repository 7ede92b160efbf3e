"""Locks: one process at a time writes a folder.

The system takes a lock from a process that ends, however it ends, so a lock whose process is dead is nobody's. On a file system
without locks nothing is held, and nothing is said.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from warmstart.errors import StorageError
from warmstart.system.stopping import has_ended
from warmstart.system.storage import cannot_write

try:
    import fcntl
except ImportError:  # on Windows, where a lock is on bytes of a file
    import msvcrt

LOCK = ".warmstart.lock"
"""name of a lock file in the folder of a run, while a process writes there"""
_held: dict[tuple[Path, int], IO[str]] = {}
"""lock files by file and process: a forked child does not own what its parent holds"""
_LOCKED_BYTE = 1 << 30
"""locked byte on Windows, where other processes cannot read such bytes: far behind the text, which says who holds the lock"""


def hold(file: Path, what: str) -> None:
    """Lock a file until this process ends, ``release``, or the end of ``releasing_locks``; a process may hold it several times.

    Raises ``StorageError`` that names the process that holds it, or if the file cannot be written.
    """
    key = file.resolve(), os.getpid()
    while not (key in _held and _in_place(_held[key], file)):
        _release({key})
        try:
            handle = file.open("a+", encoding="utf-8")
        except OSError as error:
            raise cannot_write(file, error) from None
        if not _lock(handle, what):
            return
        _held[key] = handle  # before a signal can come: what is held is released
        handle.truncate(0)
        json.dump({"process": os.getpid(), "host": platform.node()}, handle)
        handle.flush()


def _lock(handle: IO[str], what: str) -> bool:
    """Lock an open file, or close it; False if its file system has no locks."""
    try:
        _take_lock(handle)
        return True
    except BlockingIOError:
        with handle:
            handle.seek(0)
            holder = _holder(handle.read())
        raise StorageError(f"{what} is in use by {holder}; wait until it has ended, or end it, and run the command again") from None
    except OSError:
        handle.close()
        return False


def _take_lock(handle: IO[str], *, shared: bool = False) -> None:
    """Lock an open file without waiting; on Windows no lock is shared.

    Raises ``BlockingIOError`` if another process holds it, and another ``OSError`` where there are no locks.
    """
    if "fcntl" in globals():
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return
    before = os.lseek(handle.fileno(), 0, os.SEEK_CUR)
    try:
        os.lseek(handle.fileno(), _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except PermissionError as error:
        raise BlockingIOError(*error.args) from None
    finally:
        os.lseek(handle.fileno(), before, os.SEEK_SET)


@contextmanager
def releasing_locks() -> Iterator[None]:
    """Releases at its end the locks that were taken inside."""
    before = set(_held)
    try:
        yield
    finally:
        _release(_held.keys() - before)


def release(file: Path) -> None:
    """Release a lock that this process holds, if it does."""
    _release({(file.resolve(), os.getpid())})


def _release(keys: set[tuple[Path, int]]) -> None:
    for file, process in keys & _held.keys():
        ours = process == os.getpid() and _in_place(_held[file, process], file)
        removed = ours and _removed(file)
        _held.pop((file, process)).close()
        if ours and not removed:
            _removed(file)  # Windows removes no file that is open, be it by us or by who has locked it meanwhile


def _removed(file: Path) -> bool:
    """Remove a file; False if that cannot be done."""
    with suppress(OSError):
        file.unlink()
        return True
    return False


atexit.register(lambda: _release({*_held}))


def discard_dead(file: Path) -> None:
    """Remove the lock that a killed process left, if there is one."""
    if file.exists() and holder_of(file) is None:
        _removed(file)


class Holder(NamedTuple):
    """The process that writes a folder."""

    process: int
    host: str


def holder_of(file: Path) -> Holder | None:
    """The process that holds a lock; None if it is dead, or if there is none. It takes no lock itself, unless for an instant.

    That is on a lock of another host, whose processes cannot be asked.
    """
    try:
        with file.open(encoding="utf-8") as handle:
            values = json.loads(handle.read())
            holder = Holder(int(values["process"]), str(values["host"]))
            if holder.host != platform.node():
                return holder if _is_locked(handle) else None
        return None if has_ended(holder.process, file.stat().st_mtime) else holder
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_locked(handle: IO[str]) -> bool:
    """True if another process has locked an open file, or its file system has no locks."""
    try:
        _take_lock(handle, shared=True)
    except OSError:
        return True
    return False


def _in_place(handle: IO[str], file: Path) -> bool:
    """True if the file that was opened is still the one of this name: another process may have removed it when it was done."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), file.stat())
    except OSError:
        return False


def _holder(text: str) -> str:
    """The process that wrote a lock, for people."""
    try:
        values = json.loads(text)
        return f"process {values['process']} on {values['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
