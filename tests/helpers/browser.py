"""What the tests in a browser share; the browser itself is a fixture (``conftest.py``)."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.journeys,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install Debian's package chromium to run the browser tests"),
    pytest.mark.usefixtures("socket_enabled"),
]
"""the marks of such a module"""
WAIT = 60_000
"""milliseconds that anything may take; only what never happens takes so long"""


def slowed(page: Any) -> None:
    """As on a busy machine: the page computes eight times as long, and each answer comes half a second later."""
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": 8})
    session.send("Network.enable")
    session.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 500, "downloadThroughput": -1, "uploadThroughput": -1},
    )


@contextmanager
def watched_page(browser: Any, *places: str, errors: str = "", **settings: Any) -> Iterator[Any]:
    """A page in which nothing may fail, no error of the console may hold ``errors``, and all is asked of these places."""
    problems = list[str]()
    with browser.new_context(**settings) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT)
        if os.environ.get("SLOW_BROWSER"):
            slowed(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" and errors in said.text else None)
        page.on("request", lambda one: None if one.url.startswith((*places, "data:", "blob:")) else problems.append(one.url))
        yield page
    assert not problems


def readable(page: Any) -> None:
    """Fails if axe finds a serious violation, or if anything is wider than the screen."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert not [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
