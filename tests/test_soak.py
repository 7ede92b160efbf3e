"""The soak of the server notices what it must notice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

pytest.importorskip("httpx", reason="the soak asks the server with httpx")

from benchmarks import soak


def test_a_flat_server_that_refuses_politely_is_right() -> None:
    """Refusals, lost connections of killed servers, and growth within the bound are no problems."""
    statuses = Counter({"predict 2xx": 90, "hostile 4xx": 50, "hostile closed": 9, "connection lost": 2})
    assert soak.Tally(statuses, [300, 500, *[502.0] * 97, 503], kills=2, answered_again=3).problems() == []


@pytest.mark.parametrize(
    ("tally", "words"),
    [
        (soak.Tally(Counter({"hostile 5xx": 1}), answered_again=1), "1 answers were hostile 5xx"),
        (soak.Tally(memory=[500.0 + i for i in range(100)], answered_again=1), "grew by 80"),
        (soak.Tally(kills=2, answered_again=2), "after each of 2 kills"),
    ],
)
def test_what_must_not_be_is_said(tally: soak.Tally, words: str) -> None:
    """A 5xx of any request, memory that grows, a server that does not come back."""
    (problem,) = tally.problems()
    assert words in problem


def test_hostile_requests_are_of_many_kinds() -> None:
    """Requests that are whole and wrong, broken ones, and bytes of any kind."""
    draw = random.Random(0)
    found = [soak.hostile_request(draw) for _ in range(2_000)]
    assert len({*found}) > 500
    assert any(one.startswith(b"GET /../") for one in found)
    assert any(b"[[[[[[" in one for one in found)
    assert any(not one.startswith((b"POST", b"GET")) for one in found)


@pytest.mark.usefixtures("socket_enabled")
@pytest.mark.parametrize(("answer", "name"), [(b"HTTP/1.1 503 no\r\n\r\n", "hostile 5xx"), (b"", "hostile closed")])
def test_the_status_of_a_hostile_request_is_counted(answer: bytes, name: str) -> None:
    """A server that fails is noticed, and so is one that closes the connection."""

    async def asked() -> Counter[str]:
        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(reply, "127.0.0.1", 0)
        tally = soak.Tally()
        async with server:
            await soak.send_hostile(server.sockets[0].getsockname()[1], b"POST / HTTP/1.1\r\nConnection: close\r\n\r\n", tally)
        return tally.statuses

    assert asyncio.run(asked()) == Counter({name: 1})
