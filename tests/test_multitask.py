"""Several tasks on one backbone: one head each, batches in exact proportions, and a comparison with training alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.bundles import language_bundle
from helpers.multitask import multitask_model, task_batch, task_settings, who, write_inputs
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.commands.continual.command import ContinualConfig, continual
from warmstart.commands.continual.result import ContinualResult
from warmstart.commands.multitask.command import MultitaskConfig, multitask
from warmstart.commands.multitask.result import MultitaskResult
from warmstart.data.budget import LabelBudget, SelectionName, label_budget
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Task
from warmstart.errors import ConfigError
from warmstart.finetuning import multitask_training
from warmstart.finetuning.multitask_model import sampling_fractions, task_order
from warmstart.finetuning.multitask_training import TaskSuite, load_tasks
from warmstart.model.files import load_bundle, save
from warmstart.stats.splits import THIS_SPLIT
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


def test_each_task_is_read_by_its_own_head() -> None:
    """The loss is the cross-entropy under that head alone, and no other head gets a gradient."""
    model, batch = multitask_model(), task_batch(1, [0, 2])
    states = model.backbone(batch.ids, causal=False).last_hidden_state
    expected = torch.nn.functional.cross_entropy(model.heads[1](states), batch.targets, reduction="sum")
    loss = model.loss(batch)
    assert torch.allclose(loss, expected)
    loss.backward()
    assert all(p.grad is None for p in model.heads[0].parameters())


@given(st.lists(st.integers(1, 500), min_size=2, max_size=6), st.floats(0, 1), st.integers(1, 400))
def test_each_task_comes_as_often_as_wanted(sizes: list[int], alpha: float, steps: int) -> None:
    """Each task's count is within one of its fraction, and every step has a task."""
    wanted = sampling_fractions(sizes, alpha)
    counts = np.bincount(task_order(wanted, steps, 0), minlength=len(sizes))
    assert counts.sum() == steps
    assert (abs(counts - wanted * steps) <= 1).all()


def test_fractions_by_hand() -> None:
    """By size, by its root, all equal."""
    assert sampling_fractions([300, 100], 1).tolist() == [0.75, 0.25]
    assert sampling_fractions([400, 100], 0.5) == pytest.approx([2 / 3, 1 / 3])
    assert sampling_fractions([400, 100], 0).tolist() == [0.5, 0.5]
    assert sorted(task_order(np.array([0.75, 0.25]), 4, 0)) == [0, 0, 0, 1]
    with pytest.raises(ConfigError, match="alpha must lie between 0"):
        sampling_fractions([1, 2], 1.5)


def test_tasks_together_and_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Scores of both by task and seed, one bundle per task on one backbone, JSON and a page."""
    result = multitask(MultitaskConfig.build(task_settings(write_inputs(tmp_path, tokenizer))))
    assert result.tasks == ("cats", "who")
    assert all(len(run.together) == len(run.alone) == 2 for run in result.runs)
    assert len(result.findings) == 2 + 2 + 2 + 1  # a comparison, what the labels are for, a count of scorings; what the split is
    assert result.findings.count(THIS_SPLIT) == 1
    for task, name in enumerate(result.tasks):
        together, alone = result.comparison(task).rows
        assert together.resampled is not None
        assert alone.resampled is not None
        assert together.resampled.shape == alone.resampled.shape == (2, 1000)
        assert np.allclose(together.resampled.mean(axis=1), together.scores, atol=0.02)
        assert result.findings[task].startswith(f"{name}: ")
        assert result.findings[task].endswith(".")
    bundles = [load_bundle(tmp_path / "run" / "bundles" / name, selftest=True) for name in result.tasks]
    assert [bundle.labels for bundle in bundles] == [cats().labels, who().labels]
    one, two = (bundle.model.backbone.state_dict() for bundle in bundles)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert result.header[1:4] == ("together (95% over seeds and texts)", "alone (95% over seeds and texts)", "together, over seeds")
    assert all(len(row) == len(result.header) for row in result.table())
    assert "All tasks" in (tmp_path / "run" / "report.html").read_text()
    assert json.loads((tmp_path / "run" / "multitask.json").read_text())["findings"] == result.findings


@pytest.mark.parametrize("command", ["continual", "multitask"])
def test_mistakes_are_explained(command: str, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """One task, two of one name, a budget that is not epochs, a text that does not exist."""
    write_inputs(tmp_path, tokenizer)
    lm, one, two = (str(tmp_path / name) for name in ("lm", "cats", "who"))
    cases = [
        ([lm, one, one], "each task needs its own name, but two are called cats"),
        ([lm, one, two, "--steps", "5"], "the length of a run on several tasks is set by --epochs"),
        ([lm, one], "tasks"),
    ]
    if command == "continual":
        cases.append(([lm, one, two, "--text", "nowhere.txt"], "there is no text at nowhere.txt"))
        cases.append(([lm, one, two, "--strategies", "repaly"], "unknown strategy 'repaly'; did you mean 'replay'?"))
    for words, message in cases:
        try:
            code = main([command, *words, "--out", str(tmp_path / "run")])
        except SystemExit as stop:
            code = stop.code
        assert code == 2
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("selection", "said"), [("holdout", "19 to learn, 5 to choose."), ("none", "all of them learn, and none")])
@pytest.mark.parametrize("command", ["continual", "multitask"])
def test_labels_outside_the_budget_change_nothing(
    command: str, selection: str, said: str, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turned round, with those of the test split, they leave every saved weight the same to the bit."""
    place, tasks = write_inputs(tmp_path, tokenizer), {task.name: task for task in (cats(), who())}

    def drawn(task: Task, labels: int | None, selection: SelectionName, seed: int) -> LabelBudget:
        return replace(label_budget(tasks[task.name], labels, selection, seed), whole=task)  # whatever the other labels are

    monkeypatch.setattr(multitask_training, "label_budget", drawn)
    runs = []
    for number in range(2):
        for name, task in tasks.items() if number else ():
            save_task(poisoned(task, label_budget(task, 24, selection, 0)), place / name)
        settings = task_settings(place, labels=24, selection=selection, seeds=1, out=str(place / f"run{number}"))
        if command == "continual":
            found: ContinualResult | MultitaskResult = continual(ContinualConfig.build(settings | {"strategies": ["replay"]}))
        else:
            found = multitask(MultitaskConfig.build(settings))
        assert all(f"{name}: 24 labels: {said}" in " ".join(found.findings) for name in tasks)
        assert "NaN" not in json.dumps(found.to_dict())
        folders = sorted((place / f"run{number}" / "bundles").rglob("bundle.json"))
        runs.append([load_bundle(folder.parent).model.weights() for folder in folders])
    assert len(runs[0]) == 2
    for one, other in zip(*runs, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def poisoned(task: Task, budget: LabelBudget) -> Task:
    """The task with every label changed that is not in the budget."""
    kept = {"train": budget.train, "validation": budget.validation, "test": NO_TEXTS}
    changed = {}
    for name, split in task.splits().items():
        labels = (split.labels + 1) % len(task.labels)
        labels[kept[name]] = split.labels[kept[name]]
        changed[name] = replace(split, labels=labels)
    return replace(task, **changed)


def test_each_seed_draws_its_own_labels(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """More labels than there are texts, and a holdout without validation texts, are refused before anything is trained."""
    place = write_inputs(tmp_path, tokenizer)
    config = MultitaskConfig.build(task_settings(place, labels=24))
    suite = TaskSuite.of(load_bundle(place / "lm"), load_tasks(config), config)
    one, other = (suite.within(seed).encoded[0].task for seed in (0, 1))
    assert (len(one.train), len(one.validation)) == (len(other.train), len(other.validation)) == (19, 5)
    assert one.train.texts != other.train.texts
    with pytest.raises(ConfigError, match="--labels 200: 'cats': there are 60 training texts"):
        load_tasks(MultitaskConfig.build(task_settings(place, labels=200)))


@pytest.mark.parametrize("words", [["--accumulate", "4"], ["--evaluate-every", "2"]])
def test_flags_without_effect_are_refused(
    words: list[str], tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are not ignored silently."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    tasks = [str(save_task(replace(cats(), name=name), tmp_path / name)) for name in ("one", "two")]
    assert main(["multitask", str(tmp_path / "lm"), *tasks, *words, "--out", str(tmp_path / "run")]) == 2
    assert "remove --accumulate and --evaluate-every" in " ".join(capsys.readouterr().err.split())
