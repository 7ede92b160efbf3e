"""Benchmarks: whom we are timed against and by which clock, what the counts of peers say, and what the soak notices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("httpx", reason="the soak asks the server with httpx")

from benchmarks import gpu, peers, soak
from benchmarks.command import Measured
from benchmarks.gpu import CONTENDERS, GPUModel, measure_cell
from benchmarks.harness import Clock, Spent, clock_note, clock_of, seconds_by
from benchmarks.hostile_requests import send_hostile
from benchmarks.limit import WAYS, bare, work
from benchmarks.peers import Cell, Row, by_case, compared, rendered, rows_of, set_of
from benchmarks.right_answers import RightAnswers
from benchmarks.table import origin
from benchmarks.training import PEERS, Size, batches
from torch.utils.flop_counter import FlopCounterMode

TINY = Size("tiny", 24, 2, 2, 36, 64, 16, 3)


def test_the_products_alone_are_the_work_of_a_step() -> None:
    """As torch counts their operations."""
    for objective in PEERS:
        with FlopCounterMode(display=False) as counted:
            bare(WAYS[0], TINY, objective, "float32")()
        assert counted.get_total_flops() == work(TINY, batches(TINY)[objective])
        bare(WAYS[1], TINY, objective, "float32")()


def test_a_busy_machine_is_timed_by_the_processor() -> None:
    """One thread beside other programs; on an idle machine, and with several threads, seconds are those on the wall."""
    steps = [Spent(2.0, 1.0, 1), Spent(3.0, 1.1, 1)]
    assert seconds_by(clock_of([1.0, 0.5], steps), steps) == (1.0, 1.1)
    assert seconds_by(clock_of([0.1, 0.2], steps), steps) == (2.0, 3.0)
    for several in ([Spent(2.0, 1.0, 2)], [Spent(1.0, 1.9, 1)]):
        assert seconds_by(clock_of([1.0], several), several) == (several[0].wall,)


def test_the_line_under_a_table_says_what_disturbed_it() -> None:
    """Nothing, if the machine was idle."""
    idle, busy, several = Clock(0.1, True), Clock(1.64, False), Clock(1.2, True)
    assert clock_note([]) == clock_note([idle]) == ""
    assert clock_note([idle, busy]).startswith("seconds of processor time, because other programs used up to 1.6 of ")
    assert clock_note([busy, several]).startswith("seconds are unreliable: other programs used up to 1.6 of ")
    measured = [Measured({}, 60.0, "2026-11-22", "here", clock) for clock in ("", "disturbed")]
    assert origin("t", measured[:1]) == "here, 2026-11-22, 1.0 minutes, `python -m benchmarks t`"
    assert origin("t", measured[1:]) == "here, disturbed, 2026-11-22, 1.0 minutes, `python -m benchmarks t`"


SET = [(f"{word} {i}", word) for word in ("good", "bad") for i in range(40)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One set of forty texts a class, and a method that looks at the first letter."""
    monkeypatch.setattr(peers, "RUNS", tmp_path)
    monkeypatch.setattr(peers, "READ", {"one": lambda: (SET, SET)})
    monkeypatch.setitem(peers.METHODS, "contrast", lambda train, seed: lambda texts: np.array([text[0] == "g" for text in texts]))
    set_of.cache_clear()


def row(method: str, draw: int, right: np.ndarray, device: str = "cuda", seconds: float = 1.0) -> Row:
    """A row of the set ``one`` with ten labels."""
    return Row(
        Cell("one", 10, method, draw, device), len(right), float(right.mean()), 0.5, seconds, np.packbits(right).tobytes().hex()
    )


def test_a_set_is_won_if_the_interval_over_draws_and_texts_excludes_zero(small: None) -> None:
    """Against a peer that is right half as often, and one that is right as often."""
    random = np.random.default_rng(0)
    rows = [
        row(name, draw, random.random(80) < share)
        for draw in range(5)
        for name, share in (("contrast", 0.9), ("SetFit", 0.88), ("Trainer", 0.45))
    ]
    lines = compared(by_case(rows)).splitlines()
    assert [line.split(" | ")[:7] for line in lines[2:]] == [
        ["| SetFit", "10", "1", "5", "1, 0, 0", "0, 1, 0", "0, 1, 0"],
        ["| Trainer", "10", "1", "5", "1, 0, 0", "1, 0, 0", "1, 0, 0"],
    ]
    assert "| 10 labels | contrast | SetFit | Trainer |" in rendered(rows)


def test_the_page_shows_the_rows_beside_it() -> None:
    """Each table, as ``python -m benchmarks.peers --draws`` prints it."""
    page = (peers.ROWS.parent / "peers.md").read_text(encoding="utf-8")
    for shown in rendered([*rows_of(peers.ROWS).values()]).split("\n\n"):
        assert shown in page


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


@pytest.mark.usefixtures("socket_enabled")
def test_the_status_of_a_hostile_request_is_known() -> None:
    """A server that fails is noticed, and so is one that closes the connection."""
    content = b"POST / HTTP/1.1\r\nConnection: close\r\n\r\n"
    for answer, name in ((b"HTTP/1.1 503 no\r\n\r\n", "5xx"), (b"", "closed")):
        assert asyncio.run(with_server(answer, lambda port: send_hostile(port, content))) == name


def test_a_cell_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rate is positive, and the operations are those of its parameters; the contenders have about as many."""
    monkeypatch.setattr(gpu, "VOCABULARY", 64)
    monkeypatch.setattr(gpu, "TIMED", 2)
    for contender in (one for one in CONTENDERS if not one.endswith("compiled")):
        found = measure_cell(contender, GPUModel("tiny", 16, 1, 2), 8, torch.device("cpu"), tokens=32)
        assert found["tokens"] > 0, contender
        assert found["operations"] == pytest.approx(found["tokens"] * (6 * found["parameters"] + 6 * 1 * 16 * 8)), contender
        assert 3500 < found["parameters"] < 6000, contender
