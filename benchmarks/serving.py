"""Requests per second and latencies of ``warmstart serve``, beside transformers' pipeline behind FastAPI.

The same BERT (``inference.py``), one short text per request, each server in a process of its own with one thread that computes. The
clients are connections of another process that send their next request once they have an answer. The servers are measured in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from benchmarks.harness import show, table
from benchmarks.inference import folder_of, texts

CLIENTS = (1, 8, 64)
SECONDS = 6.0
"""of each measurement, after a second to warm up"""
ROUNDS = 3
OURS, THEIRS = "warmstart serve", "pipeline behind FastAPI"
RIVAL = "--rival"
HEAD = "POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True)
class Load:
    """What one server answered to so many clients."""

    seconds: float
    latencies: list[float]
    """seconds of each request"""
    failed: int


def rival(folder: str) -> None:
    """What people write: a route that calls the pipeline. FastAPI runs it in a thread for each request."""
    import torch
    import uvicorn
    from fastapi import FastAPI
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    torch.set_num_threads(1)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder)
    pipe = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder), device="cpu", top_k=None)
    app = FastAPI()

    @app.post("/api/predict")
    def predict(body: dict[str, Any]) -> Any:
        return {"predictions": pipe(body["inputs"])}

    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


@contextmanager
def running(name: str, folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """Port and process of a server."""
    ours = ["-m", "warmstart", "serve", f"bert=hf:{folder}", "--port", "0", "--threads", "1"]
    command = [sys.executable, *(ours if name == OURS else ["-m", "benchmarks.serving", RIVAL, str(folder)])]
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
            raise RuntimeError(f"{name} ended with {process.wait()}")
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


async def _client(port: int, given: list[str], until: float, latencies: list[float], failed: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        body = json.dumps({"inputs": [given[number % len(given)]]}).encode()
        head = f"{HEAD}Content-Length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        await reader.readexactly(int(re.findall(r"content-length: (\d+)", answer)[0]))
        latencies.append(time.perf_counter() - started)
        failed.append(" 200 " not in answer.split("\r\n")[0])
        number += 1
    writer.close()


def load(port: int, clients: int, seconds: float) -> Load:
    """So many clients at once."""
    given, latencies, failed = texts(), list[float](), list[int]()

    async def all_clients() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(_client(port, given[i * 7 :] + given[: i * 7], until, latencies, failed) for i in range(clients)))

    started = time.perf_counter()
    asyncio.run(all_clients())
    return Load(time.perf_counter() - started, latencies, sum(failed))


def run(rounds: int = ROUNDS) -> str:
    """Both servers, with each number of clients."""
    folder = folder_of(Path(tempfile.mkdtemp(prefix="benchmark")))
    found: dict[tuple[str, int], list[Load]] = {}
    memory: dict[str, int] = {}
    for _ in range(rounds):
        for name in (OURS, THEIRS):
            with running(name, folder) as (port, process):
                for clients in CLIENTS:
                    load(port, clients, 1.0)
                    found.setdefault((name, clients), []).append(load(port, clients, SECONDS))
                memory[name] = process.memory_info().rss
    rows = [row for clients in CLIENTS for row in _rows(clients, found)]
    header = ("clients", "server", "requests/s", "p50, ms", "p95, ms", "p99, ms", "failed", "throughput, times theirs")
    used = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in memory.items())
    note = f"Resident memory after the last load: {used}. Each load ran for {SECONDS:.0f} seconds, {rounds} times."
    return f"{table(header, rows)}\n\n{note}"


def _rows(clients: int, found: dict[tuple[str, int], list[Load]]) -> Iterator[tuple[str, ...]]:
    rates = {name: statistics.median(len(one.latencies) / one.seconds for one in found[name, clients]) for name in (OURS, THEIRS)}
    for name in (OURS, THEIRS):
        loads = found[name, clients]
        quantiles = np.quantile(np.concatenate([one.latencies for one in loads]) * 1000, (0.5, 0.95, 0.99))
        failed = sum(one.failed for one in loads)
        times = f"{rates[name] / rates[THEIRS]:.2f}"
        yield str(clients), name, f"{rates[name]:,.0f}", *(f"{one:,.1f}" for one in quantiles), str(failed), times


if __name__ == "__main__":
    if sys.argv[1:2] == [RIVAL]:
        rival(sys.argv[2])
    else:
        show(run)
