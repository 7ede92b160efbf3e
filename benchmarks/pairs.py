"""Timing things against each other: in turn, in one process, so that a noisy machine is as noisy for all.

python -m benchmarks training        # one table
python -m benchmarks                 # all of them, written between their marks in docs/benchmarks.md
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Step = Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """Seconds of every round of one contender."""

    name: str
    seconds: tuple[float, ...]

    def __str__(self) -> str:
        return f"{statistics.median(self.seconds):.3f} ({min(self.seconds):.3f} to {max(self.seconds):.3f})"


def in_turn(contenders: Mapping[str, Step], rounds: int = 7, warm: int = 2) -> list[Timed]:
    """Run each contender once a round; the order turns round by one each time, so that none always follows the same one."""
    for _ in range(warm):
        for step in contenders.values():
            step()
    names, taken = list(contenders), {name: list[float]() for name in contenders}
    for number in range(rounds):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            gc.collect()
            started = time.perf_counter()
            contenders[name]()
            taken[name].append(time.perf_counter() - started)
    return [Timed(name, tuple(times)) for name, times in taken.items()]


def ratio(slow: Timed, fast: Timed) -> float:
    """How many times faster: the median over rounds of the ratio within the round."""
    return statistics.median(a / b for a, b in zip(slow.seconds, fast.seconds, strict=True))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
