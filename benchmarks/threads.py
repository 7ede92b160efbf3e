"""How many threads: the same training step with one thread, with two, and beside a neighbour that keeps one core busy."""

from __future__ import annotations

import multiprocessing
import statistics
from functools import partial

import torch
from benchmarks.harness import Step, show, table, time_in_turn
from benchmarks.training import SMALL, build

COUNTS = (1, 2, 4)


def stepping(threads: int) -> Step:
    """Our step, in a process that was given so many threads."""
    torch.set_num_threads(threads)
    return build("warmstart", SMALL, "causal")


def busy() -> None:
    """Another program's work: one core, for as long as it is let."""
    torch.set_num_threads(1)
    x = torch.randn(512, 512)
    while True:
        x = torch.tanh(x @ x)


def run(rounds: int = 7) -> str:
    """One row a number of threads; alone, and beside a neighbour."""
    names = {f"{count} thread{'s' * (count > 1)}": partial(stepping, count) for count in COUNTS}
    alone = time_in_turn(names, rounds)
    neighbour = multiprocessing.get_context("spawn").Process(target=busy, daemon=True)
    neighbour.start()
    beside = time_in_turn(names, rounds, disturbed=True)
    neighbour.terminate()
    rows = [
        (one.name, str(one), str(other), f"{statistics.median(other.seconds) / statistics.median(one.seconds):.2f}")
        for one, other in zip(alone, beside, strict=True)
    ]
    return table(("small, causal: seconds per step", "alone", "beside one busy core", "ratio"), rows)


if __name__ == "__main__":
    show(run)
