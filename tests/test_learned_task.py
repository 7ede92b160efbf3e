"""A model's run says from which task it learned, from any folder, and whether that is still what it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from warmstart.app.alike import task_of_run
from warmstart.commands.label import labelling
from warmstart.experiment.config import FitConfig
from warmstart.runs.made_of import run_of, task_named
from warmstart.runs.run import Run


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a table lies and a fit was run; the current one is another."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    rows = [f"text number {number},{'no' if number % 2 else 'yes'}" for number in range(40)]
    Path("table.csv").write_text("\n".join(["body,said", *rows]))
    columns = {"text_column": "body", "label_column": "said"}
    for out in ("runs/fit", str(tmp_path / "absolute")):
        run = Run.open(out, FitConfig.build({"data": "table.csv", "out": out, **columns}))
        (run.folder / "bundle").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return home


@pytest.mark.parametrize("model", ["../home/runs/fit", "../home/runs/fit/bundle", "../absolute/bundle"])
def test_the_task_of_a_run_is_found_from_any_folder(made: Path, model: str) -> None:
    """Given the run or its model; people label its texts, and they stand beside predictions."""
    run = run_of(model)
    assert run is not None
    task = task_named(run)
    assert task is not None
    assert task.path == made / "table.csv"
    assert (task.unchanged, task.whole, task.flags.text_column) == (True, True, "body")
    learned = task_of_run(model)
    assert learned is not None
    assert len(learned.train) == 40
    with labelling("labels", model) as session:
        assert len(session.project.texts) == 32


def test_the_task_of_a_run_that_was_moved(made: Path, tmp_path: Path) -> None:
    """With its table, alone, or with the table beside it; what changed is found, but is not what the run learned from."""
    moved = tmp_path / "moved"
    shutil.copytree(made, moved)
    (moved / "table.csv").write_text("body,said\nanother,no\n")
    changed = task_named(moved / "runs" / "fit")
    assert changed is not None
    assert (changed.path, changed.start) == (made / "table.csv", made)  # the unchanged one goes first
    assert changed.whole
    assert changed.unchanged
    shutil.move(made / "table.csv", tmp_path / "elsewhere" / "beside.csv")
    alone = task_named(moved / "runs" / "fit")
    assert alone is not None
    assert alone.path == moved / "table.csv"
    assert not alone.unchanged
    assert task_of_run(str(moved / "runs" / "fit")) is None
    shutil.move(tmp_path / "elsewhere" / "beside.csv", tmp_path / "table.csv")
    beside = task_named(tmp_path / "absolute")
    assert beside is not None
    assert beside.path == tmp_path / "table.csv"
    assert beside.unchanged


def test_a_folder_of_texts_that_was_moved_is_unchanged(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash names its files from its own folder on."""
    monkeypatch.chdir(made)
    for label in ("no", "yes"):
        (made / "mails" / label).mkdir(parents=True)
        for number in range(3):
            (made / "mails" / label / f"{number}.txt").write_text(f"text {number} of {label}")
    Run.open("runs/mails", FitConfig.build({"data": "mails", "out": "runs/mails"}))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path / "moved")
    shutil.rmtree(made)
    task = task_named(tmp_path / "moved" / "runs" / "mails")
    assert task is not None
    assert task.unchanged
    (tmp_path / "moved" / "mails" / "no" / "0.txt").rename(tmp_path / "moved" / "mails" / "yes" / "3.txt")
    task = task_named(tmp_path / "moved" / "runs" / "mails")
    assert task is not None
    assert not task.unchanged


def test_a_model_without_a_run_names_no_task(tmp_path: Path) -> None:
    """Neither does one whose run read no task; a task in its own folder is what it learned from."""
    assert run_of(tmp_path / "bundle") is None
    (tmp_path / "config.yaml").write_text("text: [corpus.txt]\n")
    assert run_of(tmp_path / "bundle") == tmp_path
    assert task_named(tmp_path) is None
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "task.yaml").touch()
    own = task_named(tmp_path)
    assert own is not None
    assert own.path == tmp_path / "task" / "task.yaml"
