"""Processes: fresh ones of Python, isolated from the user's current folder and site packages, and workers of joblib."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warmstart.errors import WarmstartError
from warmstart.system.cores import allowed_cores
from warmstart.system.stopping import end_with_parent

_PACKAGE = Path(__file__).resolve().parents[2]
KILLED = -9
"""exit code of a process that was killed, as on Linux; Windows has no such signal"""
_PREAMBLE = "import sys; sys.path.append(sys.argv.pop(1)); "
"""the folder that contains the package is put at the end of the path, where nothing in it can shadow another module"""


def run_python(code: str, *arguments: str, text: str = "", seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python code in a fresh process with ``arguments`` in ``sys.argv[1:]`` and ``text`` on its standard input.

    The process is isolated (``isolated_children``) and runs in an empty folder, so paths among the arguments must be absolute.
    Returns the finished process with its output as text; a failure does not raise. After ``seconds`` it is killed, and its exit
    code is ``KILLED``.
    """
    with started_python(code, *arguments) as process:
        try:
            output, errors = process.communicate(text, timeout=seconds)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(process.args, KILLED, "", "")
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


@contextmanager
def started_python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process while it runs: its standard input, output and errors are pipes. It is killed where the context ends."""
    command = [sys.executable, "-X", "utf8", "-c", _PREAMBLE + code, str(_PACKAGE), *arguments]
    with tempfile.TemporaryDirectory() as empty:
        with isolated_children():
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", cwd=empty,
                env=os.environ | {"PYTHONIOENCODING": "utf-8"},
            )  # fmt: skip
        with process:
            try:
                yield process
            finally:
                process.kill()  # nothing, if it has ended


@contextmanager
def isolated_children() -> Iterator[None]:
    """Python processes that start meanwhile, also those of joblib and torch, import nothing that lies in the current folder.

    Nor from the user's site packages, unless warmstart or torch itself is installed there. So a ``random.py`` or a
    ``usercustomize.py`` in these places is never executed. It works by environment variables, which children inherit.
    """
    paths = [str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    changes = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    if not _installed_for_user():
        changes["PYTHONNOUSERSITE"] = "1"
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def isolated_workers() -> Iterator[None]:
    """Worker processes of joblib start as ``isolated_children``, and end with the work; if it fails they are killed.

    joblib would keep them for the next work. If that needs far more memory it takes the growth for a leak, ends the workers, and
    can wait for them for ever.
    """
    from joblib.externals.loky import reusable_executor

    done = False
    try:
        with isolated_children():
            yield
        done = True
    finally:
        if reusable_executor._executor is not None:
            reusable_executor._executor.shutdown(wait=True, kill_workers=not done)


def in_workers(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int, error: type[WarmstartError]
) -> Iterator[tuple[int, Any]]:
    """(number of the call, what it returns), as they come, from so many processes of joblib; with one job, from this process.

    Raises what a call raises; ``error`` if a worker was killed.
    """
    if jobs == 1 or not calls:
        yield from ((i, function(*call)) for i, call in enumerate(calls))
        return
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    work: Iterable[Any] = (joblib.delayed(_in_worker)(function, i, call, jobs) for i, call in enumerate(calls))
    try:
        with isolated_workers():
            yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(work)
    except TerminatedWorkerError:
        raise error(
            f"a worker of {jobs} was killed, perhaps because memory ran out; use fewer --jobs: the same command goes on"
        ) from None


def _in_worker(function: Callable[..., Any], i: int, call: tuple[Any, ...], jobs: int) -> tuple[int, Any]:
    end_with_parent()
    os.environ.setdefault("RAYON_NUM_THREADS", str(max(1, len(allowed_cores()) // jobs)))  # read by tokenizers at the first text
    return i, function(*call)


def wanted_processes() -> int:
    """Number of processes that a launcher such as ``torchrun`` has started, by the environment; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _installed_for_user() -> bool:
    """True if warmstart or torch comes from the user's site packages, so that no process can do without them."""
    torch = find_spec("torch")
    places = [_PACKAGE, Path(torch.origin) if torch and torch.origin else _PACKAGE]
    return any(place.is_relative_to(site.getusersitepackages()) for place in places)
