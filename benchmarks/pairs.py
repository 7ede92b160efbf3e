"""Timing things against each other: in turn, each in a process of its own, so that a noisy machine is as noisy for all.

python -m benchmarks training        # one table
make bench                           # all of them, written between their marks in docs/performance.md
"""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from warmstart.engine.highwater import high_water, lower

Step = Callable[[], object]
Build = Callable[[], Step]
"""makes what is timed, in its own process; it must be importable there"""


@dataclass(frozen=True)
class Timed:
    """Seconds of every round of one contender."""

    name: str
    seconds: tuple[float, ...]
    memory: int
    """bytes on top of what its process had before the first round: its own high-water mark"""

    def __str__(self) -> str:
        return f"{statistics.median(self.seconds):.3f} ({min(self.seconds):.3f} to {max(self.seconds):.3f})"


def in_turn(contenders: Mapping[str, Build], rounds: int = 7, warm: int = 2) -> list[Timed]:
    """Run each contender once a round, alone; the order turns round by one each time, so that none always follows the same one."""
    context, ends, processes = multiprocessing.get_context("spawn"), dict[str, Connection](), []
    for name, build in contenders.items():
        ends[name], theirs = context.Pipe()
        processes.append(context.Process(target=_serve, args=(theirs, build, warm, torch.get_num_threads()), daemon=True))
        processes[-1].start()
        ends[name].recv()  # it is built and warm before the next one begins
    names, taken = list(contenders), {name: list[float]() for name in contenders}
    for number in range(rounds):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            ends[name].send(True)
            taken[name].append(ends[name].recv())
    memory = {}
    for name, end in ends.items():
        end.send(False)
        memory[name] = end.recv()
    for process in processes:
        process.join()
    return [Timed(name, tuple(times), memory[name]) for name, times in taken.items()]


def _serve(end: Connection, build: Build, warm: int, threads: int) -> None:
    """A contender's process: build, warm up, then run once for every word that comes."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    lower()
    before, step = high_water(), build()
    for _ in range(warm):
        step()
    end.send(True)
    while end.recv():
        gc.collect()
        started = time.perf_counter()
        step()
        end.send(time.perf_counter() - started)
    end.send(high_water() - before)


def ratio(slow: Timed, fast: Timed) -> float:
    """How many times faster: the median over rounds of the ratio within the round."""
    return statistics.median(a / b for a, b in zip(slow.seconds, fast.seconds, strict=True))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
