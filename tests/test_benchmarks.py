"""Benchmarks: whom we are timed against and by which clock, what the counts of peers say, and what the soak notices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import gpu, soak
from benchmarks.gpu import CONTENDERS, cell_file
from benchmarks.right_answers import RightAnswers
from benchmarks.training import Size

TINY = Size("tiny", 24, 2, 2, 36, 64, 16, 3)


def test_a_flat_server_that_refuses_politely_is_right() -> None:
    """Refusals, texts still to be read, lost connections of killed servers, and growth within the bound are no problems."""
    statuses = Counter({"predict 2xx": 90, "nearest not ready": 3, "hostile 4xx": 50, "hostile closed": 9, "connection lost": 2})
    memory = [300, 500, *[502.0] * 97, 503]
    assert soak.Tally(statuses, memory=memory, kills=2, answered_again=3, expected=["predict"]).problems() == []
    tally = soak.Tally()
    for kind in ("nearest", "predict"):  # 503 is no fault where the server says that it still reads
        tally.count(kind, 503)
    assert tally.statuses == Counter({"nearest not ready": 1, "predict 5xx": 1})


def test_what_must_not_be_is_said() -> None:
    """A 5xx of any request, a wrong answer, a request that nobody answers, memory that grows, a server that does not come back."""
    wrong = soak.Tally(Counter({"predict 2xx": 9}), wrong=Counter({"predict": 2}))
    for tally, words in (
        (soak.Tally(Counter({"hostile 5xx": 1})), "1 answers were hostile 5xx"),
        (wrong, "2 answers to predict were not those of the library"),
        (soak.Tally(Counter({"probe not ready": 9}), expected=["probe"]), "no request for probe was answered"),
        (soak.Tally(memory=[500.0 + i for i in range(100)]), "grew by 80"),
        (soak.Tally(kills=2, answered_again=2), "after each of 2 kills"),
    ):
        (problem,) = tally.problems()
        assert words in problem


def test_wrong_predictions_are_noticed() -> None:
    """Those of another text, too few, or another label; rounding is not wrong, nor is either label of a tie."""
    right = object.__new__(RightAnswers)
    right.labelled = {"bert": [{"probabilities": {"a": 0.6, "b": 0.4}}, {"probabilities": {"a": 0.5, "b": 0.5}}]}
    first = {"label": "a", "probabilities": {"a": 0.6001, "b": 0.3999}}
    tie = {"label": "b", "probabilities": {"b": 0.5001}}
    assert right.are_right("bert", [0, 1, 0], [first, tie, first])
    for places, found in (
        ([1], [first]),
        ([0, 0], [first]),
        ([0], [{"label": "b", "probabilities": {"b": 0.4}}]),
        ([0], [{"label": "a", "probabilities": {"a": 0.61}}]),
    ):
        assert not right.are_right("bert", places, found)


async def with_server(answer: bytes, work: Callable[[int], Awaitable[Any]]) -> Any:
    """What work returns beside a server that says the same to everybody."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2 if b"content-length: 2\r\n" in head.lower() else 0)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    async with server:
        return await work(server.sockets[0].getsockname()[1])


def test_a_finished_cell_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command goes on where it stopped; without a GPU nothing is started, nor claimed."""
    started: list[list[str]] = []
    monkeypatch.setattr(gpu.subprocess, "run", lambda words, **_: started.append(words))
    cell_file(tmp_path, "warmstart", "5 M", 256).write_text('{"tokens": 1.0}')
    assert gpu.measured(tmp_path) == {("warmstart", "5 M", 256): {"tokens": 1.0}}
    assert len(started) == len(CONTENDERS) * 6 - 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.run() == "Not measured: no machine with CUDA was at hand."
