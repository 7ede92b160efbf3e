"""Pretraining on the task's own text, continued or anew: never on text that is scored, once, within the budget of labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import language_bundle
from helpers.settings import in_file
from helpers.tasks import cats
from warmstart.adapters.insertion import inserted_adapters
from warmstart.adapters.registry import insert_adapter
from warmstart.adapters.settings import LoraConfig
from warmstart.cli import main
from warmstart.commands.race.command import race
from warmstart.data.budget import label_budget
from warmstart.data.pool import Pool, texts_to_read
from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.config import RaceConfig
from warmstart.finetuning import further
from warmstart.finetuning.config import OwnBackboneConfig
from warmstart.finetuning.further import continue_pretraining, decide, pretrain_on_own_text
from warmstart.finetuning.schemes.registry import SchemeOptions
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.history import AdaptRecord, ContinuedPretrainingRecord, PretrainRecord, StageEvaluation
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

QUICK = SchemeOptions(dapt_epochs=4, dapt_learning_rate=5e-3)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Sentences about cats, with more text like them; two of its lines are in the test split."""
    base = cats()
    more = [f"We found {what} in {year}." for what in ("a cat", "the river", "a dog") for year in range(1900, 1960)]
    file = tmp_path / "more.txt"
    file.write_text("\n\n".join([*more, base.test.texts[0].upper(), "  " + base.test.texts[1]]))
    return replace(base, unlabelled=(Source(path=str(file)),))


def test_scored_texts_are_never_read(task: Task) -> None:
    """Texts of validation and test are left out and counted, and those that differ in a number; the rest is read once."""
    read = texts_to_read(label_budget(task, None, "holdout", 0))
    scored = {text.lower() for split in (task.validation, task.test) for text in split.texts}
    assert not scored & {text.lower().strip() for text in read.texts}
    assert read.left_out == 2 + 37
    assert len(read) == len(set(read.texts)) == 180 + len(set(task.train.texts)) - 37


def test_calibration_texts_are_never_read(task: Task) -> None:
    """They are left out like the test split; a pair is one text, and case is ignored as in the audit."""
    calibration, budget = Split(("We found a cat in 1900.",), task.test.labels[:1]), label_budget(task, None, "holdout", 0)
    read = texts_to_read(budget, excluded=calibration)
    assert "We found a cat in 1900." not in read.texts
    assert read.left_out == texts_to_read(budget).left_out + 61, "and those that differ in a number"
    train = Split((("STRASSE nach", "Norden"), ("one", "other")), np.array([0, 1]))
    pairs = replace(task, train=train, test=Split(("Straße nach Norden",), task.test.labels[:1]), unlabelled=())
    assert texts_to_read(label_budget(pairs, None, "holdout", 0)) == Pool(("one other",), 1)


def test_the_pool_says_what_is_read(task: Task, tmp_path: Path) -> None:
    """With ``none`` the texts of the budget alone, with a file these and its own; none that is nearly a test text."""
    long = "We saw how the old cat sat by the wide river for a whole long day in"
    task = replace(task, test=replace(task.test, texts=(f"{long} 1907", *task.test.texts[1:])))
    budget = label_budget(task, 20, "cross-validation", 0)
    own = {*texts_to_read(budget, "none").texts}
    assert own < {str(task.train.texts[i]) for i in budget.train}
    (tmp_path / "pool.txt").write_text(f"first\nsecond\n{long} 1908\n")
    read = texts_to_read(budget, str(tmp_path / "pool.txt"))
    assert {*read.texts} == own | {"first", "second"}
    assert read.left_out == 1 + texts_to_read(budget, "none").left_out
    assert {*texts_to_read(budget).texts} > own


def test_only_the_backbone_and_the_language_head_change(task: Task, tokenizer: Tokenizer) -> None:
    """The loss falls; the tokenizer and the original bundle stay the same; the history records it; a repeat gives the same bits."""
    budget = label_budget(task, None, "holdout", 0)
    for objective in ("masked", "causal"):
        bundle = language_bundle(tokenizer, objective)
        before = {name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}
        done, again = (continue_pretraining(bundle, budget, QUICK, texts_to_read(budget)) for _ in range(2))
        assert done.tokenizer is bundle.tokenizer
        assert all(torch.equal(before[name], tensor) for name, tensor in bundle.model.state_dict().items())
        record, after = done.history[-1], done.model.state_dict()
        assert isinstance(record, ContinuedPretrainingRecord)
        assert record.evaluations[-1].loss < record.evaluations[0].loss
        assert (record.left_out, record.texts) == (39, 203)
        assert any(not torch.equal(before[name], tensor) for name, tensor in after.items()) == record.kept
        assert all(torch.equal(again.model.state_dict()[name], tensor) for name, tensor in after.items())


def test_what_does_not_help_is_undone(task: Task, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are the pretrained ones, to the bit, and the history says so."""
    monkeypatch.setattr(further, "MIN_GAIN", 0.99)
    bundle = language_bundle(tokenizer)
    budget = label_budget(task, None, "holdout", 0)
    done = continue_pretraining(bundle, budget, QUICK, texts_to_read(budget))
    record = done.history[-1]
    assert isinstance(record, ContinuedPretrainingRecord)
    assert [one.stage for one in record.evaluations] == ["before", "end"]
    assert record.decision.endswith("The pretrained weights are kept.")
    assert all(torch.equal(bundle.model.state_dict()[n], t) for n, t in done.model.state_dict().items())


def evaluation(stage: str, loss: float, probe: float, error: float, noise: float | None = 0.02) -> StageEvaluation:
    """``noise`` is half the width of the interval of the change from a loss of 4."""
    change = None if noise is None else (loss - 4 - noise, loss - 4 + noise)
    return StageEvaluation(stage=stage, loss=loss, loss_change=change, probe_accuracy=probe, standard_error=error, seconds=1.0)


def test_a_loss_within_noise_decides_nothing() -> None:
    """Neither the sentence nor the decision takes a change within noise for a fall; and the probe must not fall either."""
    before = evaluation("before", 4.0, 0.8, 0.0)
    for loss, noise, helps, sentence in (
        (3.95, 0.02, True, "The held-out loss fell from 4.000 to 3.950 nats (95% interval of the change -0.070 to -0.030, over"),
        (3.8, 0.3, False, "The held-out loss did not change significantly: 4.000 nats before, 3.800 nats after (95% interval"),
        (3.8, None, False, "fewer than two held-out documents were scored, so its noise is unknown."),
        (4.2, 0.1, False, "The held-out loss rose from 4.000 to 4.200 nats"),
    ):
        decided, words = decide(before, evaluation("end", loss, 0.8, 0.01, noise))
        assert decided == helps
        assert sentence in words
        assert words.endswith(f"The {'new' if helps else 'pretrained'} weights are kept.")
    for loss, probe, helps in ((3.95, 0.795, True), (3.95, 0.78, False), (3.99, 0.90, False), (4.2, 0.81, False)):
        assert decide(before, evaluation("end", loss, probe, 0.01))[0] == helps, (loss, probe)


def test_adapters_and_an_untied_head_stay(task: Task, tokenizer: Tokenizer) -> None:
    """LoRA stays in the backbone; a head with weights of its own is trained further."""
    bundle = language_bundle(tokenizer, "causal", LMHeadConfig(tied=False))
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2), 0)
    budget = label_budget(task, None, "holdout", 0)
    done = continue_pretraining(bundle, budget, QUICK, texts_to_read(budget))
    assert inserted_adapters(done.model.backbone) == [LoraConfig(rank=2)]
    assert done.model.state_dict().keys() == bundle.model.state_dict().keys()


def test_too_little_text_is_refused(tokenizer: Tokenizer) -> None:
    """A text or two teach nothing, and leave nothing to hold out."""
    budget = label_budget(cats(), None, "holdout", 0)
    with pytest.raises(DataError, match="continued pretraining needs at least 40 texts, but has 1; add text under 'unlabelled'"):
        continue_pretraining(language_bundle(tokenizer, "causal"), budget, QUICK, Pool(("one",)))


def test_adapt_continues_pretraining_first(
    task: Task, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``dapt+lora`` on the command line: the report says what it brought; a model without a language head is refused."""
    save_task(task, tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    flags = [
        "--scheme",
        "dapt+lora",
        "--seeds",
        "1",
        "--no-scratch",
        "--no-baselines",
        "--steps",
        "5",
        *in_file(tune={"options": {"dapt_learning_rate": 5e-3}}),
    ]
    assert main(["adapt", str(tmp_path / "lm"), str(tmp_path / "task"), "--out", str(tmp_path / "run"), *flags]) == 0
    assert "Continued pretraining" in (tmp_path / "run" / "report.html").read_text()
    kinds = [type(record) for record in load_bundle(tmp_path / "run" / "bundle").history]
    assert kinds[-2:] == [ContinuedPretrainingRecord, AdaptRecord]
    capsys.readouterr()
    assert main(["adapt", str(tmp_path / "run"), str(tmp_path / "task"), "--out", str(tmp_path / "again"), *flags]) == 2
    assert "lm-loss and dapt need a pretrained language head" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


@pytest.mark.usefixtures("no_pages")
def test_a_race_continues_pretraining_once(
    task: Task, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both methods with ``dapt`` share one continued backbone and report its seconds; the next call finds it."""
    save_task(task, tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    config = RaceConfig.build({
        "task": str(tmp_path / "task"), "backbones": [str(tmp_path / "lm")], "schemes": ["dapt+full", "dapt+probe"], "seeds": 1,
        "learning_rates": [1e-3], "scratch": False, "labels": 30, "out": str(tmp_path / "race"),
        "tune": {"train": {"steps": 3, "learning_rate": 5e-4}},
    })  # fmt: skip
    found = race(config)
    assert len(list((tmp_path / "race" / "dapt").iterdir())) == 1
    assert {"dapt+full", "dapt+probe", "probe", "scalar-mix"} <= {s.name for s in found.ranking.methods}
    assert "of continued pretraining on 203 texts, once, kept or not by the labels of the first seed" in next(
        s.note for s in found.ranking.methods if s.name == "dapt+full"
    )
    monkeypatch.setattr("warmstart.experiment.methods.continue_pretraining", lambda *_: pytest.fail("it was done already"))
    race(config)
    assert json.loads((tmp_path / "race" / "race.json").read_text())["labels"] == 30


SMALL = {"tokens": 4000, "width": 16, "depth": 1, "heads": 2, "max_length": 16, "vocab_size": 300}


def record_of(bundle: Bundle) -> PretrainRecord:
    """The one entry of a history."""
    (record,) = bundle.history
    assert isinstance(record, PretrainRecord)
    assert record.domain is not None
    return record


def pretrained(task: Task, **settings: Any) -> PretrainRecord:
    """How a backbone on the task's own text was made."""
    text = texts_to_read(label_budget(task, 20, "cross-validation", 0))
    return record_of(pretrain_on_own_text(task.name, text, OwnBackboneConfig.build(SMALL | settings), 0))


@pytest.mark.usefixtures("no_pages")
def test_a_race_pretrains_once_and_says_what_it_cost(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its methods share one backbone, beside a given one; the next call finds it."""
    manifest = save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    config = RaceConfig.build({
        "task": str(manifest), "backbones": ["pool", str(tmp_path / "lm")], "schemes": ["full"], "seeds": 1, "labels": 20,
        "out": str(tmp_path / "race"), "own": SMALL, "tune": {"train": {"steps": 3, "learning_rate": 5e-4}},
    })  # fmt: skip
    found = race(config)
    assert isinstance(found, Comparison)
    rows = {row.name: row for row in found.ranking.methods}
    assert {"probe · pool", "full · pool", "full · lm", "from scratch · pool"} <= {*rows}
    assert len(list((tmp_path / "race" / "own").iterdir())) == 1
    assert "s of pretraining on" in rows["full · pool"].note
    assert rows["full · pool"].method.continued_pretraining_seconds > 0
    assert rows["from scratch · pool"].method.continued_pretraining_seconds == 0
    assert "adapted/full/pool" in {row.method.id_over_tasks for row in rows.values()}, "the same for every task"
    monkeypatch.setattr("warmstart.experiment.methods.pretrain_on_own_text", lambda *_: pytest.fail("it was done already"))
    assert race(config).to_dict()["methods"] == found.to_dict()["methods"]


def test_crops_are_compared_where_texts_are_long_enough() -> None:
    """By the median text; a setting decides otherwise."""
    for words, objective in ((5, "masked"), (60, "contrastive")):
        task, draw = cats(), np.random.default_rng(0)
        texts = tuple(" ".join(draw.choice(text.split(), words)) for text in task.train.texts)
        task = replace(task, train=Split(texts, task.train.labels))
        assert pretrained(task).objective.name == objective
    assert pretrained(task, objective="masked").objective.name == "masked"


def test_wrong_inputs_are_refused_and_an_estimate_leaves_it_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is refused with what to do; an estimate says what is not in it, and trains and writes nothing."""
    manifest = save_task(cats(), tmp_path / "task")
    line = ["race", str(manifest), "--labels", "20", "--out"]
    for words, message in (
        (["pool", "--resample"], "pool pretrains once, on texts that other splits test on; remove pool or --resample"),
        (["pool", "pool"], "--backbones names pool twice"),
        (["pool", *in_file(own={"vocab_size": 300, "heads": 3})], "heads must divide width"),
        (["pool", *in_file(own={"vocab_size": 300, "max_length": 100_000})], "remove pool from --backbones"),
    ):
        assert main([*line, str(tmp_path / "race"), "--backbones", *words]) == 2
        assert message in capsys.readouterr().err
    assert main([*line, str(tmp_path / "estimate"), "--backbones", "pool", "--estimate"]) == 0
    assert "are not in the estimate" in capsys.readouterr().err
    assert not (tmp_path / "estimate").exists()
