"""The model card: written with every bundle, from what the bundle knows, and never in the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from helpers.bundles import classifier, language_bundle
from helpers.models import make_language_model
from helpers.tasks import tune, write_task
from warmstart.commands.adapt.command import AdaptConfig, adapt
from warmstart.model.bundle import Bundle
from warmstart.model.card import card, markdown_table
from warmstart.model.files import load_bundle, save
from warmstart.model.history import (
    AdaptRecord,
    ComparisonRecord,
    FindingRecord,
    MethodRecord,
    OtherRecord,
    PretrainRecord,
    Record,
    TaskRecord,
)
from warmstart.stats.formatting import percent
from warmstart.stats.splits import ONE_SPLIT
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


def test_it_says_what_an_adaptation_found(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels, intervals beside baselines, findings of the audit, the command, and too few seeds as a limit."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    given = {
        "model": str(tmp_path / "lm"),
        "task": str(write_task(tmp_path / "classification", "classification")),
        "out": str(tmp_path / "run"),
    }
    outcome = adapt(AdaptConfig.build(given | {"seeds": 2, "tune": tune(epochs=1)}))
    text = (tmp_path / "run" / "bundle" / "README.md").read_text(encoding="utf-8")
    for name in (
        "`cats`",
        "from scratch",
        "TF-IDF",
        "majority",
        "`classification`: 48 for train",
        "fewer than 3 seeds",
        "adapt with `--calibration-fraction`",
    ):
        assert name in text
    for row in outcome.comparison.rows:
        assert percent(row.interval.mean) in text
    worse = "whose seed did best on the texts that choose; another seed would do worse on average"
    assert f"the run that is saved here, {worse}:" in text
    assert f"- {ONE_SPLIT}" in text
    assert ONE_SPLIT in " ".join(capsys.readouterr().err.split())
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count(f"These figures are those of the saved model, {worse}.") == 1
    assert outcome.audit.findings()
    assert all(finding.sentence in text for finding in outcome.audit.findings())
    assert text.startswith("---\nlibrary_name: warmstart\npipeline_tag: text-classification\n---\n")


def test_what_the_audit_found_is_told(tokenizer: Tokenizer) -> None:
    """With its severity; and that it found nothing."""
    found = FindingRecord(severity="error", sentence="3 texts stand in both splits")

    def card_of(*findings: FindingRecord) -> str:
        record = AdaptRecord(task=TaskRecord(name="mine", train=9), audit=findings, seed=0)
        return card(Bundle(make_language_model(vocab_size=tokenizer.vocab_size), tokenizer, history=(record,)))

    assert "- error: 3 texts stand in both splits" in card_of(found)
    assert "The audit of the data found nothing." in card_of()


@pytest.mark.parametrize("history", [(), (PretrainRecord(),), (OtherRecord(name="mine", details={"anything": 1}),)])
@pytest.mark.parametrize("causal", [True, False])
def test_no_history_is_in_its_way(history: tuple[Record, ...], causal: bool, tokenizer: Tokenizer) -> None:
    """Bundles made in Python say little, but they say it."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal)
    assert "## Limits" in card(Bundle(model, tokenizer, history=history))


def test_names_cannot_break_a_table() -> None:
    """Bars and new lines stay in their cell."""
    assert markdown_table(("a", "b"), [["x|y", "1\n2"]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |"


def test_data_brings_no_markup_into_a_card(tokenizer: Tokenizer) -> None:
    """Names of labels and tasks and quoted texts add no HTML, picture or link, and end no code."""
    evil = "`<script>alert(1)</script>\n# ![x](http://a)`"
    task = TaskRecord(name=evil, train=9)
    found = FindingRecord(severity="error", sentence=f"a text is in both, such as '{evil}'")
    comparison = ComparisonRecord(metric="accuracy", methods=(MethodRecord(name=evil, scores=(1.0,), mean=1.0),), findings=(evil,))
    record = AdaptRecord(task=task, audit=(found,), seed=0, budget=(evil,), comparison=comparison)
    text = card(Bundle(classifier(tokenizer), tokenizer, (evil, "b"), (record,)))
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert "<script" not in outside
    assert "![x]" not in outside
    assert "\n# !" not in text


def test_nothing_reads_it_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """It may be edited, or removed, and the bundle is as whole as before."""
    bundle = language_bundle(tokenizer)
    place = save(bundle, tmp_path / "b")
    (place / "README.md").write_text("mine")
    load_bundle(place, selftest=True)
    (place / "README.md").unlink()
    again = load_bundle(place, selftest=True)
    assert torch.equal(again.model.backbone.embedding.weight, bundle.model.backbone.embedding.weight)
