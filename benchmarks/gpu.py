"""Training on a GPU: tokens per second, the part of the GPU's rate that is used, and memory, beside a plain GPT and GPT-2.

    python -m benchmarks.gpu [--runs FOLDER]

Random tokens, bfloat16 (autocast), AdamW, as many tokens in each step; in one row Muon trains the matrices inside the blocks.
Ours is the training loop as ``warmstart pretrain`` runs it: batches made by the thread that works ahead, copied from pinned memory.
The peers have a batch that lies on the GPU already. Each cell is a process of its own, whose result is kept in FOLDER: the same
command goes on where it stopped. Without a GPU it says that nothing was measured.

The rate that counts is 6 N + 6 L D T floating-point operations for each token (causal attention computes half of T^2; PaLM:
Chowdhery et al. 2022, appendix B), N parameters without the embedding of positions, as a part of the rate of a large product of
matrices that is measured in the same run (MFU), and of the rate that the manufacturer names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.harness import table
from benchmarks.speed_peers import PlainGPT, transformers_gpt2
from benchmarks.table import paragraph
from torch import nn

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import rng
from warmstart.training.config import PretrainTrainConfig
from warmstart.training.loop import TrainingJob, train
from warmstart.types import Batch

RUNS = Path("runs") / "gpu"
NOMINAL = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12}
"""dense bfloat16 operations per second by part of the name, as the manufacturer says"""
VOCABULARY, STEP_TOKENS, WARM, TIMED = 32_768, 16_384, 5, 30
NOT_MEASURED = "Not measured: no machine with CUDA was at hand."


@dataclass(frozen=True)
class GPUModel:
    """A model to train."""

    name: str
    width: int
    depth: int
    heads: int

    def shape(self, length: int) -> tuple[int, int, int, int, int, int]:
        """As the peers take it."""
        return self.width, self.depth, self.heads, 4 * self.width, VOCABULARY, length


MODELS = {one.name: one for one in (GPUModel("5 M", 128, 4, 2), GPUModel("50 M", 512, 10, 8), GPUModel("125 M", 768, 14, 12))}
LENGTHS = (256, 1024)
CONTENDERS = (
    "warmstart",
    "warmstart, compiled",
    "warmstart with Muon, compiled",
    "plain GPT",
    "plain GPT, compiled",
    "GPT-2 of transformers",
)


@dataclass(frozen=True)
class Contender:
    """A model, and how it takes so many steps."""

    model: nn.Module
    steps: Callable[[int], object]


# ------------------------------------------------------------------------------------------------ one cell


def synthetic_batch(step: int, length: int, tokens: int, vocabulary: int) -> Batch:
    """Full rows of random tokens, each of which predicts the next."""
    ids = torch.from_numpy(rng(0, "gpu", step).integers(5, vocabulary, (max(1, tokens // length), length + 1)))
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), causal=True, count=ids[:, 1:].numel())


def ours(model: GPUModel, length: int, batches: Callable[[int], Batch], device: torch.device, name: str) -> Contender:
    """Our model in the training loop, by the words in the name of the contender."""
    width, depth, heads, inner, vocabulary, _ = model.shape(length)
    backbone = Backbone(BackboneConfig(width=width, depth=depth, heads=heads, feedforward=inner, max_length=length), vocabulary)
    whole = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True).to(device)
    blocks: list[nn.Module] = list(backbone.blocks) if name.endswith("compiled") else []
    config = PretrainTrainConfig(optimizer="muon" if "Muon" in name else "adamw", learning_rate=3e-4)

    def steps(count: int) -> object:
        return train(whole, TrainingJob(lambda step: [batches(step)], count, 0, progress_bar=False, compile=blocks), config)

    return Contender(whole, steps)


def theirs(name: str, model: GPUModel, length: int, batch: Batch, device: torch.device) -> Contender:
    """A peer, as tutorials write it."""
    shape = model.shape(length)
    whole: Any = (transformers_gpt2(*shape) if name.startswith("GPT-2") else PlainGPT(*shape)).to(device).train()
    called: Any = torch.compile(whole) if name.endswith("compiled") else whole
    fused = device.type == "cuda"
    optimizer, here = torch.optim.AdamW(whole.parameters(), lr=3e-4, fused=fused), batch.to(device)
    assert here.targets is not None

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                if name.startswith("GPT-2"):
                    loss = called(here.ids, labels=here.targets, shift_labels=here.targets).loss
                else:
                    loss = called(here.ids, here.targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
            optimizer.step()

    return Contender(whole, steps)


def measure_cell(contender: str, model: GPUModel, length: int, device: torch.device, tokens: int = STEP_TOKENS) -> dict[str, float]:
    """Tokens per second, operations per second, and bytes of memory at the peak, of one contender."""
    batches = partial(synthetic_batch, length=length, tokens=tokens, vocabulary=VOCABULARY)
    if contender.startswith("warmstart"):
        made = ours(model, length, batches, device, contender)
    else:
        made = theirs(contender, model, length, batches(0), device)
    made.steps(WARM)
    wait(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    made.steps(TIMED)
    wait(device)
    seconds = time.perf_counter() - started
    rate = TIMED * batches(0).count / seconds
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    parameters = sum(parameter.numel() for name, parameter in made.model.named_parameters() if "position" not in name)
    operations = 6 * parameters + 6 * model.depth * model.width * length
    return {"tokens": rate, "operations": rate * operations, "memory": memory, "parameters": parameters}


def product_rate(device: torch.device, size: int = 8192) -> float:
    """Operations per second of a product of two bfloat16 matrices, the best of twenty."""
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = 0.0
    for _ in range(20):
        wait(device)
        started = time.perf_counter()
        one @ other
        wait(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def wait(device: torch.device) -> None:
    """Until a GPU has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ------------------------------------------------------------------------------------------------ all cells


def cell_file(runs: Path, contender: str, model: str, length: int) -> Path:
    """Where the result of a cell is kept."""
    return runs / f"{contender}, {model}, {length}.json".replace(" ", "_")


def measured(runs: Path) -> dict[tuple[str, str, int], dict[str, float]]:
    """The results of all cells, each in a process of its own; a failed one has none."""
    found = {}
    for name in MODELS:
        for length in LENGTHS:
            for contender in CONTENDERS:
                file = cell_file(runs, contender, name, length)
                if not file.is_file():
                    words = ["--cell", contender, name, str(length), "--runs", str(runs)]
                    subprocess.run([sys.executable, "-m", "benchmarks.gpu", *words], check=False, timeout=900)
                if file.is_file():
                    found[contender, name, length] = json.loads(file.read_text())
                print(f"{file.stem}: {found.get((contender, name, length), 'failed')}", file=sys.stderr, flush=True)
    return found


def as_table(found: dict[tuple[str, str, int], dict[str, float]], product: float, name: str) -> str:
    """The results in Markdown."""
    nominal = next((rate for part, rate in NOMINAL.items() if part in name), None)
    rows = []
    for (contender, model, length), one in found.items():
        plain = found.get(("plain GPT, compiled", model, length))
        rows.append(
            (
                f"{model}, {length} tokens", contender, f"{one['tokens']:,.0f}", f"{one['operations'] / product:.1%}",
                f"{one['operations'] / nominal:.1%}" if nominal else "-", f"{one['memory'] / 1e9:.1f}",
                f"{one['tokens'] / plain['tokens']:.2f}" if plain else "-",
            )
        )  # fmt: skip
    header = (
        "model, context",
        "contender",
        "tokens/s",
        "of a large product",
        "of the named rate",
        "GB",
        "times plain GPT, compiled",
    )
    note = (
        f"{name}, bfloat16, {STEP_TOKENS:,} tokens a step, {TIMED} steps after {WARM}; a product of two 8,192 x 8,192 matrices "
        f"runs at {product / 1e12:,.0f} TFLOP/s."
    )
    return "\n\n".join([table(header, rows), paragraph(note)])


def run(runs: Path = RUNS) -> str:
    """The table, or that nothing was measured."""
    if not torch.cuda.is_available():
        return NOT_MEASURED
    runs.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda")
    return as_table(measured(runs), product_rate(device), torch.cuda.get_device_name(device))


def main() -> None:
    """Measure, or one cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the results")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.cell:
        print(run(given.runs))
        return
    contender, name, length = given.cell
    found = measure_cell(contender, MODELS[name], int(length), torch.device("cuda"))
    assert np.isfinite(found["tokens"])
    cell_file(given.runs, contender, name, int(length)).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
