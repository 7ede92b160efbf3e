"""What a reader of any report sees first: a short headline, what transfer bought and how sure that is; and nothing twice."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warmstart
from helpers.curves import curve_of, race_with
from helpers.races import race_result
from warmstart.commands.race.page import restarts_chart, write_race_page
from warmstart.config import Config
from warmstart.report import page, theme
from warmstart.report.headline import HEADLINE_WORDS, headline, paragraphs_once
from warmstart.report.page import Figure, Report, Section
from warmstart.report.templates import COMMON_STYLE, icon
from warmstart.report.theme import COLOURS, DARK, INK, QUIET, SPARE, WHITE, in_dark
from warmstart.stats.formatting import merged_notes

ROOT = Path(warmstart.__file__).parent
PICTURES = ROOT.parents[1] / "docs" / "pictures"


def written(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Report]:
    """The reports that three commands write from results that were made up."""
    found = list[Report]()
    monkeypatch.setattr(page, "svg", lambda spec: "<svg/>")
    monkeypatch.setattr(page, "render", lambda report, *drawn: found.append(paragraphs_once(report)) or "")
    scores = {"pretrained": 0.8, "TF-IDF + logistic regression": 0.72, "class means + label names + EM": 0.79}
    for seeds in (1, 3):
        write_race_page(race_result(scores, seeds), Config(), folder)
    curve = curve_of((16, 0.1, 0.02), (64, 0.06, 0.02), (256, 0.01, 0.01), names=("", " small"))
    write_race_page(race_with(curve), Config(), folder)
    return found


def test_every_kind_of_report_has_a_short_headline() -> None:
    """Whatever makes a report takes its headline from ``headline``, or from a result that makes one of its own."""
    kinds = []
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Report":
                kinds.append((file.parent.name, ast.unparse(node.args[1])))
    assert len(kinds) >= 11
    short = r"headline(_of)?\(.+\)|first|found\.headline"
    assert [kind for kind in kinds if not re.fullmatch(short, kind[1])] == []


@given(st.lists(st.sampled_from(["LoRA is better,", "by far;", "over 5 seeds:", "(95% interval 1 to 2)", "here."]), min_size=1))
def test_a_headline_is_the_beginning_of_a_finding(parts: list[str]) -> None:
    """Without brackets it is a sentence with a full stop, and is made of whole clauses from the start of the finding."""
    finding = "Ours won" + "".join(f" {part}" for part in parts)
    made = headline(finding)
    assert re.sub(r"\s*\([^()]*\)", "", finding).startswith(made[:-1])
    assert made.endswith(".")


@given(st.lists(st.text("ab ,:;", min_size=1, max_size=90), min_size=1, max_size=40))
def test_a_headline_is_bounded(parts: list[str]) -> None:
    """However long names are, and where a sentence has no clauses that could be left out."""
    made = headline(f"Use {' '.join(parts)}.")
    assert len(made.split()) <= HEADLINE_WORDS
    assert max(map(len, made.split())) <= 40


def test_a_paragraph_stands_where_it_comes_first() -> None:
    sections = (Section("A", ("One.", "Two.", "Two.")), Section("B", ("Two.", "One. Three.")))
    report = paragraphs_once(Report("T", "One.", (), sections))
    assert [list(section.text) for section in report.sections] == [["Two."], ["Three."]]


def luminance(colour: str) -> float:
    """Of a colour such as ``#0072b2`` (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_texts_can_be_read_in_light_and_in_dark() -> None:
    """Every colour of text has a contrast of 4.5 with both grounds of its scheme (WCAG 2.2, 1.4.3), and so have charts on white."""
    light, dark = re.findall(r":root \{(.*?)\}", COMMON_STYLE.read_text(encoding="utf-8"), re.DOTALL)
    for scheme in (light, dark):
        colours = dict(re.findall(r"--([\w-]+): (#\w{6});", scheme))
        for text in ("ink", "quiet", "mark", "wrong"):
            assert min(contrast(colours[text], colours[ground]) for ground in ("ground", "panel")) >= 4.5, (scheme, text)
        assert contrast(colours["on-mark"], colours["mark"]) >= 4.5
    assert min(contrast(colour, "#ffffff") for colour in (INK, QUIET)) >= 4.5


OKABE_ITO = {"#0072b2", "#d55e00", "#009e73", "#56b4e9", "#e69f00", "#cc79a7"}


def test_colours_of_charts_are_told_apart_by_everyone() -> None:
    """They are those of Okabe and Ito, and two greys; each can be seen on white, and names have shapes besides."""
    used = {*COLOURS.values(), *SPARE}
    assert used - OKABE_ITO <= {INK, "#7b8794"}
    assert min(contrast(colour, "#ffffff") for colour in used) >= 2


def test_charts_take_their_colours_from_the_theme() -> None:
    """No other file names a colour, so that no chart is unreadable in the dark or to the colour-blind."""
    colour = re.compile(r"\"#[0-9a-fA-F]{6}\b|alt.Scale\(scheme=\"(?!viridis)")
    assert [path for path in ROOT.rglob("*.py") if colour.search(path.read_text("utf-8"))] == [Path(str(theme.__file__))]


def test_a_dark_page_changes_colours_and_nothing_else() -> None:
    """Names that look like colours stay; every colour of text and of a series can be seen on the dark ground."""
    spec = {"mark": {"color": INK}, "data": {"values": [{"label": INK}]}, "scale": {"domain": [INK], "range": [WHITE]}, "width": 3}
    changed = in_dark(spec)
    assert changed == spec | {"mark": {"color": DARK[INK]}, "scale": {"domain": [INK], "range": [DARK[WHITE]]}}
    assert min(contrast(DARK[colour], DARK[WHITE]) for colour in (INK, QUIET)) >= 4.5
    assert min(contrast(DARK.get(colour, colour), DARK[WHITE]) for colour in {*COLOURS.values(), *SPARE}) >= 3


def test_collapsed_runs_have_a_shape_of_their_own() -> None:
    """And colours of the palette."""
    chart = restarts_chart([("one", (0.8, 0.5), (False, True))], "accuracy", 0.5).to_dict()
    encoding = next(layer["encoding"] for layer in chart["layer"] if "shape" in layer["encoding"])
    assert len(set(encoding["shape"]["scale"]["range"])) == 2
    assert {*encoding["color"]["scale"]["range"]} <= OKABE_ITO


def test_notes_of_several_runs_become_one() -> None:
    """Parts that differ in one number are said once; of many numbers the range; others stay as they are."""
    notes = [
        "C = 1, chosen by 5-fold cross-validation; read 1,145 texts",
        "C = 10, chosen by 5-fold cross-validation; read 1,146 texts",
    ]
    assert merged_notes(notes) == ["C = 1 or 10, chosen by 5-fold cross-validation", "read 1,145 or 1,146 texts"]
    assert merged_notes(["k = 9", "k = 3", "k = 9", "k = 5"]) == ["k = 3, 5 or 9"]
    assert merged_notes([f"alpha = {x}" for x in (0.1, 0.01, 1, 10)]) == ["alpha = 0.01 to 10"]
    assert merged_notes(["38% a, 62% b", "40% a, 60% b"]) == ["38% a, 62% b", "40% a, 60% b"]
    assert merged_notes(["", ""]) == [""]


def test_figures_say_in_words_what_they_show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each has a caption, which is its text for screen readers, and a title for each axis that holds numbers."""
    figures: list[Figure] = [figure for report in written(monkeypatch, tmp_path) for figure in report.figures()]
    assert figures
    for figure in figures:
        assert len(figure.caption.split()) >= 3
        layers = figure.chart.to_dict().get("layer", [figure.chart.to_dict()])
        axes = [layer["encoding"][axis] for layer in layers for axis in ("x", "y") if axis in layer.get("encoding", {})]
        numeric = [axis for axis in axes if axis.get("type") == "quantitative"]
        assert any(axis.get("title") or axis.get("field") for axis in numeric)


def test_the_logo_of_the_documents_is_that_of_the_pages() -> None:
    """One drawing: beside the documents, and as the picture of a browser's tab."""
    assert (PICTURES / "logo.svg").read_bytes() == (ROOT / "report" / "logo.svg").read_bytes()
    assert icon().startswith("data:image/svg+xml;base64,")
