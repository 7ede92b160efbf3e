"""``torchrun -m warmstart pretrain``, as users start it: what it prints, how it ends, what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from helpers.models import SENTENCES
from helpers.settings import in_file
from warmstart.cli import main

SECONDS = 240
"""after which a command that hangs fails its test"""
SMALL = [
    "--tokenizer.vocab-size", "300", "--width", "16", "--heads", "2", "--depth", "1", "--max-length", "16",
    "--batch", "5", "--optimizer", "adamw", "--learning-rate", "1e-3", "--precision", "float32",
]  # fmt: skip


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``warmstart WORDS`` in two processes, with flags of the launcher; what still runs in the end is killed."""
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES * 30))
    launched: list[subprocess.Popen[str]] = []

    def start(*words: str, flags: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *flags]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"}
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        launched.append(subprocess.Popen([*launcher, "-m", "warmstart", *words], cwd=tmp_path, env=environment, text=True, **both))
        return launched[-1]

    yield start
    for process in launched:
        end_all(process, signal.SIGKILL)


def end_all(process: subprocess.Popen[str], number: int) -> None:
    """Sends a signal to what a launcher started, and kills the launcher."""
    for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
        child.send_signal(number)
    process.kill()


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed; if it hangs, also where each process stands."""
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        end_all(process, signal.SIGABRT)
        return pytest.fail(f"it hangs\n{process.communicate(timeout=SECONDS)[0]}")


def of_rank(process: subprocess.Popen[str], rank: int) -> psutil.Process:
    """One of the processes that a launcher started."""
    children = psutil.Process(process.pid).children()
    return next(child for child in children if child.environ().get("RANK") == str(rank))


def wait_for(found: Callable[[], bool]) -> None:
    """Until something has happened."""
    until = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.01)


def assert_same_weights(folder: Path, atol: float, rtol: float) -> None:
    """The saved models of the runs ``one`` and ``two`` in a folder."""
    one, two = (load_file(folder / name / "bundle" / "weights.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        assert_close(two[name], tensor, atol=atol, rtol=rtol, msg=lambda text, name=name: f"{name}: {text}")


def checkpoints(folder: Path) -> list[str]:
    return sorted(place.name for place in (folder / "checkpoints").glob("step-*"))


@pytest.mark.journeys
def test_a_killed_process_is_replaced_and_the_run_ends_as_one_process(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ``--max-restarts``: it goes on from the last checkpoint, and every step is in the log once. Rank 0 alone prints."""
    rare = in_file(backbone={"dropout": 0.1}, train={"checkpoint_every": 10, "evaluate_every": 75})
    words = ["pretrain", "text.txt", *SMALL, "--steps", "150", *rare]
    process = started(*words, "--out", "two", flags=("--max-restarts", "3"))  # new processes may not reach each other at once
    wait_for(lambda: len(checkpoints(tmp_path / "two")) > 0)
    of_rank(process, 1).kill()
    said = ended(process)
    assert process.returncode == 0, said
    assert said.count("warmstart: another process of this run ended before its work was done: it was killed") == 1
    assert said.count("step 150: held-out loss") == 1
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--out", "one"]) == 0
    assert_same_weights(tmp_path, atol=1e-4, rtol=1e-3)
    logs = [map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines()) for name in ("one", "two")]
    assert [row["step"] for row in logs[0]] == [row["step"] for row in logs[1]]


@pytest.mark.journeys
@pytest.mark.parametrize("whom", ["launcher", "rank 1"])
def test_sigterm_saves_and_ends_all(whom: str, tmp_path: Path, started: Callable[..., subprocess.Popen[str]]) -> None:
    """Whoever gets it: the processes finish the same step, write a checkpoint and exit with 143."""
    rare = in_file(train={"checkpoint_every": 50_000})
    process = started("pretrain", "text.txt", *SMALL, "--steps", "100000", *rare, "--out", "run")
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    (process if whom == "launcher" else of_rank(process, 1)).send_signal(signal.SIGTERM)
    said = ended(process)
    (kept,) = checkpoints(tmp_path / "run")
    assert said.count(f"A checkpoint of step {int(kept.split('-')[1])} is saved.") == 1
    assert said.count("warmstart: terminated; to go on, run `warmstart pretrain --resume run`") == 1
    if whom == "rank 1":
        assert "143" in said  # the launcher's own report


@pytest.mark.journeys
def test_commands_of_one_process_refuse_to_run_in_several(started: Callable[..., subprocess.Popen[str]]) -> None:
    """Once, before anything is done."""
    process = started("doctor", "nothing")
    said = ended(process)
    assert said.count("warmstart: `warmstart doctor` runs in one process; start it without torchrun") == 1
    assert said.count("exitcode  : 2") >= 1
