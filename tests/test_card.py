"""A bundle's history, typed records that survive JSON; and its model card, written from what it knows, and never in the way."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.bundles import classifier, language_bundle
from helpers.models import make_language_model
from helpers.tasks import tune, write_task
from warmstart.commands.adapt.command import adapt
from warmstart.data.text_key import TextHashes
from warmstart.errors import ConfigError, ModelError
from warmstart.experiment.config import AdaptConfig
from warmstart.model.bundle import Bundle
from warmstart.model.card import card, markdown_table
from warmstart.model.files import load_bundle, save
from warmstart.model.history import (
    RECORDS,
    AdaptRecord,
    AnswersRecord,
    ComparisonRecord,
    ContinualRecord,
    ContinuedPretrainingRecord,
    DomainRecord,
    FindingRecord,
    ImportRecord,
    MethodRecord,
    OtherRecord,
    PretrainRecord,
    Provenance,
    Record,
    ScoresRecord,
    StageEvaluation,
    TaskRecord,
    read_record,
    seen_labels,
)
from warmstart.objectives.config import ObjectiveConfig
from warmstart.stats.formatting import percent
from warmstart.stats.splits import ONE_SPLIT
from warmstart.tokenizer.tokenizer import Tokenizer


def test_it_says_what_an_adaptation_found(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels, intervals beside baselines, findings of the audit, the command, and too few seeds as a limit."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    task = str(write_task(tmp_path / "classification", "classification"))
    given = {"model": str(tmp_path / "lm"), "task": task, "out": str(tmp_path / "run"), "seeds": 2, "tune": tune(epochs=1)}
    outcome = adapt(AdaptConfig.build(given))
    text = (tmp_path / "run" / "bundle" / "README.md").read_text(encoding="utf-8")
    said = ["`cats`", "from scratch", "TF-IDF", "majority", "`classification`: 48 for train", "fewer than 3 seeds"]
    said += ["adapt with `--calibration-fraction`", f"- {ONE_SPLIT}"]
    said += [percent(row.interval.mean) for row in outcome.comparison.rows]
    worse = "whose seed did best on the texts that choose; another seed would do worse on average"
    said += [f"the run that is saved here, {worse}:", *(finding.sentence for finding in outcome.audit.findings())]
    assert [words for words in said if words not in text] == []
    assert ONE_SPLIT in " ".join(capsys.readouterr().err.split())
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count(f"These figures are those of the saved model, {worse}.") == 1
    assert outcome.audit.findings()
    assert text.startswith("---\nlibrary_name: warmstart\npipeline_tag: text-classification\n---\n")


def test_what_the_audit_found_is_told(tokenizer: Tokenizer) -> None:
    """With its severity; and that it found nothing."""
    found = FindingRecord(severity="error", sentence="3 texts stand in both splits")

    def card_of(*findings: FindingRecord) -> str:
        record = AdaptRecord(task=TaskRecord(name="mine", train=9), audit=findings, seed=0)
        return card(Bundle(make_language_model(vocab_size=tokenizer.vocab_size), tokenizer, history=(record,)))

    assert "- error: 3 texts stand in both splits" in card_of(found)
    assert "The audit of the data found nothing." in card_of()


def test_no_history_is_in_its_way(tokenizer: Tokenizer) -> None:
    """Bundles made in Python say little, but they say it."""
    for causal, history in ((True, ()), (False, (PretrainRecord(),)), (True, (OtherRecord(name="mine", details={"anything": 1}),))):
        model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal)
        assert "## Limits" in card(Bundle(model, tokenizer, history=history))


def test_data_brings_no_markup_into_a_card(tokenizer: Tokenizer) -> None:
    """Names of labels and tasks and quoted texts add no HTML, picture or link, end no code, and stay in their cell of a table."""
    assert markdown_table(("a", "b"), [["x|y", "1\n2"]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |"
    evil = "`<script>alert(1)</script>\n# ![x](http://a)`"
    task = TaskRecord(name=evil, train=9)
    found = FindingRecord(severity="error", sentence=f"a text is in both, such as '{evil}'")
    comparison = ComparisonRecord(metric="accuracy", methods=(MethodRecord(name=evil, scores=(1.0,), mean=1.0),), findings=(evil,))
    record = AdaptRecord(task=task, audit=(found,), seed=0, budget=(evil,), comparison=comparison)
    text = card(Bundle(classifier(tokenizer), tokenizer, (evil, "b"), (record,)))
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert not any(mark in outside for mark in ("<script", "![x]"))
    assert "\n# !" not in text


def test_nothing_reads_it_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """It may be edited, or removed, and the bundle is as whole as before."""
    bundle = language_bundle(tokenizer)
    place = save(bundle, tmp_path / "b")
    (place / "README.md").write_text("mine")
    load_bundle(place)
    (place / "README.md").unlink()
    again = load_bundle(place)
    assert torch.equal(again.model.backbone.embedding.weight, bundle.model.backbone.embedding.weight)


ORIGIN = Provenance(command="warmstart x", machine="a laptop", date="2026-11-22", warmstart="0.1.0")
TEXTS = TextHashes.of(["a text", ["two", "parts"]], [0, 1])
TASK = TaskRecord(
    name="topics", type="classification", metric="accuracy", labels=("a", "b"), train=8, validation=2, test=4,
    splits={"train": TEXTS}, labelled=TEXTS,
)  # fmt: skip
COMPARISON = ComparisonRecord(
    metric="accuracy", methods=(MethodRecord(name="full", scores=(0.5, 1.0), mean=0.75, low=0.0, high=1.0),)
)
MASKED = ObjectiveConfig(name="masked", mask_rate=0.3)
EVALUATION = StageEvaluation(stage="before", loss=2.5, probe_accuracy=0.5, standard_error=0.0, seconds=0.0)
RECORD_CASES: dict[str, Record] = {
    "pretrain": PretrainRecord(
        objective=MASKED,
        seed=1,
        tokens=9,
        seconds=0.5,
        held_out={"loss": 1.5},
        provenance=ORIGIN,
        domain=DomainRecord(task="topics", texts=9, left_out=2, passages=5),
    ),
    "continued_pretraining": ContinuedPretrainingRecord(
        objective=MASKED, task="topics", texts=9, evaluations=(EVALUATION,), kept=True, decision="It helps.", seed=0
    ),
    "adapt": AdaptRecord(task=TASK, seed=0, comparison=COMPARISON, test=ScoresRecord.of({"accuracy": 0.5, "note": "few"})),
    "answers": AnswersRecord(task=TASK, seed=0, max_answer_tokens=5, held_out_answers=((0.5, True), (0.25, False))),
    "continual": ContinualRecord(strategy="none", tasks=("topics", "moods"), task=TASK, seed=0, scores=((0.5,), (0.25, 0.5))),
    "import": ImportRecord(family="gpt2", config={"n_embd": 8}, source="folder", generates=True),
    "other": OtherRecord(name="mine", details={"anything": [1, None]}),
}


def test_every_record_survives_json(tokenizer: Tokenizer) -> None:
    """A record that is written to JSON and read back equals itself; what is no record is refused, with what to do."""
    for name, record in RECORD_CASES.items():
        again = read_record(json.loads(json.dumps(record.to_dict())))
        assert again == record
        assert type(again) is RECORDS[name]
    assert RECORD_CASES.keys() == {*RECORDS}
    with pytest.raises(ConfigError, match=r"unknown record of a bundle's history 'adpat'; did you mean 'adapt'\?"):
        read_record({"type": "adpat"})
    with pytest.raises(ModelError, match=r"OtherRecord\(name=\.\.\., details=\{\.\.\.\}\) holds anything"):
        replace(language_bundle(tokenizer), history=({"command": "mine"},))


def test_labels_seen_before_are_known(tokenizer: Tokenizer) -> None:
    """Labels of a task, of several tasks, and answers count; text read without its labels does not."""

    def after(name: str) -> Bundle:
        return replace(language_bundle(tokenizer), history=(PretrainRecord(), RECORD_CASES[name]))

    assert all(seen_labels(after(name).history, "topics") for name in ("adapt", "answers", "continual"))
    assert seen_labels(after("continual").history, "moods")
    assert not seen_labels(after("continued_pretraining").history, "topics")
    assert not seen_labels(after("adapt").history, "moods")
