"""Another process that holds a lock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from warmstart.system.locks import hold
hold(Path(sys.argv[1]), "it")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_another(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """The process that holds it; it is killed at the end."""
    words = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()
