"""A server as a process: it says where it listens, reloads its models, ends in peace, and survives whatever is sent to it."""

from __future__ import annotations

import http.client
import json
import random
import re
import select
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.mutants import LABELS, bases
from helpers.served import cups_task
from helpers.served_page import DEADLINE, Running
from warmstart.cli import main
from warmstart.model.files import save
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("socket_enabled")
SERVE = ("serve", "--port", "0")
HEAD = b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def bundles(tokenizer: Tokenizer, tmp_path: Path) -> list[Path]:
    """A model that labels texts, and one that writes them."""
    return [save(bases(tokenizer)[name], tmp_path / name) for name in ("labels", "causal")]


@pytest.fixture
def running(bundles: list[Path]) -> Iterator[Running]:
    server = Running(*SERVE, *bundles)
    yield server
    server.kill()


@pytest.mark.journeys
def test_training_texts_are_given_by_their_manifest(bundles: list[Path], tmp_path: Path) -> None:
    """The server reads them while it answers; a task of other labels ends it with exit code 2."""
    manifest, text = save_task(cups_task(), tmp_path / "cups"), cups_task().train.texts[7]
    server = Running(*SERVE, bundles[0], "--texts", manifest)
    while (answer := server.ask("/api/nearest", {"inputs": [text], "count": 1}))[0] == 503:
        pass
    assert answer[1]["nearest"] == [[{"text": text, "label": LABELS[7 % 3], "cosine": 1}]]
    assert server.end() == 143
    server.kill()
    assert main(["serve", str(bundles[1]), "--texts", str(manifest)]) == 2


@pytest.mark.journeys
def test_a_server_reloads_and_ends_in_peace(running: Running, bundles: list[Path]) -> None:
    """A damaged model is not loaded again, and the old one goes on; what was begun before SIGTERM is finished."""
    status, first = running.ask("/api/predict", {"inputs": ["tea"]})
    assert status == 200
    (bundles[0] / "weights.safetensors").write_bytes(b"")
    status, refused = running.ask("/api/reload", {"model": "labels"})
    assert (status, "weights" in refused["error"]) == (422, True)
    assert running.ask("/api/predict", {"inputs": ["tea"]})[1] == first

    body = {"model": "causal", "max_new_tokens": 300, "temperature": 5, "candidates": 1, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=DEADLINE)
    connection.request("POST", "/api/generate", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    begun = answer.readline()
    assert running.end() == 143
    *tokens, (kind, last) = [event.split(b"\n", 1) for event in (begun + answer.read()).strip().split(b"\n\n")]
    connection.close()
    assert (answer.status, kind) == (200, b"event: done")
    assert len(tokens) == 300 or json.loads(last.removeprefix(b"data: "))["ended"]


RELOADS, CLIENTS = 10, 4


@pytest.mark.journeys
def test_no_request_is_lost_when_models_are_loaded_again(running: Running) -> None:
    """Four clients ask on while SIGHUP comes ten times: all are answered, and alike."""
    texts, loaded = ["tea", "She holds a cup of milk", "water"], threading.Event()
    bodies = [{"inputs": texts[: 1 + number % 3]} for number in range(CLIENTS)]
    expected = [running.ask("/api/predict", body) for body in bodies]

    def ask_on(body: dict[str, Any]) -> list[tuple[int, Any]]:
        return [running.ask("/api/predict", body) for _ in iter(loaded.is_set, True)]

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = clients.map(ask_on, bodies)
        for _ in range(RELOADS):
            running.process.send_signal(signal.SIGHUP)
            running.wait_for("loaded labels again")
            running.wait_for("loaded causal again")
        loaded.set()
    for (status, first), found in zip(expected, answers, strict=True):
        assert {status, *(code for code, _ in found)} == {200}
        assert len(found) > RELOADS
        for _, answer in found:
            for one, other in zip(answer["predictions"], first["predictions"], strict=True):
                assert one["label"] == other["label"]
                assert one["probabilities"] == pytest.approx(other["probabilities"], abs=2e-4)


METHODS = [b"POST", b"GET", b"PUT", b"X"]
BODIES = [b'{"inputs": ["tea"]}', b'{"model": "causal", "max_new_tokens": 2, "stream": true}', b'{"texts": ["a"]}', b"[[[["]
PATHS = b"/api/predict /api/generate /api/tokens /api/explain /health /../../etc/passwd /api/card?model=%00".split()
HEADERS = [
    *[b""] * 6, b"Origin: http://[\r\n", b"Origin: http://127.0.0.1\r\n", b"Origin: null\r\n" * 2,
    b"Authorization: Basic =\r\n", b"Authorization: Bearer \xff\r\n",
]  # fmt: skip


@pytest.mark.chaos
def test_nothing_that_is_sent_harms_a_server(running: Running) -> None:
    """Thousands of requests cut, changed or made of noise: no answer is a fault of the server, and its memory does not grow."""
    draw, sizes = random.Random(0), list[int]()
    for number in range(3_000):
        body = draw.choice(BODIES)
        head = HEAD % (draw.choice(METHODS), draw.choice(PATHS), len(body))
        raw = bytearray(head.replace(b"\r\n", b"\r\n" + draw.choice(HEADERS), 1) + body)
        for _ in range(draw.choice((0, 1, 5))):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        del raw[draw.choice((len(raw), len(raw), draw.randrange(len(raw)))) :]
        answer = _sent(running.port, bytes(raw))
        status = re.match(rb"HTTP/1\.1 (\d+)", answer)
        assert not status or int(status[1]) < 500, (bytes(raw), answer[:300])
        if number in (1_000, 2_999):
            sizes.append(psutil.Process(running.process.pid).memory_info().rss)
    assert running.ask("/health")[0] == 200
    assert sizes[1] < sizes[0] + (32 << 20)


@pytest.mark.chaos
def test_half_sent_headers_stop_nobody(bundles: list[Path]) -> None:
    """More of them than the process may open files: the server answers others, closes them, and logs next to nothing."""
    server = Running(*SERVE, *bundles, before="ulimit -n 200;")
    slow = [socket.create_connection(("127.0.0.1", server.port), DEADLINE) for _ in range(230)]
    for one in slow:
        with suppress(OSError):
            one.sendall(b"GET / HTTP/1.1\r\nX: ")
    assert server.ask("/health")[0] == 200
    while slow:  # a byte each second does not keep them open
        for one in select.select(slow, [], [], 1)[0]:
            slow.remove(one)
            one.close()
        for one in slow:
            with suppress(OSError):
                one.sendall(b"x")
    server.process.terminate()
    assert len([*server.lines]) < 5
    server.kill()


def _sent(port: int, raw: bytes) -> bytes:
    """What comes back for these bytes, after which nothing more is sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        try:
            while part := connection.recv(1 << 16):
                found += part
        except ConnectionResetError:
            pass
        return found


def test_what_cannot_be_served_is_refused(bundles: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, before anything listens."""
    for words, message in {
        "": "there is nothing to serve",
        "nowhere": "there is no bundle at nowhere",
        "MODEL --host 0.0.0.0": "so it needs a token",
        "MODEL --token short": "at least 16 characters",
        "MODEL MODEL": "each model must have a name of its own",
        "MODEL --port 99999": "port",
        "MODEL --host no.such.host.invalid --token 0123456789abcdef": "cannot listen at",
    }.items():
        try:
            code = main(["serve", *words.replace("MODEL", str(bundles[0])).split()])
        except SystemExit as end:
            code = int(end.code or 0)
        assert code == 2, words
        assert message in capsys.readouterr().err, words
