"""Fresh Python processes, isolated from the user's current folder and site packages."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_PREAMBLE = "import sys; sys.path.append(sys.argv.pop(1)); "
"""the folder that contains the package is put at the end of the path, where nothing in it can shadow another module"""


def run_python(code: str, *arguments: str, text: str = "", seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python code in a fresh process with ``arguments`` in ``sys.argv[1:]`` and ``text`` on its standard input.

    The process is isolated (``isolated_children``) and runs in an empty folder, so paths among the arguments must be absolute.
    Returns the finished process with its output as text; a failure does not raise. After ``seconds`` it is killed, and its exit
    code is -9.
    """
    command = [sys.executable, "-c", _PREAMBLE + code, str(_PACKAGE), *arguments]
    with tempfile.TemporaryDirectory() as empty, isolated_children():
        try:
            return subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=empty, timeout=seconds)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, -signal.SIGKILL, "", "")


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


def _installed_for_user() -> bool:
    """Whether warmstart or torch comes from the user's site packages, so that no process can do without them."""
    torch = find_spec("torch")
    places = [_PACKAGE, Path(torch.origin) if torch and torch.origin else _PACKAGE]
    return any(place.is_relative_to(site.getusersitepackages()) for place in places)
