"""The page of a run links to the studies of its model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.models import make_language_model
from warmstart.cli import main
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.report.page import Report, Section, write_report
from warmstart.report.study_links import StudyLink, add_link, read_links
from warmstart.tokenizer.tokenizer import Tokenizer

EVIL = "<!-- /studies --></section><script>alert(1)</script>"
PAGE = Report("A run", "It went well.", (), (Section("Text", (f"What was read. {EVIL} <!-- studies -->",)),))


def studies_section(page: str) -> str:
    """The part of the page that links to studies."""
    found = re.search(r'<section id="studies">.*?</section>', page, re.DOTALL)
    return found[0] if found else ""


def test_a_newer_link_replaces_the_older_one_and_links_survive_a_new_page(tmp_path: Path) -> None:
    """A link to the same page takes the older one's place; texts are escaped; a page without studies has no such section."""
    page = write_report(PAGE, tmp_path)
    assert "Studies" not in page.read_text()
    add_link(tmp_path, StudyLink("Probes", ("First.",), "../probe/report.html"))
    add_link(tmp_path, StudyLink("Pairs", (EVIL,), "../pairs/report.html"))
    add_link(tmp_path, StudyLink("Probes", ("Second.", "Third."), "../probe/report.html"))
    section = studies_section(page.read_text())
    assert 'href="./../probe/report.html"' in section
    assert "Second." in section
    assert "First." not in section
    assert "<script>" not in section
    assert page.read_text().count('href="#studies"') == 1
    before = page.read_text()
    assert write_report(PAGE, tmp_path).read_text() == before
    assert [link.title for link in read_links(tmp_path)] == ["Pairs", "Probes"]


def test_a_study_of_a_runs_model_is_linked_from_the_runs_page(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model may be named by the run's folder or by its bundle; a bundle outside any run has no page to link from."""
    model = make_language_model(vocab_size=tokenizer.vocab_size)
    for place in ("run/bundle", "alone"):
        save(Bundle(model, tokenizer), tmp_path / place)
    page = write_report(PAGE, tmp_path / "run")
    (tmp_path / "p.tsv").write_text("good\tbad\nShe holds the cat.\tShe hold the cat.\nHe rubs the dog.\tHe rub the dog.\n")
    for number, name in enumerate(("run", "run/bundle", "alone")):
        words = ["evaluate", str(tmp_path / name), "--pairs", str(tmp_path / "p.tsv"), "--out", str(tmp_path / f"pairs{number}")]
        assert main(words) == 0
        assert (f"writing a link to it into {page}" in capsys.readouterr().err.replace("\n", "")) is (name != "alone")
    alone = ["evaluate", str(tmp_path / "run"), "--pairs", str(tmp_path / "p.tsv"), "--out", str(tmp_path / "pairs3"), "--no-link"]
    assert main(alone) == 0
    section = studies_section(page.read_text())
    assert section.count("the right sentence scores higher in") == 2
    assert 'href="./../pairs1/report.html"' in section
    assert not (tmp_path / "studies.json").exists()
