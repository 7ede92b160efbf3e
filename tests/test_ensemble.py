"""``adapt --ensemble``: the seeds as one model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import language_bundle
from helpers.tasks import cats, tune, write_task
from warmstart.commands.adapt.command import adapt
from warmstart.errors import ConfigError
from warmstart.experiment.adaptation_result import AdaptResult, EnsembleResult
from warmstart.experiment.config import AdaptConfig
from warmstart.finetuning.ensemble import STACKABLE, Averaged
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.stack.stack import Stack
from warmstart.tasks.load import save_task
from warmstart.tasks.predict import uncalibrated_predictions
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def made(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model and a task."""
    folder = tmp_path_factory.mktemp("made")
    save(language_bundle(tokenizer), folder / "lm")
    save_task(cats(), folder / "task")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of them, beside which a test works."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def run(place: Path, **changes: Any) -> AdaptResult:
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / "run"), "seeds": 3, "scratch": False}
    return adapt(AdaptConfig.build(given | {"labels": 24, "tune": tune(epochs=2)} | changes))


@pytest.mark.parametrize("selection", ["cross-validation", "holdout"])
def test_the_saved_model_is_what_was_scored(selection: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command to the reloaded folder: its predictions, temperature, history and report; all seeds share the labels."""
    monkeypatch.setattr(EnsembleResult, "kept", lambda self, _: self.mean)
    result = run(place, ensemble=True, selection=selection, calibration_fraction=0.25)
    saved, task = load(place / "run"), cats()
    assert result.averaged
    found = uncalibrated_predictions(saved, task.test.texts)
    np.testing.assert_allclose(found, result.test_predictions, atol=1e-6)
    assert len(saved.calibration.held_out) == result.set_apart == 6
    assert saved.history[-1].budget == (*result.label_findings, *result.ensemble_findings)
    assert saved.history[-1].test.figures["accuracy"] == result.scores["mean of 3 seeds"][0].score("accuracy")
    assert result.ensemble_findings[0] in (place / "run" / "report.html").read_text()
    assert [row[0] for row in result.ensemble_rows] == ["single seeds, mean", "mean of 3 seeds"]
    assert "mean of 3 seeds" in {row.name for row in result.comparison.rows}
    assert len({one.train.tobytes() for one in result.budgets.values()}) == 1, "a model of three draws would look at more labels"
    assert (result.labels, result.one_split) == (24, True)
    assert isinstance(saved, Stack)
    assert [one.name for one in saved.members] == ["seed 0", "seed 1", "seed 2"]
    singles = [one.final.test_predictions for one in result.runs["pretrained"]]
    np.testing.assert_allclose(found, np.mean(singles, axis=0), atol=1e-6)
    folds = [[fold.choose.tolist() for fold in one.folds] for one in result.budgets.values()]
    assert folds[0] == folds[1] == folds[2]
    assert not np.array_equal(*(one.choosing for one in result.runs["pretrained"][:2])), "seeds differ all the same"


def test_what_is_worse_than_a_single_seed_is_not_saved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure is the mean of single seeds: the best was chosen on the same texts. The folder then holds one of them."""
    for score, kept in ((0.6, True), (0.59, False)):
        model = Averaged("mean of 2 seeds", None, None, None, score, 10, 0.1)
        result = EnsembleResult(model, 10, 0.1)
        assert (result.kept((0.5, 0.7)) is model) == kept
        saved = "saved" if kept else "not saved"
        assert result.sentence((0.5, 0.7), "accuracy").endswith(f"and single seeds 60.0% on average; it is {saved}.")
    monkeypatch.setattr(EnsembleResult, "kept", lambda self, _: None)
    whole = run(place, ensemble=True, selection="holdout", seeds=2, baselines=False)
    assert isinstance(load(place / "run"), Bundle)
    assert whole.saved.startswith("The saved model is that of seed")
    assert whole.ensemble_findings[0].endswith("it is not saved.")


def test_a_mean_needs_no_texts_that_choose(place: Path) -> None:
    """Without selection it is saved, and the report says that no label chose."""
    result = run(place, ensemble=True, selection="none", seeds=2, baselines=False)
    assert isinstance(load(place / "run"), Stack)
    assert result.ensemble_findings == ["The mean of 2 seeds is saved: no label chooses."]


def test_a_mean_of_several_labels_or_numbers_is_a_stack_too(place: Path) -> None:
    """As one of single labels is."""
    for name in {*STACKABLE} - {"classification"}:
        given = {"task": str(write_task(place / name, name)), "out": str(place / f"run-{name}"), "tune": tune(epochs=1)}
        result = run(place, ensemble=True, labels=None, selection="holdout", seeds=2, baselines=False, **given)
        assert isinstance(result.ensemble.mean.model, Stack), name


def test_what_cannot_be_averaged_is_refused(place: Path) -> None:
    """Before anything is trained or written."""
    tags = {"labels": None, "task": str(write_task(place / "tagging", "tagging"))}
    for changes, message in (
        ({"seeds": 1}, "needs two seeds at least, but has 1"),
        (tags, "but this is a tagging task; leave it out"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(place, **{"ensemble": True} | changes)
        assert not (place / "run").exists()
