"""Study results: one type for all studies, in words and in plain numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from warmstart.config import Config
from warmstart.report.parts import Section
from warmstart.report.result import StudyResult, Summary
from warmstart.report.study import finish_study

RESULT = StudyResult(
    "A <study>",
    ["It works.", "It is fast & small."],
    {"scores": pl.DataFrame({"name": ["a", "b"], "score": [0.5, float("nan")]})},
    {"best": np.float32(0.5)},  # type: ignore[dict-item]
    Summary(("name", "score"), [("a", "50.0%"), ("<b>", "-")]),
    details=(1, 2),
)


def test_a_result_is_plain_json() -> None:
    """Missing numbers become null, NumPy's numbers become Python's."""
    plain = json.loads(json.dumps(RESULT.to_dict(), allow_nan=False))
    assert plain["findings"] == ["It works.", "It is fast & small."]
    assert plain["figures"] == {"best": 0.5}
    assert plain["tables"]["scores"] == [{"name": "a", "score": 0.5}, {"name": "b", "score": None}]


def test_findings_are_whole_sentences() -> None:
    """A result without findings, or with one that has no full stop, is a mistake of the study."""
    with pytest.raises(AssertionError, match="at least one finding"):
        StudyResult("x", [])
    with pytest.raises(AssertionError, match="full stop"):
        StudyResult("x", ["no end"])


class NoSettings(Config):
    """Settings of a made-up study."""


def test_finishing_prints_writes_and_returns_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first finding is the headline; every table becomes a CSV file; key figures and sections are on the page."""
    shown = finish_study(RESULT, [Section("Details", ("A paragraph.",))], NoSettings(), tmp_path, tiles=[("best", "50.0%")])
    printed = capsys.readouterr().err
    assert "It works.\nIt is fast & small.\n" in printed
    assert pl.read_csv(tmp_path / "scores.csv")["name"].to_list() == ["a", "b"]
    html = (tmp_path / "report.html").read_text()
    assert [section.title for section in shown.sections] == ["Details"]
    assert "<h1>It works.</h1>" in html
    assert "<h2>Findings</h2>" in html
    assert "A paragraph." in html
    assert "<dt>best</dt><dd>50.0%</dd>" in html
