"""``warmstart serve`` under load for long: mixed requests, hostile ones, kills; memory stays flat, and every answer is right.

    python -m benchmarks.soak --minutes 30

One server lives all the time: clients ask it for everything that its models can do, one of them is loaded again every 20 seconds,
and it gets 10,000 malformed or hostile requests per 10 minutes. Another is killed under load, started again, and must answer again.
Predictions, vectors and continuations are compared with those of the library, computed before. The exit status is 1 if anything
was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx
import numpy as np
import psutil
from benchmarks.harness import table
from benchmarks.hostile_requests import hostile_request, send_hostile
from benchmarks.right_answers import RightAnswers, SoakedModels
from benchmarks.serving import ours, running

HOSTILE_PER_SECOND = 10_000 / 600
GROWTH = 64
"""MiB by which the resident memory of the last tenth of the time may exceed that of the second tenth"""
STEADY_CLIENTS, KILLED_CLIENTS = 6, 2
LIFE = 20.0
"""seconds of load after which the other server is killed"""
RELOADS = 20.0
"""seconds between two times that a model is loaded again"""
NOT_READY = ("nearest",)
"""what may answer 503 after a model was loaded, while the server reads texts for it"""


@dataclass
class Tally:
    """What was asked of one server, and what came of it."""

    statuses: Counter[str] = field(default_factory=Counter)
    """kind of request and first digit of its status, "closed" without any -> count"""
    wrong: Counter[str] = field(default_factory=Counter)
    """kind of request -> answers with status 200 that were not those of the library"""
    memory: list[float] = field(default_factory=list)
    """MiB, each second, of a server that lives"""
    expected: Sequence[str] = ()
    """kinds of requests of which some must have been answered"""
    kills: int | None = None
    """None: the server was not to be killed"""
    answered_again: int = 0
    """servers that answered after a start"""

    def problems(self) -> list[str]:
        """What must not be, in words."""
        found = [f"{count:,} answers were {name}" for name, count in sorted(self.statuses.items()) if name.endswith(" 5xx")]
        found += [f"{count:,} answers to {name} were not those of the library" for name, count in sorted(self.wrong.items())]
        found += [f"no request for {name} was answered" for name in self.expected if not self.statuses[f"{name} 2xx"]]
        if self.growth() > GROWTH:
            found.append(f"memory must grow by at most {GROWTH} MiB, but grew by {self.growth():,.0f}")
        if self.kills is not None and self.answered_again <= self.kills:
            found.append(f"a server must answer after each of {self.kills} kills, but {self.answered_again} starts were answered")
        return found

    def growth(self) -> float:
        """MiB of the last tenth of the time less those of the second tenth, in medians."""
        tenth = max(1, len(self.memory) // 10)
        return float(np.median(self.memory[-tenth:]) - np.median(self.memory[tenth : 2 * tenth])) if len(self.memory) > 2 else 0.0

    def by_tenth(self) -> str:
        """The medians of the memory by tenths of the time."""
        return ", ".join(f"{np.median(part):,.0f}" for part in np.array_split(self.memory, 10) if len(part))

    def count(self, kind: str, status: int) -> None:
        """Note an answer."""
        ready = not (status == 503 and kind in NOT_READY)
        self.statuses[f"{kind} {status // 100}xx" if ready else f"{kind} not ready"] += 1


@dataclass(frozen=True)
class Asked:
    """What clients ask of one server until some time, and where it is noted."""

    right: RightAnswers
    texts_known: bool
    """whether the server knows training texts"""
    until: float
    tally: Tally


async def ask_on(port: int, asked: Asked, seed: int) -> None:
    """A client that asks for one thing after the other until then, or until the server is gone."""
    tally = asked.tally
    draw = random.Random(seed)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        while time.perf_counter() < asked.until:
            kind, (path, body, check) = asked.right.question(draw, texts_known=asked.texts_known)
            try:
                answer = await client.post(f"/api/{path}", json=body)
                tally.count(kind, answer.status_code)
                if answer.status_code == 200 and not check(answer.text):
                    tally.wrong[kind] += 1
                answer = await client.get(draw.choice(["/", "/api/models", "/health"]))
                tally.count("page", answer.status_code)
            except httpx.TransportError:
                tally.statuses["connection lost"] += 1
                return


async def _trouble(port: int, process: psutil.Process, until: float, tally: Tally) -> None:
    """Hostile requests at their rate, and the memory each second."""
    draw, sent, started = random.Random(0), 0, time.perf_counter()
    open_requests = set[asyncio.Task[None]]()

    async def send() -> None:
        tally.statuses[f"hostile {await send_hostile(port, hostile_request(draw))}"] += 1

    while (now := time.perf_counter()) < until:
        for _ in range(int((now - started) * HOSTILE_PER_SECOND) - sent):
            open_requests.add(task := asyncio.create_task(send()))
            task.add_done_callback(open_requests.discard)
            sent += 1
        if len(tally.memory) < now - started:
            tally.memory.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(0.05)
    await asyncio.gather(*open_requests)


async def _reloads(port: int, until: float, tally: Tally, names: Sequence[str]) -> None:
    """A model is loaded again, each in its turn."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        for name in cycle(names):
            await asyncio.sleep(RELOADS)
            if time.perf_counter() > until:
                return
            answer = await client.post("/api/reload", json={"model": name})
            tally.count("reload", answer.status_code)


async def _steady(models: SoakedModels, asked: Asked) -> None:
    until, tally = asked.until, asked.tally
    with running(ours(*models.words, "--texts", str(models.task))) as (port, process):
        clients = [ask_on(port, asked, seed) for seed in range(STEADY_CLIENTS)]
        await asyncio.gather(_trouble(port, process, until, tally), _reloads(port, until, tally, models.names), *clients)


async def _killed(models: SoakedModels, asked: Asked) -> None:
    tally, kills = asked.tally, 0
    while time.perf_counter() + LIFE < asked.until:
        manager = running(ours(*models.words))
        port, process = await asyncio.to_thread(manager.__enter__)
        try:
            before = tally.statuses["predict 2xx"]
            clients = asyncio.gather(*(ask_on(port, asked, seed) for seed in range(KILLED_CLIENTS)))
            async with httpx.AsyncClient(timeout=60) as client:
                answer = await client.post(f"http://127.0.0.1:{port}/api/predict", json={"inputs": asked.right.texts[:1]})
            tally.answered_again += answer.status_code == 200
            await asyncio.sleep(LIFE)
            process.kill()
            kills += tally.statuses["predict 2xx"] > before
            await clients
        finally:
            await asyncio.to_thread(manager.__exit__, None, None, None)
    tally.kills = kills
    with running(ours(*models.words)) as (port, _):  # after the last kill
        tally.answered_again += httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200


async def soak(place: Path, minutes: float) -> dict[str, Tally]:
    """All of it, for so long: what came of the server that lives, and of those that were killed."""
    models = SoakedModels(place).build()
    right = RightAnswers(models)
    until = time.perf_counter() + 60 * minutes
    lives, killed = Tally(expected=(*right.weights[True], "reload", "page")), Tally()
    await asyncio.gather(_steady(models, Asked(right, True, until, lives)), _killed(models, Asked(right, False, until, killed)))
    return {"the server that lives": lives, "the servers that are killed": killed}


def main(given: Sequence[str] | None = None) -> int:
    """Soak, print what came of it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args(given).minutes
    with tempfile.TemporaryDirectory(prefix="soak") as place:
        tallies = asyncio.run(soak(Path(place), minutes))
    for name, tally in tallies.items():
        print(
            table((f"{name}: request and status", "count"), [(one, f"{count:,}") for one, count in sorted(tally.statuses.items())])
        )
        print()
    lives, killed = tallies.values()
    print(
        f"{minutes:g} minutes; {killed.kills} kills, {killed.answered_again} starts answered; memory {lives.memory[-1]:,.0f} MiB, "
        f"grown by {lives.growth():,.0f} MiB of at most {GROWTH}; by tenths of the time {lives.by_tenth()}."
    )
    problems = [f"{name}: {problem}" for name, tally in tallies.items() for problem in tally.problems()]
    for problem in problems:
        print(f"WRONG: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
