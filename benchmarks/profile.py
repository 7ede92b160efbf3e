"""The time of a training step by operation: torch's profiler, with operators grouped by purpose."""

from __future__ import annotations

from collections import defaultdict

from benchmarks.harness import table
from benchmarks.training import LAB, SMALL, Size, batches, ours
from torch.profiler import ProfilerActivity, profile

from warmstart.types import Batch

KINDS = {
    "norms": ("native_layer_norm",),
    "softmax and its gradient": ("softmax",),
    "activation and its gradient": ("gelu",),
    "optimiser": ("fused_adamw", "linalg_vector_norm"),
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "casts and copies": ("copy", "cat", "fill", "zero", "empty", "clone", "index"),
    "the loss": ("exp", "log", "amax", "sub_", "div_", "gather", "scatter", "sum"),
    "element-wise operations": ("add", "mul", "neg"),
}
"""the beginnings of operators' names, in this order"""
STEPS = 5


def task_type_of(name: str) -> str:
    """What an operator is for: ``aten::addmm`` -> ``matrix products``."""
    plain = name.removeprefix("aten::").removeprefix("mkldnn::").lstrip("_")
    for kind, starts in KINDS.items():
        if plain.startswith(starts):
            return kind
    return "everything else"


def shares(size: Size, batch: Batch) -> dict[str, float]:
    """The share of a step's time that each kind takes, its own time without what it calls."""
    step, spent = ours(size, batch), defaultdict[str, float](float)
    for _ in range(2):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(STEPS):
            step()
    for row in seen.key_averages():
        spent[task_type_of(row.key)] += row.self_cpu_time_total
    whole = sum(spent.values())
    return {kind: time / whole for kind, time in spent.items()}


def run() -> str:
    """One column a training row."""
    found = {f"{size.name}, {name}": shares(size, batch) for size in (SMALL, LAB) for name, batch in batches(size).items()}
    kinds = sorted(
        {kind for one in found.values() for kind in one}, key=lambda kind: -sum(one.get(kind, 0) for one in found.values())
    )
    rows = [(kind, *(f"{one.get(kind, 0):.0%}" for one in found.values())) for kind in kinds]
    return table(("share of a training step", *found), rows)


if __name__ == "__main__":
    print(run())
