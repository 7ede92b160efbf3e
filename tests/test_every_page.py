"""What every command shows: pages on which nothing is said twice and intervals say what they cover, and the same in a notebook."""

from __future__ import annotations

import inspect
import re
import shlex
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import UnionType
from typing import Any

import pytest

from helpers.bundles import language_bundle
from helpers.curves import curve_of, race_with
from helpers.every_result import Everything, every_result
from helpers.races import LADDER, race_result
from helpers.results import adapt_result, answers_result, continual_result, report_of
from helpers.tasks import cats
from warmstart.cli import read_command
from warmstart.commands import COMMANDS
from warmstart.commands.adapt.page import write_adapt_page, write_answers_page
from warmstart.commands.continual import write_continual_page
from warmstart.commands.race.page import curve_view, write_race_page
from warmstart.config import Config
from warmstart.data.audit import audit
from warmstart.experiment.curve import CurveResult
from warmstart.generation.trace import Step, Trace
from warmstart.notebook import Shown
from warmstart.report.page import write_report
from warmstart.report.parts import HEADLINE_WORDS, Report, Table
from warmstart.report.result import StudyResult
from warmstart.stats.comparison import MethodResult, MethodTable
from warmstart.stats.splits import THIS_SPLIT
from warmstart.system.console import make_console
from warmstart.tasks.predict import Predictions
from warmstart.tokenizer.tokenizer import Tokenizer

HOSTILE = "<script>alert(1)</script>\x00"
LARGEST = 400_000
"""characters of one output: a notebook keeps them all"""
NOTHING_TO_SHOW = (Path, type(None))
PLAIN = {"predict", "generate"}
"""commands whose rows are for programs; ``ws.predict`` and ``ws.trace`` show theirs"""
WITHOUT_CHARTS = {
    "audit", "cost", "curve --estimate", "doctor", "evaluate --against", "evaluate a text", "import",
    "import --list", "a task", "race --estimate", "runs", "runs of a model", "runs --follow", "tokenize",
}  # fmt: skip


@pytest.fixture(scope="module")
def everything(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Everything:
    """One result of each kind."""
    return every_result(tmp_path_factory.mktemp("all"), tokenizer)


@pytest.mark.journeys
def test_nothing_is_said_twice_on_a_page(everything: Everything) -> None:
    """No sentence or caption of any report occurs twice, and every headline has fewer than 20 words, a verdict 25."""
    assert {name for name, reports in everything.reports.items() if not reports} <= WITHOUT_CHARTS | {
        "evaluate",
        "evaluate --gate",
        "runs --follow",
    }
    for name, reports in everything.reports.items():
        for report in reports:
            assert len(report.sentence.split()) <= (25 if report.verdict else HEADLINE_WORDS), (name, report.sentence)
            assert (name, repeated(report)) == (name, [])


def repeated(report: Report) -> list[str]:
    """The sentences and captions that occur more than once on a page."""
    texts = [report.sentence, *(text for section in report.sections for text in section.text)]
    # "They differ …" goes on about the pair that the sentence before it names; two pairs may have the same figures
    sentences = [one for text in texts for one in re.split(r"(?<=[.!?])\s+(?=[A-Z])(?!They )", text) if one]
    sentences += [figure.caption for figure in report.figures()]
    return sorted({one for one in sentences if sentences.count(one) > 1})


@pytest.mark.journeys
def test_every_study_says_in_a_sentence_what_it_found_and_what_to_do_next(everything: Everything) -> None:
    """The headline is the first sentence of what was found, whole; the next step names the model, and the command line reads it."""
    studies = {name: everything.results[name] for name in COMMANDS if name.startswith("study ")}
    for name, result in studies.items():
        (report,) = everything.reports[name]
        assert result.findings[0].startswith(report.sentence[:-1].split(" (")[0]), name
        assert "…" not in report.sentence, name
        assert report.next_step == result.next_step, name
        _, settings = read_command(shlex.split(result.next_step.command)[1:])
        assert name == "study lab" or str(getattr(settings, "model", "")).startswith(str(everything.place)), name


def short_curve(seeds: int) -> CurveResult:
    """A curve with as many of its five seeds."""
    found = curve_of((16, 0.1, 0.02), (60, 0.06, 0.02))
    rankings = {n: tuple(one.with_seeds(set(range(seeds))) for one in row) for n, row in found.rankings.items()}
    return type(found)(found.task, rankings, (), {}, None, found.audit)


WRITERS: dict[str, Callable[[int, Path], object]] = {
    "answers": lambda seeds, folder: write_answers_page(answers_result(seeds), Config(), folder),
    "continual": lambda seeds, folder: write_continual_page(continual_result({"none": 0.6, "joint": 0.8}, seeds), Config(), folder),
    "curve": lambda seeds, folder: write_report(curve_view(short_curve(seeds)), folder),
}
"""writes the page of a result with so many seeds"""


@pytest.mark.parametrize("command", WRITERS)
def test_headers_and_captions_say_what_intervals_cover(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One seed has no interval over seeds; several have one of their own in every table of scores, and every tile an interval."""
    for seeds in (1, 3):
        report = report_of(monkeypatch, partial(WRITERS[command], seeds, tmp_path))
        tables = [item for section in report.sections for item in section.items if isinstance(item, Table)]
        words = [*(figure.caption for figure in report.figures())]
        words += [cell for table in tables for cells in (table.header, *table.rows) for cell in cells]
        both = [text for text in words if re.search(r"(over|^) ?(seeds and (test )?texts|test texts and seeds)", text)]
        assert bool(both) == (seeds > 1), both
        scores = [table for table in tables if any("95%" in name and "difference" not in name for name in table.header)]
        assert scores
        for table in scores if seeds > 1 else ():
            alone = [name for name in table.header if "over seeds" in name] or [row for row in table.rows if "seeds alone" in row]
            assert alone, table.header
        shares = [value for _, value in report.tiles if "%" in value]
        assert shares or command == "curve", "which is part of a page"
        assert all(" (" in value for value in shares)


def test_every_page_with_intervals_over_one_split_says_so(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In some paragraph, for all intervals or for those with many labels."""
    scores, curve = {"pretrained": 0.8, "TF-IDF": 0.72}, race_with(curve_of((16, 0.1, 0.02), (60, 0.06, 0.02)))
    writers: dict[str, Callable[[], object]] = {
        "adapt": lambda: write_adapt_page(adapt_result(scores), language_bundle(tokenizer), Config(), tmp_path),
        "answers": partial(WRITERS["answers"], 3, tmp_path),
        "continual": partial(WRITERS["continual"], 3, tmp_path),
        "curve": lambda: write_race_page(curve, Config(), tmp_path),
        "race": lambda: write_race_page(race_result(scores), Config(), tmp_path),
    }
    for command, write in writers.items():
        texts = [text for section in report_of(monkeypatch, write).sections for text in section.text]
        assert any(THIS_SPLIT.partition(" hold ")[2][:-1] in text for text in texts), (command, texts)


class Fragment(HTMLParser):
    """The tags of a text, and those that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen = list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def study() -> StudyResult:
    """With a table."""
    return StudyResult(HOSTILE, [f"It works: {HOSTILE}."], summary=Table(("name", "score"), [(HOSTILE, "0.5")]))


def task() -> object:
    """With hostile names."""
    found = cats()
    return replace(found, name=HOSTILE, labels=(HOSTILE, *found.labels[1:]))


MAKERS: dict[str, Callable[[], Any]] = {
    "comparison": lambda: MethodTable("accuracy", (MethodResult(HOSTILE, (0.8, 0.82)), MethodResult("TF-IDF", (0.7,)))),
    "study": study,
    "audit without findings": lambda: replace(audit(cats()), splits=(), leaks=(), near_leaks=(), conflicts=()),
    "predictions": lambda: Predictions(
        [{"label": HOSTILE, "probabilities": {HOSTILE: 0.9, "dog": 0.1}}, {"number": 3.14159}, {"tags": ["A", "B"]}]
    ),
    "trace": lambda: Trace(HOSTILE, " the\n", (Step(" the\n", 0.5, 1.0, 0.7, ((" the", 0.5), (HOSTILE, 0.1))),)),
    "task": task,
}


def check_shown(name: str, shown: str) -> set[str]:
    """One fragment with its own style: no script, nothing from elsewhere, nothing that a text could smuggle in; its tags."""
    fragment = Fragment(shown)
    assert (fragment.open, fragment.seen[0]) == ([], "div"), name
    assert not {"script", "html", "body", "link", "iframe"} & {*fragment.seen}, name
    assert not re.search(r'(src|href)="(?!data:|#)|@import|url\(', shown), name
    assert shown.count('<img alt="') == shown.count("data:image/svg+xml;base64,"), name
    assert "\x00" not in shown, name
    assert len(shown) < LARGEST, name
    return {*fragment.seen}


def test_a_value_is_shown_as_a_fragment() -> None:
    """With hostile names and texts; charts are pictures, whose captions are their texts."""
    for name, make in MAKERS.items():
        check_shown(name, make()._repr_html_())
    assert "img" in check_shown("race", race_result(LADDER)._repr_html_())


@pytest.mark.journeys
def test_figures_say_in_words_what_they_show(everything: Everything) -> None:
    """Each has a caption, which is its text for screen readers, and a title for each axis that holds numbers."""
    for name, figure in (
        (name, one) for name, reports in everything.reports.items() for report in reports for one in report.figures()
    ):
        assert len(figure.caption.split()) >= 3, (name, figure.name)
        layers = figure.chart.to_dict().get("layer", [figure.chart.to_dict()])
        axes = [layer["encoding"][axis] for layer in layers for axis in ("x", "y") if axis in layer.get("encoding", {})]
        numeric = [axis for axis in axes if axis.get("type") == "quantitative"]
        assert not numeric or any(axis.get("title") or axis.get("field") for axis in numeric), (name, figure.name)


@pytest.mark.journeys
def test_a_notebook_shows_every_result(everything: Everything) -> None:
    """As a fragment, with tables, and with the charts of its page where there are any."""
    for name, result in everything.results.items():
        tags = check_shown(name, result._repr_html_())
        assert ("table" in tags, "img" in tags) == (True, name not in WITHOUT_CHARTS), name


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


def returned_by(function: Any) -> Iterator[Any]:
    """The types that a function may return."""
    found = typing.get_type_hints(inspect.unwrap(function))["return"]
    yield from typing.get_args(found) if isinstance(found, UnionType) else [found]


@pytest.mark.journeys
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
