"""Hooks of pytest: skipped tests are listed by their reasons, and where there is a browser none of its tests may be skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from helpers.browser import CHROMIUM

NOT_SKIPPED = "there is a browser, so its tests must run, but one was skipped: {}; run `make setup`, which installs what they need"


def reason_of(report: Any) -> str:
    """Why a test, or a whole file, was skipped."""
    said = report.longrepr
    return str(said[2] if isinstance(said, tuple) else said).removeprefix("Skipped: ")


def lines_of(reports: Iterable[Any]) -> list[str]:
    """Each reason once, with the number of its tests, the most frequent first."""
    return [f"{count:,} skipped: {reason}" for reason, count in Counter(map(reason_of, reports)).most_common()]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says at the end what was not tested."""
    if lines := lines_of(terminalreporter.getreports("skipped")):
        terminalreporter.section("not tested")
        for line in lines:
            terminalreporter.write_line(line, yellow=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test in a browser that was skipped where there is one has failed."""
    return _failed_if_skipped((yield), in_browser=item.get_closest_marker("browser") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """So has a file of such tests that was skipped as a whole, before its marks were known."""
    report = yield
    skipped = report.skipped and isinstance(collector, pytest.Module)
    return _failed_if_skipped(report, in_browser=skipped and "IN_A_BROWSER" in collector.path.read_text(encoding="utf-8"))


def _failed_if_skipped(report: Any, *, in_browser: bool) -> Any:
    if CHROMIUM and in_browser and report.skipped and not hasattr(report, "wasxfail"):
        report.longrepr, report.outcome = NOT_SKIPPED.format(reason_of(report)), "failed"
    return report
