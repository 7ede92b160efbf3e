"""Every contender of the table of GPUs runs; a finished cell is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks import gpu
from benchmarks.gpu import CONTENDERS, GPUModel, as_table, cell_file, measure_cell


def test_a_cell_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rate is positive, and the operations are those of its parameters; the contenders have about as many."""
    monkeypatch.setattr(gpu, "VOCABULARY", 64)
    monkeypatch.setattr(gpu, "TIMED", 2)
    for contender in (one for one in CONTENDERS if not one.endswith("compiled")):
        found = measure_cell(contender, GPUModel("tiny", 16, 1, 2), 8, torch.device("cpu"), tokens=32)
        assert found["tokens"] > 0, contender
        assert found["operations"] == pytest.approx(found["tokens"] * (6 * found["parameters"] + 6 * 1 * 16 * 8)), contender
        assert 3500 < found["parameters"] < 6000, contender


def test_results_become_a_table() -> None:
    """Rates as parts of the measured and of the named one, and against the peer; a cell that failed is missing."""
    one = {"tokens": 2e6, "operations": 4e14, "memory": 3e9, "parameters": 1e8}
    found = {("warmstart", "50 M", 256): one, ("plain GPT, compiled", "50 M", 256): one | {"tokens": 1e6}}
    text = as_table(found, 8e14, "NVIDIA H200")
    assert "| 50 M, 256 tokens | warmstart | 2,000,000 | 50.0% | 40.4% | 3.0 | 2.00 |" in text
    assert "GPT-2" not in text
    assert "| - | 3.0 |" in as_table(found, 8e14, "an unknown GPU")


def test_a_finished_cell_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command goes on where it stopped; without a GPU nothing is started, nor claimed."""
    started: list[list[str]] = []
    monkeypatch.setattr(gpu.subprocess, "run", lambda words, **_: started.append(words))
    cell_file(tmp_path, "warmstart", "5 M", 256).write_text('{"tokens": 1.0}')
    assert gpu.measured(tmp_path) == {("warmstart", "5 M", 256): {"tokens": 1.0}}
    assert len(started) == len(CONTENDERS) * 6 - 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.run() == "Not measured: no machine with CUDA was at hand."
