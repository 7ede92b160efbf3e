"""Two threads against one, alone and beside a neighbour that keeps one core busy, for each way in which threads can wait."""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from benchmarks.finetuning import ours
from benchmarks.harness import Step, Timed, show, table, time_in_turn
from benchmarks.training import SMALL, build

from warmstart.system.cores import SPINS, VARIABLES

WAITS: dict[str, dict[str, str]] = {
    "threads wait as libgomp does: 300,000 looks": {},
    f"as warmstart does on free cores: {int(SPINS):,} looks": {"GOMP_SPINCOUNT": SPINS},
    "as warmstart does on busy cores: sleep": {"OMP_WAIT_POLICY": "PASSIVE"},
}


WORK: dict[str, Callable[[], Step]] = {
    "a step of pretraining (small, causal)": partial(build, "warmstart", SMALL, "causal"),
    "an epoch of fine-tuning over 160 short texts": partial(ours, SMALL, 160),
}


def working(name: str, threads: int) -> Step:
    """One kind of work, in a process that was given so many threads."""
    torch.set_num_threads(threads)
    return WORK[name]()


def busy() -> None:
    """Another program's work: one core, for as long as it is let."""
    torch.set_num_threads(1)
    x = torch.randn(512, 512)
    while True:
        x = torch.tanh(x @ x)


def in_turn(name: str, environment: dict[str, str], rounds: int, *, disturbed: bool = False) -> list[Timed]:
    """One thread and two, in processes that load torch in this environment."""
    others = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    with patch.dict(os.environ, others | environment, clear=True):
        return time_in_turn({str(count): partial(working, name, count) for count in (1, 2)}, rounds, disturbed=disturbed)


def row(name: str, wait: str, rounds: int) -> tuple[str, ...]:
    """One way to wait: one thread and two alone, and two beside a neighbour."""
    one, two = in_turn(name, WAITS[wait], rounds)
    neighbour = multiprocessing.get_context("spawn").Process(target=busy, daemon=True)
    neighbour.start()
    _, beside = in_turn(name, WAITS[wait], rounds, disturbed=True)
    neighbour.kill()
    return wait, str(one), str(two), str(beside), f"{statistics.median(beside.seconds) / statistics.median(one.seconds):.2f}"


def run(rounds: int = 7) -> str:
    """A table for each kind of work, with a row for each way to wait."""
    header = ("1 thread", "2 threads", "2 beside one busy core", "that / 1 thread alone")
    return "\n\n".join(table((f"{name}: seconds", *header), [row(name, wait, rounds) for wait in WAITS]) for name in WORK)


if __name__ == "__main__":
    show(run)
