"""Whole lines of work, by command, and the names of all files and keys that they write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import language_bundle
from helpers.models import SENTENCES
from helpers.settings import in_file
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.model.files import load_bundle, save
from warmstart.objectives import OBJECTIVES
from warmstart.stack import files as stack_files
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

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


PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
NAMED = {name for span in re.findall(r"`([^`\n]+)`", PAGE) for name in re.split(r"[\s,]+", span)}
"""every word between backticks"""
SHAPE = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32"]
SIZE = [*SHAPE, "--batch", "4", "--tokenizer.vocab-size", "300"]


def keys(file: Path) -> set[str]:
    """Of an object, or of the objects of all lines."""
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return {key for values in found for key in values}


def test_a_pretraining_run(tmp_path: Path) -> None:
    """Its log with its metrics, its model, its checkpoint, its tokens."""
    (tmp_path / "text.txt").write_text("\n\n".join(f"{sentence} {i}" for i in range(40) for sentence in SENTENCES))
    run = tmp_path / "run"
    words = ["--steps", "12", *in_file(train={"evaluate_every": 6}), "--out", str(run), *SIZE]
    assert main(["pretrain", str(tmp_path / "text.txt"), *words]) == 0
    assert keys(run / "metrics.jsonl") <= NAMED
    held_out = [
        line["held_out"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "held_out" in line
    ]
    assert {key for values in held_out for key in values} <= NAMED
    assert {file.name for file in (run / "bundle").iterdir()} <= NAMED
    assert keys(run / "bundle" / "bundle.json") <= NAMED
    for name in ("checkpoints", "text"):
        files = [file for file in (run / name).rglob("*") if file.is_file()]
        assert {file.name for file in files} <= NAMED
        assert {key for file in files if file.name == "store.json" for key in keys(file)} <= NAMED


@pytest.mark.usefixtures("no_pages")
def test_a_race(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, the ledger of its test split, and a model that is no network."""
    monkeypatch.setattr(stack_files, "_verify_stack_in_fresh_process", lambda _: None)
    manifest = save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    words = ["race", str(manifest), "--backbones", str(tmp_path / "lm"), "--schemes", "full", "--learning-rates", "0.01"]
    assert main([*words, "--seeds", "1", "--steps", "2", "--save", "NBSVM", "--out", str(tmp_path / "race")]) == 0
    assert {"runs.csv", "race.json", "run.json"} <= {file.name for file in (tmp_path / "race").iterdir()}
    assert keys(manifest.parent / "task.ledger.jsonl") <= NAMED
    files = [file for file in (tmp_path / "race" / "bundle").rglob("*") if file.is_file()]
    assert {file.name for file in files} <= NAMED
    assert keys(tmp_path / "race" / "bundle" / "stack.json") <= NAMED
