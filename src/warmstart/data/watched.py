"""Reading what may expand without limit, in a process that watches its memory and its time."""

from __future__ import annotations

import subprocess
from pathlib import Path

from warmstart.data.files import too_large
from warmstart.errors import DataError
from warmstart.system.processes import run_python

COPIES = 8
"""bytes of memory that reading a file needs for each byte of its texts, at most"""
READ_WITHIN_SECONDS = 120
"""that a file may take"""
_TOO_LARGE = 9
"""exit code of the process that reads a file, if its memory grows too much"""
_WATCH = f"""
import os, threading, time
import psutil
resident = lambda: psutil.Process().memory_info().rss
most = resident() + int(sys.argv[2])
def watch():
    while resident() < most:
        time.sleep(0.005)
    os._exit({_TOO_LARGE})
threading.Thread(target=watch, daemon=True).start()
"""
"""ends once it takes too much memory; a limit set by the system is no use, since libraries may wait for ever for memory that they
are refused"""


def run_watched(imports: str, code: str, read: Path, most: int, file: Path) -> subprocess.CompletedProcess[str]:
    """Run code that reads ``read`` (``sys.argv[1]``) in a fresh process that may take ``most`` bytes more than its ``imports``.

    Raises ``DataError``, which names ``file``, if it takes more or is killed; what else it ends with is returned.
    """
    run = run_python(f"{imports}\n{_WATCH}\n{code}", str(read.absolute()), str(most), seconds=READ_WITHIN_SECONDS)
    if run.returncode == _TOO_LARGE or run.returncode < 0:
        raise DataError(too_large(file))
    return run
