"""``adapt --labels``: everything labelled that anything looks at is in the budget, and the results say what it was for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import language_bundle
from helpers.tasks import cats, tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.data.budget import label_budget
from warmstart.data.pool import Pool
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.errors import ConfigError
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.experiment.config import AdaptConfig
from warmstart.finetuning.calibration import split_calibration_texts
from warmstart.finetuning.further import continue_pretraining
from warmstart.finetuning.schemes.registry import SchemeOptions
from warmstart.model.files import load_bundle, save
from warmstart.model.history import AdaptRecord, ContinuedPretrainingRecord
from warmstart.stats.calibration import fit_temperature
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    save(language_bundle(tokenizer), tmp_path / "lm")
    return tmp_path


def run(place: Path, task: Task | None = None, **changes: Any) -> AdaptResult:
    out = str(place / f"run{len([*place.iterdir()])}")
    save_task(task or cats(), Path(f"{out}-task"))
    given = {"model": str(place / "lm"), "task": f"{out}-task", "out": out, "seeds": 2, "labels": 24, "scratch": False}
    return adapt(AdaptConfig.build(given | {"tune": tune("probe", epochs=2)} | changes))


def record_of(result: AdaptResult, place: Path) -> AdaptRecord:
    """The last record of the bundle that was saved last."""
    folder = max(place.glob("run*/bundle"), key=lambda path: path.stat().st_mtime)
    record = load_bundle(folder).history[-1]
    assert isinstance(record, AdaptRecord)
    assert record.budget == tuple(result.label_findings)
    assert " ".join(record.budget) in (folder / "README.md").read_text()
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
    assert result.confidence
    expected = fit_temperature(result.best.choosing, result.budgets[result.best.seed].choosing.labels)
    assert result.confidence.calibration.temperature == pytest.approx(expected)
    record = record_of(result, place)
    assert (record.task.train, record.task.validation, record.task.test) == (24, None, 30)
    assert record.validation == result.validation_scores
    assert json.loads(json.dumps(result.to_dict()))["labels"] == {"selection": "cross-validation", "looked_at": 24, "set_apart": 0}


def test_a_holdout_is_part_of_the_budget(place: Path) -> None:
    """A fifth chooses."""
    result = run(place, selection="holdout")
    assert result.label_findings == ["24 labels: 19 to learn, 5 to choose."]
    assert result.saved.endswith("because a choice among draws would look at the labels of all of them.")
    assert record_of(result, place).task.validation == 5


def test_without_selection_the_first_seed_is_saved(place: Path) -> None:
    """No score, no temperature, and the result says so."""
    result = run(place, selection="none", seed=3, baselines=False)
    assert result.best is result.runs["pretrained"][0]
    assert result.saved == "The saved model is that of seed 3, the first one, because no label chooses."
    assert result.label_findings == ["24 labels: all of them learn, and none chooses the settings of a network."]
    assert result.confidence
    assert result.confidence.findings[0].startswith("No temperature was fitted, because no label chooses")
    record = record_of(result, place)
    assert record.validation == {}
    assert "NaN" not in json.dumps(result.to_dict())


@pytest.mark.parametrize("type_name", ["multilabel", "tagging"])
def test_every_task_type_has_a_budget(type_name: str, place: Path) -> None:
    """From the manifest to the report, with the baselines of the type."""
    manifest = write_task(place / type_name, type_name)
    given = {"model": str(place / "lm"), "task": str(manifest), "out": str(place / "run"), "labels": 24, "seeds": 1}
    result = adapt(AdaptConfig.build(given | {"tune": tune(epochs=1)}))
    assert result.label_findings[0] in (place / "run" / "report.html").read_text()
    assert record_of(result, place).task.train == 24
    assert len(result.comparison.rows) >= 3


def test_the_validation_and_test_labels_change_nothing(place: Path) -> None:
    """Turned round, they leave the saved model and its calibration the same to the bit; continued pretraining, too."""
    task = cats()
    file = place / "more.txt"
    file.write_text("\n\n".join(f"We found {what} in {year}." for what in ("a cat", "the river") for year in range(1900, 1960)))
    task = replace(task, unlabelled=(Source(path=str(file)),))
    poisoned = replace(
        task,
        validation=replace(task.validation, labels=1 - task.validation.labels),
        test=replace(task.test, labels=1 - task.test.labels),
    )
    one, other = (run(place, each, seeds=1, tune=tune("dapt+probe", epochs=2)) for each in (task, poisoned))
    before, after = one.best.final.model.weights(), other.best.final.model.weights()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    np.testing.assert_array_equal(one.best.choosing, other.best.choosing)
    assert one.confidence
    assert other.confidence
    assert one.confidence.calibration == other.confidence.calibration


def test_the_probe_of_continued_pretraining_is_within_the_budget(tokenizer: Tokenizer) -> None:
    """The labels of all other training texts are turned round: the same decision and figures."""
    task = cats()
    budget = label_budget(task, 20, "cross-validation", 0)
    labels = 1 - task.train.labels
    labels[budget.train] = task.train.labels[budget.train]
    poisoned = replace(budget, whole=task.with_train(replace(task.train, labels=labels)))
    options = SchemeOptions(dapt_epochs=2, dapt_learning_rate=5e-3)
    text = Pool(tuple(map(str, task.train.texts)))
    made = (continue_pretraining(language_bundle(tokenizer), each, options, text) for each in (budget, poisoned))
    one, other = (bundle.history[-1] for bundle in made)
    assert isinstance(one, ContinuedPretrainingRecord)
    assert isinstance(other, ContinuedPretrainingRecord)
    assert one.decision == other.decision
    assert [stage.probe_accuracy for stage in one.evaluations] == [stage.probe_accuracy for stage in other.evaluations]
    accuracy = 20 * one.evaluations[0].probe_accuracy
    assert accuracy == pytest.approx(round(accuracy)), "each label of the budget is predicted once"


def test_calibration_texts_are_part_of_the_budget(place: Path) -> None:
    """Half of the labels give the guarantee, and the report says how little they can guarantee."""
    result = run(place, calibration_fraction=0.5, baselines=False)
    assert (result.labels, result.set_apart, len(result.task.train)) == (24, 12, 12)
    assert result.label_findings[-1] == "12 further labels choose nothing; they can guarantee no error rate below 22.1%."
    assert result.confidence
    assert len(result.confidence.calibration.held_out) == 12
    assert "but none below 22.1%, which takes more texts." in result.confidence.findings[-1]


def test_calibration_texts_of_a_budget_have_no_copies_among_those_that_learn() -> None:
    """Copies are one unit; labels have no influence."""
    task = cats()
    twice = task.with_train(replace(task.train, texts=tuple(task.train.texts[i // 2] for i in range(60))))
    rest, apart = split_calibration_texts(twice, 0.5, 20)
    assert apart
    assert not {*rest.train.texts} & {*apart.texts}
    assert 0 < len(apart) <= 10
    relabelled = twice.with_train(replace(twice.train, labels=1 - twice.train.labels))
    assert split_calibration_texts(relabelled, 0.5, 20)[1].texts == apart.texts  # type: ignore[union-attr]


def test_what_cannot_be_chosen_is_refused_before_training(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too few labels, and early stopping without a holdout; nothing is written."""
    with pytest.raises(ConfigError, match="--labels 2: cross-validation needs two labelled texts of one class"):
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
