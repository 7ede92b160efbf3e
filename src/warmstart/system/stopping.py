"""Stopping a process: by Ctrl-C (SIGINT) and SIGTERM, and workers whose parent is gone.

SIGTERM raises ``Terminated`` wherever the program is, as Ctrl-C raises ``KeyboardInterrupt``. Training with a folder asks to finish
its step first (``asked_to_stop``), so that it can write a checkpoint; a second signal stops it at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

import psutil

LOOK_EVERY = 0.5
"""seconds after which a worker looks again whether its parent lives"""


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM."""


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """The handler of SIGTERM."""
    raise Terminated


@contextmanager
def termination_raises() -> Iterator[None]:
    """SIGTERM raises ``Terminated`` meanwhile. Only a program's main thread receives signals; elsewhere nothing changes."""
    with _handlers({signal.SIGTERM: raise_terminated}):
        yield


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], type[KeyboardInterrupt] | None]]:
    """A function that says by which exception to stop, if a signal came meanwhile; a second signal raises it at once."""
    asked: list[type[KeyboardInterrupt]] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        if len(asked) > 1:
            raise asked[-1]

    with _handlers({signal.SIGINT: ask, signal.SIGTERM: ask}):
        yield lambda: asked[0] if asked else None


def agreed_exception(asked: type[KeyboardInterrupt] | None, largest: Callable[[int], int]) -> type[KeyboardInterrupt] | None:
    """The exception by which all processes of a run stop, if any of them is asked to; ``largest`` compares a number of each."""
    causes = (None, KeyboardInterrupt, Terminated)
    return causes[largest(causes.index(asked))]


@contextmanager
def _handlers(wanted: dict[signal.Signals, Any]) -> Iterator[None]:
    """Signal handlers for a while; a signal that is ignored (``nohup``), or that no Python handles, stays so."""
    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in wanted} if here else {}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, wanted[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@cache
def end_with_parent() -> None:
    """Let this process end soon after the one that started it, if it is a worker: its work would be lost."""
    parent, direct = multiprocessing.parent_process(), os.getppid()
    if parent is None or parent.pid is None:
        return

    def watch(pid: int) -> None:
        while os.getppid() == direct and psutil.pid_exists(pid):
            time.sleep(LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, args=(parent.pid,), daemon=True).start()


def has_ended(process: int, seen_at: float) -> bool:
    """True if the process of this machine that had a number at a moment (seconds since 1970) is dead.

    The number may belong to a younger process now. False if the system does not say.
    """
    try:
        running = psutil.Process(process)
        return running.status() == psutil.STATUS_ZOMBIE or running.create_time() > seen_at + 1
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
