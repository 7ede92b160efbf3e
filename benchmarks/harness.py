"""Times contenders in turn, each in its own process, so that a noisy machine disturbs all of them alike.

Seconds are those of the clock on the wall. Where other programs use the cores meanwhile, a contender waits for its turn, and
seconds of processor time are taken instead. With several threads those mean something else, and the line under the table says
that seconds are unreliable.
"""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

import psutil
import torch

from warmstart.system.cores import cores_used_by_others
from warmstart.system.machine import describe_machine
from warmstart.training.arithmetic import release_freed_memory

Step = Callable[[], object]
Build = Callable[[], Step]
"""builds what is timed, in its own process; it must be importable there"""
CPU = torch.device("cpu")
BUSY = 0.5
"""cores: other programs that use as many on average make a machine busy"""
SEVERAL = 1.1
"""processor time over time on the wall: above it, more than one thread has computed"""


class Spent(NamedTuple):
    """What one step took."""

    wall: float
    """seconds on the wall"""
    processor: float
    """seconds of processor time, of all threads of the process"""
    threads: int
    """that torch may use"""


@dataclass(frozen=True)
class Clock:
    """What else the machine did while contenders were timed, and which seconds they were given."""

    others: float
    """cores that other programs used, on average"""
    several: bool
    """a contender computed in several threads"""

    @property
    def busy(self) -> bool:
        """Whether other programs disturbed the contenders."""
        return self.others >= BUSY

    @property
    def by_processor(self) -> bool:
        """Whether seconds are processor time."""
        return self.busy and not self.several


CLOCKS: list[Clock] = []
"""one for each time that contenders were timed in this process"""


@dataclass(frozen=True)
class Timed:
    """Seconds of every round of one contender."""

    name: str
    seconds: tuple[float, ...]
    memory: int
    """peak memory in bytes, on top of what its process used before, until it was warm"""

    def __str__(self) -> str:
        return f"{statistics.median(self.seconds):.3f} ({min(self.seconds):.3f} to {max(self.seconds):.3f})"


def time_in_turn(contenders: Mapping[str, Build], rounds: int = 7, warm: int = 2, *, disturbed: bool = False) -> list[Timed]:
    """Run each contender once per round, alone; the order rotates, so that none always follows the same one.

    ``disturbed``: other programs belong to what is measured, so that seconds are those on the wall in any case.
    """
    context, ends, processes = multiprocessing.get_context("spawn"), dict[str, Connection](), []
    for name, build in contenders.items():
        ends[name], theirs = context.Pipe()
        processes.append(context.Process(target=_serve, args=(theirs, build, warm, torch.get_num_threads()), daemon=True))
        processes[-1].start()
        ends[name].recv()  # it is built and warm before the next one starts
    names, spent, loads = list(contenders), {name: list[Spent]() for name in contenders}, list[float]()
    for number in range(rounds):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            loads.append(0.0 if disturbed else cores_used_by_others())
            ends[name].send(True)
            spent[name].append(ends[name].recv())
    memory = {}
    for name, end in ends.items():
        end.send(False)
        memory[name] = end.recv()
    for process in processes:
        process.join()
    clock = clock_of(loads, [one for steps in spent.values() for one in steps])
    CLOCKS.append(clock)
    return [Timed(name, seconds_by(clock, steps), memory[name]) for name, steps in spent.items()]


def _serve(end: Connection, build: Build, warm: int, threads: int) -> None:
    """A contender's process: build, warm up, then run once per message."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with track_peak_memory(CPU) as peak:  # ends before the rounds: to watch the memory takes processor time, too
        step = build()
        for _ in range(warm):
            step()
    end.send(True)
    while end.recv():
        gc.collect()
        wall, processor = time.perf_counter(), time.process_time()
        step()
        end.send(Spent(time.perf_counter() - wall, time.process_time() - processor, torch.get_num_threads()))
    end.send(peak.bytes)


def clock_of(loads: Sequence[float], spent: Sequence[Spent]) -> Clock:
    """The clock of steps, given how many cores other programs used before each of them."""
    return Clock(statistics.mean(loads), any(one.threads > 1 or one.processor > SEVERAL * one.wall for one in spent))


def seconds_by(clock: Clock, spent: Sequence[Spent]) -> tuple[float, ...]:
    """The seconds of steps."""
    return tuple(one.processor if clock.by_processor else one.wall for one in spent)


def clock_note(clocks: Sequence[Clock] = CLOCKS) -> str:
    """What is to be known of seconds that were measured beside other programs; empty if the machine was idle."""
    busy = [clock for clock in clocks if clock.busy]
    if not busy:
        return ""
    others = f"other programs used up to {max(clock.others for clock in busy):.1f} of {psutil.cpu_count()} cores"
    if any(clock.several for clock in busy):
        return f"seconds are unreliable: {others}"
    return f"seconds of processor time, because {others}"


def ratio(slow: Timed, fast: Timed) -> float:
    """How many times faster: the median over rounds of the ratio within the round."""
    return statistics.median(a / b for a, b in zip(slow.seconds, fast.seconds, strict=True))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def show(run: Callable[[], str]) -> None:
    """Print what a benchmark finds, and where it was measured."""
    print(run(), end="\n\n")
    print(", ".join(part for part in (describe_machine(CPU), clock_note()) if part))


# ------------------------------------------------------------------------------------------------ memory
#
# On a GPU the allocator of CUDA keeps the peak. On a CPU a thread reads the resident memory of the process every few milliseconds
# (psutil), so a shorter peak is missed; memory that other threads of the process use meanwhile is counted too.

INTERVAL = 0.002
"""seconds between two readings of the resident memory"""


class PeakMemory:
    """``bytes``: the peak on top of what was in use before; set when the work has ended."""

    bytes: int = 0


@contextmanager
def track_peak_memory(device: torch.device) -> Iterator[PeakMemory]:
    """Track the memory that the code inside takes; the peak is in what this yields, once it is closed."""
    peak = PeakMemory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    gc.collect()
    release_freed_memory()
    sampler = _Sampler()
    sampler.start()
    try:
        yield peak
    finally:
        peak.bytes = sampler.stop()


class _Sampler(threading.Thread):
    """Remembers the highest resident memory of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process()
        self.ended = threading.Event()
        self.first = self.highest = self.process.memory_info().rss

    def run(self) -> None:
        """Read until stopped."""
        while not self.ended.wait(INTERVAL):
            self._read()

    def stop(self) -> int:
        """The highest reading less the first one, in bytes."""
        self.ended.set()
        self.join()
        self._read()
        return self.highest - self.first

    def _read(self) -> None:
        self.highest = max(self.highest, self.process.memory_info().rss)
