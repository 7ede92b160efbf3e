"""Commands whose system calls of writing fail: at the n-th one the process gets a signal, or the disk is full, or does not answer.

``FaultyCommands`` starts this file as a process that runs a command once and forks for each further one: they cost no start.
Calls are counted from 1: writes to files, and everything that makes, renames, removes or flushes one. A write that a kill strikes
writes half of its bytes first.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

CALLS = ("replace", "rename", "fsync", "mkdir", "unlink", "rmdir", "truncate")
"""functions of ``os``"""
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
ERRORS = ("ENOSPC", "EIO")


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    """exit code; of a killed process the negative signal"""
    calls: int
    """system calls of writing, if it was not killed"""
    printed: str


class FaultyCommands:
    """Runs commands of warmstart with one fault each, in forks of a process that has imported everything."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "printed.txt"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.faults"],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},  # threads do not survive a fork
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def warm_up(self, *words: str) -> None:
        """Run a command in the process itself: what it prepares once serves all others. It must start no threads."""
        assert self._ask(words, "", 0).code == 0, self.log.read_text()

    def run(self, *words: str, fault: str = "", at: int = 0) -> Outcome:
        """Run one command to its end."""
        return self._ask(words, fault, at or -1)

    def _ask(self, words: tuple[str, ...], fault: str, at: int) -> Outcome:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"words": words, "fault": fault, "at": at, "log": str(self.log)}) + "\n")
        self.process.stdin.flush()
        code, calls = json.loads(self.process.stdout.readline())
        return Outcome(code, calls, self.log.read_text())

    def close(self) -> None:
        """End the process."""
        with self.process:
            pass


class _Faults:
    """Counts the calls of this process, and lets one of them fail."""

    def __init__(self, fault: str, at: int) -> None:
        self.fault, self.at, self.calls, self.full = fault, at, 0, False

    def __call__(self, before: Callable[[], object] = lambda: None, *, takes_space: bool = True) -> None:
        self.calls += 1
        if self.full and takes_space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.calls != self.at:
            return
        if self.fault in SIGNALS:
            if self.fault == "SIGKILL":
                before()
            os.kill(os.getpid(), getattr(signal, self.fault))
        else:
            self.full = self.fault == "ENOSPC"
            raise OSError(number := getattr(errno, self.fault), os.strerror(number))


def install(faults: _Faults) -> None:
    """Put the faults in the way of everything in this process that writes."""
    real_open, root = io.open, os.environ["FAULTS_BELOW"]

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            faults(lambda: super(Raw, self).write(bytes(data)[: len(bytes(data)) // 2]))
            return super().write(data) or 0

    def faulty_open(file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, *rest: Any, **named: Any) -> Any:
        if isinstance(file, int) or not {*mode} & {*"wax+"} or not str(os.path.abspath(file)).startswith(root):
            return real_open(file, mode, buffering, encoding, *rest, **named)
        raw = Raw(file, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        buffer: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, encoding, *rest, **named)

    def faulty(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            faults(takes_space=name in ("mkdir", "fsync"))
            return call(*arguments, **named)

        return called

    from warmstart.system import storage

    io.open = builtins.open = faulty_open  # type: ignore[assignment]
    for name in CALLS:
        setattr(os, name, faulty(getattr(os, name), name))
    storage._exchange = faulty(storage._exchange, "exchange")  # type: ignore[assignment]


def _in_child(request: dict[str, Any], answer: int) -> None:
    """Run one command, and answer how many calls it made."""
    from warmstart.cli import main
    from warmstart.system.locks import _held, _release

    handle = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    faults, code = _Faults(request["fault"], request["at"]), 99
    install(faults)
    try:
        code = main(request["words"])
        _release({*_held})  # what the end of a program does
    except BaseException:  # whatever escapes is what the test looks for
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(answer, str(faults.calls).encode())
    os._exit(code)


def serve() -> None:
    """Answer each request on standard input by the exit code of its command and the number of its calls."""
    import torch

    from warmstart.baselines import BASELINES
    from warmstart.cli import main
    from warmstart.commands import COMMANDS
    from warmstart.model import files
    from warmstart.report import page

    torch.set_num_threads(1)
    for name in ("adapt", "race", "recipe"):
        COMMANDS[name].load()
    # all baselines, charts, and a fresh process for each save, cost seconds
    BASELINES._rows = {name: BASELINES[name] for name in ("majority", "NBSVM", "naive Bayes + EM")}
    files._fresh_reader = lambda: nullcontext(lambda place: files.load_saved(place) and None)
    page.svg, page._script = lambda spec: "<svg/>", lambda: ""
    for line in sys.stdin:
        request = json.loads(line)
        if request["at"] == 0:
            with open(request["log"], "w") as log, redirect_stdout(log), redirect_stderr(log):
                print(json.dumps([main(request["words"]), 0]), file=sys.__stdout__, flush=True)
            continue
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            _in_child(request, writing)
        os.close(writing)
        with os.fdopen(reading) as calls:
            answered = calls.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([code, int(answered or 0)]), flush=True)


if __name__ == "__main__":
    serve()
