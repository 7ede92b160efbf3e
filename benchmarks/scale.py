"""What several processes give: the bytes that a step exchanges, a model of its time, and what that says of many GPUs.

    step = computing + communication
    ring all-reduce of S bytes among n    2 (n - 1) times: the latency, and S / n bytes
    ring all-gather, reduce-scatter       n - 1 times: the same

The bytes are exact: a test counts those of the collectives that DDP and FSDP2 issue. The time is checked against runs of
``pretrain`` in two processes on this machine. Computing is what two processes take that know nothing of each other, at the same
time and with half of the batch each. Communication is by formula, with the latency and the rate of each collective between two
processes. Nothing is fitted to the runs that are predicted. The tables for GPUs are the formula alone, with assumed rates.

Letters: n processes, S bytes, P parameters.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from benchmarks.corpora import write_text
from benchmarks.harness import show, table
from benchmarks.table import paragraph
from torch import nn

from warmstart.backbone.block import Block
from warmstart.backbone.config import BackboneConfig
from warmstart.cost.flops import flops_per_token
from warmstart.cost.parameters import without_storage
from warmstart.cost.workload import Workload
from warmstart.data.source import Source
from warmstart.data.token_store import prepare_store
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.system.cores import cores_used_by_others
from warmstart.tokenizer.train import TokenizerConfig, train_tokenizer
from warmstart.training.loop import LOG_EVERY
from warmstart.training.optimizers import is_muon_matrix

FLOAT = 4
"""bytes of a weight and of a gradient: both are exchanged in float32"""
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")
PASSES = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "broadcast": 1}
"""how often each byte goes round the ring"""

# ------------------------------------------------------------------------------------------------ bytes


@dataclass(frozen=True)
class Collective:
    """One kind of exchange in a step."""

    kind: str
    sizes: tuple[int, ...]
    """bytes of the whole tensor, of each call"""


def ddp_traffic(model: nn.Module, *, muon: bool = False) -> tuple[Collective, ...]:
    """What DDP exchanges in a step, however many batches it has: all gradients; with Muon also the matrices that it changed."""
    named = [(name, FLOAT * one.numel()) for name, one in model.named_parameters() if one.requires_grad]
    reduced = Collective("all-reduce", (sum(size for _, size in named),))
    shapes = dict(model.named_parameters())
    sent = tuple(size for name, size in named if is_muon_matrix(name, shapes[name]))
    return (reduced, Collective("broadcast", sent)) if muon else (reduced,)


def sharded_traffic(model: nn.Module, processes: int, batches: int = 1) -> tuple[Collective, ...]:
    """What FSDP2 exchanges in a step of so many ``batches``.

    Weights are put together for each batch: those of blocks forward and again backward, all others once. Gradients are summed once
    a step. Each parameter is padded to rows that the processes divide.
    """
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    inside = {parameter for block in blocks for parameter in block.parameters()}
    groups = [list(block.parameters()) for block in blocks]
    sizes = [sum(padded(one, processes) for one in group) for group in groups]
    rest = sum(padded(one, processes) for one in model.parameters() if one not in inside)
    return (
        Collective("all-gather", tuple([*sizes, *sizes, rest] * batches)),
        Collective("reduce-scatter", (*sizes, rest)),
    )


def padded(parameter: nn.Parameter, processes: int) -> int:
    """Bytes of a parameter whose rows are padded to a multiple of the number of processes."""
    rows = -(-parameter.shape[0] // processes) * processes
    return FLOAT * rows * (parameter.numel() // max(1, parameter.shape[0]))


def sent(traffic: Iterable[Collective], processes: int) -> float:
    """Bytes that each process sends in a step."""
    return sum(PASSES[one.kind] * sum(one.sizes) for one in traffic) * (processes - 1) / processes


# ------------------------------------------------------------------------------------------------ time


class Link(NamedTuple):
    """What connects neighbours of a ring."""

    latency: float
    """seconds"""
    rate: float
    """bytes per second"""


def seconds(traffic: Iterable[Collective], processes: int, links: Mapping[str, Link]) -> float:
    """What the exchanges of a step take, one after another; ``links`` by kind."""
    total = 0.0
    for one in traffic:
        link, turns = links[one.kind], PASSES[one.kind] * (processes - 1)
        total += sum(turns * (link.latency + size / processes / link.rate) for size in one.sizes)
    return total


# ------------------------------------------------------------------------------------------------ checked here


class Size(NamedTuple):
    """A model and a batch that are trained here."""

    name: str
    width: int
    depth: int
    tokens: int
    """of a row"""
    rows: int
    """of a step, of which each of two processes computes half"""
    steps: int


SIZES = (Size("small", 128, 4, 128, 16, 40), Size("wide", 512, 4, 64, 8, 40))
VOCABULARY = 2048
LINK_BYTES = (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
"""sizes of tensors by which latency and rate are found"""
REPEATS = 7
LINK_HEADER = ("gloo, two processes", "latency, µs", "GB/s")


def measure_links() -> dict[str, Link]:
    """Latency and rate of each collective between the processes of this group: the line through medians, by relative error."""
    calls = {
        "all-reduce": lambda whole, part: dist.all_reduce(whole),
        "all-gather": lambda whole, part: dist.all_gather_into_tensor(whole, part),
        "reduce-scatter": lambda whole, part: dist.reduce_scatter_tensor(part, whole),
        "broadcast": lambda whole, part: dist.broadcast(whole, src=0),
    }
    n, links = dist.get_world_size(), dict[str, Link]()
    for kind, call in calls.items():
        medians = []
        for size in LINK_BYTES:
            whole, part, spent = torch.zeros(size // FLOAT), torch.zeros(size // FLOAT // n), []
            for _ in range(REPEATS):
                dist.barrier()
                started = time.perf_counter()
                call(whole, part)
                spent.append(time.perf_counter() - started)
            medians.append(statistics.median(spent))
        turns, y = PASSES[kind] * (n - 1), np.array(medians)
        lines = np.stack([np.full(len(y), turns), turns * np.array(LINK_BYTES) / n], axis=1)
        latency, inverse = np.linalg.lstsq(lines / y[:, None], np.ones(len(y)), rcond=None)[0]
        links[kind] = Link(max(0.0, float(latency)), 1 / float(inverse))
    return links


def backbone_of(size: Size) -> BackboneConfig:
    """The model that is trained."""
    return BackboneConfig(width=size.width, depth=size.depth, heads=size.width // 32, max_length=size.tokens, dropout=0.0)


def command_of(size: Size, way: str, text: Path, out: Path) -> list[str]:
    """The words of a run of ``pretrain``."""
    rows = size.rows // 2 if way == "alone" else size.rows
    given = {
        "out": out, "cache": text.parent / "cache", "held-out": "none", "tokenizer-file": text.parent / "tokenizer.json",
        "width": size.width,
        "depth": size.depth, "heads": size.width // 32, "max-length": size.tokens, "dropout": 0.0, "batch": rows,
        "optimizer": "adamw", "precision": "float32", "steps": size.steps, "checkpoint-every": 10**6,
    }  # fmt: skip
    flags = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    words = ["-m", "warmstart", "pretrain", str(text), *flags]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [sys.executable, *(launcher if way != "alone" else []), *words, *(["--shard"] if way == "FSDP2" else [])]


def step_seconds(size: Size, way: str, text: Path, folder: Path) -> float:
    """Seconds of a step in the fastest ten of a run, without the first ten; the mean of two that are alone, at the same time.

    Other programs disturb some of the steps; the fastest ones are those that they disturb the least.
    """
    outs = [folder / f"{way}-{number}" for number in range(2 if way == "alone" else 1)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.Popen(command_of(size, way, text, out), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for out in outs
    ]
    for run in runs:
        _, said = run.communicate()
        if run.returncode:
            raise SystemExit(said.decode())
    found = []
    for out in outs:
        log = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        times = [row["seconds"] for row in log if "seconds" in row]
        found.append(min(after - before for before, after in pairwise(times)) / LOG_EVERY)
    return statistics.mean(found)


def links_here(folder: Path) -> dict[str, Link]:
    """``measure_links`` in two processes."""
    file = folder / "links.json"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [sys.executable, *launcher, "-m", "benchmarks.scale", str(file)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}  # of names that torch will change
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
    return {kind: Link(*values) for kind, values in json.loads(file.read_text()).items()}


def prepared(place: Path) -> Path:
    """A text, beside it a tokenizer and its tokens: two runs that begin at once do not both write them."""
    text = write_text(place / "text.txt", 2_000_000)
    tokenizer = train_tokenizer([text.read_text()], TokenizerConfig(vocab_size=VOCABULARY))
    tokenizer.save(place / "tokenizer.json")
    prepare_store([Source(path=str(text))], tokenizer, place / "cache")
    return text


def checked(rounds: int) -> str:
    """Predicted and measured steps of two processes, and the links between them."""
    rows, links, load = list[tuple[str, ...]](), list[dict[str, Link]](), list[float]()
    with tempfile.TemporaryDirectory() as place:
        text = prepared(Path(place))
        for size in SIZES:
            model = without_storage(backbone_of(size), VOCABULARY, LMHeadConfig())
            traffic = {"DDP": ddp_traffic(model), "FSDP2": sharded_traffic(model, 2)}
            found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in traffic}
            for number in range(rounds):
                load.append(cores_used_by_others())
                (folder := Path(place) / f"{size.name}-{number}").mkdir()
                links.append(links_here(folder))
                alone = step_seconds(size, "alone", text, folder)
                for way, exchanged in traffic.items():
                    predicted = alone + seconds(exchanged, 2, links[-1])
                    found[way].append((alone, predicted, step_seconds(size, way, text, folder)))
            count = sum(parameter.numel() for parameter in model.parameters())
            for way, times in found.items():
                alone, predicted, measured = (1000 * statistics.median(column) for column in zip(*times, strict=True))
                errors = [p / m - 1 for _, p, m in times]
                rows.append(
                    (
                        f"{size.name}: {count / 1e6:.1f} M parameters, {size.rows} rows of {size.tokens}", way,
                        f"{sent(traffic[way], 2) / 1e6:.1f}", f"{alone:.0f}", f"{predicted:.0f}", f"{measured:.0f}",
                        f"{100 * statistics.median(errors):+.0f}% ({100 * min(errors):+.0f} to {100 * max(errors):+.0f})",
                    )
                )  # fmt: skip
    header = (
        "model, batch", "way", "MB sent", "computing, ms", "predicted step, ms", "measured step, ms", "predicted / measured - 1",
    )  # fmt: skip
    measured_links = [
        (
            kind,
            f"{1e6 * statistics.median(one[kind].latency for one in links):.0f}",
            f"{statistics.median(one[kind].rate for one in links) / 1e9:.2f}",
        )
        for kind in KINDS[:3]
    ]
    others = f"Medians of {rounds} rounds. Other programs used {statistics.mean(load):.1f} cores on average before a round."
    return "\n\n".join([table(header, rows), table(LINK_HEADER, measured_links), paragraph(others)])


# ------------------------------------------------------------------------------------------------ GPUs, by formula


class Planned(NamedTuple):
    """A model that would be trained on GPUs."""

    name: str
    backbone: BackboneConfig
    step_tokens: int
    """tokens of a step, of all GPUs together"""

    def model(self) -> nn.Module:
        """Without storage."""
        return without_storage(self.backbone, PLANNED_VOCABULARY, LMHeadConfig())

    def flops(self) -> float:
        """Of training, per token."""
        return flops_per_token(without_storage(self.backbone, PLANNED_VOCABULARY, LMHeadConfig()), Workload()).training

    def batches(self, gpus: int) -> int:
        """How many batches a GPU computes for a step."""
        return max(1, self.step_tokens // gpus // BATCH_TOKENS)


RATE, MFU, MEMORY = 989e12, 0.4, 80e9
"""FLOP/s of a GPU in bfloat16 (H100 SXM, as its maker says); the part of it that training reaches, assumed; bytes of its memory"""
PER_MACHINE, TOKENS_PER_PARAMETER, BATCH_TOKENS = 8, 20, 2**14
"""GPUs of a machine; tokens of training (Hoffmann et al. 2022); tokens that a GPU computes at once, at most"""
NVLINK = Link(3e-6, 450e9)
"""between the GPUs of a machine: NVLink 4, each direction, as its maker says"""
NETWORKS = {"InfiniBand, 8 x 400 Gbit/s": Link(10e-6, 400e9), "Ethernet, 100 Gbit/s": Link(30e-6, 12.5e9)}
"""of a whole machine. The ring that goes through all GPUs crosses it by all network cards at once, so that this is its rate"""
GPUS = (8, 64, 512)
PLANNED = (
    Planned("50 M", BackboneConfig(width=512, depth=12, heads=8, feedforward=2048, max_length=1024), 2**19),
    Planned("1 B", BackboneConfig(width=2048, depth=18, heads=16, feedforward=8192, max_length=2048), 2**20),
    Planned("7 B", BackboneConfig(width=4096, depth=34, heads=32, feedforward=16384, max_length=2048), 2**22),
)
PLANNED_VOCABULARY = 32_000


def exchange_seconds(planned: Planned, gpus: int, network: Link) -> dict[str, float]:
    """What the exchanges of a step take, by way; the last divides the weights in each machine, and sums gradients over machines."""
    model, batches = planned.model(), planned.batches(gpus)
    ring = dict.fromkeys(KINDS, Link(network.latency, min(network.rate, NVLINK.rate)))
    inside = seconds(sharded_traffic(model, PER_MACHINE, batches), PER_MACHINE, dict.fromkeys(KINDS, NVLINK))
    part = Collective("all-reduce", (sum(FLOAT * one.numel() for one in model.parameters()) // PER_MACHINE,))
    # each of the eight rings between machines has an eighth of the network
    between = {"all-reduce": Link(network.latency, network.rate / PER_MACHINE)}
    return {
        "DDP": seconds(ddp_traffic(model), gpus, ring),
        "FSDP2": seconds(sharded_traffic(model, gpus, batches), gpus, ring),
        "hybrid": inside + seconds([part], gpus // PER_MACHINE, between),
    }


def memory_of(model: nn.Module, way: str, gpus: int) -> float:
    """Bytes of weights, gradients, two moments of AdamW and, with DDP, the copy of the gradients that it sends; no activations."""
    count = sum(one.numel() for one in model.parameters())
    largest = max(sum(p.numel() for p in part.parameters()) for part in model.modules() if isinstance(part, Block))
    parts = {"DDP": 1, "FSDP2": gpus, "hybrid": PER_MACHINE}[way]
    return FLOAT * (5 * count if way == "DDP" else 4 * count / parts + 3 * largest)


def figure(value: float) -> str:
    """Two digits, or all before the point: ``0.039``, ``5.8``, ``1,779``."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def plan(planned: Planned) -> list[tuple[str, ...]]:
    """One row for each number of GPUs and network."""
    model, rows = planned.model(), []
    tokens = TOKENS_PER_PARAMETER * sum(one.numel() for one in model.parameters())
    for gpus in GPUS:
        for name, link in NETWORKS.items() if gpus > PER_MACHINE else [("NVLink alone", NVLINK)]:
            computing = planned.step_tokens * planned.flops() / gpus / (RATE * MFU)
            cells, least = [], float("inf")
            for way, spent in exchange_seconds(planned, gpus, link).items():
                if (memory := memory_of(model, way, gpus)) > MEMORY:
                    cells.append(f"{memory / 1e9:,.0f} GB: too large")
                    continue
                low, high = computing / (computing + spent), computing / max(computing, spent)
                cells.append(f"{1000 * spent:,.1f} ms: {100 * low:.0f} to {100 * high:.0f}%")
                least = min(least, computing + spent)
            hours = tokens / planned.step_tokens * least / 3600
            rows.append((f"{gpus}", name, f"{1000 * computing:,.1f}", *cells, figure(gpus * hours), figure(hours)))
    return rows


def planned_tables() -> str:
    """A table for each model, and the number of tokens at which the network takes as long as computing."""
    header = ("GPUs", "network", "computing, ms", "DDP", "FSDP2", "hybrid", "GPU-hours", "hours")
    parts = []
    for one in PLANNED:
        model = one.model()
        count, most = sum(parameter.numel() for parameter in model.parameters()), GPUS[-1]
        ddp, sharded = (sent(way, most) / 1e9 for way in (ddp_traffic(model), sharded_traffic(model, most)))
        sizes = (
            f"**{one.name}**: {count / 1e6:,.0f} million parameters, {one.flops() / 1e9:,.2f} GFLOP per token of training, "
            f"{one.step_tokens:,} tokens in a step, {TOKENS_PER_PARAMETER * count / 1e9:,.0f} billion in all. Of {most} GPUs each "
            f"sends {ddp:,.1f} GB in a step with DDP, {sharded:,.1f} GB in one of a single batch with FSDP2."
        )
        parts += [paragraph(sizes), table(header, plan(one))]
    planned, model = PLANNED[1], PLANNED[1].model()
    break_even = [
        (name, *(f"{sent(way, 512) / link.rate * RATE * MFU / planned.flops():,.0f}" for way in ways))
        for ways in [(ddp_traffic(model), sharded_traffic(model, 512))]
        for name, link in {"NVLink alone": NVLINK, **NETWORKS}.items()
    ]
    return "\n\n".join([*parts, table(("network", "tokens per GPU, DDP", "tokens per GPU, FSDP2"), break_even)])


def run(rounds: int = 2) -> str:
    """What was checked here, then the plans."""
    return f"{checked(rounds)}\n\n{planned_tables()}"


def _measure_links_to(file: str) -> None:
    """One of the processes that ``links_here`` starts."""
    dist.init_process_group("gloo")
    found = measure_links()
    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        _measure_links_to(sys.argv[1])
    else:
        show(run)
