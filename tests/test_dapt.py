"""Going on with pretraining: on no text that is tested, undone to the bit where it does not pay, composed with every scheme."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from test_race import cats
from test_schemes import language_bundle
from warmstart.cli import main
from warmstart.data import Source, Split, Task, save_task
from warmstart.errors import DataError
from warmstart.heads import LanguageHeadConfig
from warmstart.inserts import LoraConfig, insert, inserted
from warmstart.model import load, save
from warmstart.schemes import SchemeOptions
from warmstart.tokenizer import Tokenizer
from warmstart.workflows import dapt as dapt_file
from warmstart.workflows.dapt import Evidence, continue_pretraining, gather, judge
from warmstart.workflows.race import RaceConfig, race

QUICK = SchemeOptions(dapt_epochs=4, dapt_rate=5e-3)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Cats, with more text of the kind, of which two lines stand in the test split."""
    base = cats()
    more = [f"We found {what} in {year}." for what in ("a cat", "the river", "a dog") for year in range(1900, 1960)]
    file = tmp_path / "more.txt"
    file.write_text("\n\n".join([*more, base.test.texts[0].upper(), "  " + base.test.texts[1]]))
    return replace(base, unlabelled=(Source(path=str(file)),))


def test_tested_texts_are_never_read(task: Task) -> None:
    """Whatever their case and spacing, texts of validation and test are left out and counted; the rest is read once."""
    texts, dropped = gather(task, task.train.texts)
    secret = {text.lower() for split in (task.validation, task.test) for text in split.texts}
    assert not secret & {text.lower().strip() for text in texts}
    assert dropped == 2
    assert len(texts) == len(set(texts)) == 180 + len(set(task.train.texts))


def test_texts_of_a_promise_are_never_read(task: Task) -> None:
    """What is set apart is as secret as the test split; pairs are read as one text, and case is folded as the audit folds it."""
    apart = Split(("We found a cat in 1900.",), task.test.labels[:1])
    texts, dropped = gather(task, task.train.texts, apart)
    assert "We found a cat in 1900." not in texts
    assert dropped == 3
    secret = replace(task, test=Split(("Straße nach Norden",), task.test.labels[:1]), unlabelled=())
    assert gather(secret, [("STRASSE nach", "Norden"), ("one", "other")]) == (["one other"], 1)


@given(st.lists(st.sampled_from(["a b", "A  b", "c", "d e", " d e "])), st.lists(st.sampled_from(["a b", "c", "x"]), min_size=1))
@settings(max_examples=30)
def test_no_tested_text_comes_through(training: list[str], tested: list[str]) -> None:
    """For any texts: what is read and what is tested have no words in common order, and nothing is lost unnoticed."""
    base = cats()
    small = replace(base, test=Split(tuple(tested), base.test.labels[: len(tested)]), validation=Split((), base.test.labels[:0]))
    texts, dropped = gather(small, training)
    assert not {" ".join(t.lower().split()) for t in texts} & {" ".join(t.lower().split()) for t in tested}
    assert dropped + sum(training.count(text) for text in texts) == len(training)


@pytest.mark.parametrize("objective", ["masked", "causal"])
def test_what_pays_moves_the_backbone_and_nothing_else(objective: str, task: Task, tokenizer: Tokenizer) -> None:
    """The loss falls, the tokenizer stays, the bundle that came stays as it was, and the history tells all of it."""
    bundle = language_bundle(tokenizer, objective)
    before = {name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}
    done = continue_pretraining(bundle, task, QUICK, 0)
    assert done.evidence[0].moment == "before"
    assert done.evidence[-1].loss < done.evidence[0].loss
    assert done.bundle.tokenizer is bundle.tokenizer
    assert all(torch.equal(before[name], tensor) for name, tensor in bundle.model.state_dict().items())
    entry = done.bundle.history[-1]
    assert (entry["command"], entry["dropped"], entry["texts"]) == ("dapt", 2, 240)
    moved = any(not torch.equal(before[name], tensor) for name, tensor in done.bundle.model.state_dict().items())
    assert moved == entry["kept"]
    again = continue_pretraining(bundle, task, QUICK, 0)
    assert all(torch.equal(again.bundle.model.state_dict()[name], t) for name, t in done.bundle.model.state_dict().items())


def test_a_pilot_that_does_not_pay_is_undone(task: Task, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops after its share, and the weights are those that came, to the bit."""
    steps = list[int]()
    train = dapt_file.train
    monkeypatch.setattr(dapt_file, "train", lambda model, work, config: (steps.append(work.steps), train(model, work, config))[1])
    monkeypatch.setattr(dapt_file, "LEAST_GAIN", 0.99)
    bundle = language_bundle(tokenizer)
    done = continue_pretraining(bundle, task, QUICK, 0)
    whole = continue_pretraining(bundle, task, QUICK.model_copy(update={"pilot": 0.0}), 0)
    assert steps[0] == pytest.approx(0.2 * steps[1], abs=1)
    assert [one.moment for one in done.evidence] == ["before", "pilot"]
    assert [one.moment for one in whole.evidence] == ["before", "end"]
    for made in (done, whole):
        assert "it does not pay; the weights stay as they came" in made.verdict
        assert all(torch.equal(bundle.model.state_dict()[n], t) for n, t in made.bundle.model.state_dict().items())


def test_the_rule() -> None:
    """Both must allow it: the loss by falling a hundredth, the probe by not falling more than a standard error."""
    before = Evidence("before", 4.0, 0.80, 0.0, 0.0)
    cases = {(3.95, 0.80): True, (3.95, 0.795): True, (3.95, 0.78): False, (3.99, 0.90): False, (4.2, 0.81): False}
    for (loss, probe), pays in cases.items():
        assert judge(before, Evidence("pilot", loss, probe, 0.01, 1.0))[0] == pays


def test_what_is_inserted_and_an_untied_head_come_along(task: Task, tokenizer: Tokenizer) -> None:
    """LoRA in the backbone stays in it; a head of its own goes on learning."""
    bundle = language_bundle(tokenizer, "causal", LanguageHeadConfig(tied=False))
    insert(bundle.model.backbone, LoraConfig(rank=2), 0)
    done = continue_pretraining(bundle, task, QUICK, 0)
    assert inserted(done.bundle.model.backbone) == [LoraConfig(rank=2)]
    assert done.bundle.model.state_dict().keys() == bundle.model.state_dict().keys()


def test_too_little_text_is_told(tokenizer: Tokenizer) -> None:
    """A text or two teach nothing, and leave nothing to hold out."""
    base = cats()
    few = replace(base, train=base.train.take(base.train.labels[:2] * 0), unlabelled=())
    with pytest.raises(DataError, match="at least 40 texts are needed, a part of which is held out, but 1 came"):
        continue_pretraining(language_bundle(tokenizer, "causal"), few, QUICK, 0)


@pytest.mark.usefixtures("no_second_process")
def test_adapt_goes_on_first(task: Task, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``dapt+lora`` on the command line: the report tells what it bought; a model without a language head is refused."""
    save_task(task, tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    base = ["--scheme", "dapt+lora", "--seeds", "1", "--no-scratch", "--no-baselines", "--steps", "5", "--dapt-rate", "5e-3"]
    assert main(["adapt", str(tmp_path / "lm"), str(tmp_path / "task"), "--out", str(tmp_path / "run"), *base]) == 0
    assert "Going on with pretraining" in (tmp_path / "run" / "report.html").read_text()
    assert [entry["command"] for entry in load(tmp_path / "run" / "bundle").history if "command" in entry] == ["dapt", "adapt"]
    capsys.readouterr()
    assert main(["adapt", str(tmp_path / "run"), str(tmp_path / "task"), "--out", str(tmp_path / "again"), *base]) == 2
    assert "lm-loss and dapt need a pretrained language head" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


@pytest.mark.usefixtures("no_second_process")
def test_a_race_goes_on_once(task: Task, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both methods with ``dapt`` share one continued backbone, whose seconds are told; the next call finds it."""
    save_task(task, tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    config = RaceConfig.build({
        "task": str(tmp_path / "task"), "backbones": [str(tmp_path / "lm")], "schemes": ["dapt+full", "dapt+probe"], "seeds": 1,
        "rates": [1e-3], "scratch": False, "labels": 30, "out": str(tmp_path / "race"),
        "tune": {"train": {"steps": 3, "learning_rate": 5e-4}},
    })  # fmt: skip
    found = race(config)
    assert len(list((tmp_path / "race" / "dapt").iterdir())) == 1
    assert {"dapt+full", "dapt+probe", "probe", "mix"} <= {s.name for s in found.standings}
    assert "of going on with pretraining, once" in next(s.note for s in found.standings if s.name == "dapt+full")
    monkeypatch.setattr("warmstart.workflows.heats.continue_pretraining", lambda *_: pytest.fail("it was done already"))
    race(config)
    assert json.loads((tmp_path / "race" / "race.json").read_text())["labels"] == 30
