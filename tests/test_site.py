"""The documents as a site: it builds offline, its search finds the right page, and a screen reader gets along."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import IN_A_BROWSER, watched_page
from helpers.pages import DOCS
from warmstart.commands import COMMANDS

QUESTIONS = {
    "privacy": "how-to/privacy.html",
    "Excel": "how-to/excel.html",
    "email": "how-to/emails.html",
    "deploy": "how-to/deploy.html",
    "update a model": "how-to/update.html",
    "several labels": "how-to/several-labels.html",
    "GPU": "how-to/gpu.html",
    "cite": "how-to/cite.html",
}
"""what people type into the search -> the page that answers it"""
KINDS = (
    "index",
    "search",
    "tutorials/support-tickets",
    "explanation/schemes",
    "reference/statistics",
    "project/changelog",
    "reference/generated/fit",
    "reference/generated/python",
)


def in_a_browser(test: Any) -> Any:
    """Marks a test as one of those that need Chromium."""
    for mark in IN_A_BROWSER:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning ends the build."""
    place = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-d", str(place / "cache")]
    built = subprocess.run(
        [*command, str(DOCS), str(place / "site")], capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "80"}
    )
    assert (built.returncode, built.stderr) == (0, "")
    return place / "site"


@pytest.mark.journeys
def test_the_site_has_every_page_and_needs_no_network(site: Path) -> None:
    """The reference of every command and public name too; nothing in it is fetched from elsewhere."""
    pages = {file.relative_to(site).as_posix(): file.read_text(encoding="utf-8") for file in site.rglob("*.html")}
    assert {f"reference/generated/{name.replace(' ', '-')}.html" for name in COMMANDS} <= pages.keys()
    assert {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")} <= pages.keys()
    assert "warmstart.adapt" in pages["reference/generated/python.html"]
    for name, text in pages.items():
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', text), name
    measured = re.search(r'href="([^"]+README\.md)"', pages["index.html"])
    assert measured, "the start page links the measured figures"
    assert (site / measured[1]).exists()


@in_a_browser
def test_the_search_finds_the_page_that_answers(site: Path, browser: Any, serve: Callable[[Path], str]) -> None:
    """As the first of its results, for what people type."""
    address = serve(site)
    with watched_page(browser, address) as page:
        for typed, wanted in QUESTIONS.items():
            page.goto(f"{address}/search.html?q={typed.replace(' ', '+')}")
            first = page.wait_for_selector("#search-results li > a").get_attribute("href")
            assert first.partition("#")[0] == wanted, typed
            page.wait_for_load_state("networkidle")  # each result fetches its page, for the lines around the word


@in_a_browser
def test_axe_finds_nothing_in_the_site(site: Path, browser: Any, serve: Callable[[Path], str]) -> None:
    """On a page of each kind: lists, commands, wide tables, formulas, the search, and what the code writes."""
    address = serve(site)
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    with watched_page(browser, address) as page:
        for name in KINDS:
            page.goto(f"{address}/{name}.html")
            found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
            assert not [(one["id"], one["nodes"][0]["html"]) for one in found], name
