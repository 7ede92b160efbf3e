"""The page of file formats names every file and key that is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.bundles import language_bundle
from helpers.models import SENTENCES
from helpers.settings import in_file
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.model.files import save
from warmstart.stack import files as stack_files
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

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
