"""What every command shows: pages on which nothing is said twice, and in a notebook the tables and charts of the page."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import UnionType
from typing import Any

import pytest

from helpers.every_result import Everything, every_result
from helpers.pages import repeated
from warmstart.commands import COMMANDS
from warmstart.notebook import Shown
from warmstart.report.headline import HEADLINE_WORDS
from warmstart.tokenizer.tokenizer import Tokenizer

LARGEST = 400_000
"""characters of one output: a notebook keeps them all"""
NOTHING_TO_SHOW = (Path, type(None))
PLAIN = {"predict", "generate"}
"""commands whose rows are for programs; ``ws.predict`` and ``ws.trace`` show theirs (tests/test_notebook.py)"""
WITHOUT_CHARTS = {
    "audit", "cost", "curve --estimate", "doctor", "errors", "evaluate a text", "import", "init", "plan", "race --estimate",
    "runs --clean", "tokenize", "zero-shot",
}  # fmt: skip


@pytest.fixture(scope="module")
def everything(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Everything:
    """One result of each kind."""
    return every_result(tmp_path_factory.mktemp("all"), tokenizer)


def test_nothing_is_said_twice_on_a_page(everything: Everything) -> None:
    """No sentence or caption of any report occurs twice, and every headline has fewer than 20 words."""
    assert {name for name, reports in everything.reports.items() if not reports} <= WITHOUT_CHARTS | {"evaluate", "runs --follow"}
    for name, reports in everything.reports.items():
        for report in reports:
            assert len(report.sentence.split()) <= HEADLINE_WORDS, (name, report.sentence)
            assert (name, repeated(report)) == (name, [])


def test_a_notebook_shows_every_result(everything: Everything) -> None:
    """As one fragment, with tables, and with the charts of its page where there are any."""
    for name, result in everything.results.items():
        shown = result._repr_html_()
        fragment = Fragment()
        fragment.feed(shown)
        assert fragment.open == [], name
        assert "table" in fragment.seen, name
        assert ("img" in fragment.seen) == (name not in WITHOUT_CHARTS), name
        assert len(shown) < LARGEST, name


class Fragment(HTMLParser):
    """The tags of a text, and those that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.seen = list[str](), set[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def returned_by(function: Any) -> Iterator[Any]:
    """The types that a function may return."""
    found = typing.get_type_hints(inspect.unwrap(function))["return"]
    yield from typing.get_args(found) if isinstance(found, UnionType) else [found]


def test_every_command_has_a_view(everything: Everything) -> None:
    """What the function of a command returns is shown in a notebook, unless there is nothing to show; an example of it is above."""
    examples = {type(result) for result in everything.results.values()}
    for name, command in COMMANDS.items():
        for kind in returned_by(command.load()[1]) if name not in PLAIN else ():
            if kind not in NOTHING_TO_SHOW:
                assert isinstance(kind, type), f"{name} returns {kind}: give it a type of its own, with a view"
                assert issubclass(kind, Shown), f"{name} returns {kind.__name__}, which has no view"
                assert any(issubclass(one, kind) for one in examples), f"tests/helpers/every_result.py makes no {kind.__name__}"


def test_a_view_is_a_report_of_its_own() -> None:
    """Each class names a function that can be imported."""
    for kind in _below(Shown):
        if "_view" in vars(kind) and kind.__module__.startswith("warmstart."):
            module, _, function = kind._view.partition(":")
            assert re.fullmatch(r"\w+_view", function)
            assert callable(getattr(__import__(f"warmstart.{module}", fromlist=[function]), function)), kind


def _below(kind: type) -> list[Any]:
    return [kind, *(one for below in kind.__subclasses__() for one in _below(below))]
