"""A race pretrains a backbone on the task's own text: once, within the budget of labels, and says what that cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import language_bundle
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.commands.race.command import RaceConfig, race
from warmstart.commands.race.result import RaceResult
from warmstart.data.budget import label_budget
from warmstart.data.pool import texts_to_read
from warmstart.data.task import Split, Task
from warmstart.finetuning.own_backbone import OwnBackboneConfig, pretrain_on_own_text
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.history import PretrainRecord
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

SMALL = {"tokens": 4000, "width": 16, "depth": 1, "heads": 2, "max_length": 16, "vocab_size": 300}


def record_of(bundle: Bundle) -> PretrainRecord:
    """The one entry of a history."""
    (record,) = bundle.history
    assert isinstance(record, PretrainRecord)
    assert record.domain is not None
    return record


def pretrained(task: Task, **settings: Any) -> PretrainRecord:
    """How a backbone on the task's own text was made."""
    budget = label_budget(task, 20, "cross-validation", 0)
    return record_of(pretrain_on_own_text(budget, texts_to_read(budget), OwnBackboneConfig.build(SMALL | settings)))


@pytest.mark.usefixtures("no_second_process")
def test_a_race_pretrains_once_and_says_what_it_cost(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its methods share one backbone, beside a given one; the next call finds it."""
    manifest = save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    config = RaceConfig.build({
        "task": str(manifest), "backbones": ["pool", str(tmp_path / "lm")], "schemes": ["full"], "seeds": 1, "labels": 20,
        "out": str(tmp_path / "race"), "own": SMALL, "tune": {"train": {"steps": 3, "learning_rate": 5e-4}},
    })  # fmt: skip
    found = race(config)
    assert isinstance(found, RaceResult)
    rows = {row.name: row for row in found.ranking.methods}
    assert {"probe · pool", "full · pool", "full · lm", "from scratch · pool"} <= {*rows}
    assert len(list((tmp_path / "race" / "own").iterdir())) == 1
    assert "s of pretraining on" in rows["full · pool"].note
    assert "by the labels of the first seed, after 20% of it a probe on frozen features" in rows["full · pool"].note
    assert rows["full · pool"].method.continued_pretraining_seconds > 0
    assert rows["from scratch · pool"].method.continued_pretraining_seconds == 0
    assert "adapted/full/pool" in {row.method.id_over_tasks for row in rows.values()}, "the same for every task"
    monkeypatch.setattr("warmstart.sweep.methods.pretrain_on_own_text", lambda *_: pytest.fail("it was done already"))
    assert race(config).to_dict()["methods"] == found.to_dict()["methods"]  # type: ignore[union-attr]


def test_the_pilot_stops_what_reads_nothing(tmp_path: Path) -> None:
    """Where a probe is no better than the majority label, a fifth of the text is read; otherwise, and without a pilot, all."""
    task = cats()
    labels = np.zeros(60, dtype=np.int64)
    labels[::7] = 1
    texts = tuple(f"{number} rivers" for number in np.random.default_rng(0).permutation(60) + 1000)
    stopped = pretrained(replace(task, train=Split(texts, labels)))
    assert stopped.domain is not None
    assert "stopped there" in stopped.domain.decision
    assert stopped.tokens is not None
    assert stopped.tokens < 0.3 * SMALL["tokens"]
    whole = pretrained(replace(task, train=Split(texts, labels)), pilot=0)
    assert whole.domain is not None
    assert not whole.domain.decision
    assert whole.tokens is not None
    assert whole.tokens > 0.8 * SMALL["tokens"]


@pytest.mark.parametrize(("words", "objective"), [(5, "masked"), (60, "contrastive")])
def test_crops_are_compared_where_texts_are_long_enough(words: int, objective: str) -> None:
    """By the median text; a setting decides otherwise."""
    task = cats()
    draw = np.random.default_rng(0)
    texts = tuple(" ".join(draw.choice(text.split(), words)) for text in task.train.texts)
    task = replace(task, train=Split(texts, task.train.labels))
    assert pretrained(task).objective.name == objective  # type: ignore[union-attr]
    assert pretrained(task, objective="masked").objective.name == "masked"  # type: ignore[union-attr]


def test_only_labels_of_the_budget_decide(tmp_path: Path) -> None:
    """Other labels outside it, and other labels of validation and test texts, change nothing."""
    task = cats()
    budget = label_budget(task, 20, "cross-validation", 0)
    flipped = task.train.labels.copy()
    outside = np.setdiff1d(np.arange(60), budget.train)
    flipped[outside] = 1 - flipped[outside]
    other = replace(
        task,
        train=replace(task.train, labels=flipped),
        validation=replace(task.validation, labels=1 - task.validation.labels),
        test=replace(task.test, labels=1 - task.test.labels),
    )
    made = []
    for whole in (task, other):
        own = replace(budget, whole=whole)
        made.append(pretrain_on_own_text(own, texts_to_read(own), OwnBackboneConfig.build(SMALL)))
    first, second = (record_of(bundle) for bundle in made)
    assert first.domain == second.domain
    assert first.tokens == second.tokens
    states = [bundle.model.state_dict() for bundle in made]
    assert all(np.array_equal(tensor.numpy(), states[1][name].numpy()) for name, tensor in states[0].items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pool", "--resample"], "pool pretrains once, on texts that other splits test on; remove pool or --resample"),
        (["pool", "pool"], "--backbones names pool twice"),
        (["pool", "--own.heads", "3"], "heads must divide width"),
        (["pool", "--own.max-length", "100000"], "remove pool from --backbones"),
    ],
)
def test_wrong_inputs(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is refused with what to do."""
    manifest = save_task(cats(), tmp_path / "task")
    line = ["race", str(manifest), "--labels", "20", "--out", str(tmp_path / "race"), "--own.vocab-size", "300", "--backbones"]
    assert main([*line, *words]) == 2
    assert message in capsys.readouterr().err


def test_an_estimate_leaves_it_out_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is trained and nothing is written."""
    manifest = save_task(cats(), tmp_path / "task")
    line = ["race", str(manifest), "--labels", "20", "--out", str(tmp_path / "race"), "--backbones", "pool", "--estimate"]
    assert main(line) == 0
    assert "are not in the estimate" in capsys.readouterr().err
    assert not (tmp_path / "race").exists()
