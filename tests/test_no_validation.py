"""A manifest without ``validation``: no texts are set apart, and only what needs some asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers.bundles import language_bundle
from helpers.multitask import who
from helpers.tasks import cats, race_config
from warmstart.cli import main
from warmstart.commands.race.command import race
from warmstart.data.audit import drop_leaks
from warmstart.data.task import resplit
from warmstart.errors import ConfigError
from warmstart.experiment.sweep import open_sweep
from warmstart.model.files import save
from warmstart.tasks.answers import load_answer_task
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_pages", "few_baselines")


def without_validation(folder: Path) -> Path:
    """The task in a folder without its validation texts."""
    manifest = yaml.safe_load((folder / "task.yaml").read_text())
    del manifest["validation"]
    (folder / "task.yaml").write_text(yaml.safe_dump(manifest))
    return folder


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A language model, and two tasks without validation texts."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    without_validation(save_task(cats(), tmp_path / "task").parent)
    without_validation(save_task(who(), tmp_path / "who").parent)
    return tmp_path


def test_no_texts_are_set_apart(place: Path) -> None:
    """All training examples stay there, the test split is that with validation texts, and the task is written as it was read."""
    task, whole = load_task(place / "task"), cats()
    assert [len(split) for split in task.splits().values()] == [60, 0, 30]
    assert (task.train.texts, task.test_digest) == (whole.train.texts, whole.test_digest)
    assert load_task(save_task(task, place / "again")).digest == task.digest
    assert len(drop_leaks(task).validation) == 0
    assert [len(split) for split in resplit(task, 1).splits().values()] == [60, 0, 30]
    manifest = place / "task" / "task.yaml"
    manifest.write_text(manifest.read_text().replace("test.ndjson", "0.25"))
    held_out = load_task(place / "task")
    manifest.write_text(f"{manifest.read_text()}validation: 0.25\n")
    assert load_task(place / "task").test_digest == held_out.test_digest


def test_a_label_budget_needs_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``adapt``, ``evaluate``, ``race``, ``audit`` and ``continual`` run within their labels."""
    lm, task = str(place / "lm"), str(place / "task")
    quick = ["--epochs", "1", "--seeds", "1"]
    out = str(place / "adapt")
    assert main(["adapt", lm, task, "--labels", "24", "--calibration-fraction", "0.5", "--no-scratch", *quick, "--out", out]) == 0
    assert main(["adapt", lm, task, "--selection", "none", "--no-scratch", "--no-baselines", *quick, "--out", f"{out}2"]) == 0
    assert main(["evaluate", out, task]) == 0
    assert main(["audit", task]) == 0
    words = [lm, task, str(place / "who"), "--labels", "24", "--selection", "none", *quick, "--out", str(place / "continual")]
    assert main(["continual", *words, "--strategies", "none", "joint", "alone"]) == 0
    given = {"schemes": [], "seeds": 1, "scratch": False, "learning_rates": [1e-3]}
    assert race(race_config(place, **given, labels=20)).choosing == 20
    opened = open_sweep(race_config(place, **given, selection="cross-validation", out=str(place / "all")))
    assert len(opened.budget(None).choosing) == 60
    capsys.readouterr()


def test_all_labels_choose_by_cross_validation(place: Path) -> None:
    """Without a word about it: a task without validation texts needs no flag."""
    lm, task = str(place / "lm"), str(place / "task")
    of_race = ["race", task, "--backbones", lm, "--schemes", "--no-scratch"]
    for words, selection in ((of_race, "none"), (["adapt", lm, task, "--no-scratch"], "cross-validation")):
        assert main([*words, "--seeds", "1", "--out", str(place / words[0])]) == 0
        assert yaml.safe_load((place / words[0] / "config.yaml").read_text())["selection"] == selection


def test_what_needs_some_says_what_to_write(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written: a holdout must have texts, and several tasks choose by one."""
    lm, tasks = str(place / "lm"), [str(place / "task"), str(place / "who")]
    held = ["--selection", "holdout"]
    for words in (
        ["race", tasks[0], "--backbones", lm, *held],
        ["adapt", lm, tasks[0], *held],
        ["continual", lm, *tasks],
    ):
        assert main([*words, "--out", str(place / "run")]) == 2, words
        assert "write 'validation: 0.1'" in " ".join(capsys.readouterr().err.split()), words
        assert not (place / "run").exists()
    (place / "task" / "task.yaml").write_text(yaml.safe_dump({"name": "q", "type": "answers", "train": "train.ndjson", "test": 3}))
    with pytest.raises(ConfigError, match="generated answers need validation questions, which choose the weights; write 'valid"):
        load_answer_task(place / "task")


def test_calibration_texts_are_of_validation_or_of_the_budget(place: Path) -> None:
    """Without both there is nothing to set apart."""
    words = ["adapt", str(place / "lm"), str(place / "task"), "--selection", "cross-validation", "--calibration-fraction", "0.5"]
    assert main([*words, "--out", str(place / "run")]) == 2
    assert not (place / "run").exists()
    with pytest.raises(ConfigError, match="selection by holdout needs validation texts"):
        race(race_config(place, selection="holdout", labels=20))
