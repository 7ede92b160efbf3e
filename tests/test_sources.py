"""Reports of several seeds show intervals over seeds and texts, and over seeds alone; those of one seed speak of texts alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from helpers.curves import curve_of
from helpers.results import answers_result, continual_result, report_of
from warmstart.commands.adapt.page import write_answers_page
from warmstart.commands.continual import write_continual_page
from warmstart.commands.race.page import curve_view
from warmstart.config import Config
from warmstart.experiment.curve import CurveResult
from warmstart.report.page import write_report
from warmstart.report.parts import Table


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
