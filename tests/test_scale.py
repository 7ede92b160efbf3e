"""The bytes of benchmarks/scale.py are those that DDP and FSDP2 exchange, and its formulas are those of a ring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.scale import GPUS, KINDS, PLANNED, Collective, Link, ddp_traffic, plan, seconds, sent, sharded_traffic
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
@pytest.mark.parametrize("processes", [2, 4])
def test_the_bytes_are_those_that_are_exchanged(processes: int, tmp_path: Path) -> None:
    """Of DDP with AdamW and with Muon, and of FSDP2 with two batches in a step: to the byte, in every process."""
    expected = {
        (False, "adamw"): ddp_traffic(model_of()),
        (False, "muon"): ddp_traffic(model_of(), muon=True),
        (True, "adamw"): sharded_traffic(model_of(), processes, BATCHES),
    }
    for number, (way, traffic) in enumerate(expected.items()):
        (folder := tmp_path / str(number)).mkdir()
        for found in run_processes(processes, folder, of_a_step, *way):
            assert found == by_formula(traffic), way


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


def test_more_gpus_never_take_longer_to_compute() -> None:
    """Every plan has a row for each number of GPUs and each network, and names what does not fit."""
    for one in PLANNED:
        rows = plan(one)
        assert [int(row[0]) for row in rows] == [GPUS[0], *(gpus for gpus in GPUS[1:] for _ in range(2))]
        assert any("too large" in cell for cell in rows[0]) == (one is PLANNED[-1])
