"""Times contenders in turn, each in its own process, so that a noisy machine disturbs all of them alike."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from warmstart.training.peak_memory import track_peak_memory

Step = Callable[[], object]
Build = Callable[[], Step]
"""builds what is timed, in its own process; it must be importable there"""


@dataclass(frozen=True)
class Timed:
    """Seconds of every round of one contender."""

    name: str
    seconds: tuple[float, ...]
    memory: int
    """peak memory in bytes, on top of what its process used before the first round"""

    def __str__(self) -> str:
        return f"{statistics.median(self.seconds):.3f} ({min(self.seconds):.3f} to {max(self.seconds):.3f})"


def time_in_turn(contenders: Mapping[str, Build], rounds: int = 7, warm: int = 2) -> list[Timed]:
    """Run each contender once per round, alone; the order rotates, so that none always follows the same one."""
    context, ends, processes = multiprocessing.get_context("spawn"), dict[str, Connection](), []
    for name, build in contenders.items():
        ends[name], theirs = context.Pipe()
        processes.append(context.Process(target=_serve, args=(theirs, build, warm, torch.get_num_threads()), daemon=True))
        processes[-1].start()
        ends[name].recv()  # it is built and warm before the next one starts
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
    """A contender's process: build, warm up, then run once per message."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with track_peak_memory(torch.device("cpu")) as peak:
        step = build()
        for _ in range(warm):
            step()
        end.send(True)
        while end.recv():
            gc.collect()
            started = time.perf_counter()
            step()
            end.send(time.perf_counter() - started)
    end.send(peak.bytes)


def ratio(slow: Timed, fast: Timed) -> float:
    """How many times faster: the median over rounds of the ratio within the round."""
    return statistics.median(a / b for a, b in zip(slow.seconds, fast.seconds, strict=True))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
