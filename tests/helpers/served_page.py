"""The page of a server in a browser: a server in a thread or a process, models with all that a page can show, and an open page."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from helpers.browser import watched_page
from helpers.bundles import unread_model
from helpers.models import SENTENCES
from helpers.mutants import LABELS, bases
from helpers.restarts import adapt_record
from helpers.served import server_of
from warmstart.app.guard import AccessRules
from warmstart.app.models import Corpus, ServedModel
from warmstart.app.routes import Server, make_app
from warmstart.app.running import limited_protocol
from warmstart.data.task import Split, Task
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.files import save
from warmstart.tokenizer.tokenizer import Tokenizer

uvicorn = pytest.importorskip("uvicorn", reason="the server needs the extra 'app'")
DEADLINE = 120
"""seconds in which a process must have done what it was asked"""


def page_task() -> Task:
    """Training texts for the model that labels cups."""
    train = Split(("I want tea", "<b>milk</b>", "a glass of water", "She holds the cat", "עולם", "tea for two"), np.arange(6) % 3)
    validation = Split(tuple(f"{SENTENCES[i % 4]} {i}" for i in range(24)), np.arange(24) % 3)
    return Task("cups", LABELS, train, validation, train)


@pytest.fixture(scope="module")
def models(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[ServedModel]:
    """One that labels texts, with texts for guarantees; one that gives numbers; one that writes."""
    found, place = bases(tokenizer), tmp_path_factory.mktemp("served")
    held_out = tuple((0.3 + i / 300, i > 80) for i in range(200))
    finding = ("warning", "2 texts of <b>train</b> are in test, too.")
    raced = adapt_record(0.7, 6, {"method": "full"}, finding)
    wanted: dict[str, Bundle] = {
        "cups": replace(found["labels"], history=(raced,), calibration=Calibration(temperature=1.5, held_out=held_out)),
        "number": found["number"],
        "causal": found["causal"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        (place / "text.txt").write_text("\n\n".join(SENTENCES), encoding="utf-8")
        corpus = Corpus(str(place / "text.txt"))
        found_at = {name: save(bundle, place / name / "bundle").parent for name, bundle in wanted.items()}
        return [ServedModel.open(str(path), name, [page_task()], corpus) for name, path in found_at.items()]


@contextmanager
def serving_app(app: Any, port: int = 0) -> Iterator[str]:
    """The address of an application that a thread serves, by the protocol of ``warmstart serve``."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        running = uvicorn.Server(
            uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5, http=cast("Any", limited_protocol()))
        )
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()


def serving(server: Server, rules: AccessRules = AccessRules()) -> AbstractContextManager[str]:  # noqa: B008
    """The address of a server that runs in a thread."""
    return serving_app(make_app(server, rules))


class Running:
    """A server in a process of its own: ``warmstart`` with these words."""

    def __init__(self, *words: str | int | Path, before: str = "") -> None:
        command = [sys.executable, "-m", "warmstart", *map(str, words)]
        shell = ["sh", "-c", f'{before} exec "$0" "$@"']
        self.process = subprocess.Popen([*shell, *command], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.lines = iter(self.process.stderr.readline, "")
        self.port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", self.wait_for("serving at"))[0])

    def wait_for(self, words: str) -> str:
        """The next line that holds these words."""
        found = next((line for line in self.lines if words in line), None)
        assert found is not None, f"the server ended with {self.process.wait()} before it said {words!r}"
        return found

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Status and content of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.request(
            "POST" if body else "GET", path, json.dumps(body) if body else None, {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content) if content.startswith(b"{") else content.decode()

    def end(self) -> int:
        """Ask it to end; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)

    def kill(self) -> None:
        """Whatever it does."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def opened_page(browser: Any, address: str) -> Iterator[Any]:
    """A page; nothing may fail, and nothing may be asked of another place."""
    with watched_page(browser, address, errors="Content Security") as opened:
        opened.goto(address)
        yield opened


@pytest.fixture(scope="module")
def address(models: list[ServedModel], sockets: None) -> Iterator[str]:
    with serving(server_of(*models)) as found:
        yield found


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page; nothing may be logged as an error, and nothing may be asked of another place."""
    with opened_page(browser, address) as opened:
        yield opened


def submit(page: Any, panel: str) -> None:
    """Press the button of a panel."""
    page.click(f"#{panel} [type=submit]")


def classify(page: Any, texts: str) -> Any:
    """Have texts classified, one a line; the results."""
    page.fill("#classify-texts", texts)
    submit(page, "classify")
    page.wait_for_selector(f"#classify-results li:nth-child({len([one for one in texts.splitlines() if one])})")
    return page.locator("#classify-results li")
