"""Who runs which trial, among processes that share nothing but a folder: claims by atomic creation, and leases that are renewed.

    claims/KEY.0     the first claim of a trial: who, since how long, and a counter that its owner advances
    claims/KEY.1     a claim by another worker, after the first one was given up or its owner was found dead

A claim is made by creating its file, which succeeds for one process alone. The owner advances the counter while it lives. Whoever
waits for the trial watches the counter by their own stopwatch: if it stands still for the length of a lease, the owner is dead, and
the next number may be created. No clock is compared with another. That a process of this machine is gone is known at once.

An owner that was only asleep finds a higher number when it wakes, and drops its result: a trial is saved once.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from warmstart.errors import StorageError
from warmstart.stopping import has_ended
from warmstart.storage import sha256

CLAIMS = "claims"
"""folder of the claims, in the folder of the run"""
BEAT = 2.0
"""seconds between two advances of a counter"""
LEASE = 60.0
"""seconds after which a counter that stands still belongs to a dead worker"""
FREE = -1
"""the newest claim of a trial that nobody has claimed"""


class LostClaimError(Exception):
    """Another worker has taken a trial over. It reaches no user: the trial is that worker's now."""


class WorkerLine(NamedTuple):
    """What one worker does now."""

    worker: str
    trial: str
    seconds: float
    """since when, by the worker's own clock"""

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.trial}, {self.seconds:.0f} s"


@cache
def machine_id() -> str:
    """Identifies this machine, since it was started, and the group of processes that see each other's numbers."""
    parts = [platform.node()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(), os.readlink("/proc/self/ns/pid")]
    return sha256("/".join(parts).encode())[:16]


class Claims:
    """The claims in a folder, as one process has watched them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[Path, tuple[bytes, float]] = {}
        """of each claim, its content when it last changed, and when that was by our stopwatch"""

    def takeable(self, key: str) -> int | None:
        """The number of a trial's newest claim, whose owner is dead or gave it up; ``FREE``: no claim; None: somebody runs it."""
        numbers = _numbers(self.folder, key)
        if not numbers:
            return FREE
        return numbers[-1] if self._is_dead(self.folder / f"{key}.{numbers[-1]}") else None

    def _is_dead(self, file: Path) -> bool:
        try:
            content = file.read_bytes()
        except FileNotFoundError:  # its trial was finished this moment
            return False
        values = _values(content)
        if values.get("released") or _is_gone(values):
            return True
        before, since = self.seen.get(file, (None, 0.0))
        if content != before:
            self.seen[file] = content, time.monotonic()
            return False
        return time.monotonic() - since > LEASE

    @contextmanager
    def claim(self, key: str, after: int, what: str) -> Iterator[bool]:
        """Whether we run the trial: its claim is created, after the one of this number, and kept up until the context ends.

        If it ends by an exception the claim is given up, otherwise the trial is done, and its claims are removed.
        Raises ``StorageError`` if the folder cannot be written.
        """
        file = self.folder / f"{key}.{after + 1}"
        claim = _Claim.create(file, what) if _numbers(self.folder, key)[-1:] in ([], [after]) else None
        if claim is None:
            yield False
            return
        token = _current.set(claim)
        try:
            yield True
        except BaseException:
            claim.give_up()
            raise
        else:
            claim.remove()
        finally:
            _current.reset(token)
            claim.stop()

    def lines(self) -> list[WorkerLine]:
        """What each worker does, in the order of their names."""
        found = dict[str, WorkerLine]()
        for file in sorted(self.folder.glob("*.*")) if self.folder.is_dir() else ():
            with suppress(OSError, KeyError, TypeError, ValueError):
                values = _values(file.read_bytes())
                if not values["released"] and not _is_gone(values):
                    worker = f"{values['host']}:{values['process']}"
                    found[worker] = WorkerLine(worker, str(values["trial"]), float(values["seconds"]))
        return [found[worker] for worker in sorted(found)]

    def clear(self, is_done: Callable[[str], bool]) -> None:
        """Remove the claims of the dead and of trials that are done, by their keys, and the folder, if nobody is left in it.

        Who was killed between saving a result and removing the claim may look alive from another machine until the lease ends.
        """
        for file in sorted(self.folder.glob("*.*")) if self.folder.is_dir() else ():
            if is_done(file.stem) or self._is_dead(file):
                file.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


class _Claim:
    """A claim of this process, whose counter a thread advances."""

    def __init__(self, file: Path, what: str) -> None:
        self.file = file
        self.started = time.monotonic()
        self.values: dict[str, Any] = {
            "worker": uuid.uuid4().hex,
            "host": platform.node(),
            "process": os.getpid(),
            "born": psutil.Process().create_time(),
            "machine": machine_id(),
            "trial": what,
            "beat": 0,
            "seconds": 0.0,
            "released": False,
        }
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._keep_up, daemon=True)

    @classmethod
    def create(cls, file: Path, what: str) -> _Claim | None:
        """The claim, if its file could be created; None if another process was first."""
        claim = cls(file, what)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as handle:
                handle.write(claim.content())
        except FileExistsError:
            return None
        except OSError as error:
            with suppress(OSError):
                file.unlink()
            raise StorageError(
                f"cannot write {file}: {error.strerror}; free some space: the same command goes on where it stopped"
            ) from None
        claim.thread.start()
        return claim

    def content(self) -> bytes:
        return json.dumps(self.values).encode()

    def _keep_up(self) -> None:
        while not self.done.wait(BEAT):
            self.values |= {"beat": self.values["beat"] + 1, "seconds": round(time.monotonic() - self.started, 1)}
            self._write()

    def _write(self) -> None:
        """Renew the file in place: it needs no space, and if it was removed it stays so."""
        with suppress(OSError), self.file.open("r+b") as handle:  # opened anew, so that other machines see what was written
            handle.write(self.content())
            handle.truncate()

    def is_lost(self) -> bool:
        """Whether another worker has taken the trial over."""
        key, number = self.file.name.rsplit(".", 1)
        return _numbers(self.file.parent, key)[-1:] != [int(number)]

    def give_up(self) -> None:
        """Let others have the trial. The file stays, so that no number is ever created twice."""
        self.stop()
        self.values["released"] = True
        self._write()

    def remove(self) -> None:
        """Remove this claim and those before it, the oldest first: the trial is done, or another's."""
        self.stop()
        key, own = self.file.name.rsplit(".", 1)
        for number in _numbers(self.file.parent, key):
            if number <= int(own):
                with suppress(OSError):
                    (self.file.parent / f"{key}.{number}").unlink()

    def stop(self) -> None:
        """End the thread."""
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()


_current: ContextVar[_Claim | None] = ContextVar("_current", default=None)


def check_claim() -> None:
    """Raise ``LostClaimError`` if the trial that runs here was taken over by another worker; to be called before it is saved."""
    claim = _current.get()
    if claim is not None and claim.is_lost():
        raise LostClaimError


def _numbers(folder: Path, key: str) -> list[int]:
    """The numbers of the claims of a trial, in order."""
    return sorted(int(file.suffix[1:]) for file in folder.glob(f"{key}.*") if file.suffix[1:].isdigit())


def _values(content: bytes) -> dict[str, Any]:
    """What a claim says; nothing if its owner is writing it, or was killed meanwhile."""
    try:
        values = json.loads(content)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _is_gone(values: dict[str, Any]) -> bool:
    """Whether the owner of a claim was a process of this machine, and is dead."""
    with suppress(KeyError, TypeError):
        return values["machine"] == machine_id() and has_ended(values["process"], values["born"])
    return False
