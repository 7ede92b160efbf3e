"""``adapt`` within its labels, also without validation texts: nothing else is looked at, and results say what each was for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from helpers.bundles import language_bundle
from helpers.multitask import who
from helpers.tasks import cats, poisoned, race_config, tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.commands.race.command import race
from warmstart.data.audit import drop_leaks
from warmstart.data.task import Task, resplit
from warmstart.errors import ConfigError
from warmstart.experiment import adaptation
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.experiment.config import AdaptConfig
from warmstart.experiment.sweep import open_sweep
from warmstart.finetuning.ensemble import STACKABLE, Averaged
from warmstart.finetuning.runs import most_seconds, share_within
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.history import Record
from warmstart.model.stack import Stack
from warmstart.stats.calibration import fit_temperature, towards_one
from warmstart.stats.formatting import percent
from warmstart.tasks.answers import load_answer_task
from warmstart.tasks.load import load_task, save_task
from warmstart.tasks.predict import uncalibrated_predictions
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    save(language_bundle(tokenizer), tmp_path / "lm")
    return tmp_path


def run(place: Path, whole: Task | None = None, **changes: Any) -> AdaptResult:
    out = str(place / f"run{len([*place.iterdir()])}")
    save_task(whole or cats(), Path(f"{out}-task"))
    given = {"model": str(place / "lm"), "task": f"{out}-task", "out": out, "seeds": 2, "labels": 24, "scratch": False}
    return adapt(AdaptConfig.build(given | {"tune": tune("probe", epochs=2)} | changes))


def record_of(result: AdaptResult, place: Path) -> Record:
    """The last record of the bundle that was saved last."""
    folder = max(place.glob("run*/bundle"), key=lambda path: path.stat().st_mtime)
    record = load_bundle(folder).history[-1]
    assert {*result.label_findings} <= {*record.notes}
    assert all(f"- {note}" in (folder / "README.md").read_text() for note in result.label_findings)
    return record


def test_few_labels_are_cross_validated(place: Path) -> None:
    """All learn, folds of them choose, the temperature is fitted out of fold, and the baselines have the same budget."""
    result = run(place)
    assert (result.labels, len(result.task.train), len(result.task.validation)) == (24, 24, 0)
    assert result.label_findings[0] == "24 labels: all of them learn, and 5-fold cross-validation on them chooses."
    assert result.label_findings[1].startswith("Cross-validation took")
    assert not {*result.budgets[0].train} >= {*result.budgets[1].train}, "each seed draws its own"
    assert result.best is result.runs["pretrained"][0], "the best of two draws would be chosen by twice as many labels"
    assert result.saved.startswith("The saved model is that of seed 0, the first one, because a choice among draws would look at")
    note = {row.name: row.note for row in result.comparison.rows}["TF-IDF + logistic regression"]
    assert "chosen by 5-fold cross-validation" in note
    choosing = result.budgets[result.best.seed].choosing
    expected = towards_one(fit_temperature(result.best.choosing, choosing.labels), len(choosing))
    assert result.confidence.calibration.temperature == pytest.approx(expected)
    record = record_of(result, place)
    assert record.data[0].sizes == {"train": 24, "test": 30}
    ((method, scores),) = record.tables[-1].rows
    assert scores == ", ".join(map(percent, result.validation_scores[method]))
    assert json.loads(json.dumps(result.to_dict()))["labels"] == {"selection": "cross-validation", "looked_at": 24, "set_apart": 0}


def test_a_holdout_is_part_of_the_budget(place: Path) -> None:
    """A fifth chooses."""
    result = run(place, selection="holdout")
    assert result.label_findings == ["24 labels: 19 to learn, 5 to choose."]
    assert result.saved.endswith("because a choice among draws would look at the labels of all of them.")
    assert record_of(result, place).data[0].sizes["validation"] == 5


def test_a_control_may_take_a_share_of_its_steps_that_keeps_within_its_time() -> None:
    """Three times a pretrained run, and at least a minute; shares are halves of halves, so that they seldom vary."""
    assert (most_seconds(6, 3), most_seconds(100, 3), most_seconds(100, 0)) == (60, 300, math.inf)
    assert [share_within(seconds, 60) for seconds in (0, 60, 61, 165, 1000)] == [1, 1, 1 / 2, 1 / 4, 1 / 32]


def test_a_control_with_fewer_steps_is_said_wherever_the_gain_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on has the steps that it began with, whatever a step takes by then."""
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / "run"), "seeds": 2, "selection": "none"}
    save_task(cats(), place / "task")
    config = AdaptConfig.build(given | {"tune": tune("probe", epochs=None, steps=8)})
    with monkeypatch.context() as patch:
        patch.setattr(adaptation, "share_within", lambda _seconds, _most: 0.25)
        patch.setattr(adaptation._Trials, "add_baselines", lambda _trials: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            adapt(config)
    result = adapt(config)
    assert [run.final.training.steps for run in result.runs["from scratch"]] == [2, 2]
    assert [run.final.training.steps for run in result.runs["pretrained"]] == [8, 8]
    sentence = "The control from scratch had time for 2 of 8 steps, so the gain over it is an upper bound; with --scratch-time 0 it"
    assert any(one.startswith(sentence) for one in result.findings)
    assert sentence in (place / "run" / "report.html").read_text()
    record = load_bundle(place / "run" / "bundle").history[-1]
    assert any(note.startswith(sentence) for note in record.notes)
    assert {row[0]: row[-1] for row in record.tables[0].rows}["from scratch"].endswith("2 of 8 steps")


def test_a_control_without_a_limit_takes_all_steps(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no step is measured for one seed."""
    monkeypatch.setattr(adaptation, "estimate_sweep", lambda *_: pytest.fail("measured"))
    result = run(place, scratch=True, scratch_time=0, seeds=1, selection="none", tune=tune("probe", epochs=None, steps=8))
    assert [run.final.training.steps for run in result.runs["from scratch"]] == [8]
    assert result.control is None


def test_without_selection_the_first_seed_is_saved(place: Path) -> None:
    """No score, no temperature, and the result says so."""
    result = run(place, selection="none", seed=3, baselines=False)
    assert result.best is result.runs["pretrained"][0]
    assert result.saved == "The saved model is that of seed 3, the first one, because no label chooses."
    assert result.label_findings == ["24 labels: all of them learn, and none chooses the settings of a network."]
    assert result.confidence.findings[0].startswith("No temperature was fitted, because no label chooses")
    record = record_of(result, place)
    assert not any("texts that choose" in table.title for table in record.tables)
    assert "NaN" not in json.dumps(result.to_dict())


def test_the_validation_and_test_labels_change_nothing(place: Path) -> None:
    """Turned round, they leave the saved model and its calibration the same to the bit."""
    task = cats()
    tasks = (task, poisoned(task, np.arange(60)))
    one, other = (run(place, each, seeds=1, tune=tune("probe", epochs=2)) for each in tasks)
    before, after = one.best.final.model.weights(), other.best.final.model.weights()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    np.testing.assert_array_equal(one.best.choosing, other.best.choosing)
    assert one.confidence.calibration == other.confidence.calibration


def test_calibration_texts_are_part_of_the_budget(place: Path) -> None:
    """Half of the labels give the guarantee, and the report says how little they can guarantee."""
    result = run(place, calibration_fraction=0.5, baselines=False)
    assert (result.labels, result.set_apart, len(result.task.train)) == (24, 12, 12)
    assert result.label_findings[-1] == "12 further labels choose nothing; they can guarantee no error rate below 22.1%."
    assert len(result.confidence.calibration.held_out) == 12
    assert "but none below 22.1%, which takes more texts." in result.confidence.findings[-1]


def test_what_cannot_be_chosen_is_refused_before_training(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too few labels, and early stopping without a holdout; nothing is written."""
    with pytest.raises(ConfigError, match="--labels 2: cross-validation needs two independent texts of one class"):
        run(place, labels=2)
    with pytest.raises(ConfigError, match="use more labels; with --no-baselines nothing has to choose"):
        run(place, labels=2, selection="none")
    with pytest.raises(ConfigError, match="--labels 8, of which 7 are set apart for calibration: one label of each"):
        run(place, labels=8, calibration_fraction=0.9)
    with pytest.raises(ConfigError, match="--patience needs texts that choose and do not learn"):
        run(place, tune=tune("probe", epochs=2) | {"patience": 2})
    assert not [*place.glob("run*/config.yaml")]
    save_task(cats(), place / "task")
    flags = ["--labels", "100", "--selection", "none", "--out", str(place / "out")]
    assert main(["adapt", str(place / "lm"), str(place / "task"), *flags]) == 2
    assert "--labels 100: there are 60 training texts, but 100 labels should learn" in capsys.readouterr().err


def together(place: Path, **changes: Any) -> AdaptResult:
    """Three seeds as one model."""
    return run(place, **{"seeds": 3, "ensemble": True, "out": str(place / "run"), "tune": tune(epochs=2)} | changes)


@pytest.mark.parametrize("selection", ["cross-validation", "holdout"])
def test_the_saved_model_is_what_was_scored(selection: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command to the reloaded folder: its predictions, temperature, history and report; all seeds share the labels."""
    monkeypatch.setattr(Averaged, "kept", lambda *_: True)
    result = together(place, selection=selection, calibration_fraction=0.25)
    saved, task = load(place / "run"), cats()
    found = uncalibrated_predictions(saved, task.test.texts)
    np.testing.assert_allclose(found, result.test_predictions, atol=1e-6)
    assert len(saved.calibration.held_out) == result.set_apart == 6
    assert saved.history[-1].notes[-2:] == (*result.label_findings, *result.ensemble_findings)[-2:]
    assert saved.history[-1].scores["accuracy"] == result.scores["mean of 3 seeds"][0].score("accuracy")
    assert result.ensemble_findings[0] in (place / "run" / "report.html").read_text()
    assert "mean of 3 seeds" in {row.name for row in result.comparison.rows}
    assert len({one.train.tobytes() for one in result.budgets.values()}) == 1, "a model of three draws would look at more labels"
    assert (result.labels, result.one_split) == (24, True)
    assert [one.name for one in saved.members] == ["seed 0", "seed 1", "seed 2"]
    singles = [one.final.test_predictions for one in result.runs["pretrained"]]
    np.testing.assert_allclose(found, np.mean(singles, axis=0), atol=1e-6)
    folds = [[fold.choose.tolist() for fold in one.folds] for one in result.budgets.values()]
    assert folds[0] == folds[1] == folds[2]
    assert not np.array_equal(*(one.choosing for one in result.runs["pretrained"][:2])), "seeds differ all the same"


def test_what_is_worse_than_a_single_seed_is_not_saved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure is the mean of single seeds: the best was chosen on the same texts. The folder then holds one of them."""
    for score, kept in ((0.6, True), (0.59, False)):
        result = Averaged("mean of 2 seeds", None, None, None, score)
        assert result.kept((0.5, 0.7)) == kept
        saved = "saved" if kept else "not saved"
        assert result.sentence((0.5, 0.7), "accuracy").endswith(f"and single seeds 60.0% on average; it is {saved}.")
    monkeypatch.setattr(Averaged, "kept", lambda *_: False)
    whole = together(place, selection="holdout", seeds=2, baselines=False)
    assert isinstance(load(place / "run"), Bundle)
    assert whole.saved.startswith("The saved model is that of seed")
    assert whole.ensemble_findings[0].endswith("it is not saved.")


def test_a_mean_needs_no_texts_that_choose(place: Path) -> None:
    """Without selection it is saved, and the report says that no label chose."""
    result = together(place, selection="none", seeds=2, baselines=False)
    assert isinstance(load(place / "run"), Stack)
    assert result.ensemble_findings == ["The mean of 2 seeds is saved: no label chooses."]


def test_a_mean_of_several_labels_or_numbers_is_a_stack_too(place: Path) -> None:
    """As one of single labels is."""
    for name in {*STACKABLE} - {"classification"}:
        given = {"task": str(write_task(place / name, name)), "out": str(place / f"run-{name}"), "tune": tune(epochs=1)}
        result = together(place, labels=None, selection="holdout", seeds=2, baselines=False, **given)
        assert isinstance(result.ensemble.model, Stack), name


def test_what_cannot_be_averaged_is_refused(place: Path) -> None:
    """Before anything is trained or written."""
    tags = {"labels": None, "task": str(write_task(place / "tagging", "tagging"))}
    for changes, message in (
        ({"seeds": 1}, "needs two seeds at least, but has 1"),
        (tags, "but this is a tagging task; leave it out"),
    ):
        with pytest.raises(ConfigError, match=message):
            together(place, **changes)
        assert not (place / "run").exists()


def without_validation(folder: Path) -> Path:
    """The task in a folder without its validation texts."""
    manifest = yaml.safe_load((folder / "task.yaml").read_text())
    del manifest["validation"]
    (folder / "task.yaml").write_text(yaml.safe_dump(manifest))
    return folder


@pytest.fixture
def unset(place: Path, few_baselines: None, no_pages: None) -> Path:
    """A language model, and two tasks without validation texts."""
    without_validation(save_task(cats(), place / "task").parent)
    without_validation(save_task(who(), place / "who").parent)
    return place


def test_no_texts_are_set_apart(unset: Path) -> None:
    """All training examples stay there, the test split is that with validation texts, and the task is written as it was read."""
    task, whole = load_task(unset / "task"), cats()
    assert [len(split) for split in task.splits().values()] == [60, 0, 30]
    assert (task.train.texts, task.test_digest) == (whole.train.texts, whole.test_digest)
    assert load_task(save_task(task, unset / "again")).digest == task.digest
    assert len(drop_leaks(task).validation) == 0
    assert [len(split) for split in resplit(task, 1).splits().values()] == [60, 0, 30]
    manifest = unset / "task" / "task.yaml"
    manifest.write_text(manifest.read_text().replace("test.ndjson", "0.25"))
    held_out = load_task(unset / "task")
    manifest.write_text(f"{manifest.read_text()}validation: 0.25\n")
    assert load_task(unset / "task").test_digest == held_out.test_digest


def test_a_label_budget_needs_none(unset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``adapt``, ``evaluate``, ``race``, ``audit`` and ``continual`` run within their labels."""
    lm, task = str(unset / "lm"), str(unset / "task")
    quick = ["--epochs", "1", "--seeds", "1"]
    out = str(unset / "adapt")
    assert main(["adapt", lm, task, "--labels", "24", "--calibration-fraction", "0.5", "--no-scratch", *quick, "--out", out]) == 0
    assert main(["adapt", lm, task, "--selection", "none", "--no-scratch", "--no-baselines", *quick, "--out", f"{out}2"]) == 0
    assert main(["evaluate", out, task]) == 0
    assert main(["audit", task]) == 0
    words = [lm, task, str(unset / "who"), "--labels", "24", "--selection", "none", *quick, "--out", str(unset / "continual")]
    assert main(["continual", *words, "--strategies", "none", "joint", "alone"]) == 0
    given = {"schemes": [], "seeds": 1, "scratch": False, "learning_rates": [1e-3]}
    assert race(race_config(unset, **given, labels=20)).choosing == 20
    opened = open_sweep(race_config(unset, **given, selection="cross-validation", out=str(unset / "all")))
    assert len(opened.budget(None).choosing) == 60
    capsys.readouterr()


def test_all_labels_choose_by_cross_validation(unset: Path) -> None:
    """Without a word about it: a task without validation texts needs no flag."""
    lm, task = str(unset / "lm"), str(unset / "task")
    of_race = ["race", task, "--backbones", lm, "--schemes", "--no-scratch"]
    for words, selection in ((of_race, "none"), (["adapt", lm, task, "--no-scratch"], "cross-validation")):
        assert main([*words, "--steps", "2", "--seeds", "1", "--out", str(unset / words[0])]) == 0
        assert yaml.safe_load((unset / words[0] / "config.yaml").read_text())["selection"] == selection


def test_what_needs_some_says_what_to_write(unset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written: a holdout must have texts, and several tasks choose by one."""
    lm, tasks = str(unset / "lm"), [str(unset / "task"), str(unset / "who")]
    held = ["--selection", "holdout"]
    for words in (["race", tasks[0], "--backbones", lm, *held], ["adapt", lm, tasks[0], *held], ["continual", lm, *tasks]):
        assert main([*words, "--out", str(unset / "run")]) == 2, words
        assert "write 'validation: 0.1'" in " ".join(capsys.readouterr().err.split()), words
        assert not (unset / "run").exists()
    (unset / "task" / "task.yaml").write_text(yaml.safe_dump({"name": "q", "type": "answers", "train": "train.ndjson", "test": 3}))
    with pytest.raises(ConfigError, match="generated answers need validation questions, which choose the weights; write 'valid"):
        load_answer_task(unset / "task")


def test_calibration_texts_are_of_validation_or_of_the_budget(unset: Path) -> None:
    """Without both there is nothing to set apart."""
    words = ["adapt", str(unset / "lm"), str(unset / "task"), "--selection", "cross-validation", "--calibration-fraction", "0.5"]
    assert main([*words, "--out", str(unset / "run")]) == 2
    assert not (unset / "run").exists()
    with pytest.raises(ConfigError, match="selection by holdout needs validation texts"):
        race(race_config(unset, selection="holdout", labels=20))
