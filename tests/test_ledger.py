"""The ledger of a test split: every command that scores goes through it, every model is counted once, and nothing hides one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.multitask import write_inputs
from helpers.tasks import cats, race_config, tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.commands.evaluate.command import evaluate
from warmstart.commands.race.command import race
from warmstart.commands.settings import EvaluateConfig
from warmstart.data.scorings import SUFFIX, LedgerSummary, ScoringRun, read_ledger
from warmstart.data.task import Split, Task
from warmstart.experiment.config import AdaptConfig
from warmstart.model.files import load_bundle
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import load_task, save_task
from warmstart.tasks.scoring import score_test
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("few_baselines")


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task with a manifest in a folder."""
    return load_task(save_task(cats(), tmp_path / "task"))


def record(task: Task, name: str = "full", seed: int = 0, run: ScoringRun | None = None) -> ScoringRun:
    """Record one scoring; the run is a new one unless it is given."""
    run = run or ScoringRun.of(AdaptConfig(model="lm", task="task"))
    run.method(name, [name]).record(task, seed)
    return run


def counts(task: Task) -> tuple[int, int]:
    """(scorings, settings)."""
    found = read_ledger(task)
    return found.scorings, found.settings


def test_each_model_counts_once(task: Task) -> None:
    """Other seeds are the same settings; the same model scored again, by another run too, is no new look; other data is."""
    assert read_ledger(task).findings == []
    assert read_ledger(task).sentence == "No model has been scored on the test split."
    record(task)
    assert read_ledger(task).sentence.startswith("1 model has been scored on the test split, on 20")
    for _ in range(3):
        record(task, seed=1)
        record(task, "lora", run=ScoringRun(command="race"))
    assert counts(task) == (3, 2)
    record(task.with_train(task.train.take(np.arange(10))), "lora")
    found = read_ledger(task)
    assert (found.scorings, found.settings) == (4, 2)
    day = found.entries[0].time[:10]
    assert found.sentence == (
        f"4 models with 2 settings have been scored on the test split since {day}; scores chosen by looking at it are too high."
    )
    assert found.to_dict() == {"scorings": 4, "settings": 2, "since": day, "findings": [found.sentence]}


def test_the_ledger_lies_beside_the_manifest_and_nowhere_else(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of JSON per model; a twin of the manifest shares it, a task in memory has none, and the home stays as it is."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    record(task)
    beside = task.manifest.parent / "task.ledger.jsonl"
    (line,) = beside.read_text().splitlines()
    assert json.loads(line)["name"] == "full"
    twin = task.manifest.with_name("twin.yaml")
    twin.write_text(task.manifest.read_text())
    places = (task.manifest, task.manifest.parent / "task.yaml", twin)
    assert [counts(load_task(place)) for place in places] == [(1, 1)] * 3
    twin.unlink()
    save_task(task, task.manifest.parent)
    assert beside.exists(), "writing the task anew keeps the ledger"
    record(cats(1))
    assert counts(cats(1)) == (0, 0)
    assert not (tmp_path / "home").exists()


def test_a_changed_test_split_is_a_new_budget(task: Task) -> None:
    """One text less, or one letter changed; another order, case, name or other labels of the same texts change nothing."""
    record(task)
    texts, labels = task.test.texts, task.test.labels
    for test in (task.test.take(np.arange(1, 30)), Split(("x", *texts[1:]), labels)):
        assert counts(replace(task, test=test)) == (0, 0)
    shouted = Split(tuple(text.upper() for text in texts), labels)
    for test in (shouted, Split(texts, 1 - labels), task.test.take(np.arange(len(texts))[::-1])):
        assert counts(replace(task, name="other", test=test)) == (1, 1)


def test_every_task_type_has_a_ledger(tmp_path: Path) -> None:
    """The digest of its texts and targets is the same whenever it is read."""
    for name in TASK_TYPES:
        manifest = write_task(tmp_path / name, name)
        record(load_task(manifest))
        record(load_task(manifest))
        assert counts(load_task(manifest)) == (1, 1), name


WRITER = """
import sys
from warmstart.data.scorings import ScoringRun
from warmstart.tasks.load import load_task
task, run = load_task(sys.argv[1]), ScoringRun(command="race")
for seed in range(100):
    run.method("full", [sys.argv[2]]).record(task, seed)
"""


@pytest.mark.journeys
def test_two_processes_append_at_once(task: Task) -> None:
    """No line is lost, and none is torn."""
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(task.manifest), name]) for name in "ab"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    found = read_ledger(task)
    assert (found.scorings, found.settings, found.unreadable) == (200, 2, 0)


KILLED = """
import os, signal, sys
import numpy as np
from warmstart.data.scorings import ScoringRun
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.scoring import score_test
task = load_task(sys.argv[1])
type(task_type_of(task)).scores = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
score_test(task, np.eye(2)[task.test.labels], ScoringRun(command="race").method("full", ["full"]), 0)
"""


@pytest.mark.chaos
def test_a_kill_hides_no_scoring(task: Task) -> None:
    """A process that is killed while it scores has been counted; the resumed trial is not counted twice."""
    assert subprocess.run([sys.executable, "-c", KILLED, str(task.manifest)], check=False).returncode == -signal.SIGKILL
    assert counts(task) == (1, 1)
    method = ScoringRun(command="race").method("full", ["full"])
    assert score_test(task, np.eye(2)[task.test.labels], method, 0).score == 1.0
    assert counts(task) == (1, 1)


def test_a_folder_that_cannot_be_written(task: Task) -> None:
    """The findings say that nothing is counted."""
    task.manifest.with_name(f"task{SUFFIX}").mkdir()  # stands for a folder without permission, which root would have
    record(task)
    assert read_ledger(task).findings == [
        f"What is scored now is not counted: {task.manifest.with_name(f'task{SUFFIX}')} cannot be written."
    ]


def test_damaged_lines_are_counted(task: Task) -> None:
    """Neither bytes that are no text, nor a torn last line, nor a changed one loses the lines around it."""
    record(task)
    beside = task.manifest.with_name(f"task{SUFFIX}")
    newer = json.dumps(json.loads(beside.read_text()) | {"id": "newer", "more": 1}).encode()
    beside.write_bytes(beside.read_bytes() * 2 + b"\xff\x00 {\n\n[1]\n" + newer + b'\n{"id": "torn')
    record(task, "lora")
    found = read_ledger(task)
    assert (found.scorings, found.unreadable) == (2, 4)
    assert found.findings[-1] == "Damaged lines of its ledger, 4, may stand for more."


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a tiny language model and the tasks cats and who."""
    return write_inputs(tmp_path, tokenizer)


def ledger(folder: Path) -> LedgerSummary:
    """The ledger of the task in a folder."""
    return read_ledger(load_task(folder))


def adapt_config(place: Path, **changes: Any) -> AdaptConfig:
    """Two seeds of two methods, and the two baselines."""
    given = {"model": str(place / "lm"), "task": str(place / "cats"), "out": str(place / "adapt"), "seeds": 2}
    return AdaptConfig.build(given | {"tune": tune(steps=4, epochs=None)} | changes)


def test_adapt_counts_and_says_so(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the findings, the report, the card of the bundle and, with its details, on the terminal; ``audit`` lists the settings."""
    found = adapt(adapt_config(place, details=True))
    sentence = ledger(place / "cats").sentence
    assert "6 models with 4 settings have been scored" in sentence
    assert sentence == found.findings[-1] == found.ledger.sentence
    assert found.to_dict()["test_split"]["scorings"] == 6
    assert sentence in (place / "adapt" / "report.html").read_text()
    assert sentence in (place / "adapt" / "bundle" / "README.md").read_text()
    assert sentence in " ".join(capsys.readouterr().err.split())
    evaluate(EvaluateConfig(model=str(place / "adapt"), task=str(place / "cats")))
    assert ledger(place / "cats").scorings == 7
    capsys.readouterr()
    assert main(["audit", str(place / "cats")]) == 0
    shown = capsys.readouterr().err
    assert "scored on test, as" in shown
    assert all(word in shown for word in ("full at", "TF-IDF", "evaluate"))
    assert str(place / "cats" / "task.ledger.jsonl") in shown.replace("\n", "")
    adapt(adapt_config(place, out=str(place / "again")))
    assert (ledger(place / "cats").scorings, ledger(place / "cats").settings) == (7, 5), "the same models, scored again"


@pytest.mark.usefixtures("no_pages")
def test_the_ledger_tells_what_chose(place: Path) -> None:
    """Two runs that differ in their selection alone have other names, in ``adapt`` and in a race."""
    selections = ("cross-validation", "none")
    for selection in selections:
        given = {"labels": 20, "selection": selection, "seeds": 1, "scratch": False}
        adapt(adapt_config(place, **given, baselines=False, out=str(place / selection)))
        given |= {"task": str(place / "cats"), "schemes": [], "learning_rates": [5e-3]}
        race(race_config(place, **given, out=str(place / f"race-{selection}")))
    names = {entry.name for entry in ledger(place / "cats").entries}
    for method in ("full at learning rate 0.005", "majority"):
        assert {name for name in names if name.startswith(method)} == {
            f"{method}, 20 labels, selection {one}" for one in selections
        }


def test_ablations_are_one_scoring(place: Path) -> None:
    """Of the model that is ablated."""
    from warmstart.studies.ablate import StudyAblateConfig, study_ablate

    adapt(adapt_config(place, seeds=1, scratch=False, baselines=False))
    assert load_bundle(place / "adapt" / "bundle").labels
    given = {"model": str(place / "adapt"), "task": str(place / "cats"), "out": str(place / "study"), "limit": 8}
    study_ablate(StudyAblateConfig.build(given))
    assert ledger(place / "cats").scorings == 2
