"""One flipped bit in a file that people keep: an error or a sentence that names it, or the very same result.

Results of races and seals have tests of their own (test_sweep.py, test_storage.py). ``make soak`` flips many more.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import language_bundle
from helpers.tasks import cats
from warmstart.data.scorings import ScoringRun, read_ledger
from warmstart.errors import WarmstartError
from warmstart.model.files import load_bundle, save
from warmstart.system.console import console
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from warmstart.training.log import MetricsLog

FLIPS = round(200 * float(os.environ.get("CHAOS", "1")))
pytestmark = pytest.mark.chaos


def of_checkpoint(folder: Path, tokenizer: Tokenizer) -> Any:
    """Of two checkpoints the one that is resumed."""
    if not folder.exists():
        for step in (10, 90):
            write_checkpoint(folder, Checkpoint(step, 1.5 * step, {"w": torch.full((9,), float(step))}, "a", None, "b"))
    found = read_checkpoint(folder, "a")
    assert found
    return found.step, found.seconds, found.log_digest, found.tensors["w"].tolist()


def of_bundle(folder: Path, tokenizer: Tokenizer) -> Any:
    """Every weight, the tokenizer and the history."""
    if not folder.exists():
        save(language_bundle(tokenizer), folder)
    bundle = load_bundle(folder)
    weights = {name: tensor.tolist() for name, tensor in bundle.model.weights().items()}
    return weights, bundle.tokenizer.digest, bundle.labels, bundle.history


def of_log(folder: Path, tokenizer: Tokenizer) -> Any:
    """The lines before a checkpoint."""
    whole = MetricsLog(None)
    for step in (10, 20, 30):
        whole.add({"step": step, "loss": 1 / step, "held_out": {"loss": step / 7}})
    if not folder.exists():
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in whole.rows))
    return MetricsLog(folder, 30, whole.digest()).rows


def of_ledger(folder: Path, tokenizer: Tokenizer) -> Any:
    """How often a test split was scored, of a ledger that has no copy."""
    if not folder.exists():
        task = load_task(save_task(cats(), folder))
        for seed in range(3):
            ScoringRun(command="race").method(f"full {seed}", [seed]).record(task, seed)
        for file in folder.iterdir():
            if file.suffix == ".jsonl":
                file.rename(folder / "task.ledger.jsonl")
            else:
                file.unlink()
    found = read_ledger(replace(cats(), manifest=folder / "task.yaml"))
    for sentence in found.findings:
        console.print(sentence)
    return found.entries


READERS = (of_checkpoint, of_bundle, of_log, of_ledger)


def test_a_flipped_bit_changes_nothing_in_silence(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever it is."""
    for read in READERS:
        whole, place = (tmp_path / read.__name__ / name for name in ("whole", "place"))
        whole.parent.mkdir()
        expected, chance = read(whole, tokenizer), np.random.default_rng(0)
        for number in range(FLIPS):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(whole, place)
            files = sorted(file for file in place.rglob("*") if file.is_file())
            file = files[number % len(files)]
            data = bytearray(file.read_bytes())
            bit = int(chance.integers(8 * len(data)))
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            capsys.readouterr()
            try:
                found = read(place, tokenizer)
            except WarmstartError:
                continue
            assert found == expected or "damaged" in capsys.readouterr().err.lower(), f"bit {bit} of {file.relative_to(tmp_path)}"
