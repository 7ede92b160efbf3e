"""A crew: several commands of warmstart at once, each a fork of one process that has imported everything.

``apart``: every command believes that it is alone on its machine, so that the death of another shows in its lease alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any


class Crew:
    """Starts commands, and says how they ended."""

    def __init__(self, folder: Path, *, apart: bool = False) -> None:
        self.saved = folder / "saved.txt"
        """one line for each result that was saved"""
        self.log = folder / "crew.txt"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.crew"],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CREW_SAVED": str(self.saved)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.apart = apart

    def start(self, *words: str) -> int:
        """Start a command; its process."""
        return int(self._ask({"words": words, "log": str(self.log), "apart": self.apart}))

    def wait(self, process: int) -> int:
        """The exit code of a command, when it has ended."""
        return int(self._ask({"wait": process}))

    def is_running(self, process: int) -> bool:
        """Whether a command has not ended yet."""
        return bool(self._ask({"running": process}))

    def kill(self, process: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a command that has not been waited for."""
        os.kill(process, number)

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        with self.process:
            pass


def _in_child(request: dict[str, Any]) -> None:
    """Run one command."""
    from warmstart.cli import main
    from warmstart.locks import _held, _release
    from warmstart.sweep import claims, execution

    handle = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    save = execution.save_result

    def noted(trial: Any, context: Any, *rest: Any) -> None:
        save(trial, context, *rest)
        with open(os.environ["CREW_SAVED"], "ab", buffering=0) as file:
            file.write(f"{execution.result_file(trial, context).stem}\n".encode())

    execution.save_result = noted
    claims.BEAT, claims.LEASE = 0.1, 4.0
    if request["apart"]:
        name = f"machine-{os.getpid()}"
        claims.machine_id = lambda: name  # type: ignore[assignment]
    code = 99
    try:
        code = main(request["words"])
        _release({*_held})
    except BaseException:  # whatever escapes is what the test looks for
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    """Answer requests on standard input."""
    import torch

    from warmstart.commands import COMMANDS
    from warmstart.model import files
    from warmstart.report import page
    from warmstart.sweep.record import source_digest

    torch.set_num_threads(1)
    source_digest()  # the same for all, whoever edits a file meanwhile
    COMMANDS["race"].load()
    files._verify_in_fresh_process = lambda place: files.load_bundle(place, selftest=True) and None
    page.svg, page._script = lambda spec: "<svg/>", lambda: ""
    ended = dict[int, int]()
    for line in sys.stdin:
        request = json.loads(line)
        if "words" in request:
            if (child := os.fork()) == 0:
                _in_child(request)
            print(json.dumps(child), flush=True)
            continue
        child = request.get("wait") or request["running"]
        if child not in ended:
            pid, status = os.waitpid(child, 0 if "wait" in request else os.WNOHANG)
            if pid:
                ended[child] = os.waitstatus_to_exitcode(status)
        print(json.dumps(ended.get(child) if "wait" in request else child not in ended), flush=True)


if __name__ == "__main__":
    serve()
