"""Where trials run: in this process, in others of this machine by joblib, on a cluster of Dask or Ray, or in jobs of SLURM.

A backend only decides where a function is called; its results are files of the folder, which all machines must see. Libraries of
clusters are extras, imported when they are needed.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from warmstart.config import Config, InFile
from warmstart.errors import ConfigError, ModelError
from warmstart.system.processes import in_workers

PROCESSES, SLURM = "processes", "slurm"
WAIT_FOR_CLUSTER = 30
"""seconds in which the scheduler of a cluster must answer"""
_KILLED = "a trial has killed several workers of the cluster, perhaps because memory ran out; the same command goes on"


class SlurmConfig(Config):
    """What each job asks SLURM for, beside a core for each thread of a trial."""

    partition: str | None = None
    """partition; default: that of the cluster"""
    account: InFile[str | None] = None
    """account that is charged"""
    minutes: int = Field(240, gt=0)
    """time limit of a job; trials that it cuts short are run by the next command"""
    memory: InFile[int] = Field(8, gt=0)
    """gigabytes of memory"""
    cluster: InFile[Literal["slurm", "local"]] = "slurm"
    """local: processes of this machine in place of jobs, to try it out"""


def known_backend(name: str) -> str:
    """The name itself. Raises ``ValueError`` if it names no backend."""
    if not re.fullmatch(r"processes|slurm|ray|ray://\S+:\d+|dask://\S+:\d+", name):
        raise ValueError(f"must be processes, dask://HOST:PORT, ray, ray://HOST:PORT or slurm; got {name!r}")
    return name


def check_backend(name: str) -> None:
    """Raise ``ConfigError`` that names the extra if the library of a backend is not installed."""
    if name.startswith("dask:"):
        _library("distributed", "dask")
    elif name.startswith("ray"):
        _library("ray", "ray")
    elif name == SLURM:
        _library("submitit", "slurm")


def _library(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigError(
            f'--backend {extra} needs the package {module}, which is not installed; pip install "warmstart[{extra}]"'
        ) from None


def spread_calls(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], backend: str, *, jobs: int, threads: int
) -> Iterator[tuple[int, Any]]:
    """(number of the call, what it returns), as they come. Raises what a call raises; ``ModelError`` if a worker was killed.

    ``processes`` with one job is this process; a cluster has as many workers as it has, each call with so many ``threads``.
    """
    if backend.startswith("dask:"):
        yield from _on_dask(function, calls, backend)
    elif backend.startswith("ray"):
        yield from _on_ray(function, calls, backend, jobs, threads)
    else:
        yield from in_workers(function, calls, jobs, ModelError)


def _elsewhere(folder: str, i: int, function: Callable[..., Any], call: tuple[Any, ...]) -> tuple[int, Any]:
    """The same on another machine: relative paths mean what they mean here."""
    if Path.cwd() != Path(folder):
        try:
            os.chdir(folder)
        except OSError as error:
            raise ModelError(f"workers must see the same files, but one cannot enter {folder}: {error.strerror}") from None
    return i, function(*call)


def _on_dask(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], backend: str) -> Iterator[tuple[int, Any]]:
    distributed = _library("distributed", "dask")
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
            raise ModelError(_KILLED) from None
        finally:
            client.cancel(futures)


def _on_ray(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], backend: str, jobs: int, threads: int
) -> Iterator[tuple[int, Any]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import: nothing is sent to anybody
    ray = _library("ray", "ray")
    connect: dict[str, Any] = {"address": backend} if backend != "ray" else {}
    if not connect and "RAY_ADDRESS" not in os.environ:
        connect = {"num_cpus": jobs * threads, "include_dashboard": False}
    if not ray.is_initialized():
        try:
            ray.init(**connect, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(f"--backend {backend} needs a Ray cluster, but cannot use one: {error}") from None
    remote = ray.remote(num_cpus=threads)(_elsewhere)
    pending = [remote.remote(os.getcwd(), i, function, call) for i, call in enumerate(calls)]
    try:
        while pending:
            (done, *_), pending = ray.wait(pending)
            yield ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.WorkerCrashedError:
        raise ModelError(_KILLED) from None
    finally:
        for one in pending:
            ray.cancel(one)


@dataclass(frozen=True)
class SlurmJobs:
    """The jobs that work on trials."""

    jobs: Sequence[Any]
    folder: Path
    """of their logs"""

    @classmethod
    def submit(cls, work: Sequence[Callable[[], Any]], threads: int, settings: SlurmConfig, folder: Path) -> SlurmJobs:
        """Submit a job for each piece of ``work``."""
        submitit = _library("submitit", "slurm")
        try:
            executor = submitit.AutoExecutor(folder=str(folder), cluster=settings.cluster)
            limits = {"timeout_min": settings.minutes, "cpus_per_task": threads, "name": "warmstart"}
            slurm = {"slurm_partition": settings.partition, "slurm_account": settings.account, "slurm_mem": f"{settings.memory}G"}
            executor.update_parameters(**limits, **{name: value for name, value in slurm.items() if value is not None})
            return cls([executor.submit(one) for one in work], folder)
        except (RuntimeError, OSError, submitit.core.utils.FailedJobError) as error:
            raise ConfigError(
                f"--backend slurm must be used where jobs can be submitted, but SLURM refuses: {error}; see sinfo, and the "
                "settings --slurm.partition and so on"
            ) from None

    def ended(self) -> bool:
        """Whether no job works any more."""
        return all(job.done() for job in self.jobs)

    def failure(self, left: int) -> ModelError:
        """The error that all jobs have ended, with so many trials left."""
        errors = [str(error).strip().splitlines()[-1] for job in self.jobs if (error := job.exception()) is not None]
        return ModelError(
            f"all {len(self.jobs)} jobs have ended, but {left} trials are left{f' ({errors[0]})' if errors else ''}; "
            f"see their logs in {self.folder}; the same command submits new jobs"
        )

    def cancel(self) -> None:
        """End the jobs that still run."""
        for job in self.jobs:
            if not job.done():
                job.cancel()
