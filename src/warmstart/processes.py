"""Fresh Python processes, isolated from the user's current folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_PREAMBLE = "import sys; sys.path.append(sys.argv.pop(1)); "
"""the folder that contains the package is put at the end of the path, where nothing in it can shadow another module"""


def run_python(code: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python code in a fresh process with ``arguments`` in ``sys.argv[1:]`` and ``text`` on its standard input.

    The process runs in an empty folder and without the current folder on its path (``-P``), so that a ``random.py`` in the user's
    current folder is never executed. Paths among the arguments must therefore be absolute. Returns the finished process with its
    output as text; a failure does not raise.
    """
    package = Path(__file__).resolve().parents[1]
    paths = [str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-P", "-c", _PREAMBLE + code, str(package), *arguments]
    with tempfile.TemporaryDirectory() as empty:
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=empty, env=environment)
