"""``warmstart serve`` under load for long: mixed requests, hostile ones, kills; memory must stay flat and no answer be a 5xx.

    python -m benchmarks.soak --minutes 30

One server lives all the time: clients ask it for everything that its model can do, and it gets 10,000 malformed or hostile requests
per 10 minutes. Another is killed under load, started again, and must answer again. The exit status is 1 if anything was wrong.
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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import psutil
from benchmarks.harness import table
from benchmarks.inference import folder_of, texts
from benchmarks.serving import HEAD, OURS, running

HOSTILE_PER_SECOND = 10_000 / 600
GROWTH = 64
"""MiB by which the resident memory of the last tenth of the time may exceed that of the second tenth"""
STEADY_CLIENTS, KILLED_CLIENTS = 6, 2
LIFE = 20.0
"""seconds of load after which the other server is killed"""


@dataclass
class Tally:
    """What was asked, and what came of it."""

    statuses: Counter[str] = field(default_factory=Counter)
    """kind of request and first digit of its status, "closed" without any -> count"""
    memory: list[float] = field(default_factory=list)
    """MiB, each second, of the server that lives"""
    kills: int = 0
    answered_again: int = 0
    """servers that answered after a start"""

    def problems(self) -> list[str]:
        """What must not be, in words."""
        found = [f"{count:,} answers were {name}" for name, count in sorted(self.statuses.items()) if name.endswith(" 5xx")]
        if self.growth() > GROWTH:
            found.append(f"memory must grow by at most {GROWTH} MiB, but grew by {self.growth():,.0f}")
        if self.answered_again <= self.kills:
            found.append(f"a server must answer after each of {self.kills} kills, but {self.answered_again} starts were answered")
        return found

    def growth(self) -> float:
        """MiB of the last tenth of the time less those of the second tenth, in medians."""
        tenth = max(1, len(self.memory) // 10)
        return float(np.median(self.memory[-tenth:]) - np.median(self.memory[tenth : 2 * tenth])) if len(self.memory) > 2 else 0.0


def hostile_request(draw: random.Random) -> bytes:
    """One request as nobody should send it."""
    host = "Host: 127.0.0.1\r\n"
    body = draw.choice(
        [
            b"{", b"[" * 50_000, b"\x00\xff" * 200, b'{"inputs": 1e999}', b'{"inputs": ["\\ud800"]}', b'{"inputs": [[[["a"]]]]}',
            b'{"inputs": []}', b'{"inputs": ["a"], "top": -1}', b'{"inputs": ["a"], "model": "../../etc/passwd"}', b"null",
            b'{"inputs": ["' + b"a" * 150_000 + b'"]}', b'{"inputs": ["a"], "target_error": NaN}',
            b'{"text": "' + b"a " * 2_000 + b'"}',
        ]
    )  # fmt: skip
    path = draw.choice(["predict", "tokens", "map", "attention", "explain", "generate", "nearest", "probe", "reload", "nothing"])
    head = f"POST /api/{path} HTTP/1.1\r\n{host}Content-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    return draw.choice(
        [
            *[whole] * 6,
            draw.randbytes(draw.randrange(1, 2_000)),
            whole[: draw.randrange(1, len(whole))],
            f"{head}Content-Length: {10**18}\r\n\r\n".encode() + body,
            f"{head}Content-Length: -1\r\n\r\n".encode() + body,
            f"{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode() + body,
            f"GET /{'../' * draw.randrange(1, 40)}etc/passwd HTTP/1.1\r\n{host}Connection: close\r\n\r\n".encode(),
            f"GET /page/%2e%2e%2fapp.py%00 HTTP/1.1\r\n{host}Connection: close\r\n\r\n".encode(),
            b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            f"GET / HTTP/1.1\r\n{host}X: {'a' * 100_000}\r\n\r\n".encode(),
            HEAD.replace("POST", draw.choice(["TRACE", "PUT", "\x7f"])).encode() + b"\r\n",
        ]
    )


async def send_hostile(port: int, content: bytes, tally: Tally) -> None:
    """Send it, and note the status, if any comes; who sends half a request closes the connection after half a second."""
    status = "closed"
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(content)
            line = await asyncio.wait_for(reader.readline(), 0.5 if b"Connection: close" not in content else 20.0)
            if line.startswith(b"HTTP/1.1 "):
                status = f"{chr(line[9])}xx"
        finally:
            writer.close()
    tally.statuses[f"hostile {status}"] += 1


async def ask_on(port: int, until: float, tally: Tally, seed: int) -> None:
    """A client that asks for one thing after the other until then, or until the server is gone."""
    draw, given = random.Random(seed), texts()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        while time.perf_counter() < until:
            text = draw.choice(given)
            short = " ".join(text.split()[:12])
            name, body = draw.choice(
                [
                    ("predict", {"inputs": [text]}), ("predict", {"inputs": draw.choices(given, k=draw.randrange(1, 40))}),
                    ("tokens", {"texts": [text]}), ("attention", {"text": short}), ("map", {"text": " ".join(given[:3])}),
                ]
            )  # fmt: skip
            try:
                answer = await client.post(f"/api/{name}", json=body)
                tally.statuses[f"{name} {answer.status_code // 100}xx"] += 1
                answer = await client.get(draw.choice(["/", "/metrics", "/api/models", "/health"]))
                tally.statuses[f"page {answer.status_code // 100}xx"] += 1
            except httpx.TransportError:
                tally.statuses["connection lost"] += 1
                return


async def _trouble(port: int, process: psutil.Process, until: float, tally: Tally) -> None:
    """Hostile requests at their rate, and the memory each second."""
    draw, sent, started = random.Random(0), 0, time.perf_counter()
    open_requests = set[asyncio.Task[None]]()
    while (now := time.perf_counter()) < until:
        for _ in range(int((now - started) * HOSTILE_PER_SECOND) - sent):
            open_requests.add(task := asyncio.create_task(send_hostile(port, hostile_request(draw), tally)))
            task.add_done_callback(open_requests.discard)
            sent += 1
        if len(tally.memory) < now - started:
            tally.memory.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(0.05)
    await asyncio.gather(*open_requests)


async def _steady(folder: Path, until: float, tally: Tally) -> None:
    with running(OURS, folder) as (port, process):
        clients = [ask_on(port, until, tally, seed) for seed in range(STEADY_CLIENTS)]
        await asyncio.gather(_trouble(port, process, until, tally), *clients)


async def _killed(folder: Path, until: float, tally: Tally) -> None:
    while time.perf_counter() + LIFE < until:
        manager = running(OURS, folder)
        port, process = await asyncio.to_thread(manager.__enter__)
        try:
            before = tally.statuses["predict 2xx"]
            clients = asyncio.gather(*(ask_on(port, until, tally, seed) for seed in range(KILLED_CLIENTS)))
            async with httpx.AsyncClient() as client:
                answer = await client.post(f"http://127.0.0.1:{port}/api/predict", json={"inputs": texts()[:1]}, timeout=60)
            tally.answered_again += answer.status_code == 200
            await asyncio.sleep(LIFE)
            process.kill()
            tally.kills += tally.statuses["predict 2xx"] > before
            await clients
        finally:
            await asyncio.to_thread(manager.__exit__, None, None, None)
    with running(OURS, folder) as (port, _):  # after the last kill
        tally.answered_again += httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200


async def soak(folder: Path, minutes: float) -> Tally:
    """All of it, for so long."""
    tally, until = Tally(), time.perf_counter() + 60 * minutes
    await asyncio.gather(_steady(folder, until, tally), _killed(folder, until, tally))
    return tally


def main(given: Sequence[str] | None = None) -> int:
    """Soak, print what came of it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args(given).minutes
    with tempfile.TemporaryDirectory(prefix="soak") as place:
        tally = asyncio.run(soak(folder_of(Path(place)), minutes))
    print(table(("request and status", "count"), [(name, f"{count:,}") for name, count in sorted(tally.statuses.items())]))
    print(
        f"\n{minutes:g} minutes; {tally.kills} kills, {tally.answered_again} starts answered; memory {tally.memory[-1]:,.0f} MiB, "
        f"grown by {tally.growth():,.0f} MiB of at most {GROWTH}."
    )
    for problem in tally.problems():
        print(f"WRONG: {problem}", file=sys.stderr)
    return int(bool(tally.problems()))


if __name__ == "__main__":
    sys.exit(main())
