"""Commands that are asked to stop: what they keep, how they end, what they advise; workers do not outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from warmstart import cli
from warmstart.cli import main
from warmstart.errors import ModelError
from warmstart.system.stopping import Terminated, asked_to_stop, termination_raises

ENDS = {
    "pretrain": (["pretrain", "a.txt", "--out", "my run"], "; to go on, run `warmstart pretrain --resume 'my run'`"),
    "resumed": (["pretrain", "--resume", "my run"], "; to go on, run `warmstart pretrain --resume 'my run'`"),
    "race": (["race", "t.yaml", "--backbones", "lm"], "; the same command goes on where it stopped"),
    "recipe": (["recipe", "r.yaml"], "; the same command goes on where it stopped"),
    "adapt": (["adapt", "lm", "t.yaml"], "; the same command goes on where it stopped"),
    "import": (["import", "lm", "--out", "o"], "; the same command starts again"),
    "predict": (["audit", "t.yaml"], ""),
}


def test_a_stopped_command_advises_what_fits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and an exit code of its own for each signal."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my run").mkdir()
    read = cli.read_command
    for number, code, word in ((signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")):
        monkeypatch.setattr(
            cli, "read_command", lambda words, number=number: (lambda _: signal.raise_signal(number), read(words)[1])
        )
        for words, advice in ENDS.values():
            assert main(words) == code
            assert capsys.readouterr().err == f"warmstart: {word}{advice}\n"


def test_a_second_signal_stops_at_once() -> None:
    """The first one lets a step end; what was in force before returns."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with asked_to_stop() as reason:
        assert reason() is None
        signal.raise_signal(signal.SIGTERM)
        assert reason() is Terminated
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_ignored_signal_stays_ignored() -> None:
    """As under ``nohup``."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with termination_raises():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


WORK = """
import os, sys, time
from pathlib import Path
from warmstart.experiment import backends
def work(folder, i):
    (Path(folder) / f"{i}-{os.getpid()}").touch()
    if folder.endswith("killed"):
        os.kill(os.getpid(), 9)
    time.sleep(600)
folder = sys.argv[1]
list(backends.spread_calls(work, [(folder, 0), (folder, 1)], "processes", jobs=2))
"""


def until(found: Callable[[], Any]) -> Any:
    """What is found within a minute."""
    for _ in range(600):
        if result := found():
            return result
        time.sleep(0.1)
    raise AssertionError("nothing happened within a minute")


@pytest.mark.chaos
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(number: int, tmp_path: Path) -> None:
    """However it ended: nobody works for nobody."""
    parent = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path)], stderr=subprocess.DEVNULL)
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [int(file.name.split("-")[1]) for file in tmp_path.iterdir()]
    assert all(map(psutil.pid_exists, workers))
    assert os.getpid() not in workers
    parent.send_signal(number)
    parent.wait()
    until(lambda: not any(map(psutil.pid_exists, workers)))


@pytest.mark.chaos
def test_a_killed_worker_is_named(tmp_path: Path) -> None:
    """Not with a traceback of joblib."""
    (place := tmp_path / "killed").mkdir()
    found = subprocess.run([sys.executable, "-c", WORK, str(place)], capture_output=True, text=True, check=False)
    assert f"{ModelError.__name__}: a worker of 2 was killed, perhaps because memory ran out; use fewer --jobs" in found.stderr
