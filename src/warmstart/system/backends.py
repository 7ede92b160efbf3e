"""Backends of trials: this process, others of this machine by joblib, or the workers of a Dask cluster.

A backend only decides where a function is called; its results are files of the folder, which all machines must see. Dask is an
extra, imported when it is needed.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from warmstart.errors import ConfigError, ModelError
from warmstart.system.processes import in_workers

PROCESSES = "processes"
WAIT_FOR_CLUSTER = 30
"""seconds in which the scheduler of a cluster must answer"""


def known_backend(name: str) -> str:
    """The name itself. Raises ``ValueError`` if it names no backend."""
    if not re.fullmatch(r"processes|dask://\S+:\d+", name):
        raise ValueError(f"must be processes or dask://HOST:PORT, but is {name!r}; other clusters are reached through Dask")
    return name


def check_backend(name: str) -> None:
    """Raise ``ConfigError`` that names the extra if the library of a backend is not installed."""
    if name != PROCESSES:
        _distributed()


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise ConfigError(
            '--backend dask needs the package distributed, which is not installed; pip install "warmstart[dask]"'
        ) from None


def spread_calls(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], backend: str, *, jobs: int
) -> Generator[tuple[int, Any], None, None]:
    """(number of the call, what it returns), as they come. Raises what a call raises; ``ModelError`` if a worker was killed.

    ``processes`` with one job is this process; a cluster has as many workers as it has.
    """
    if backend == PROCESSES:
        yield from in_workers(function, calls, jobs, ModelError)
    else:
        yield from _on_dask(function, calls, backend)


def _elsewhere(folder: str, i: int, function: Callable[..., Any], call: tuple[Any, ...]) -> tuple[int, Any]:
    """The call on another machine: relative paths mean what they mean here."""
    if Path.cwd() != Path(folder):
        try:
            os.chdir(folder)
        except OSError as error:
            raise ModelError(f"workers must see the same files, but one cannot enter {folder}: {error.strerror}") from None
    return i, function(*call)


def _on_dask(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], backend: str) -> Iterator[tuple[int, Any]]:
    distributed = _distributed()
    address = backend.replace("dask://", "tcp://")
    try:
        client = distributed.Client(address, timeout=WAIT_FOR_CLUSTER, set_as_default=False)
    except OSError as error:
        raise ConfigError(f"--backend {backend} must be the address of a Dask scheduler, but it does not answer: {error}") from None
    with client:
        futures = [client.submit(_elsewhere, os.getcwd(), i, function, call, pure=False) for i, call in enumerate(calls)]
        try:
            for future in distributed.as_completed(futures, loop=client.loop):
                yield future.result()
        except distributed.KilledWorker:
            raise ModelError(
                "a trial has killed several workers of the cluster, perhaps because memory ran out; the same command goes on"
            ) from None
        finally:
            client.cancel(futures)
