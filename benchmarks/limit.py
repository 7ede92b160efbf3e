"""How close to the machine's limit: work of a training step over the rate of plain matrix products of the same shapes, in one run.

The work counts every product once forward and twice backward, those of attention included, of the half that a causal row needs;
norms, activations, softmax, the optimiser and everything else count as nothing. Their cost is what is missing to 100%.
"""

from __future__ import annotations

import statistics
import time

import torch
from benchmarks.harness import table
from benchmarks.training import LAB, SMALL, Size, batches, ours

from warmstart.objectives.loss import CHUNK
from warmstart.types import IGNORE, Batch

Shape = tuple[int, int, int]
"""rows, inputs, outputs of a product"""


def products(size: Size, batch: Batch) -> dict[Shape, int]:
    """The products of a forward pass, and how often each comes."""
    assert batch.targets is not None
    tokens, scored = batch.ids.numel(), int((batch.targets != IGNORE).sum())
    found = {
        (tokens, size.width, 3 * size.width): size.depth,
        (tokens, size.width, size.width): size.depth,
        (tokens, size.width, size.inner): size.depth,
        (tokens, size.inner, size.width): size.depth,
    }
    chunk = min(CHUNK, scored)
    return found | {(chunk, size.width, size.vocab): scored / chunk}  # type: ignore[dict-item]


def work(size: Size, batch: Batch) -> float:
    """Floating-point operations of a training step."""
    linear = sum(count * 2 * rows * inner * outer for (rows, inner, outer), count in products(size, batch).items())
    attention = size.depth * 4 * batch.ids.numel() * batch.ids.shape[1] * size.width * (0.5 if batch.causal else 1.0)
    return 3 * (linear + attention)


def peak(size: Size, batch: Batch, kind: torch.dtype) -> float:
    """FLOP/s of the same products alone, weighted as a step has them."""
    spent, done = 0.0, 0.0
    for (rows, inner, outer), count in products(size, batch).items():
        x, w = torch.randn(rows, inner, dtype=kind), torch.randn(outer, inner, dtype=kind)
        times = []
        for _ in range(7):
            started = time.perf_counter()
            torch.nn.functional.linear(x, w)
            times.append(time.perf_counter() - started)
        spent, done = spent + count * statistics.median(times), done + count * 2 * rows * inner * outer
    return done / spent


def run(rounds: int = 7) -> str:
    """Achieved over measured, for every row of the training table."""
    rows = []
    for size in (SMALL, LAB):
        for objective, batch in batches(size).items():
            step, times = ours(size, batch), []
            for turn in range(rounds + 2):
                started = time.perf_counter()
                step()
                times += [time.perf_counter() - started] * (turn > 1)
            rate = work(size, batch) / statistics.median(times)
            half, full = (peak(size, batch, kind) for kind in (torch.bfloat16, torch.float32))
            cells = (f"{rate / 1e9:.0f}", f"{half / 1e9:.0f}", f"{full / 1e9:.0f}", f"{rate / half:.0%}")
            rows.append((f"{size.name}, {objective}", *cells))
    header = ("training step", "GFLOP/s achieved", "products alone, bfloat16", "products alone, float32", "achieved / bfloat16")
    return table(header, rows)


if __name__ == "__main__":
    print(run())
