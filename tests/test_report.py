"""Reports: one page that opens anywhere, needs no network, escapes every text, has a short headline, and colours for everyone."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warmstart
from warmstart.report import charts, drawing
from warmstart.report.charts import BLUE, COLOURS, DARK, GREEN, INK, QUIET, SPARE, WHITE, colours, in_dark, number_categories
from warmstart.report.drawing import svg
from warmstart.report.drawings import (
    class_balance_chart,
    class_scores_chart,
    comparison_chart,
    confusion_chart,
    label_counts_chart,
    loss_chart,
    reliability_chart,
    restarts_chart,
    risk_chart,
    text_lengths_chart,
    tuning_chart,
)
from warmstart.report.notebook import fragment
from warmstart.report.page import drawable, write_report
from warmstart.report.parts import HEADLINE_WORDS, Figure, Report, Section, Table, headline, paragraphs_once
from warmstart.report.study_charts import pairs_chart, probe_chart
from warmstart.report.templates import COMMON_STYLE, icon
from warmstart.stats.formatting import merged_notes

ROOT = Path(warmstart.__file__).parent
PICTURES = ROOT.parents[1] / "docs" / "pictures"
EVIL = "</script><img src=x onerror=alert(1)> & \"'"
LABELS = ("constructor", EVIL, "日本", "")
RUNS = [(name, seed, 0.5 + 0.1 * seed, epoch) for name in ("pretrained", "from scratch") for seed in (0, 1) for epoch in (1, 2)]
LOG = [{"step": 10 * n, "tokens": 1000 * n, "loss": 5 / n} for n in range(1, 5)]
HELD = [{"step": 20, "held_out": {"loss": 3.0, "perplexity": 20.0}}, {"step": 40, "held_out": {"loss": 1.5, "perplexity": 4.5}}]

CATEGORIES: dict[str, Callable[[Sequence[str]], charts.Chart]] = {
    "comparison": lambda names: comparison_chart([(name, (0.8, 0.9), 0.85, 0.8, 0.9) for name in names], "accuracy"),
    "tuning": lambda names: tuning_chart([(name, 0, 0.5, place) for name in names for place in (1, 2)], "accuracy"),
    "by labels": lambda names: label_counts_chart(
        [(name, count, 0.5, 0.4, 0.6) for name in names for count in (10, 40)], "accuracy"
    ),
    "classes": lambda names: class_scores_chart([(method, name, 0.3) for method in names for name in names]),
    "confusion": lambda names: confusion_chart(np.ones((len(names), len(names)), dtype=np.int64), names),
    "balance": lambda names: class_balance_chart([(split, name, 3) for split in ("train", "test") for name in names]),
    "lengths": lambda names: text_lengths_chart([(name, 12, 40, 99) for name in names]),
    "pairs": lambda names: pairs_chart([(method, name, 0.5, 0.4, 0.6) for method in names for name in names]),
    "probes": lambda names: probe_chart(
        [(task, model, layer, 0.5, 0.4, 0.6) for task in names for model in names for layer in ("embedding", "1")],
        ("embedding", "1"),
        [(task, f"without {name}", 0.3) for task, name in zip(names, names, strict=True)],
    ),
    "reliability": lambda names: reliability_chart({name: [(0.1, 0.2, 3), (0.5, 0.6, 4)] for name in names}),
    "risk": lambda names: risk_chart({name: (np.linspace(0, 1, 5), np.linspace(0, 1, 5)) for name in names}),
}
"""every chart with categories, as a function of their names"""


def test_models_and_baselines_have_legends_of_their_own() -> None:
    """Vega-Lite makes one legend of two whose names have the same numbers, and would call two models by two baselines."""
    points = [("a task", model, "1", 0.5, 0.4, 0.6) for model in ("one", "other")]
    chart = probe_chart(points, ("1",), [("a task", name, 0.3) for name in ("bag", "most frequent")])
    text = json.dumps(number_categories(chart.to_dict()))
    (dashes,) = {*re.findall(r'"strokeDash": \{.*?"domain": (\[.*?\])', text)}
    (colours,) = {*re.findall(r'"color": \{.*?"domain": (\[.*?\])', text)}
    assert dashes != colours


CHARTS: dict[str, Callable[[], charts.Chart]] = {
    "loss": lambda: loss_chart([*LOG, *HELD]),
    "comparison": lambda: comparison_chart(
        [("pretrained", (0.8, 0.9), 0.85, 0.2, 1.4), (EVIL, (0.7,), 0.7, math.nan, math.nan)], "accuracy"
    ),
    "tuning": lambda: tuning_chart(RUNS, "macro_f1"),
    "by-labels": lambda: label_counts_chart(
        [("pretrained", 10, 0.5, 0.4, 0.6), ("majority", 40, 0.1, math.nan, math.nan)], "accuracy"
    ),
    **{name: partial(CATEGORIES[name], LABELS) for name in ("classes", "confusion", "balance", "lengths")},
}
JAVASCRIPT = ("constructor", "toString", "__proto__", "hasOwnProperty", "valueOf", "a\u2028b", "plain")
"""names that JavaScript objects have already, and a line separator, which ends a string in JavaScript"""


def made_up() -> Report:
    """A report with every chart, and with a hostile text wherever a text can be."""
    figures = [Figure(name, f"{name} {EVIL}", chart()) for name, chart in CHARTS.items()]
    table = Table(("method", "score", EVIL), [("ours", "85.0% (82.5 to 87.5)", EVIL), ("theirs", "-", "")])
    sections = (
        Section("What was compared", (EVIL, "A second paragraph."), (table, *figures)),
        Section("Settings", pre=f"seed: 0\nname: {EVIL}", folded=True),
        Section(EVIL),
    )
    return Report(f"A report {EVIL}", f"Ours won. {EVIL}", ((EVIL, "85.0%"),), sections, EVIL)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, in a folder with its figures."""
    return write_report(made_up(), tmp_path_factory.mktemp("report"))


class Reader(HTMLParser):
    """Collects a page's elements, its visible text and its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data


def test_nothing_is_loaded(written: Path) -> None:
    """The page refers to nothing outside itself; its policy forbids that, and allows only its own script."""
    reader = Reader(written.read_text(encoding="utf-8"))
    targets = [value or "" for _, attributes in reader.elements for name, value in attributes.items() if name in ("src", "href")]
    assert targets
    assert all(target.startswith(("#", "data:image/svg+xml;base64,")) for target in targets)
    assert [attributes["rel"] for tag, attributes in reader.elements if tag == "link"] == ["icon"]
    assert not [tag for tag, _ in reader.elements if tag in ("iframe", "object", "embed", "form", "base")]
    policy = (
        next(attributes["content"] for tag, attributes in reader.elements if tag == "meta" and "http-equiv" in attributes) or ""
    )
    digest = base64.b64encode(hashlib.sha256(reader.scripts[-1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert re.findall(r"script-src [^;]*", policy) == [f"script-src 'sha256-{digest}'"]
    assert "http" not in (written.parent / "figures" / "loss.svg").read_text().replace("http://www.w3.org/", "")


def test_texts_are_escaped(written: Path) -> None:
    """A label that looks like markup stays a text, in sentences, tables, captions and the data of charts."""
    reader = Reader(written.read_text(encoding="utf-8"))
    assert not [attributes for _, attributes in reader.elements if "onerror" in attributes]
    assert len([tag for tag, _ in reader.elements if tag == "img"]) == 2 * len(CHARTS)  # light and dark
    assert len(reader.scripts) == len(CHARTS) + 1
    assert reader.text.count(EVIL) >= 9
    specs = [json.loads(script) for script in reader.scripts[:-1]]
    assert any(EVIL in json.dumps(spec, ensure_ascii=False).replace('\\"', '"') for spec in specs)


def test_every_section_has_an_anchor(written: Path) -> None:
    """The table of contents links to all sections; folded ones are folded; all sentences are on the page."""
    reader = Reader(written.read_text(encoding="utf-8"))
    anchors = [attributes["id"] for tag, attributes in reader.elements if tag == "section"]
    links = [attributes["href"] for tag, attributes in reader.elements if tag == "a"]
    assert anchors[:2] == ["what-was-compared", "settings"]
    assert links == [f"#{anchor}" for anchor in anchors]
    assert len([tag for tag, _ in reader.elements if tag == "details"]) == 1
    assert all(words in reader.text for words in ("Ours won.", "A second paragraph.", "seed: 0", "85.0%"))


def test_figures_are_svg(written: Path) -> None:
    """Each figure is a well-formed file beside the page, and the page shows the same picture before any script runs."""
    page = written.read_text(encoding="utf-8")
    for name, chart in CHARTS.items():
        picture = (written.parent / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
        assert "nan" not in picture.lower().replace("dominant", ""), name
        assert base64.b64encode(picture.encode()).decode() in page, name
        text = json.dumps(chart().to_dict(), allow_nan=False)  # no chart holds nan, or a name from a counter
        assert text == json.dumps(chart().to_dict(), allow_nan=False), name


def test_same_report_same_bytes(written: Path, tmp_path: Path) -> None:
    """Writing a report again gives the same files, byte for byte."""
    again = write_report(made_up(), tmp_path)
    assert again.read_bytes() == written.read_bytes()
    for picture in (written.parent / "figures").iterdir():
        assert (tmp_path / "figures" / picture.name).read_bytes() == picture.read_bytes()


def test_only_the_report_is_replaced(tmp_path: Path) -> None:
    """A new report replaces the older one with its figures; a run's other files stay, and nothing half-written is left."""
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    first = Report("One", "One.", (), (Section("A", items=(Figure("old", "Old.", CHARTS["lengths"]()),)),))
    second = Report("Two", "Two.", (), (Section("A", items=(Figure("new", "New.", CHARTS["lengths"]()),)),))
    write_report(first, tmp_path)
    write_report(second, tmp_path)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert names == ["figures", "figures/new.svg", "metrics.jsonl", "report.html"]
    assert "Two." in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    """Two figures of one name would overwrite each other."""
    figure = Figure("same", "", CHARTS["lengths"]())
    with pytest.raises(AssertionError, match="a name of its own"):
        write_report(Report("One", "One.", (), (Section("A", items=(figure, figure)),)), tmp_path)


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from warmstart.report.drawings import text_lengths_chart
from warmstart.report.page import write_report
from warmstart.report.parts import Figure, Report, Section, Table
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
figure = Figure("lengths", "The lengths.", text_lengths_chart([("train", 12, 40, 99)]))
items = (figure, Table(("split", "texts"), [("train", "12")]))
write_report(Report("One", "One.", (), (Section("A", items=items),)), Path(sys.argv[1]))
"""


@pytest.mark.journeys
@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no address space")
def test_a_limit_of_memory_costs_the_figures_and_not_the_run(tmp_path: Path) -> None:
    """The program that draws reserves more than a shell may allow; the page says so and holds the tables."""
    words = [sys.executable, "-c", LITTLE_MEMORY, str(tmp_path)]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The figures are missing, because" in page
    assert "<td" in page
    assert "<img" not in page
    assert " ".join(run.stderr.split()) == drawing.NO_PICTURES


def test_a_dead_drawing_program_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page without figures, in a notebook, too; the next page has them. A wrong chart is no death, and is raised."""
    report = Report("One", "One.", (), (Section("A", items=(Figure("lengths", "The lengths.", CHARTS["lengths"]()),)),))
    drawing._PAINTER.end()
    with monkeypatch.context() as patch:
        patch.setattr(drawing, "_CODE", "import os; os.abort()")
        for page in (write_report(report, tmp_path).read_text(encoding="utf-8"), fragment(report)):
            assert "The figures are missing" in page
            assert "<img" not in page
    assert "<img" in write_report(report, tmp_path).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="conversion failed"):
        svg({"mark": {"no": "mark"}})


def test_columns_of_numbers_are_recognized() -> None:
    """With units, intervals or gaps they are numeric, and so right-aligned; names, notes and empty columns are not."""
    rows = [
        ("a1", "1,234", "85.0% (82.5 to 87.5)", "-0.5", "12.3 s", "", "3 of 3"),
        ("22", "-", "75.1% (one run)", "", "4 min", "", "7"),
    ]
    assert Table(("name", "n", "score", "gap", "time", "nothing", "note"), rows).numeric() == [
        False, True, True, True, True, False, False,
    ]  # fmt: skip
    assert Table(("a",), []).numeric() == [False]


def test_forbidden_characters_leave_pictures_whole(tmp_path: Path) -> None:
    """Characters that XML or UTF-8 forbid, in a label or a command, break neither picture nor page nor process; none is obeyed."""
    odd = "\x00\x07\x0b\x1b\ud800\uffff\u202e"
    chart = class_balance_chart([("train", f"a{odd}b", 3), ("train", "c", 1)])
    page = write_report(Report("One", odd, (), (Section("A", items=(Figure("odd", "", chart),)),)), tmp_path)
    assert "a" + 6 * "\ufffd" + "\u202eb" in "".join(ET.parse(tmp_path / "figures" / "odd.svg").getroot().itertext())
    assert not set(page.read_text(encoding="utf-8")) & set("\x00\x07\x0b\x1b\u202e")


def values(chart: charts.Chart) -> list[list[dict[str, Any]]]:
    """The data sets of a chart."""
    spec = chart.to_dict()
    parts = [spec.get("data"), *(layer.get("data") for layer in spec.get("layer", []))]
    return [spec["datasets"][part["name"]] if "name" in part else part["values"] for part in parts if part]


def test_held_out_losses_are_drawn_at_the_tokens_read() -> None:
    """They are interpolated between logged steps; figures that are no loss are left out."""
    rows = values(CHARTS["loss"]())[0]
    held = [row for row in rows if row["line"] == "held out"]
    assert [(row["tokens"], row["loss"]) for row in held] == [(2000, 3.0), (4000, 1.5)]
    assert [row["loss"] for row in rows if row["line"] == "training"] == pytest.approx([5, 2.5, 5 / 3, 1.25])


def test_long_curves_are_thinned() -> None:
    """A long run is drawn with a few hundred points, each a mean, up to the last step."""
    rows = values(loss_chart({"step": n, "tokens": n, "loss": float(n % 2)} for n in range(1, 10_001)))[0]
    assert len(rows) == charts.MAX_POINTS
    assert rows[-1]["tokens"] == 10_000
    assert all(row["loss"] == pytest.approx(0.5, abs=0.05) for row in rows)


def test_hybrid_objectives_have_a_line_each() -> None:
    """Each held-out loss is named by its objective."""
    rows = values(loss_chart([*LOG, {"step": 40, "held_out": {"causal loss": 2.0, "masked loss": 1.0, "masked perplexity": 3.0}}]))
    assert {row["line"] for row in rows[0]} == {"training", "held out causal", "held out masked"}


def test_tuning_bands_span_the_seeds() -> None:
    """Each evaluation of each method has its mean, lowest and highest seed."""
    rows = values(CHARTS["tuning"]())[0]
    assert rows[0] == {"method": "pretrained", "evaluation": 1, "mean": pytest.approx(0.55), "low": 0.5, "high": 0.6, "seeds": 2}
    assert len(rows) == 4


def test_a_missing_interval_is_null() -> None:
    """A single seed's interval is neither drawn nor printed."""
    rows = [row for part in values(CHARTS["comparison"]()) for row in part if "mean" in row]
    assert (rows[1]["low"], rows[1]["high"], rows[1]["text"]) == (None, None, "70.0")
    assert rows[0]["text"] == "85.0 (20.0 to 140.0)"


@pytest.mark.parametrize("name", CATEGORIES)
def test_names_that_javascript_knows_are_names_like_any_other(name: str) -> None:
    """They are drawn, and are values only: in rows of data and in the lists that labels are looked up in, never keys or code."""
    spec = number_categories(CATEGORIES[name](JAVASCRIPT).to_dict())
    shown = list(ET.fromstring(svg(drawable(spec))).itertext())
    assert [label for label in JAVASCRIPT if label not in shown] == []

    def check(node: Any) -> None:
        if isinstance(node, dict):
            assert not set(node) & set(JAVASCRIPT)
            if node.get("type") in ("nominal", "ordinal") and "field" in node:
                given = [*(node.get("sort") or ()), *(node.get("scale") or {}).get("domain", ())]
                assert not set(given) & set(JAVASCRIPT)
            for key, value in node.items():
                assert key not in ("expr", "labelExpr", "filter", "calculate") or not any(label in value for label in JAVASCRIPT)
                if key not in ("values", "params", "datasets"):
                    check(value)
        elif isinstance(node, list):
            for part in node:
                check(part)

    check(spec)
    spec = CATEGORIES[name](["beta", "Zeta", "alpha", "", 'quo"te <b>']).to_dict()
    plain, numbered = svg(spec), svg(number_categories(spec))  # numbering changes what screen readers are told, and no picture
    hidden = r' aria-[a-z]+="[^"]*"| role="[^"]*"'
    assert re.sub(hidden, "", numbered) == re.sub(hidden, "", plain)
    assert re.search(r'aria-label="[^"]*: alpha', numbered)
    assert "_number" not in numbered


def test_colours_stay_with_names() -> None:
    """A method has its colour in any order; others take free colours as long as there are any."""
    assert colours(["TF-IDF + logistic regression", "pretrained"]) == [GREEN, BLUE]
    mixed = colours(["LoRA", "pretrained", "pretrained, probe", "from scratch", "majority"])
    assert len(set(mixed)) == 5
    assert mixed[1] == COLOURS["pretrained"]
    assert len(colours([*COLOURS, *map(str, range(20))])) == len(COLOURS) + 20
    assert set(colours(["a", "b"])) <= set(SPARE)


# ------------------------------------------------------------------------------------------------ headlines and colours


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
        named = dict(re.findall(r"--([\w-]+): (#\w{6});", scheme))
        for text in ("ink", "quiet", "mark", "wrong"):
            assert min(contrast(named[text], named[ground]) for ground in ("ground", "panel")) >= 4.5, (scheme, text)
        assert contrast(named["on-mark"], named["mark"]) >= 4.5
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
    assert [path for path in ROOT.rglob("*.py") if colour.search(path.read_text("utf-8"))] == [Path(str(charts.__file__))]


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


def test_the_logo_of_the_documents_is_that_of_the_pages() -> None:
    """One drawing: beside the documents, and as the picture of a browser's tab."""
    assert (PICTURES / "logo.svg").read_bytes() == (ROOT / "report" / "logo.svg").read_bytes()
    assert icon().startswith("data:image/svg+xml;base64,")
