"""How close to the machine's limit: a training step against its own matrix products alone, in turn.

Every product counts once forward and twice backward, those of attention included, of the half that a causal row needs; norms,
activations, softmax, the optimiser and everything else count as nothing. Their cost is what is missing to 100%.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial

import torch
from benchmarks.harness import CPU, Step, ratio, show, table, time_in_turn
from benchmarks.training import AS_LONG_AS_IT_LIVES, LAB, SMALL, Size, batches, build, precisions
from torch import Tensor

from warmstart.objectives.loss import CHUNK
from warmstart.training.arithmetic import keep_freed_memory
from warmstart.types import IGNORE, Batch

WAYS = ("torch's default", "oneDNN")
"""who multiplies: on x86 torch hands float32 to MKL, and bfloat16 to oneDNN anyway"""


@dataclass(frozen=True)
class Product:
    """Y = X W^T with X (rows, inner) and W (outer, inner), and its gradients: dX = G W, dW = G^T X with G (rows, outer)."""

    rows: int
    inner: int
    outer: int
    count: int
    """how often a step needs it"""
    matrices: int = 1
    """how many of each there are: one for every head of every row"""

    @property
    def work(self) -> int:
        """Floating-point operations of all three in a step."""
        return 3 * self.count * self.matrices * 2 * self.rows * self.inner * self.outer


def products(size: Size, batch: Batch) -> list[Product]:
    """The products of a step. Attention's two are each other's gradients turned round, so their shapes are the same."""
    assert batch.targets is not None
    tokens, length, scored = batch.ids.numel(), batch.ids.shape[1], int((batch.targets != IGNORE).sum())
    keys = length // 2 if batch.causal else length
    found = [
        Product(tokens, size.width, 3 * size.width, size.depth),
        Product(tokens, size.width, size.width, size.depth),
        Product(tokens, size.width, size.inner, size.depth),
        Product(tokens, size.inner, size.width, size.depth),
        Product(length, size.width // size.heads, keys, 2 * size.depth, len(batch.ids) * size.heads),
        Product(CHUNK, size.width, size.vocab, scored // CHUNK),
        Product(scored % CHUNK, size.width, size.vocab, 1),
    ]
    return [one for one in found if one.work]


def work(size: Size, batch: Batch) -> int:
    """Floating-point operations of a training step."""
    return sum(one.work for one in products(size, batch))


def bare(way: str, size: Size, objective: str, precision: str) -> Step:
    """Nothing but the products of a step; their operands do not change."""
    AS_LONG_AS_IT_LIVES.enter_context(keep_freed_memory(CPU))
    multiply, kind = by_onednn if way == "oneDNN" else by_default, getattr(torch, precision)
    made = []
    for one in products(size, batches(size)[objective]):
        shapes = (one.rows, one.inner), (one.outer, one.inner), (one.rows, one.outer)
        x, w, g = (torch.randn(one.matrices, *shape).to(kind).squeeze(0) for shape in shapes)
        turned = (g.mT, x.mT) if one.outer <= one.inner else (x.mT, g.mT)  # dW or its transpose: the smaller one first is faster
        made.append((one.count, x, w, g, turned))

    def step() -> None:
        for count, x, w, g, turned in made:
            for _ in range(count):
                multiply(x, w)
                multiply(g, w.mT)
                multiply(*turned)

    return step


def by_default(x: Tensor, w: Tensor) -> None:
    """X W^T, as torch multiplies."""
    x @ w.mT


def by_onednn(x: Tensor, w: Tensor) -> None:
    """X W^T by oneDNN; of several matrices one after the other, because torch offers no other way."""
    for one, other in zip(x, w, strict=True) if x.ndim == 3 else [(x, w)]:
        torch.ops.mkldnn._linear_pointwise(one, other, None, "none", [], "")


def row_of(size: Size, objective: str, precision: str, rounds: int) -> tuple[str, ...]:
    """Rates of a step and of its products, and the share of the faster ones."""
    ways = WAYS if precision == "float32" and torch.backends.mkldnn.is_available() else WAYS[:1]
    contenders = {"warmstart": partial(build, "warmstart", size, objective, precision)}
    step, *alone = time_in_turn(contenders | {way: partial(bare, way, size, objective, precision) for way in ways}, rounds)
    done = work(size, batches(size)[objective])
    rates = {one.name: f"{done / statistics.median(one.seconds) / 1e9:.0f}" for one in (step, *alone)}
    share = f"{1 / max(ratio(step, one) for one in alone):.0%}"
    return (f"{size.name}, {objective}, {precision}", rates["warmstart"], *(rates.get(way, "-") for way in WAYS), share)


def run(rounds: int = 7) -> str:
    """One row for every size, objective and arithmetic of the training table."""
    kinds = [(size, objective) for size in (SMALL, LAB) for objective in batches(size)]
    rows = [row_of(size, objective, precision, rounds) for precision in precisions() for size, objective in kinds]
    header = ("training step", "GFLOP/s achieved", *(f"products alone, {way}" for way in WAYS), "achieved share")
    return table(header, rows)


if __name__ == "__main__":
    show(run)
