"""The network that a race's stack teaches: who teaches it, when there is none, and that it is saved as it was scored."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.races import FAMILIES, race_result
from helpers.tasks import race_config, write_race_inputs
from warmstart.commands.race.command import race
from warmstart.errors import ConfigError
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.race_verdict import race_verdict
from warmstart.experiment.ranking import RankedMethod
from warmstart.experiment.store import SweepContext
from warmstart.experiment.student import student_trial
from warmstart.experiment.trial import STUDENT, Method, Trial, TrialResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.history import AdaptRecord
from warmstart.runs.state import find_runs
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

CONTEXT = SweepContext(task="cats", digest="", folder="trials", tune=FineTuneConfig())
ONE = Method(name="full", family="adapted", scheme="full", backbone_digest="a")


def _results(method: Method, validation: float) -> dict[Trial, TrialResult]:
    made = TrialResult(0.5, (), 1.0, validation, learning_rate=2e-4)
    return {Trial(method=method, seed=seed, labels=100, selection="none"): made for seed in range(2)}


def _pool(folder: Path) -> str:
    """Fifty texts like none of a task."""
    chance = np.random.default_rng(0)
    lines = [" ".join("".join(chance.choice([*"abcdefgh"], 5)) for _ in range(6)) for _ in range(50)]
    (folder / "pool.txt").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "pool.txt")


def test_the_stack_teaches_where_it_is_better_than_the_network() -> None:
    """On the texts that choose; the encoder is that of the best network that has every seed, at the rate that it chose."""
    stacks = _results(Method(name="stack", family="stack", backbone_digest="s"), 0.8)
    other, frozen = ONE.model_copy(update={"backbone_digest": "b"}), ONE.model_copy(update={"scheme": "probe"})
    results = _results(ONE, 0.7) | _results(other, 0.6) | _results(frozen, 0.9)
    found = student_trial(stacks, results, CONTEXT)
    assert found
    assert found[1] == next(iter(stacks)), "the first seed's"
    assert (found[0].method.name, found[0].method.backbone_digest) == (STUDENT, "a")
    assert (found[0].seed, found[0].learning_rates) == (0, (2e-4,))
    assert not student_trial(stacks, _results(ONE, 0.8), CONTEXT)
    assert not student_trial(stacks, _results(frozen, 0.7), CONTEXT)
    assert not student_trial(stacks, dict([*_results(ONE, 0.7).items()][:1]), CONTEXT), "without one of the seeds"


def test_a_student_is_another_where_its_stack_has_other_members() -> None:
    """By their weights and by what they chose, although the stack is planned of the same methods."""
    stacks, results = _results(Method(name="stack", family="stack", backbone_digest="s"), 0.8), _results(ONE, 0.7)

    def taught(weight: float, steps: int) -> str:
        fitted = {trial: replace(one, steps=steps) for trial, one in results.items()}
        combined = {trial: replace(one, members=((ONE.id, weight, 1.0),)) for trial, one in stacks.items()}
        found = student_trial(combined, fitted, CONTEXT)
        assert found
        return found[0].method.teacher

    assert taught(1.0, 10) == taught(1.0, 10)
    assert len({taught(1.0, 10), taught(0.5, 10), taught(1.0, 20)}) == 3


def test_a_race_saves_the_network_that_the_stack_taught(
    tmp_path: Path, tokenizer: Tokenizer, few_baselines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one bundle that predicts what was scored; it stands beside the methods that are compared. Without a pool there is none."""
    place = write_race_inputs(tmp_path, tokenizer)
    config = race_config(place, labels=40, seeds=1, pool=_pool(tmp_path), save=STUDENT)
    result = race(config)
    assert isinstance(result, Comparison)
    assert result.student
    assert STUDENT not in {one.name for one in result.ranking.methods}
    assert any("--save student" in sentence for sentence in result.findings)
    saved, task = load(Path(config.out) / "bundle"), load_task(config.task)
    assert isinstance(saved, Bundle)
    predicted = raw_predictions(saved, task.test.texts).argmax(axis=1)
    assert float((predicted == task.test.labels).mean()) == pytest.approx(result.student.test_scores.scores[0])
    state = next(iter(find_runs(Path(config.out))))
    assert state.done == state.planned
    record = saved.history[-1]
    assert isinstance(record, AdaptRecord)
    assert record.teacher
    assert record.teacher.texts == 50
    row = json.loads((Path(config.out) / "race.json").read_text())["student"]
    assert row["validation"] is None
    with monkeypatch.context() as patched:  # the labels of the pool are kept
        patched.setattr("warmstart.experiment.refit.refit_stack", lambda *_: pytest.fail("the stack is fitted again"))
        race(config)
    trials = len(result.trials.runs[40].trials) if result.trials else 0
    assert trials == len([*(Path(config.out) / "trials").glob("*.json")])
    refused = {"--pool": {"pool": "none"}, "--methods": {"methods": ("full", "stack")}, "--schemes": {"schemes": ("probe",)}}
    for named, changes in refused.items():
        with pytest.raises(ConfigError, match=f"--save student: this race has no student: .*{named}"):
            race(config.model_copy(update=changes | {"out": str(tmp_path / "other")}))
    assert not [*(tmp_path / "other" / "trials").glob("*.json")], "before the first trial"


def test_the_first_screen_names_one_network_in_place_of_the_stack() -> None:
    """Where the stack is recommended: its score, and the command that saves it."""
    found = race_result({"stack": 0.83, "full": 0.8, "majority": 0.5}, families=FAMILIES)
    stack = next(one for one in found.ranking.methods if one.name == "stack")
    student = RankedMethod(ONE.model_copy(update={"name": STUDENT}), stack.runs[:1], stack.seeds[:1])
    shown = race_verdict(replace(found, student=student), Path("runs/r"))
    assert found.recommended.name == "stack"
    assert "One network, taught by the stack of the first seed, gets 83 of 100, where that one gets 83 of 100." in shown.sentences
    assert any(step.command.endswith("--save student") for step in shown.steps)
    assert not any(step.command.endswith("--save student") for step in race_verdict(found, Path("runs/r")).steps)


def test_a_network_that_is_clearly_worse_is_not_offered() -> None:
    """The report says what it costs; no step saves it."""
    found = race_result({"stack": 0.83, "full": 0.8, "majority": 0.5}, families=FAMILIES)
    stack = next(one for one in found.ranking.methods if one.name == "stack")
    worse = replace(stack.runs[0], score=0.78, resampled=tuple(np.linspace(0.77, 0.79, 50)))
    student = RankedMethod(ONE.model_copy(update={"name": STUDENT}), (worse,), stack.seeds[:1])
    lossy = replace(found, student=student)
    shown = race_verdict(lossy, Path("runs/r"))
    cost = next(sentence for sentence in lossy.findings if "network" in sentence)
    assert re.fullmatch(r"A single network costs 5\.0 points against the stack \(\d\.\d to \d\.\d\)\.", cost)
    assert cost in shown.sentences
    assert not any(step.command.endswith("--save student") for step in shown.steps)
