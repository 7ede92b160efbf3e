"""The number of threads: chosen to fit the free cores, printed, recorded, and repeated on demand; and how they wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
import yaml

from warmstart.commands import COMMANDS
from warmstart.config import ThreadsConfig
from warmstart.runs import run
from warmstart.runs.run import Run
from warmstart.system import cores


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that torch is told to use; three cores are free."""
    numbers: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.setattr(run, "free_threads", lambda: 3)
    return numbers


def recorded(folder: Path) -> int:
    return int(yaml.safe_load((folder / "config.yaml").read_text())["threads"])


def test_threads_fit_the_free_cores_and_are_recorded(used: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user is told how to repeat the run exactly."""
    Run.open(str(tmp_path / "run"), ThreadsConfig())
    assert used == [recorded(tmp_path / "run")] == [3]
    assert "computing with 3 threads; --threads 3 repeats this run exactly" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_threads(used: list[int], tmp_path: Path) -> None:
    """The number asked for is used, whatever else the machine does, and again on resuming; a number that is given anew wins."""
    Run.open(str(tmp_path / "run"), ThreadsConfig(threads=2))
    Run.open(str(tmp_path / "run"), ThreadsConfig())
    assert recorded(tmp_path / "run") == 2
    Run.open(str(tmp_path / "run"), ThreadsConfig(threads=4))
    assert used == [2, 2, 4]


def test_the_quickstart_and_studies_choose_their_threads() -> None:
    """Every one of them."""
    for name, command in COMMANDS.items():
        if name.startswith("study ") or name == "quickstart":
            assert issubclass(command.load_settings(), ThreadsConfig), name


WAITS: list[tuple[list[float], dict[str, str], dict[str, str]]] = [
    ([0.0, 20.0], {}, {"GOMP_SPINCOUNT": cores.SPINS}),
    ([90.0, 10.0], {}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ([90.0, 10.0], {"OMP_NUM_THREADS": "1"}, {"GOMP_SPINCOUNT": cores.SPINS}),
    ([90.0, 80.0], {"OMP_NUM_THREADS": "1"}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ([90.0, 10.0], {"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
    ([90.0, 10.0], {"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
]
"""how busy two cores are, the variables of the user, and what is chosen"""


def test_threads_sleep_while_they_wait_on_busy_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the threads and other programs need more cores than there are; else they look for a while. The user's word wins."""
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [0, 1], raising=False)
    for busy, given, chosen in WAITS:
        monkeypatch.setattr(os, "environ", dict(given))
        monkeypatch.setattr(psutil, "cpu_percent", lambda *args, busy=busy, **named: busy)
        cores.choose_waiting()  # torch is loaded in this process: too late
        assert os.environ == given
        with monkeypatch.context() as patch:
            patch.setattr(cores, "sys", SimpleNamespace(modules={}))
            cores.choose_waiting()
        assert {name: value for name, value in os.environ.items() if name in cores.VARIABLES} == chosen


def test_the_package_chooses_how_threads_wait_as_well() -> None:
    """When its first name is used, in a program or a notebook: before torch is loaded."""
    code = "import os, sys, warmstart as ws; ws.load; print('torch' in sys.modules, len(os.environ.keys() & set(sys.argv[1:])))"
    environment = {name: value for name, value in os.environ.items() if name not in cores.VARIABLES}
    command = [sys.executable, "-c", code, *cores.VARIABLES]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "True 1\n"


@pytest.mark.skipif(sys.platform != "linux", reason="torch has libgomp on Linux")
@pytest.mark.parametrize(("given", "shown"), [({}, ("0", cores.SPINS)), ({"OMP_WAIT_POLICY": "ACTIVE"}, ("30000000000",))])
def test_torch_hears_how_threads_wait(given: dict[str, str], shown: tuple[str, ...], tmp_path: Path) -> None:
    """The command line chooses before torch is loaded: libgomp itself says how often its threads look before they sleep."""
    environment = {name: value for name, value in os.environ.items() if name not in cores.VARIABLES}
    command = [sys.executable, "-m", "warmstart", "predict", str(tmp_path), "a text"]
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **given}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    assert any(f"GOMP_SPINCOUNT = '{spins}'" in said for spins in shown)
