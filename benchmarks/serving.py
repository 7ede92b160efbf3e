"""Requests per second and latencies of ``warmstart serve``, beside transformers' pipeline behind FastAPI.

Two models (``served_models.py``) from the same folders, one short text per request, each server in a process of its own with one
thread that computes. The clients are connections of another process that send their next request once they have an answer. The
servers are measured in turn. ``--seconds`` and ``--rounds`` make it shorter. ``--batch`` measures something else: how long one text
waits at our server while another client sends batches of 1,000 texts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from benchmarks.harness import show, table
from benchmarks.inference import texts
from benchmarks.served_models import NEW_TOKENS, SHAPES, ServedShape
from safetensors import safe_open

SECONDS = 6.0
"""of each measurement, after a second to warm up"""
ROUNDS = 3
OURS, THEIRS = "warmstart serve", "pipeline behind FastAPI"
RIVAL = "--rival"
TURNS = 6
"""of the server that is alone and of the one with batches: other programs then disturb both alike"""
BATCH_TEXTS, BATCH_CHARACTERS = 1_000, 2_000
HEAD = "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@dataclass
class Load:
    """What one server answered to so many clients."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """seconds of each request"""
    failed: int = 0


def rival(folder: str, path: str) -> None:
    """What people write: a route that calls the pipeline. FastAPI runs it in a thread for each request."""
    import torch
    import uvicorn
    from fastapi import FastAPI
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline

    torch.set_num_threads(1)
    labels = path.endswith("predict")
    made: Any = AutoModelForSequenceClassification if labels else AutoModelForCausalLM
    task: Any = "text-classification" if labels else "text-generation"
    pipe = pipeline(task, model=made.from_pretrained(folder), tokenizer=AutoTokenizer.from_pretrained(folder), device="cpu")
    app = FastAPI()

    @app.post("/api/predict")
    def predict(body: dict[str, Any]) -> Any:
        return {"predictions": pipe(body["inputs"], top_k=None)}

    @app.post("/api/generate")
    def generate(body: dict[str, Any]) -> Any:
        return {"text": pipe(body["prompt"], max_new_tokens=NEW_TOKENS, do_sample=False, return_full_text=False)}

    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


def ours(*words: str) -> list[str]:
    """The words that start our server: ``NAME=FOLDER`` of each model, and flags."""
    return ["-m", "warmstart", "serve", *words, "--port", "0", "--threads", "1"]


def theirs(folder: Path, path: str) -> list[str]:
    """The words that start the other."""
    return ["-m", "benchmarks.serving", RIVAL, str(folder), path]


@contextmanager
def running(words: Sequence[str]) -> Iterator[tuple[int, psutil.Process]]:
    """Port and process of a server that Python starts with these words."""
    command = [sys.executable, *words]
    # one thread for torch and one for the tokenizer in both
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr
    try:
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                rest = threading.Thread(target=deque, args=(process.stderr, 0), daemon=True)
                rest.start()  # a full pipe would stop the server
                try:
                    yield int(found[1]), psutil.Process(process.pid)
                finally:
                    process.terminate()
                    rest.join()
                break
        else:
            raise RuntimeError(f"{command} ended with {process.wait()}")
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


async def _client(port: int, path: str, bodies: Sequence[bytes], until: float, found: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        body = bodies[number % len(bodies)]
        started = time.perf_counter()
        writer.write(
            f"{HEAD.format(path=path, method='POST' if body else 'GET')}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        await reader.readexactly(int(re.findall(r"content-length: (\d+)", answer)[0]))
        found.latencies.append(time.perf_counter() - started)
        found.failed += " 200 " not in answer.split("\r\n")[0]
        number += 1
    writer.close()


def load(port: int, shape: ServedShape, clients: int, seconds: float) -> Load:
    """So many clients at once."""
    bodies, found = [json.dumps(shape.body(text)).encode() for text in texts()], Load()

    async def all_clients() -> None:
        until = time.perf_counter() + seconds
        shifted = (bodies[i * 7 :] + bodies[: i * 7] for i in range(clients))
        await asyncio.gather(*(_client(port, shape.path, mine, until, found) for mine in shifted))

    started = time.perf_counter()
    asyncio.run(all_clients())
    found.seconds = time.perf_counter() - started
    return found


def beside_batch(seconds: float = SECONDS) -> str:
    """Latencies of one text, short or as long as those of the batch, and of ``/health``, alone and beside a client with batches."""
    shape, rows = SHAPES[0], list[tuple[str, ...]]()
    long = [" ".join(texts())[i * 50 :][:BATCH_CHARACTERS] for i in range(BATCH_TEXTS)]
    bodies = {
        ("a short text", shape.path): [json.dumps(shape.body(text)).encode() for text in texts()],
        (f"a text of {BATCH_CHARACTERS:,} characters", shape.path): [json.dumps(shape.body(text)).encode() for text in long],
        ("health", "/health"): [b""],
    }
    words = ours(f"model=hf:{shape.make(Path(tempfile.mkdtemp(prefix='benchmark')))}")
    alone, beside = ({key: list[float]() for key in bodies} for _ in range(2))
    with running(words) as (quiet, _), running(words) as (busy, process):
        threading.Thread(target=_send_batches, args=(busy, shape.path, long), daemon=True).start()
        time.sleep(2)
        for key, given in list(bodies.items()) * TURNS:
            process.suspend()
            alone[key] += _latencies(quiet, key[1], given, seconds / TURNS)
            process.resume()
            beside[key] += _latencies(busy, key[1], given, seconds / TURNS)
        process.kill()  # it would end the batch first
    for key in bodies:
        one, other = ([np.quantile(found[key], at) * 1000 for at in (0.5, 0.99)] for found in (alone, beside))
        rows.append((key[0], *(f"{value:,.1f}" for value in (*one, *other)), f"{other[1] / one[1]:.1f}"))
    header = ("one request", "alone: p50, ms", "p99, ms", "beside the batches: p50, ms", "p99, ms", "p99, times that alone")
    return table(header, rows)


def _latencies(port: int, path: str, bodies: Sequence[bytes], seconds: float) -> list[float]:
    found = Load()
    asyncio.run(_client(port, path, bodies, time.perf_counter() + seconds, found))
    assert not found.failed
    return found.latencies


def _send_batches(port: int, path: str, long: Sequence[str]) -> None:
    """One batch after another, until the server ends."""
    with suppress(OSError, EOFError):  # the server has ended
        asyncio.run(_client(port, path, [json.dumps({"inputs": long}).encode()], math.inf, Load()))


def parameters(folder: Path) -> int:
    """Those of a folder of transformers."""
    with safe_open(folder / "model.safetensors", "pt") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118  # it is no mapping


def run(rounds: int = ROUNDS, seconds: float = SECONDS) -> str:
    """Both servers with each model, and with each number of clients."""
    place = Path(tempfile.mkdtemp(prefix="benchmark"))
    return "\n\n".join(_measured(shape, shape.make(place / str(i)), rounds, seconds) for i, shape in enumerate(SHAPES))


def _measured(shape: ServedShape, folder: Path, rounds: int, seconds: float) -> str:
    found: dict[tuple[str, int], list[Load]] = {}
    memory: dict[str, int] = {}
    for _ in range(rounds):
        for name, words in ((OURS, ours(f"model=hf:{folder}")), (THEIRS, theirs(folder, shape.path))):
            with running(words) as (port, process):
                for clients in shape.clients:
                    load(port, shape, clients, min(1.0, seconds))
                    found.setdefault((name, clients), []).append(load(port, shape, clients, seconds))
                memory[name] = process.memory_info().rss
    rows = [row for clients in shape.clients for row in _rows(clients, found)]
    header = ("clients", "server", "requests/s", "p50, ms", "p95, ms", "p99, ms", "failed", "throughput, times theirs")
    used = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in memory.items())
    note = f"Resident memory after the last load: {used}. Each load ran for {seconds:g} seconds, {rounds} times."
    return f"{shape.name}, {parameters(folder) / 1e6:.1f} M parameters:\n\n{table(header, rows)}\n\n{note}"


def _rows(clients: int, found: dict[tuple[str, int], list[Load]]) -> Iterator[tuple[str, ...]]:
    rates = {name: statistics.median(len(one.latencies) / one.seconds for one in found[name, clients]) for name in (OURS, THEIRS)}
    for name in (OURS, THEIRS):
        loads = found[name, clients]
        quantiles = np.quantile(np.concatenate([one.latencies for one in loads]) * 1000, (0.5, 0.95, 0.99))
        failed = sum(one.failed for one in loads)
        times = f"{rates[name] / rates[THEIRS]:.2f}"
        yield str(clients), name, f"{rates[name]:,.0f}", *(f"{one:,.1f}" for one in quantiles), str(failed), times


def main() -> None:
    """Measure both, or be the other server."""
    if sys.argv[1:2] == [RIVAL]:
        rival(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--batch", action="store_true")
    given = parser.parse_args()
    show(lambda: beside_batch(given.seconds) if given.batch else run(given.rounds, given.seconds))


if __name__ == "__main__":
    main()
