"""What a race recommends can be saved: every method, and the stack, predicts from its folder what was scored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.tasks import race_config, write_race_inputs
from warmstart.baselines import choice
from warmstart.cli import main
from warmstart.commands.race.command import race
from warmstart.errors import ConfigError, ModelError, UncheckedWarning
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.refit import refit
from warmstart.experiment.store import SweepContext, read_predictions
from warmstart.experiment.sweep import open_sweep, run_sweep
from warmstart.experiment.trial import Method, SweepRuns
from warmstart.finetuning.finetune import FineTuneResult, FineTuning
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.stack.stack import Stack
from warmstart.stats.calibration import apply_temperature
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions, read
from warmstart.tokenizer.tokenizer import Tokenizer

Raced = tuple[RaceConfig, SweepContext, SweepRuns]


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, few_baselines: None) -> Iterator[Raced]:
    """A race with forty labels, and its runs."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("refit")
        patch.setattr("warmstart.model.files._verify_in_fresh_process", lambda _: None)
        config = race_config(write_race_inputs(place, tokenizer), labels=40, seeds=1, learning_rates=[5e-3])
        race(config)
        sweep = open_sweep(config.model_copy(update={"schemes": ("probe", "scalar-mix", "full")}))
        yield config, sweep.context, run_sweep(sweep, 40)


def test_every_method_predicts_from_its_folder_what_was_scored(raced: Raced, tmp_path: Path) -> None:
    """Baselines, classifiers on frozen vectors, fine-tuned networks and their stack: the same probabilities, then a temperature."""
    config, context, runs = raced
    task = load_task(config.task)
    methods = list({trial.method.name: trial.method for trial in runs.trials}.values())
    assert {method.family for method in methods} == {"baseline", "frozen", "adapted", "scratch", "stack"}
    for number, method in enumerate(methods):
        fitted = refit(method, runs, context)
        saved = load(fitted.save(tmp_path / str(number)))
        assert isinstance(saved, Bundle if method.family in ("adapted", "scratch") else Stack), method
        assert (len(saved.members) > 1) == method.combines if isinstance(saved, Stack) else saved.labels
        scored = read_predictions(fitted.trial, context)
        assert scored is not None
        assert fitted.trial.seed == 0
        assert saved.calibration is not None
        expected = apply_temperature(scored.test, saved.calibration.temperature)
        np.testing.assert_allclose(raw_predictions(saved, task.test.texts), expected, atol=2e-5, err_msg=method.name)
        assert fitted.difference < 1e-5, method
        typical = read(saved, task.test.texts).typicality
        np.testing.assert_array_equal(typical, read(fitted.model, task.test.texts).typicality)
        assert (typical is not None) >= (method.family == "frozen"), method.name
        assert "It predicts what was scored: " in fitted.sentence


def test_a_baseline_takes_one_more_fit(raced: Raced, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting that its trial chose; no fold is run again."""
    _, context, runs = raced
    fit, settings = choice._Learner.fit, list[float]()
    monkeypatch.setattr(choice._Learner, "fit", lambda self, indices, one: settings.append(one) or fit(self, indices, one))
    trial = next(one for one in runs.trials if one.method.name.startswith("TF-IDF"))
    refit(trial.method, runs, context)
    assert settings == [runs.results[trial].setting]


def test_a_network_takes_one_more_fit(raced: Raced, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many steps as the trial's last fit; no fold is run again."""
    _, context, runs = raced
    fit, fits = FineTuning.run, list[int]()

    def counted(run: FineTuning, model: Model) -> FineTuneResult:
        fits.append(1)
        return fit(run, model)

    monkeypatch.setattr(FineTuning, "run", counted)
    trial = next(trial for trial in runs.trials if trial.method.name == "full")
    found = refit(trial.method, SweepRuns((trial,), {trial: runs.results[trial]}), context)
    assert found.difference < 1e-6
    assert len(fits) == 1


def test_what_diverged_is_the_constant_that_was_scored(raced: Raced) -> None:
    """The constant prediction stands for it in the scores, and so in the model."""
    _, context, runs = raced
    trial = next(trial for trial in runs.trials if trial.method.name == "full")
    found = refit(trial.method, SweepRuns((trial,), {trial: replace(runs.results[trial], diverged=True)}), context)
    assert isinstance(found.model, Stack)
    assert raw_predictions(found.model, ["a", "b"]) == pytest.approx(np.full((2, 2), 0.5))
    assert found.difference > 0.01, "here it had not diverged"


def test_a_model_that_differs_from_what_was_scored_is_said_to(raced: Raced, tmp_path: Path) -> None:
    """Saved all the same, because the race may have taken hours; the command then ends with exit code 1."""
    _, context, runs = raced
    trial = next(trial for trial in runs.trials if trial.method.name == "NBSVM")
    found = replace(refit(trial.method, runs, context), difference=0.2)
    with pytest.warns(UncheckedWarning, match="differ by up to 0.2 from those that were scored"):
        found.save(tmp_path / "saved")
    assert "It does not predict what was scored: before calibration, predictions differ by at most 0.2." in found.sentence
    assert isinstance(load(tmp_path / "saved"), Stack)


def test_a_race_saves_what_it_recommends(raced: Raced, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after it was run; every command finds the model in the folder of the race."""
    config, _, _ = raced
    for name, kind in (("recommended", None), ("stack", Stack), ("full", Bundle), ("NBSVM", Stack)):
        result = race(config.model_copy(update={"save": name}))
        assert isinstance(result, Comparison)
        saved = load(Path(config.out) / "bundle")
        assert kind is None or isinstance(saved, kind)
        printed = " ".join(capsys.readouterr().err.split())
        assert f"Saved {result.recommended.name if name == 'recommended' else name}, fitted again to its labels" in printed
    assert main(["predict", config.out, "She holds the cat."]) == 0
    assert '"label": "' in capsys.readouterr().out
    assert main(["evaluate", config.out, config.task]) == 0
    assert main(["doctor", config.out]) == 0


def test_what_cannot_be_saved_is_refused(raced: Raced) -> None:
    """An unknown name before anything runs."""
    config, context, runs = raced
    with pytest.raises(ConfigError, match="no method of this race has this name; did you mean 'stack'"):
        race(config.model_copy(update={"save": "stak"}))
    with pytest.raises(ModelError, match="majority ignores the texts"):
        race(config.model_copy(update={"save": "majority"}))
    method = Method(name="later", family="adapted")
    with pytest.raises(ModelError, match="later has no finished run"):
        refit(method, runs, context)
    trial = runs.trials[0].model_copy(update={"seed": 99})
    with pytest.raises(ModelError, match="must be compared with the predictions that were scored"):
        refit(trial.method, SweepRuns((trial,), {trial: next(iter(runs.results.values()))}), context)
