"""Small models and texts that many tests share."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import altair.utils.schemapi
import pytest
import torch
from hypothesis import settings

from helpers.browser import CHROMIUM
from helpers.bundles import checked_here
from helpers.models import SENTENCES, VOCABULARY
from helpers.skips import pytest_make_collect_report as pytest_make_collect_report
from helpers.skips import pytest_runtest_makereport as pytest_runtest_makereport
from helpers.skips import pytest_terminal_summary as pytest_terminal_summary
from warmstart.baselines import BASELINES
from warmstart.finetuning import finetune
from warmstart.system import products
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.types import Vocabulary

torch.set_num_threads(1)
settings.register_profile("ci", derandomize=True, deadline=None)  # the same examples every time: CI fails for a change's own fault
if os.environ.get("CI"):
    settings.load_profile("ci")


SECONDS = {"proofs": 600, "journeys": 600, "chaos": 600}
"""time limits of the tests of other tiers, in place of that of pyproject.toml; the first mark that a test has decides"""


FIRST = ("test_wheel.py", "test_distributed.py", "test_notebooks.py")
"""files that begin: what the tests of the first share takes a minute, and single tests of the others take minutes"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that hangs fails, and prints where each thread stands; a long one has a limit of its own.

    Workers steal what is last from each other: what stands first is not made by several of them, and no long test is left alone.
    """
    items.sort(key=_place)
    for item in items:
        limit = next((limit for mark, limit in SECONDS.items() if item.get_closest_marker(mark)), None)
        if limit and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(limit))


def _place(item: pytest.Item) -> tuple[int, bool]:
    """The files that begin, then the tests of the tiers that take longer."""
    return FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST), not any(map(item.get_closest_marker, SECONDS))


def pytest_collection_finish() -> None:
    """What was imported stays until the end: collections of garbage, of which each trial of a sweep makes one, skip it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """A shell lets its background processes, such as a suite that runs there, ignore Ctrl-C; and so would the commands in tests."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets, or a loud skip."""
    place = Path(os.environ.get("WARMSTART_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
    if not place.is_dir():
        pytest.skip(f"no folder of data sets at {place}; set WARMSTART_DATA to run this test")
    return place


@pytest.fixture(scope="module")
def sockets() -> Iterator[None]:
    """Fixtures of a module run before those of a test allow sockets."""
    import pytest_socket

    pytest_socket.enable_socket()
    yield
    pytest_socket.disable_socket()


@pytest.fixture(scope="module")
def browser(sockets: None) -> Iterator[Any]:
    """Debian's Chromium, for tests that are skipped where it is missing."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session", autouse=True)
def cache_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The cache of this run of the tests: nothing is written into the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def few_steps() -> Iterator[None]:
    """A run whose length is not named is ten epochs, however few steps these are; a test in test_finetune.py holds the least."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "MIN_STEPS", 1)
        yield


@pytest.fixture(scope="module", autouse=True)
def no_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Charts are made, but drawn only where pages are looked at: drawing them takes as long as the rest of a page.

    Altair checks a chart as a whole, not each of its parts before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(altair.utils.schemapi, "DEBUG_MODE", False)
        if not re.search("report|page|browser", request.module.__name__):
            patch.setattr("warmstart.report.page.svg", lambda spec: "<svg/>")
        yield


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN multiplies float32 matrices, also where the other library is faster."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "_in_use", "onednn")


@pytest.fixture(scope="module", autouse=True)
def models_are_checked_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """A fresh process for each save costs seconds; these two hold that it is really started."""
    started = request.module.__name__.rpartition(".")[2] in ("test_bundle", "test_stack")
    with nullcontext() if started else checked_here():
        yield


@pytest.fixture(scope="module")
def few_baselines() -> Iterator[None]:
    """All baselines of a race take longer than its networks; tests/test_stack.py holds that each of them lives."""
    few = ("majority", "TF-IDF + logistic regression", "NBSVM", "naive Bayes + EM")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BASELINES, "_rows", {name: BASELINES[name] for name in (*few, "frozen vectors")})
        yield


@pytest.fixture(scope="module")
def words_alone() -> Iterator[None]:
    """No encoder is installed: what names none is fitted by its words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.interop.encoders.installed", lambda one: None)
        yield


@pytest.fixture
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of a race takes as long as its trials; tests/test_race.py holds that it is written."""
    monkeypatch.setattr("warmstart.commands.race.command.write_race_page", lambda result, config, folder: folder / "report.html")


class Quiet(SimpleHTTPRequestHandler):
    """A server that says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def serve(socket_enabled: None) -> Iterator[Callable[[Path], str]]:
    """Serves a folder on this machine; gives its address."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A small text file."""
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(SENTENCES * 30))
    return file


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """A byte-level tokenizer of about 300 tokens."""
    return train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=330, sentinels=16))


@pytest.fixture
def vocabulary() -> Vocabulary:
    """Sixty tokens, of which 5 to 20 are sentinels and every third ordinary one begins a word."""
    return VOCABULARY
