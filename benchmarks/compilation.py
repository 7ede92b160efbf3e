"""torch.compile, measured: our training step without and with ``--compile``, and the number of steps after which it saves time."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from functools import partial

from benchmarks.harness import ratio, show, table, time_in_turn
from benchmarks.training import LAB, SMALL, Size, build

NAMES = ("warmstart", "warmstart, compiled")


def first_step(size: Size, objective: str) -> float:
    """Seconds until a compiled step is done the first time, in a process and with a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_first, (size, objective))


def _first(size: Size, objective: str) -> float:
    step = build(NAMES[1], size, objective)
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def run(rounds: int = 9) -> str:
    """One row per size and objective."""
    rows = []
    for size in (SMALL, LAB):
        for objective in ("causal", "masked"):
            plain, faster = time_in_turn({name: partial(build, name, size, objective) for name in NAMES}, rounds)
            saved = statistics.median(plain.seconds) - statistics.median(faster.seconds)
            wait = first_step(size, objective)
            pays = f"{wait / saved:,.0f}" if saved > 0 else "never"
            name = f"{size.name}, {objective}"
            rows.append((name, str(plain), str(faster), f"{ratio(plain, faster):.2f}", f"{wait:.0f}", pays))
    return table(("training step", "eager, s", "compiled, s", "speed-up", "compilation, s", "break-even, steps"), rows)


if __name__ == "__main__":
    show(run)
