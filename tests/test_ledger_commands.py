"""Every command that scores a test split goes through the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pytest

from helpers.bundles import language_bundle
from helpers.multitask import task_settings, write_inputs
from helpers.tasks import curve_config, race_config, tune, write_race_inputs
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.commands.continual import continual
from warmstart.commands.evaluate.command import evaluate
from warmstart.commands.race.command import race
from warmstart.commands.settings import EvaluateConfig
from warmstart.data.scorings import LedgerSummary, read_ledger
from warmstart.experiment import execution
from warmstart.experiment.config import AdaptConfig
from warmstart.finetuning.config import ContinualConfig
from warmstart.model.files import load_bundle, save
from warmstart.tasks.answers import load_answer_task
from warmstart.tasks.load import load_task
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

pytestmark = pytest.mark.usefixtures("few_baselines")


# ---------------------------------------------------------------------------------------------------- commands


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
    """In the findings, the report, the card of the bundle and on the terminal; ``audit`` lists the settings."""
    found = adapt(adapt_config(place))
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


def test_the_ledger_tells_what_chose(place: Path) -> None:
    """Two runs that differ in their selection alone have other names, in ``adapt`` and in a race."""
    selections = ("cross-validation", "none")
    for selection in selections:
        given = {"labels": 20, "selection": selection, "seeds": 1, "scratch": False}
        adapt(adapt_config(place, **given, baselines=False, out=str(place / selection)))
        race(race_config(place, **given, task=str(place / "cats"), schemes=[], out=str(place / f"race-{selection}")))
    names = {entry.name for entry in ledger(place / "cats").entries}
    for method in ("full at learning rate 0.005", "majority"):
        assert {name for name in names if name.startswith(method)} == {
            f"{method}, 20 labels, selection {one}" for one in selections
        }


@pytest.mark.parametrize(("strategies", "scorings"), [(["joint", "alone"], [2, 2]), (["none"], [2, 1])])
def test_several_tasks_have_a_ledger_each(strategies: list[str], scorings: list[int], place: Path) -> None:
    """Each test split is counted."""
    found = continual(ContinualConfig.build(task_settings(place, seeds=1, strategies=strategies)))
    both = ledger(place / "cats"), ledger(place / "who")
    assert [one.scorings for one in both] == scorings
    assert found.findings[-2:] == [f"{task}: {one.sentence}" for task, one in zip(("cats", "who"), both, strict=True)]
    page = (place / "run" / "report.html").read_text()
    assert all(one.sentence in page for one in both)


def test_answers_are_counted(tmp_path: Path) -> None:
    """Written answers too: each seed, and the most common answer."""
    people = [(f"{name} {i}", city) for i in range(8) for name, city in (("Ada", "London"), ("Emil", "Riga"))]
    rows = "".join(f"Where was {name} born?\t{city}\n" for name, city in people)
    (tmp_path / "all.txt").write_text(rows)
    file = tmp_path / "places.yaml"
    file.write_text(
        "name: places\ntype: answers\nsource: {pattern: '^(?P<text>[^\\t]+)\\t(?P<label>.+)$'}\n"
        "train: all.txt\nvalidation: 4\ntest: all.txt\n"
    )
    letters = train_tokenizer([rows], TokenizerConfig(type="character", sentinels=0))
    save(language_bundle(letters, "causal"), tmp_path / "lm")
    given = {"model": str(tmp_path / "lm"), "task": str(file), "seeds": 1, "out": str(tmp_path / "run"), "scratch": False}
    found = adapt(AdaptConfig.build(given | {"tune": {"train": {"steps": 2, "batch": 8}}}))
    assert found.ledger.scorings == read_ledger(load_answer_task(file)).scorings == 2
    assert found.ledger.sentence in (tmp_path / "run" / "report.html").read_text()


# ---------------------------------------------------------------------------------------------------- sweeps


@pytest.fixture
def racing(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model."""
    return write_race_inputs(tmp_path, tokenizer)


def scored_trials(folder: Path) -> int:
    """The trials of a race, without those that only choose a learning rate."""
    return polars.read_csv(folder / "runs.csv")["score"].count()


def test_a_resumed_race_counts_each_trial_once(racing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a scoring and before its result is kept, then run to the end, then run again: one scoring per trial."""
    config, saved = race_config(racing, seeds=1, learning_rates=[5e-3], scratch=False), execution.save_result

    def stop(trial: Any, *rest: Any) -> None:
        if trial.method.name == "full":
            raise KeyboardInterrupt
        saved(trial, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(execution, "save_result", stop)
        with pytest.raises(KeyboardInterrupt):
            race(config)
    interrupted = ledger(racing / "task").scorings
    found = race(config)
    trials = scored_trials(racing / "race")
    assert 1 < interrupted <= trials == found.ledger.scorings == found.ledger.settings
    assert race(config).findings == found.findings
    assert found.ledger.sentence == found.findings[-1]
    assert found.ledger.sentence in (racing / "race" / "report.html").read_text()
    race(race_config(racing, seeds=2, learning_rates=[5e-3], scratch=False))
    more = ledger(racing / "task")
    assert (more.scorings > trials, more.settings) == (True, trials), "another seed is no other setting"


def test_a_curve_counts(racing: Path) -> None:
    """Every number of labels is a setting of its own."""
    found = race(curve_config(racing, labels=[8, 16], schemes=["probe"], learning_rates=[5e-3], seeds=1))
    assert found.ledger.scorings == found.ledger.settings == len(list((racing / "curve" / "trials").glob("*.json")))
    assert found.ledger.sentence in (racing / "curve" / "report.html").read_text()


def test_ablations_are_one_scoring(place: Path) -> None:
    """Of the model that is ablated."""
    from warmstart.studies.ablate.command import StudyAblateConfig, study_ablate

    adapt(adapt_config(place, seeds=1, scratch=False, baselines=False))
    assert load_bundle(place / "adapt" / "bundle").labels
    given = {"model": str(place / "adapt"), "task": str(place / "cats"), "out": str(place / "study"), "limit": 8}
    study_ablate(StudyAblateConfig.build(given))
    assert ledger(place / "cats").scorings == 2
