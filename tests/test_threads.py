"""The number of threads: chosen to fit the free cores, printed, recorded, and repeated on demand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from warmstart import run
from warmstart.commands import COMMANDS
from warmstart.run import ThreadsConfig, open_run


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
    open_run(str(tmp_path / "run"), ThreadsConfig(), resume=False)
    assert used == [recorded(tmp_path / "run")] == [3]
    assert "computing with 3 threads; --threads 3 repeats this run exactly" in capsys.readouterr().err


def test_the_number_asked_for_is_used(used: list[int], tmp_path: Path) -> None:
    """Whatever else the machine does."""
    open_run(str(tmp_path / "run"), ThreadsConfig(threads=1), resume=False)
    assert used == [recorded(tmp_path / "run")] == [1]


def test_a_resumed_run_keeps_its_threads(used: list[int], tmp_path: Path) -> None:
    """So that it goes on exactly; a number that is given anew wins."""
    open_run(str(tmp_path / "run"), ThreadsConfig(threads=2), resume=False)
    open_run(str(tmp_path / "run"), ThreadsConfig(), resume=True)
    open_run(str(tmp_path / "run"), ThreadsConfig(threads=4), resume=True)
    assert used == [2, 2, 4]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("study ") or name == "quickstart"])
def test_the_quickstart_and_studies_choose_their_threads(name: str) -> None:
    """Every one of them."""
    assert issubclass(COMMANDS[name].load()[0], ThreadsConfig)
