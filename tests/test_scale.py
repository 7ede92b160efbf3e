"""The bytes of benchmarks/scale.py are those that DDP and FSDP2 exchange; every contender of the table of GPUs runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import gpu
from benchmarks.gpu import CONTENDERS, GPUModel, as_table, cell_file, measure_cell
from benchmarks.scale import KINDS, Collective, Link, ddp_traffic, seconds, sent, sharded_traffic
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.processes import run_processes
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.block import Block
from warmstart.backbone.config import BackboneConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.training.config import TrainConfig
from warmstart.training.loop import TrainingJob, train
from warmstart.types import Batch

NAMES = dict(zip(("allreduce_", "_allgather_base_", "_reduce_scatter_base_", "broadcast_"), KINDS, strict=True))
"""what torch calls the collectives"""
BATCHES = 2


class Counting(TorchDispatchMode):
    """Notes the bytes of the whole tensor of every collective; numbers and what pickles hold are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[int]] = defaultdict(list)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.name().removeprefix("c10d::")
        tensors = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
        if name in NAMES and tensors[0].dtype == torch.float32 and tensors[0].numel() > 1:
            self.found[NAMES[name]].append(4 * max(one.numel() for one in tensors))
        return function(*args, **(kwargs or {}))


def model_of() -> Model:
    """A model whose rows neither two nor four processes divide."""
    torch.manual_seed(0)
    body = Backbone(BackboneConfig(width=18, heads=3, depth=2, feedforward=25, max_length=16, dropout=0.0), 51)
    return Model(body, fresh_head(LMHeadConfig(), body, 0), causal=True)


def batches(step: int) -> Sequence[Batch]:
    """Eight rows each."""
    ids = torch.randint(5, 51, (8, 16), generator=torch.Generator().manual_seed(step))
    return [Batch(ids, ids, causal=True, count=ids.numel())] * BATCHES


def exchanged(settings: dict[str, Any], steps: int, *, sharded: bool) -> dict[str, list[int]]:
    """The bytes of every collective of a run, by kind."""
    model = model_of()
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    job = TrainingJob(batches, steps, 0, progress_bar=False, shard=blocks if sharded else ())
    with Counting() as counting:
        train(model, job, TrainConfig.build({"precision": "float32", **settings}))
    return counting.found


def of_a_step(sharded: bool, optimizer: str) -> dict[str, int]:
    """The bytes of the third step, in all, and the number of its collectives."""
    settings = {"optimizer": optimizer, "learning_rate": 1e-3}
    two, three = (exchanged(settings, steps, sharded=sharded) for steps in (2, 3))
    bytes_ = {kind: sum(three[kind]) - sum(two[kind]) for kind in KINDS}
    return bytes_ | {f"{kind} calls": len(three[kind]) - len(two[kind]) for kind in KINDS}


def by_formula(traffic: Sequence[Collective]) -> dict[str, int]:
    sizes = {one.kind: one.sizes for one in traffic}
    return {kind: sum(sizes.get(kind, ())) for kind in KINDS} | {f"{kind} calls": len(sizes.get(kind, ())) for kind in KINDS}


@pytest.mark.journeys
def test_the_bytes_are_those_that_are_exchanged(tmp_path: Path) -> None:
    """Of DDP with AdamW and with Muon, and of FSDP2 with two batches in a step: to the byte, in every process."""
    for processes, way, traffic in (
        (2, (False, "adamw"), ddp_traffic(model_of())),
        (2, (False, "muon"), ddp_traffic(model_of(), muon=True)),
        (2, (True, "adamw"), sharded_traffic(model_of(), 2, BATCHES)),
        (4, (True, "adamw"), sharded_traffic(model_of(), 4, BATCHES)),
    ):
        (folder := tmp_path / f"{processes}-{way}").mkdir()
        for found in run_processes(processes, folder, of_a_step, *way):
            assert found == by_formula(traffic), (processes, way)


def test_a_ring_passes_each_byte_on() -> None:
    """Two processes exchange half of the tensor twice to sum it; of many, each sends nearly twice its size."""
    summed, gathered = Collective("all-reduce", (1000,)), Collective("all-gather", (1000,))
    assert sent([summed], 2) == 1000
    assert sent([gathered], 4) == 750
    assert sent([summed], 1000) == pytest.approx(2000, rel=0.01)
    links = dict.fromkeys(KINDS, Link(0.5, 100.0))
    assert seconds([summed], 2, links) == 2 * (0.5 + 5.0)
    assert seconds([gathered], 4, links) == 3 * (0.5 + 2.5)
    assert seconds([summed], 1, links) == 0.0


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
