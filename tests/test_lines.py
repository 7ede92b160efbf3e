"""Whole lines of work, by command: every objective, going on from a model, and the quickstart itself in small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from warmstart.cli import main
from warmstart.model.files import load_bundle
from warmstart.objectives.registry import OBJECTIVES

SMALL = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "64", "--batch", "4"]
QUICK = [*SMALL, "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "16"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_by_command(objective: str, text: Path, tmp_path: Path) -> None:
    """It pretrains, its bundle is whole, and its held-out text can be evaluated again."""
    out, rows = tmp_path / "run", "packed" if list(OBJECTIVES).index(objective) % 2 else "documents"
    flags = ["--objective", objective, "--rows", rows, "--steps", "3", *QUICK]
    assert main(["pretrain", str(text), "--out", str(out), *flags]) == 0
    bundle = load_bundle(out / "bundle")
    assert bundle.history[-1].objective.rows == rows
    assert all(np.isfinite(value) for value in bundle.history[-1].held_out.values())
    assert main(["doctor", str(out)]) == 0
    assert main(["evaluate", str(out), str(text)]) == 0


def test_pretraining_goes_on_from_a_model(text: Path, tmp_path: Path) -> None:
    """``--init-from`` keeps tokenizer, backbone and language head, and the history names both trainings."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["pretrain", str(text), "--out", str(first), "--steps", "20", *QUICK]) == 0
    go_on = ["--init-from", str(first), "--steps", "20", "--objective", "hybrid", "--batch", "4"]
    assert main(["pretrain", str(text), "--out", str(second), *go_on]) == 0
    before, after = load_bundle(first / "bundle"), load_bundle(second / "bundle")
    assert after.tokenizer.digest == before.tokenizer.digest
    assert after.model.backbone.config == before.model.backbone.config
    assert [record.objective.name for record in after.history] == ["causal", "hybrid"]
    assert after.history[1].held_out["causal loss"] < before.history[0].held_out["loss"]


def test_nothing_need_be_held_out_and_a_budget_in_tokens_is_kept(text: Path, tmp_path: Path) -> None:
    """Without held-out text there are no figures of it, as the report says; short documents do not count as full rows."""
    out = tmp_path / "run"
    flags = ["--tokens", "2000", "--rows", "documents", "--held-out", "none"]
    assert main(["pretrain", str(text), "--out", str(out), *flags, *QUICK]) == 0
    record = load_bundle(out / "bundle").history[-1]
    assert record.held_out == {}
    assert 1600 < record.tokens < 2400
    assert not any("held_out" in json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    assert "no text was held out" in (out / "report.html").read_text()


@pytest.mark.journeys
def test_the_quickstart_in_small(tmp_path: Path) -> None:
    """Two libraries' documentation: models that are whole, and a page that says what pretraining bought."""
    small = ["--tokens", "6000", "--labels", "32", "64", "--minutes", "0.2", "--packages", "sympy", "networkx"]
    assert main(["quickstart", "--out", str(tmp_path / "q"), *small]) == 0
    page = (tmp_path / "q" / "report.html").read_text()
    assert "pretraining bought" in page
    for bundle in ("own-text", "bundle"):
        assert main(["doctor", str(tmp_path / "q" / bundle)]) == 0
