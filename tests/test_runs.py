"""``warmstart runs``: what a folder holds, read without changing it."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from helpers.holding import held_by_another
from helpers.tasks import race_config, write_race_inputs
from warmstart.cli import main
from warmstart.commands import runs as command
from warmstart.commands.race.command import race
from warmstart.commands.runs import RunsConfig, RunsResult, list_runs
from warmstart.runs.record import end_record, write_record
from warmstart.runs.state import RunState, find_runs
from warmstart.system.locks import LOCK, holder_of, releasing_locks
from warmstart.system.storage import SETTINGS
from warmstart.tokenizer.tokenizer import Tokenizer


def write_run(folder: Path, *, finished: bool = True, losses: tuple[float, ...] = (3.0, 2.0), rate: float = 0.01) -> Path:
    """A run of pretraining as its files say, with a checkpoint and tokenised text."""
    (folder / "bundle").mkdir(parents=True)
    (folder / "bundle" / "bundle.json").write_text("{}")
    (folder / "checkpoints" / "step-00000020").mkdir(parents=True)
    (folder / "checkpoints" / "step-00000020" / "tensors.safetensors").write_bytes(b"x" * 500)
    (folder / "text").mkdir()
    (folder / "text" / "train-0000.bin").write_bytes(b"y" * 300)
    settings = {"text": ["books/"], "train": {"steps": 40, "learning_rate": rate}}
    (folder / SETTINGS).write_text("# pretrain\n" + yaml.safe_dump(settings))
    write_record(folder, command="pretrain", state="running")
    rows = [{"step": 10 * i, "tokens": 100 * i, "seconds": float(i), "loss": loss} for i, loss in enumerate(losses, 1)]
    rows.append({"step": 10 * len(losses), "held_out": {"loss": losses[-1] + 0.5, "perplexity": 9.0}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        end_record(folder, "It is done.")
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with a finished and a stopped run, one whose settings are damaged, and what is no run."""
    write_run(tmp_path / "lm")
    write_run(tmp_path / "half", finished=False, losses=(3.0,), rate=0.02)
    write_run(tmp_path / "broken")
    (tmp_path / "broken" / SETTINGS).write_text("a: [")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("buy milk")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    return tmp_path


@pytest.fixture
def writer(runs: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes the stopped run."""
    with held_by_another(runs / "half" / LOCK) as process:
        yield process


def test_every_folder_has_its_state(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Foreign and broken folders are listed as such; nothing is written or removed; ``--json`` has the figures of the table."""
    before = bytes_of(runs)
    found = {run.name: run.state for run in find_runs(runs)}
    expected = {"lm": "finished", "half": "stopped", "broken": "damaged", "notes": "foreign", "picture.png": "foreign"}
    assert found == expected
    assert main(["runs", str(runs), "--follow", "lm"]) == 0
    capsys.readouterr()
    assert main(["runs", str(runs), "--json"]) == 0
    assert bytes_of(runs) == before
    values = {Path(run["run"]).name: run for run in json.loads(capsys.readouterr().out)["result"]["runs"]}
    assert [values["lm"][key] for key in ("loss", "done", "planned", "holder")] == [2.5, 20, 40, None]


def test_what_a_run_is_about_is_what_it_scores(tmp_path: Path) -> None:
    """Of minimal pairs these."""
    (tmp_path / SETTINGS).write_text(yaml.safe_dump({"model": "lm", "task": None, "pairs": "blimp"}))
    assert RunState(tmp_path, "run").subject == "blimp"


def test_a_row_says_what_a_run_came_to(runs: Path) -> None:
    """Command, text, steps of those planned, last held-out loss, time of training, bytes."""
    result = list_runs(RunsConfig(folder=str(runs)))
    assert isinstance(result, RunsResult)
    row = next(row for row in result.table() if row[0] == "lm")
    assert row[1:6] == ("pretrain", "books/", "finished", "20 of 40 steps", "loss 2.500")
    assert row[7] == "2 seconds"
    assert result.findings[0] == f"{runs} holds 1 stopped, 1 damaged, 1 finished, 2 foreign; {result.findings[0].split('; ')[1]}"
    assert result.findings[1] == "broken is damaged: config.yaml."


def test_a_run_that_a_process_writes_names_it(runs: Path, writer: subprocess.Popen[str]) -> None:
    """By number and host; once the process is dead, however it died, the run is stopped, although its lock is still there."""
    run = RunState(runs / "half", "half")
    assert run.state == "running"
    assert run.holder is not None
    assert run.holder.process == writer.pid
    writer.kill()
    writer.wait()
    assert (runs / "half" / LOCK).exists()
    assert RunState(runs / "half", "half").state == "stopped"


def test_a_lock_of_another_host_is_asked_for(tmp_path: Path) -> None:
    """Its process cannot be seen from here; that nobody holds the lock can."""
    content = json.dumps({"process": 1, "host": "elsewhere"})
    (tmp_path / LOCK).write_text(content)
    assert holder_of(tmp_path / LOCK) is None
    with held_by_another(tmp_path / LOCK):
        (tmp_path / LOCK).write_text(content)
        assert holder_of(tmp_path / LOCK) == (1, "elsewhere")


def test_files_of_another_form_are_no_errors(runs: Path) -> None:
    """One odd folder does not hide the others."""
    write_run(runs / "odd")
    (runs / "odd" / SETTINGS).write_text("# race\ntask: 3\n")
    (runs / "odd" / "metrics.jsonl").write_text('{"step": 2, "held_out": 5}\n')
    (runs / "steps").mkdir()
    (runs / "steps" / "run.json").write_text(json.dumps({"done": "x", "planned": [], "command": None}))
    found = [run.to_dict() for run in find_runs(runs)]
    assert {Path(one["run"]).name for one in found} >= {"odd", "steps", "lm"}
    list_runs(RunsConfig(folder=str(runs)))


def test_mistakes_are_explained(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, and the nearest name."""
    for folder, words, message in (
        ("", ["--follow", "hlf"], "hlf must be a run in .*did you mean 'half'"),
        ("none", [], "must be a folder of runs, but there is none"),
    ):
        assert main(["runs", str(runs / folder), *words]) == 2
        assert re.search(message, capsys.readouterr().err)


def test_following_prints_what_comes(
    runs: Path, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines of the log as they are written, until nobody writes the run any more; then how it ended."""
    monkeypatch.setattr(command, "LOOK_AGAIN", 0.01)
    following = threading.Thread(target=list_runs, args=(RunsConfig(folder=str(runs), follow="half"),))
    following.start()
    with (runs / "half" / "metrics.jsonl").open("a") as log:
        for step in (20, 30):
            log.write(json.dumps({"step": step, "tokens": step, "seconds": 1.0, "loss": 1.25}) + "\n")
            log.flush()
            time.sleep(0.1)
    writer.kill()
    writer.wait()
    following.join(timeout=60)
    printed = capsys.readouterr().err
    assert "step 10 of 40: loss 3.0000, 1 second" in printed
    assert "step 10 of 40: held out, loss 3.5, perplexity 9" in printed
    assert printed.count("step 30 of 40: loss 1.2500") == 1
    assert "half was stopped before its end, at 30 of 40 steps." in printed


def test_ctrl_c_stops_looking_and_nothing_else(
    runs: Path, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, and the run is still written."""

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", interrupted)
    assert main(["runs", str(runs), "--follow", "half"]) == 0
    assert "half goes on" in capsys.readouterr().err
    assert RunState(runs / "half", "half").state == "running"


def test_a_recipe_counts_its_steps(tmp_path: Path) -> None:
    """A recipe with a step to go is stopped; its steps are runs of their own."""
    write_run(tmp_path / "lab" / "lm")
    write_record(tmp_path / "lab", command="recipe", state="running", planned=2, done=1)
    found = {run.name: run for run in find_runs(tmp_path)}
    assert found.keys() == {"lab", "lab/lm"}
    lab = found["lab"]
    assert (lab.command, lab.state, lab.done, lab.planned, lab.unit) == ("recipe", "stopped", 1, 2, "steps")


@pytest.mark.usefixtures("no_pages")
def test_a_race_counts_its_trials(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """Done, planned, the score of its result; a trial whose file is damaged makes it damaged, and is named."""
    place = write_race_inputs(tmp_path, tokenizer)
    with releasing_locks():
        race(race_config(place, schemes=[], seeds=1, scratch=False))
    run = RunState(place / "race", "race")
    assert run.command == "race"
    assert run.done == len([*(place / "race" / "trials").glob("*.json")])
    assert run.score is not None
    assert 0 < run.score[1] <= 1
    assert run.seconds is not None
    assert main(["runs", str(place), "--follow", "race"]) == 0
    assert f"{run.done} trials are done" in capsys.readouterr().err
    file = next((place / "race" / "trials").glob("*.json"))
    file.write_bytes(file.read_bytes()[:-9])
    damaged = RunState(place / "race", "race")
    assert (damaged.state, damaged.damage) == ("damaged", (f"trials/{file.name}",))
