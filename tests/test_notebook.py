"""What a notebook shows of a value: the tables and charts of its report, escaped, without a script and without a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from helpers.bundles import classifier
from helpers.curves import curve_of
from helpers.models import make_language_model
from helpers.races import race_result
from helpers.tasks import cats
from warmstart.console import make_console
from warmstart.cost.cost import cost_of
from warmstart.cost.workload import Workload
from warmstart.data.audit import audit
from warmstart.generation.trace import Step, Trace
from warmstart.model.bundle import Bundle
from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import Comparison, MethodResult
from warmstart.tasks.predict import Predictions
from warmstart.tokenizer.tokenizer import Tokenizer

LARGEST = 400_000
"""characters of one output: a notebook keeps them all"""
SCORES = {"pretrained": 0.8, "TF-IDF + logistic regression": 0.72}
HOSTILE = "<script>alert(1)</script>\x00"


def study() -> StudyResult:
    """With a table."""
    return StudyResult(HOSTILE, [f"It works: {HOSTILE}."], summary=Summary(("name", "score"), [(HOSTILE, "0.5")]))


def task() -> object:
    """With hostile names."""
    found = cats()
    return replace(found, name=HOSTILE, labels=(HOSTILE, *found.labels[1:]))


MAKERS: dict[str, Callable[[], object]] = {
    "race": lambda: race_result(SCORES),
    "race of one seed": lambda: race_result(SCORES, 1),
    "curve": lambda: curve_of((16, 0.1, 0.02), (64, 0.06, 0.02), (256, 0.01, 0.01)),
    "comparison": lambda: Comparison("accuracy", (MethodResult(HOSTILE, (0.8, 0.82)), MethodResult("TF-IDF", (0.7,)))),
    "study": study,
    "audit": lambda: audit(cats()),
    "audit without findings": lambda: replace(audit(cats()), splits=(), leaks=(), near_leaks=(), conflicts=()),
    "cost": lambda: cost_of(make_language_model(), Workload()),
    "predictions": lambda: Predictions(
        [{"label": HOSTILE, "probabilities": {HOSTILE: 0.9, "dog": 0.1}}, {"number": 3.14159}, {"tags": ["A", "B"]}]
    ),
    "trace": lambda: Trace(HOSTILE, " the\n", (Step(" the\n", 0.5, 1.0, 0.7, ((" the", 0.5), (HOSTILE, 0.1))),)),
    "task": task,
}


class Tags(HTMLParser):
    """Collects the tags, and checks that each is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.seen = list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in ("img", "br", "meta", "link", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", MAKERS)
def test_a_value_is_shown_as_a_fragment(name: str) -> None:
    """One division with its own style; no script, nothing from elsewhere, nothing that a text could smuggle in."""
    shown = MAKERS[name]()._repr_html_()  # type: ignore[attr-defined]
    tags = Tags()
    tags.feed(shown)
    assert tags.open == []
    assert tags.seen[0] == "div"
    assert not {"script", "html", "body", "link", "iframe"} & {*tags.seen}
    assert not re.search(r'(src|href)="(?!data:|#)|@import|url\(', shown)
    assert "\x00" not in shown
    assert len(shown) < LARGEST


def test_a_trace_is_a_table_of_likely_tokens() -> None:
    """One row per generated token, with spaces and line ends shown."""
    step = Step(" cat\n", 0.5, 1.0, 0.7, ((" cat\n", 0.5), (" dog", 0.25)))
    shown = Trace("the", " cat\n", (step,))._repr_html_()
    assert "the → cat" in shown
    assert re.findall(r"<td[^>]*>(.*?)</td>", shown) == ["␣cat⏎", "50.0%", "␣cat⏎ 50.0%", "␣dog 25.0%"]


def test_messages_of_a_notebook_are_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output, without progress bars and colours; elsewhere on standard error."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    there = make_console()
    monkeypatch.undo()
    here = make_console()
    there.print("found", style="bold")
    here.print("seen")
    assert capsys.readouterr() == ("found\n", "seen\n")
    assert not there.is_terminal
    assert not there.is_jupyter


def test_charts_are_pictures() -> None:
    """With the caption as text for those who do not see them."""
    shown = race_result(SCORES)._repr_html_()
    assert shown.count('<img alt="') == shown.count("data:image/svg+xml;base64,") >= 2
    assert "Next:" in shown


def test_a_model_is_shown_with_its_labels(tokenizer: Tokenizer) -> None:
    """And its parameters."""
    shown = Bundle(classifier(tokenizer), tokenizer, ("cat", "dog"))._repr_html_()
    assert "cat, dog" in shown
    assert "classification" in shown
