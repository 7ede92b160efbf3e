"""One process writes a folder at a time; a lock ends with its process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.holding import held_by_another
from helpers.tasks import write_race_inputs
from warmstart.cli import main
from warmstart.config import Config
from warmstart.errors import ConfigError, StorageError
from warmstart.runs.record import end_record
from warmstart.runs.run import Run
from warmstart.studies.lab.command import StudyLabConfig
from warmstart.system.locks import LOCK, discard_dead, hold, releasing_locks
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes the folder."""
    with held_by_another(tmp_path / LOCK) as process:
        yield process


def test_a_second_process_is_refused(
    holder: subprocess.Popen[str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It learns who holds the folder, and what to do; a command, a race too, exits with code 2, and writes nothing there."""
    message = rf"the run is in use by process {holder.pid} on .+; wait until it has ended, or end it, and run the command again"
    with pytest.raises(StorageError, match=message):
        hold(tmp_path / LOCK, "the run")
    inputs = write_race_inputs(tmp_path_factory.mktemp("inputs"), tokenizer)
    for words in (["study", "lab"], ["race", str(inputs / "task"), "--backbones", str(inputs / "lm"), "--pool", "none"]):
        assert main([*words, "--out", str(tmp_path)]) == 2, words
        assert f"is in use by process {holder.pid} on" in capsys.readouterr().err, words
        assert [path.name for path in tmp_path.iterdir()] == [LOCK], words


def test_the_lock_of_a_dead_process_is_taken_over(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    """However it died."""
    discard_dead(tmp_path / LOCK)
    assert (tmp_path / LOCK).exists()
    holder.kill()
    holder.wait()
    with releasing_locks():
        hold(tmp_path / LOCK, "the run")
        hold(tmp_path / LOCK, "the run")  # a process may lock what it holds
        assert f'"process": {os.getpid()}' in (tmp_path / LOCK).read_text()
    assert not (tmp_path / LOCK).exists()
    with held_by_another(tmp_path / LOCK) as other:
        other.kill()
        other.wait()
        discard_dead(tmp_path / LOCK)
        assert not (tmp_path / LOCK).exists()


def test_a_process_that_ends_leaves_no_lock(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    """Also one that never released it."""
    assert holder.stdin is not None
    holder.stdin.close()
    assert holder.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_was_removed_is_no_lock(tmp_path: Path) -> None:
    """Whoever still has it open holds nothing: the next one makes a new file."""
    with releasing_locks():
        hold(tmp_path / LOCK, "the run")
        (tmp_path / LOCK).unlink()
        hold(tmp_path / LOCK, "the run")
        assert (tmp_path / LOCK).exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Is named."""
    with pytest.raises(StorageError, match=r"cannot write .*none/\.warmstart\.lock: No such file or directory; choose another"):
        hold(tmp_path / "none" / LOCK, "the run")


class SomeConfig(Config):
    """Settings of some command."""

    out: str
    seed: int = 0


def test_an_unfinished_run_starts_again(tmp_path: Path) -> None:
    """With the same settings, until its end; with others, or if something else is in the folder, nothing is touched."""
    place = str(tmp_path / "run")
    run = Run.open(place, SomeConfig(out=place)).folder
    (run / "bundle").mkdir()
    assert Run.open(place, SomeConfig(out=place)).folder == run
    with pytest.raises(ConfigError, match="exists and is not empty; choose another --out, or remove it"):
        Run.open(place, SomeConfig(out=place, seed=1))
    end_record(run, "It is done.")
    with pytest.raises(ConfigError, match="exists and is not empty"):
        Run.open(place, SomeConfig(out=place))
    assert (run / "bundle").is_dir()


def test_an_opened_run_has_no_leftovers(tmp_path: Path) -> None:
    """A folder in which a killed process left nothing but an unfinished file is empty; an unfinished bundle is removed."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".config.yaml.writing-{dead.pid}").touch()
    config = StudyLabConfig(out=str(tmp_path))
    Run.open(str(tmp_path), config)
    (tmp_path / f".bundle.writing-{dead.pid}").mkdir()
    Run.open(str(tmp_path), config)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "config.yaml", "run.json"]
