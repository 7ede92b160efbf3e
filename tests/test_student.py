"""The network that a race's stack teaches: who teaches it, when there is none, and that it is saved as it was scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.races import FAMILIES, race_result
from helpers.tasks import race_config, write_race_inputs
from warmstart.commands.race.command import race
from warmstart.errors import ModelError
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.race_verdict import race_verdict
from warmstart.experiment.ranking import RankedMethod
from warmstart.experiment.student import student_trials
from warmstart.experiment.trial import STUDENT, Method, Trial, TrialResult
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.history import AdaptRecord
from warmstart.runs.state import find_runs
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

ONE = Method(name="full", family="adapted", scheme="full", backbone_digest="a")


def _results(method: Method, validation: float) -> dict[Trial, TrialResult]:
    made = TrialResult(0.5, (), 1.0, validation, learning_rate=2e-4)
    return {Trial(method=method, seed=seed, labels=100, selection="none"): made for seed in range(2)}


def test_the_stack_teaches_where_it_is_better_than_the_network() -> None:
    """On the texts that choose; the encoder is that of the best network that has every seed, at the rate that it chose."""
    stacks = _results(Method(name="stack", family="stack", backbone_digest="s"), 0.8)
    other, frozen = ONE.model_copy(update={"backbone_digest": "b"}), ONE.model_copy(update={"scheme": "probe"})
    results = _results(ONE, 0.7) | _results(other, 0.6) | _results(frozen, 0.9)
    found = student_trials(stacks, results)
    assert [*found.values()] == [*stacks][:1], "once in a race"
    assert {(one.method.name, one.method.backbone_digest, one.method.teacher) for one in found} == {(STUDENT, "a", "s")}
    assert {(one.seed, one.learning_rates) for one in found} == {(0, (2e-4,))}
    assert not student_trials(stacks, _results(ONE, 0.8))
    assert not student_trials(stacks, _results(frozen, 0.7))
    assert not student_trials(stacks, dict([*_results(ONE, 0.7).items()][:1])), "without one of the seeds"


def test_a_race_saves_the_network_that_the_stack_taught(
    tmp_path: Path, tokenizer: Tokenizer, few_baselines: None, no_second_process: None
) -> None:
    """As one bundle that predicts what was scored; it stands beside the methods that are compared. Without a pool there is none."""
    chance = np.random.default_rng(0)
    lines = [" ".join("".join(chance.choice([*"abcdefgh"], 5)) for _ in range(6)) for _ in range(50)]
    (tmp_path / "pool.txt").write_text("\n".join(lines), encoding="utf-8")
    place = write_race_inputs(tmp_path, tokenizer)
    config = race_config(place, labels=40, seeds=1, pool=str(tmp_path / "pool.txt"), save=STUDENT)
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
    with pytest.raises(ModelError, match="there is no student to save"):
        race(config.model_copy(update={"pool": "none"}))


def test_the_first_screen_names_one_network_in_place_of_the_stack() -> None:
    """Where the stack is recommended: its score, and the command that saves it."""
    found = race_result({"stack": 0.83, "full": 0.8, "majority": 0.5}, families=FAMILIES)
    stack = next(one for one in found.ranking.methods if one.name == "stack")
    student = RankedMethod(ONE.model_copy(update={"name": STUDENT}), stack.runs[:1], stack.seeds[:1])
    shown = race_verdict(replace(found, student=student), Path("runs/r"))
    assert found.recommended.name == "stack"
    assert "One network that the stack taught gets 83 of 100, where the stack gets 83 of 100." in shown.sentences
    assert any(step.command.endswith("--save student") for step in shown.steps)
    assert not any(step.command.endswith("--save student") for step in race_verdict(found, Path("runs/r")).steps)
