"""Several tasks on one backbone, at once or one after another: exact proportions, forgetting as published."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.multitask import multitask_model, task_batch, task_settings, who, write_inputs
from helpers.results import continual_result
from helpers.tasks import cats, poisoned
from warmstart.cli import main
from warmstart.commands.continual import REFERENCES, ContinualResult, continual
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.scorings import read_ledger
from warmstart.data.task import Task
from warmstart.errors import ConfigError
from warmstart.finetuning import task_suite
from warmstart.finetuning.config import ContinualConfig
from warmstart.finetuning.continual import sampling_fractions, task_order
from warmstart.finetuning.task_suite import TaskSuite, load_tasks
from warmstart.model.files import load_bundle
from warmstart.stats.forgetting import forgetting_metrics
from warmstart.stats.splits import THIS_SPLIT
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import SelectionName


def test_each_task_is_read_by_its_own_head() -> None:
    """The loss is the cross-entropy under that head alone, and no other head gets a gradient."""
    model, batch = multitask_model(), task_batch(1, [0, 2])
    states = model.backbone(batch.ids, causal=False).last_hidden_state
    expected = torch.nn.functional.cross_entropy(model.heads[1](states), batch.targets, reduction="sum")
    loss = model.loss(batch)
    assert torch.allclose(loss, expected)
    loss.backward()
    assert all(p.grad is None for p in model.heads[0].parameters())


@given(st.lists(st.integers(1, 500), min_size=2, max_size=6), st.integers(1, 400))
def test_each_task_comes_as_often_as_wanted(sizes: list[int], steps: int) -> None:
    """Each task's count is within one of its fraction, and every step has a task."""
    wanted = sampling_fractions(sizes)
    counts = np.bincount(task_order(wanted, steps, 0), minlength=len(sizes))
    assert counts.sum() == steps
    assert (abs(counts - wanted * steps) <= 1).all()


def test_fractions_by_hand() -> None:
    """By size."""
    assert sampling_fractions([300, 100]).tolist() == [0.75, 0.25]
    assert sorted(task_order(np.array([0.75, 0.25]), 4, 0)) == [0, 0, 0, 1]


def test_mistakes_are_explained(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """One task, two of one name, a budget that is not epochs, a text that does not exist."""
    write_inputs(tmp_path, tokenizer)
    lm, one, two = (str(tmp_path / name) for name in ("lm", "cats", "who"))
    cases = [
        ([lm, one, one], "each task needs its own name, but two are called cats"),
        ([lm, one, two, "--steps", "5"], "there is no flag --steps"),
        ([lm, one], "tasks"),
        ([lm, one, two, "--text", "nowhere.txt"], "there is no text at nowhere.txt"),
        ([lm, one, two, "--strategies", "jiont"], "unknown strategy 'jiont'; did you mean 'joint'?"),
    ]
    for words, message in cases:
        try:
            code = main(["continual", *words, "--out", str(tmp_path / "run")])
        except SystemExit as stop:
            code = stop.code
        assert code == 2, words
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("strategy", "selection", "said"),
    [("none", "none", "all of them learn, and none"), ("joint", "holdout", "19 to learn, 5 to choose.")],
)
def test_labels_outside_the_budget_change_nothing(
    strategy: str, selection: str, said: str, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turned round, with those of the test split, they leave every saved weight the same to the bit."""
    place, tasks = write_inputs(tmp_path, tokenizer), {task.name: task for task in (cats(), who())}

    def drawn(task: Task, labels: int | None, selection: SelectionName, seed: int) -> LabelBudget:
        return replace(label_budget(tasks[task.name], labels, selection, seed), whole=task)  # whatever the other labels are

    monkeypatch.setattr(task_suite, "label_budget", drawn)
    runs = []
    for number in range(2):
        for name, task in tasks.items() if number else ():
            budget = label_budget(task, 24, selection, 0)
            save_task(poisoned(task, budget.train, budget.validation), place / name)
        found = run(place, f"run{number}", labels=24, selection=selection, seeds=1, strategies=[strategy])
        assert all(f"{name}: 24 labels: {said}" in " ".join(found.findings) for name in tasks)
        assert "NaN" not in json.dumps(found.to_dict())
        folders = sorted((place / f"run{number}" / "bundles").rglob("bundle.json"))
        runs.append([load_bundle(folder.parent).model.weights() for folder in folders])
    assert len(runs[0]) == 2
    for one, other in zip(*runs, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_each_seed_draws_its_own_labels(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """More labels than there are texts, and a holdout without validation texts, are refused before anything is trained."""
    place = write_inputs(tmp_path, tokenizer)
    config = ContinualConfig.build(task_settings(place, labels=24))
    suite = TaskSuite.of(load_bundle(place / "lm"), load_tasks(config), config)
    one, other = (suite.within(seed).encoded[0].task for seed in (0, 1))
    assert (len(one.train), len(one.validation)) == (len(other.train), len(other.validation)) == (19, 5)
    assert one.train.texts != other.train.texts
    with pytest.raises(ConfigError, match="--labels 200: 'cats': there are 60 training texts"):
        load_tasks(ContinualConfig.build(task_settings(place, labels=200)))


def test_forgetting_by_hand() -> None:
    """Three tasks: the first falls from 0.9 to 0.6 by way of 0.95, the second rises from 0.8 to 0.85."""
    metrics = forgetting_metrics([[0.9], [0.95, 0.8], [0.6, 0.85, 0.7]])
    assert metrics.average == pytest.approx((0.6 + 0.85 + 0.7) / 3)
    assert metrics.after_learning == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert metrics.backward_transfer == pytest.approx((-0.3 + 0.05) / 2)
    assert metrics.forgetting == pytest.approx((0.35 - 0.05) / 2)


def test_metrics_are_stated_over_seeds_and_texts() -> None:
    """Resample by resample with the same formulas; seeds alone beside them; what was tested stands in one table."""
    result = continual_result({"none": 0.6, "joint": 0.75})
    metric, run = result.metric("none", "forgetting"), result.runs["none"][2]
    scores = [[float(one[7]) for one in row] for row in run.resampled]
    assert metric.resampled[2][7] == pytest.approx(forgetting_metrics(scores).forgetting)
    assert metric.scores[2] == run.metrics.forgetting
    average = result.metric("none", "average")
    both, seeds = average.over_both, average.over_seeds
    assert both.high - both.low > seeds.high - seeds.low
    first_rows = [row[:3] for row in result.table()[:2]]
    assert first_rows == [("none", "seeds and texts", str(both)), ("none", "seeds alone", seeds.ends)]
    first = (
        "the score on a fell",
        "the score on b did not change",
        "Joint training is better than learning in turn",
        "model loss rose",
        REFERENCES,
        THIS_SPLIT,
    )
    assert all(part in sentence for part, sentence in zip(first, result.findings, strict=True))
    tested = result.tested()
    assert len(tested) == 2 + 1 + 2
    assert all(len(row) == len(result.TESTED_HEADER) for row in tested)
    assert [row[6] for row in tested] == ["yes", "no", "yes", "yes", "yes"]
    assert [row[7].split()[-1] for row in tested] == ["points"] * 3 + ["nats"] * 2
    assert {row[7] for row in continual_result({"none": 0.6, "joint": 0.75}, seeds=1).tested()} == {"-"}
    at_once = continual_result({"joint": 0.75, "alone": 0.7})
    assert (at_once.base, at_once.tested()[0][:4:3]) == ("alone", ("joint", "training alone")), "compared task by task"
    assert all(row[3:6] == ("", "", "") for row in at_once.table()), "nothing was learned in turn, so nothing forgotten"


def run(inputs: Path, out: str, **changes: object) -> ContinualResult:
    return continual(ContinualConfig.build(task_settings(inputs, out=str(inputs / out), **changes)))


def test_continual_learning_from_end_to_end(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Every strategy, every stage, the language-model loss, bundles that share one backbone, JSON and the page."""
    inputs = write_inputs(tmp_path, tokenizer)
    result = run(inputs, "run", text=str(inputs / "text.txt"))
    assert tuple(result.runs) == ("none", "joint", "alone")
    (first, *_), (joint, *_) = result.runs["none"], result.runs["joint"]
    assert [len(row) for row in first.scores] == [1, 2]
    assert len(first.language_losses) == 3
    assert first.language_losses[0] == joint.language_losses[0]
    for strategy in ("none", "joint"):
        bundles = [load_bundle(inputs / "run" / "bundles" / strategy / name) for name in result.tasks]
        assert [bundle.labels for bundle in bundles] == [cats().labels, who().labels]
        one, two = (bundle.model.backbone.state_dict() for bundle in bundles)
        assert all(torch.equal(one[name], two[name]) for name in one), strategy
    assert not (inputs / "run" / "bundles" / "alone").exists()
    compared = [sentence for sentence in result.findings if sentence.startswith(("Average over tasks", "Score on each new task"))]
    assert len(compared) == 2
    assert all("the test texts" in sentence or "No difference" in sentence for sentence in compared)
    assert sum(" nats" in sentence for sentence in result.findings) == 1
    assert all(sentence.endswith(".") for sentence in result.findings)
    assert result.findings.count(THIS_SPLIT) == 1
    page = (inputs / "run" / "report.html").read_text()
    assert all(word in page for word in ("What was forgotten", "Strategy: none", "Strategy: alone", "Backward transfer"))
    stored = json.loads((inputs / "run" / "continual.json").read_text())
    assert (stored["tasks"], stored["findings"]) == (["cats", "who"], result.findings)
    ledgers = {name: read_ledger(load_task(inputs / name)) for name in result.tasks}
    assert [one.scorings for one in ledgers.values()] == [8, 6], "the first task learned in turn is scored again after the second"
    assert result.findings[-2:] == [f"{name}: {one.sentence}" for name, one in ledgers.items()]
    assert all(one.sentence in page for one in ledgers.values())
