"""The ledger of a test split: every scoring is counted once, nothing hides one, and a sealed split is scored by one run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.tasks import cats, write_task
from warmstart.config import Config
from warmstart.data.task import Split, Task
from warmstart.data.test_ledger import SUFFIX, Ledger, LedgerEntry, ScoringRun
from warmstart.errors import DataError, StorageError
from warmstart.storage import sealed, unsealed
from warmstart.tasks import TASK_TYPES, task_type_of
from warmstart.tasks.load import load_task, save_task
from warmstart.tasks.scoring import score_test


class AdaptConfig(Config):
    """Settings of a command."""

    rate: float = 1.0
    out: str = "run"
    sealed: bool = False


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task with a manifest in a folder."""
    return load_task(save_task(cats(), tmp_path / "task"))


def record(task: Task, name: str = "full", seed: int = 0, run: ScoringRun | None = None) -> ScoringRun:
    """Record one scoring; the run is a new one unless it is given."""
    run = run or ScoringRun.begin([task], AdaptConfig())
    run.method(name, [name]).record(task, seed)
    return run


def counts(task: Task) -> tuple[int, int]:
    """(scorings, settings)."""
    found = Ledger.of(task).read()
    return found.scorings, found.settings


def test_scorings_and_settings_are_counted(task: Task) -> None:
    """Every model is a scoring; other seeds are the same settings; what is resumed counts once; another run counts again."""
    assert Ledger.of(task).read().findings == []
    assert Ledger.of(task).read().sentence == "The test split has never been scored."
    first = record(task)
    assert Ledger.of(task).read().sentence.startswith("The test split has been scored once, on 20")
    record(task, seed=1, run=first)
    record(task, "lora", run=first)
    assert counts(task) == (3, 2)
    record(task, "lora", run=first)
    record(task, seed=1, run=ScoringRun(command="adapt", id=first.id))
    assert counts(task) == (3, 2)
    record(task, "lora")
    found = Ledger.of(task).read()
    assert (found.scorings, found.settings) == (4, 2)
    day = found.entries[0].time[:10]
    assert found.sentence == (
        f"The test split has been scored 4 times with 2 settings since {day}; scores chosen by looking at it are too high."
    )
    assert found.table() == [("full", "2", "2", "adapt", day, day), ("lora", "2", "1", "adapt", day, day)]
    counted = {"scorings": 4, "settings": 2, "since": day, "sealed": False, "unreadable": 0}
    assert found.to_dict() == counted | {"findings": found.findings}


def test_the_ledger_lies_beside_the_manifest_and_in_the_state_folder(task: Task, state: Path) -> None:
    """One line of JSON per scoring in each; ``task.yaml`` and its folder name the same ledger."""
    record(task)
    assert task.manifest is not None
    beside = task.manifest.parent / "task.ledger.jsonl"
    (kept,) = (state / "warmstart" / "ledgers").iterdir()
    assert beside.read_bytes() == kept.read_bytes()
    (line,) = beside.read_text().splitlines()
    assert json.loads(line)["name"] == "full"
    assert counts(load_task(task.manifest)) == counts(load_task(task.manifest.parent)) == (1, 1)
    save_task(task, task.manifest.parent)
    assert beside.exists(), "writing the task anew keeps the ledger"
    record(cats(1))
    assert counts(cats(1)) == (1, 1), "a task in memory has its ledger in the state folder alone"


def test_the_same_test_split_elsewhere_shares_its_ledger(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another name, folder, order, case, and with other labels; in the same folder also without the state folder."""
    record(task)
    order = np.arange(len(task.test))[::-1]
    moved = load_task(save_task(replace(task, name="other", test=task.test.take(order)), tmp_path / "elsewhere"))
    assert counts(moved) == (1, 1)
    shouted = replace(task, test=Split(tuple(text.upper() for text in task.test.texts), task.test.labels))
    swapped = replace(task, labels=task.labels[::-1], test=Split(task.test.texts, 1 - task.test.labels))
    assert task.test_digest == shouted.test_digest == swapped.test_digest
    renamed, coarse = replace(task, labels=("no", "yes")), Split(task.test.texts, np.zeros(30, dtype=np.int64))
    assert counts(renamed) == counts(replace(task, labels=("any",), test=coarse)) == (1, 1)
    assert task.manifest is not None
    twin = task.manifest.with_name("twin.yaml")
    twin.write_text(task.manifest.read_text())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert counts(load_task(twin)) == (1, 1)
    assert counts(moved) == (0, 0), "another user has not seen the scorings of another folder"


def test_a_changed_test_split_is_a_new_budget(task: Task) -> None:
    """One text less, or one letter changed; other labels and other training texts change nothing."""
    record(task)
    texts, labels = task.test.texts, task.test.labels
    for test in (task.test.take(np.arange(1, 30)), Split(("x", *texts[1:]), labels)):
        assert counts(replace(task, test=test)) == (0, 0)
    assert counts(replace(task, test=Split(texts, np.r_[1 - labels[0], labels[1:]]))) == (1, 1)
    assert counts(task.with_train(task.train.take(np.arange(10)))) == (1, 1)


def test_every_task_type_has_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of its texts and targets is the same whenever it is read."""
    for name in TASK_TYPES:
        manifest = write_task(tmp_path / name, name)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"state of {name}"))  # two types have the same test texts
        assert load_task(manifest).test_digest == load_task(manifest).test_digest
        record(load_task(manifest))
        assert counts(load_task(manifest)) == (1, 1), name


WRITER = """
import sys
from warmstart.data.test_ledger import ScoringRun
from warmstart.tasks.load import load_task
task, run = load_task(sys.argv[1]), ScoringRun(command="race")
for seed in range(150):
    run.method("full", [sys.argv[2]]).record(task, seed)
"""


def test_two_processes_append_at_once(task: Task) -> None:
    """No line is lost, and none is torn."""
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(task.manifest), name]) for name in "ab"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    found = Ledger.of(task).read()
    assert (found.scorings, found.settings, found.unreadable) == (300, 2, 0)


KILLED = """
import os, signal, sys
import numpy as np
from warmstart.data.test_ledger import ScoringRun
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.scoring import score_test
task = load_task(sys.argv[1])
type(task_type_of(task)).scores = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
score_test(task, np.eye(2)[task.test.labels], ScoringRun(command="race", id="stored").method("full", ["full"]), 0)
"""


@pytest.mark.chaos
def test_a_kill_hides_no_scoring(task: Task) -> None:
    """A process that is killed while it scores has been counted; the resumed trial is not counted twice."""
    assert subprocess.run([sys.executable, "-c", KILLED, str(task.manifest)], check=False).returncode == -signal.SIGKILL
    assert counts(task) == (1, 1)
    method = ScoringRun(command="race", id="stored").method("full", ["full"])
    assert score_test(task, np.eye(2)[task.test.labels], method, 0).score == 1.0
    assert counts(task) == (1, 1)


def test_a_folder_that_cannot_be_written(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is kept in the state folder, and it says so; without any ledger nothing is scored."""
    assert task.manifest is not None
    task.manifest.with_name(f"task{SUFFIX}").mkdir()  # stands for a folder without permission, which root would have
    record(task)
    found = Ledger.of(task).read()
    assert found.scorings == 1
    assert "kept in the user's state folder" in found.findings[-1]
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    monkeypatch.setattr(type(task_type_of(task)), "scores", lambda *_: pytest.fail("scored without a ledger"))
    with pytest.raises(StorageError, match="recorded before it happens"):
        score_test(task, np.eye(2)[task.test.labels], ScoringRun(command="adapt").method("full", []), 0)


def test_damaged_lines_are_counted(task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither bytes that are no text, nor a torn last line, nor another version's line loses the lines around it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    record(task)
    assert task.manifest is not None
    beside = task.manifest.with_name(f"task{SUFFIX}")
    newer = json.dumps(json.loads(beside.read_text()) | {"id": "newer", "more": 1}).encode()
    beside.write_bytes(beside.read_bytes() + b"\xff\x00 {\n\n[1]\n" + newer + b'\n{"id": "torn')
    record(task, "lora")
    found = Ledger.of(task).read()
    assert (found.scorings, found.unreadable) == (2, 4)
    assert found.findings[-1] == "4 lines of its ledger are damaged and may stand for more scorings."


def test_what_was_read_before_is_read_again_only_if_it_changed(task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Appended lines, one line changed, lines taken away, a torn line completed: as in a process that reads for the first time."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("full", "lora", "probe"):
        record(task, name)
    ledger = Ledger.of(task)
    assert ledger.beside is not None
    assert ledger.state is not None
    ledger.state.unlink()
    one, two, three = ledger.beside.read_bytes().splitlines(keepends=True)
    other = json.dumps(sealed(unsealed(two) | {"command": "other"})).encode() + b"\n"
    contents = (one, one + two, one + other, two, two + three[:40], two + three, one + b"\n" + three, b"", three + one)
    for content in contents:
        ledger.beside.write_bytes(content)
        found = ledger.read()
        monkeypatch.setattr("warmstart.data.test_ledger._READ", dict[object, object]())
        assert found == ledger.read()
        assert found.scorings == sum(content.count(line) for line in (one, two, three, other))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["full", "lora", "probe"]), st.integers(0, 3)), max_size=12),
    st.integers(0, 99),
)
def test_counts_do_not_depend_on_how_lines_were_merged(scored: list[tuple[str, str, int]], seed: int) -> None:
    """Whatever is scored in whatever order, and merged with itself: as many scorings as different (run, settings, seed)."""
    entries = [
        LedgerEntry(id=f"{run}{name}{number}", test="t", task="t", time=f"2026-11-{number + 1:02}T", command="race", run=run,
                    settings=name, seed=number)
        for run, name, number in scored
    ]  # fmt: skip
    lines = [json.dumps(sealed(entry.to_dict())) for entry in entries] * 2
    random.Random(seed).shuffle(lines)
    with TemporaryDirectory() as folder:
        (Path(folder) / f"merged{SUFFIX}").write_text("\n".join(lines))
        found = Ledger("t", Path(folder) / f"own{SUFFIX}", None).read()
    assert (found.scorings, found.settings) == (len({*scored}), len({name for _, name, _ in scored}))
    assert [entry.time for entry in found.entries] == sorted(entry.time for entry in found.entries)


# ---------------------------------------------------------------------------------------------------- sealed


def test_a_sealed_run_is_the_only_one(task: Task) -> None:
    """It scores all its methods and seeds; then no run starts, sealed or not, with these settings or others."""
    run = ScoringRun.begin([task], AdaptConfig(sealed=True))
    for seed in range(3):
        record(task, "full", seed, run)
    record(task, "lora", 0, run)
    run.finish([task])
    for config in (AdaptConfig(sealed=True), AdaptConfig(), AdaptConfig(rate=2.0, sealed=True)):
        with pytest.raises(DataError, match="the test split of 'cats' is sealed: one run of `adapt` scored it on 20"):
            ScoringRun.begin([task], config)
    found = Ledger.of(task).read()
    day = found.entries[0].time[:10]
    assert found.findings == [
        f"The test split is sealed: one run has scored it, 4 times with 2 settings, by {day}; no other run can."
    ]


def test_an_interrupted_sealed_run_continues(task: Task) -> None:
    """With the same settings, wherever its output goes; not with others. What is finished can only be continued by its id."""
    run = ScoringRun.begin([task], AdaptConfig(sealed=True))
    record(task, run=run)
    again = ScoringRun.begin([task], AdaptConfig(sealed=True, out="elsewhere"))
    with pytest.raises(DataError, match="is sealed"):
        ScoringRun.begin([task], AdaptConfig(sealed=True, rate=2.0))
    with pytest.raises(DataError, match="is sealed"):
        ScoringRun.begin([task], AdaptConfig())
    record(task, run=again)
    again.finish([task])
    with pytest.raises(DataError, match="is sealed"):
        ScoringRun.begin([task], AdaptConfig(sealed=True))
    assert ScoringRun.begin([task], AdaptConfig(sealed=True), again.id).id == again.id


def test_what_was_scored_cannot_be_sealed(task: Task) -> None:
    """A sealed run says that nobody has looked before."""
    record(task)
    with pytest.raises(DataError, match="it has been scored once; choose on the validation split"):
        ScoringRun.begin([task], AdaptConfig(sealed=True))


def test_of_two_runs_at_once_the_later_scores_nothing(task: Task) -> None:
    """Both start before either scores: whoever records second is refused before its score is computed."""
    sealed, other = ScoringRun.begin([task], AdaptConfig(sealed=True)), ScoringRun.begin([task], AdaptConfig(rate=2.0))
    record(task, run=sealed)
    with pytest.raises(DataError, match="is sealed"):
        record(task, run=other)
    record(task, seed=1, run=sealed)
    assert counts(task) == (2, 1)


def test_a_manifest_can_seal(tmp_path: Path) -> None:
    """``sealed: true`` seals every command's run; an unsealed copy of the manifest does not break the seal."""
    manifest = save_task(replace(cats(), sealed=True), tmp_path / "task")
    task = load_task(manifest)
    run = record(task, run=ScoringRun.begin([task], AdaptConfig()))
    run.finish([task])
    copy = load_task(save_task(cats(), tmp_path / "copy"))
    for other in (task, copy):
        with pytest.raises(DataError, match="is sealed"):
            ScoringRun.begin([other], AdaptConfig())
