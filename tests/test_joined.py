"""The page of a run tells what studies found in its model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import make_language_model
from warmstart.cli import main
from warmstart.model import Bundle, save
from warmstart.report import Report, Section, write_report
from warmstart.report.joined import Told, filled, join, told
from warmstart.tokenizer import Tokenizer

EVIL = "<!-- /studies --></section><script>alert(1)</script>"
PAGE = Report("A run", "It went well.", (), (Section("Text", (f"What was read. {EVIL} <!-- studies -->",)),))


def section(page: str) -> str:
    """The part of the page that tells of studies."""
    found = re.search(r'<section id="studies">.*?</section>', page, re.DOTALL)
    return found[0] if found else ""


def test_a_study_is_told_once_and_stays_when_the_page_is_written_anew(tmp_path: Path) -> None:
    """Told again it takes its own place; texts stay texts; a page without studies says nothing of any."""
    page = write_report(PAGE, tmp_path)
    assert "Studies" not in page.read_text()
    join(tmp_path, Told("Probes", ("First.",), "../probe/report.html"))
    join(tmp_path, Told("Pairs", (EVIL,), "../pairs/report.html"))
    join(tmp_path, Told("Probes", ("Second.", "Third."), "../probe/report.html"))
    told_there = section(page.read_text())
    assert 'href="../probe/report.html"' in told_there
    assert "Second." in told_there
    assert "First." not in told_there
    assert "<script>" not in told_there
    assert page.read_text().count('href="#studies"') == 1
    before = page.read_text()
    assert write_report(PAGE, tmp_path).read_text() == before
    assert [one.title for one in told(tmp_path)] == ["Pairs", "Probes"]


def test_a_page_of_an_older_kind_stays_as_it_is() -> None:
    """It has no place for studies."""
    assert filled("<html></html>", [Told("x", (), "y")]) == "<html></html>"


@pytest.mark.usefixtures("no_second_process")
def test_studying_a_runs_model_is_told_on_its_page(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the run's folder or its bundle; a bundle that belongs to no run has no page to tell it on."""
    model = make_language_model(vocab_size=tokenizer.vocab_size)
    for place in ("run/bundle", "alone"):
        save(Bundle(model, tokenizer), tmp_path / place)
    page = write_report(PAGE, tmp_path / "run")
    (tmp_path / "p.tsv").write_text("good\tbad\nShe holds the cat.\tShe hold the cat.\nHe rubs the dog.\tHe rub the dog.\n")
    for number, name in enumerate(("run", "run/bundle", "alone")):
        words = ["study", "pairs", str(tmp_path / name), str(tmp_path / "p.tsv"), "--out", str(tmp_path / f"pairs{number}")]
        assert main(words) == 0
        assert (f"told in: {page}" in capsys.readouterr().err.replace("\n", "")) is (name != "alone")
    told_there = section(page.read_text())
    assert told_there.count("pairs are judged rightly") == 2
    assert 'href="../pairs1/report.html"' in told_there
    assert not (tmp_path / "studies.json").exists()
