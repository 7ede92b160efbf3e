"""The page of a run: it needs no network, no text breaks out of it, and its figures are whole."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from warmstart.errors import StorageError
from warmstart.report import Figure, Report, Section, Table, charts, write_report

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quotes\" 'too' <!-- {{ 7 * 7 }}"
LABELS = ("integration and interpolation", "signal processing", "linear algebra")
METHODS = ("pretrained", "from scratch", "majority")

LOSS: list[dict[str, Any]] = [
    {"step": 1, "tokens": 64, "loss": 5.0, "rate": 1e-3},
    {"step": 2, "tokens": 128, "loss": 4.0, "rate": 1e-3},
    {"step": 2, "held_out": {"causal loss": 4.5, "causal perplexity": 90.0, "masked loss": 4.25}},
]
COMPARISON = [
    ("pretrained", (0.80, 0.84), 0.82, 0.79, 0.85),
    ("from scratch", (0.61,), 0.61, 0.58, 0.64),
    ("majority", (0.12,), 0.12, math.nan, math.nan),
]
TUNING = [(name, seed, 0.5 + 0.1 * epoch + 0.01 * seed, epoch) for name in METHODS for seed in (0, 1) for epoch in (1, 2)]
BY_LABELS = [
    (name, count, 0.6, *((math.nan,) * 2 if name == "majority" else (0.5, 0.7))) for name in METHODS for count in (50, 500)
]
CLASSES = [(name, label, 0.25 * (1 + place)) for name in METHODS for place, label in enumerate(LABELS)]
BALANCE = [(split, label, 7 + place) for split in ("train", "test") for place, label in enumerate(LABELS)]
COUNTS = np.array([[5, 1, 0], [0, 0, 0], [2, 0, 9]])

DRAWN: dict[str, Callable[[], Any]] = {
    "loss": lambda: charts.loss_curves(LOSS),
    "comparison": lambda: charts.comparison(COMPARISON, "macro_f1"),
    "tuning": lambda: charts.tuning_curves(TUNING, "accuracy"),
    "by-labels": lambda: charts.by_labels(BY_LABELS, "accuracy"),
    "classes": lambda: charts.per_class(CLASSES),
    "confusion": lambda: charts.confusion(COUNTS, LABELS),
    "balance": lambda: charts.class_balance(BALANCE),
}


class Page(HTMLParser):
    """What a browser would find: elements with their attributes, the text outside scripts, and the scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text, self.scripts, self.within = "", [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))
        self.within = tag

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    def handle_data(self, data: str) -> None:
        if self.within == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        else:
            self.text += data

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def make_report(label: str = "linear algebra") -> Report:
    """A report with every chart, a table, folded settings, and ``label`` wherever text can stand."""
    figures = tuple(Figure(name, f"Caption of {name}", draw()) for name, draw in DRAWN.items())
    nasty = Figure("nasty", label, charts.per_class([(label, label, 0.5), ("pretrained", label, 0.75)]))
    table = Table(("method", "score", "note"), [(label, "81.2 %", "a few words"), ("majority", "9.0 %", "")])
    sections = (
        Section("Figures", (label, "A paragraph."), (*figures, nasty)),
        Section("Numbers", items=(table,)),
        Section(f"Settings {label}", pre=f"key: {label}\n", folded=True),
    )
    return Report(f"Title {label}", f"Sentence {label}", ((label, label), ("texts", "12,345")), sections, f"Footer {label}")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a harmless report."""
    return write_report(make_report(), tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report whose labels are an attack."""
    return write_report(make_report(NASTY), tmp_path_factory.mktemp("nasty"))


def numbers(value: Any) -> list[float]:
    """Every number inside a piece of JSON."""
    if isinstance(value, dict | list):
        return [number for part in (value.values() if isinstance(value, dict) else value) for number in numbers(part)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize("name", DRAWN)
def test_every_chart_is_whole_json(name: str) -> None:
    """A chart of few rows, nan intervals included, becomes JSON that holds finite numbers only."""
    spec = DRAWN[name]().to_dict()
    assert all(math.isfinite(number) for number in numbers(spec))
    json.dumps(spec, allow_nan=False)


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_is_a_picture_beside_the_page(plain: Path, name: str) -> None:
    """Each figure is an SVG file that parses as XML, says something and draws something."""
    root = ElementTree.parse(plain.parent / "figures" / f"{name}.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "".join(root.itertext()).strip()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 3
    assert "NaN" not in ElementTree.tostring(root, encoding="unicode")


def test_a_figure_shows_what_its_rows_say(plain: Path) -> None:
    """Names of methods and labels, means in percent and counts stand in the pictures."""
    said = {name: " ".join(ElementTree.parse(plain.parent / "figures" / f"{name}.svg").getroot().itertext()) for name in DRAWN}
    assert all(method in said["comparison"] for method in METHODS)
    assert "82.0" in said["comparison"]
    assert "macro F1" in said["comparison"]
    assert all(label in said["confusion"] for label in LABELS)
    assert all(label in said["balance"] for label in LABELS)
    assert "masked" in said["loss"]
    assert "perplexity" not in said["loss"]


@pytest.mark.parametrize("rows", [LOSS[:2], LOSS[2:], []])
def test_a_loss_curve_may_lack_either_line(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """A run without evaluations, without logged steps, or without anything still has a figure."""
    report = Report("t", "s", (), (Section("c", items=(Figure("loss", "", charts.loss_curves(rows)),)),))
    assert write_report(report, tmp_path).exists()


def test_one_method_has_one_colour_in_every_figure() -> None:
    """Known methods are coloured alike in every chart; no two methods of a chart share a colour."""
    found: dict[str, set[str]] = {}
    for name in ("comparison", "tuning", "by-labels", "classes"):
        scales = re.findall(r'"scale": (\{"domain": \["pretrained".*?\})', json.dumps(DRAWN[name]().to_dict()))
        coloured = [json.loads(scale) for scale in scales if "#" in scale]
        assert coloured, name
        for scale in coloured:
            assert len(set(scale["range"])) == len(scale["domain"])
            for method, colour in zip(scale["domain"], scale["range"], strict=True):
                found.setdefault(method, set()).add(colour)
    assert found.keys() == set(METHODS)
    assert all(len(colours) == 1 for colours in found.values()), found


def test_the_page_asks_the_network_for_nothing(plain: Path) -> None:
    """No element loads anything but data that the page itself holds, and a policy forbids the rest."""
    page = Page(plain.read_text(encoding="utf-8"))
    assert all(value.startswith("data:") for value in page.values("src"))
    assert not [value for value in page.values("href") if re.match(r"\w+:|//", value)]
    assert not [tag for tag, _ in page.elements if tag in ("link", "iframe", "object", "embed", "base", "form")]
    style = "".join(re.findall(r"<style>(.*?)</style>", plain.read_text(encoding="utf-8"), re.DOTALL))
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = (a["content"] for tag, a in page.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "unsafe-eval" not in policy


def test_the_policy_knows_the_scripts_by_their_hashes(plain: Path) -> None:
    """Every script that runs is named by the policy, so that no other can."""
    html = plain.read_text(encoding="utf-8")
    scripts = [text for kind, text in Page(html).scripts if kind != "application/json"]
    assert scripts
    for script in scripts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in html
    assert "script-src 'unsafe-inline'" not in html


def test_the_page_says_everything(plain: Path) -> None:
    """Title, sentence, tiles, titles of sections, paragraphs, captions, cells, settings and footer all stand on the page."""
    text = Page(plain.read_text(encoding="utf-8")).text
    for words in ("Title linear", "Sentence linear", "12,345", "Figures", "Numbers", "Settings linear", "A paragraph.", "81.2 %",
                  "a few words", "key: linear algebra", "Footer linear", *(f"Caption of {name}" for name in DRAWN)):  # fmt: skip
        assert words in text, words


def test_a_folded_section_can_be_opened(plain: Path) -> None:
    """Only the folded section stands inside a details element."""
    folded = re.findall(r"<details>.*?</details>", plain.read_text(encoding="utf-8"), re.DOTALL)
    assert len(folded) == 1
    assert "key: linear algebra" in folded[0]


def test_no_text_breaks_out(plain: Path, nasty: Path) -> None:
    """Labels that spell markup add no element and no handler, and are read as they were written."""
    tame, wild = (Page(path.read_text(encoding="utf-8")) for path in (plain, nasty))
    assert [tag for tag, _ in wild.elements] == [tag for tag, _ in tame.elements]
    assert not wild.values("onerror")
    assert len(wild.scripts) == len(tame.scripts)
    assert NASTY in wild.text
    assert any(NASTY in words for words in strings([json.loads(text) for kind, text in wild.scripts if kind]))


def strings(value: Any) -> list[str]:
    """Every string inside a piece of JSON."""
    if isinstance(value, dict | list):
        return [words for part in (value.values() if isinstance(value, dict) else value) for words in strings(part)]
    return [value] if isinstance(value, str) else []


def test_no_label_breaks_out_of_a_picture(nasty: Path) -> None:
    """A label that spells markup is text in the SVG."""
    root = ElementTree.parse(nasty.parent / "figures" / "nasty.svg").getroot()
    assert not [element.tag for element in root.iter() if element.tag.endswith(("script", "img", "foreignObject"))]


@pytest.mark.parametrize(
    "label", ["", " ", "a.b[0]", "tab\there", "two\nlines", "ünïcødé 漢字 🙂", "\x00\x1f", "constructor", "%s"]
)
def test_any_label_can_be_drawn(label: str, tmp_path: Path) -> None:
    """Whatever a data set calls a class, the page is written and its pictures parse."""
    rows = [("train", label, 3), ("train", "other", 2)]
    chart = charts.class_balance(rows)
    write_report(Report("t", label, ((label, "1"),), (Section("c", (label,), (Figure("balance", label, chart),)),)), tmp_path)
    ElementTree.parse(tmp_path / "figures" / "balance.svg")


def test_the_same_report_gives_the_same_bytes(plain: Path, tmp_path: Path) -> None:
    """A report made twice from the same rows is the same, page and pictures."""
    again = write_report(make_report(), tmp_path)
    assert again.read_bytes() == plain.read_bytes()
    for picture in sorted((plain.parent / "figures").iterdir()):
        assert (tmp_path / "figures" / picture.name).read_bytes() == picture.read_bytes()


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (("81.2 %", "9.0 %"), True),
        (("12,345", "7"), True),
        (("80.1 % (78.0 % to 82.2 %)", "9.0 %"), True),
        (("a few words", "12"), False),
        (("always the commonest label", ""), False),
    ],
)
def test_columns_of_numbers_are_right_aligned(cells: tuple[str, str], right: bool) -> None:
    """A column is right-aligned when it holds numbers; the first column of names never is."""
    assert Table(("name", "value"), [("one", cells[0]), ("two", cells[1])]).numeric() == [False, right]


def test_two_figures_of_one_name_are_refused(tmp_path: Path) -> None:
    """Two figures cannot share a file."""
    figure = Figure("same", "", charts.class_balance(BALANCE))
    with pytest.raises(AssertionError, match="same"):
        write_report(Report("t", "s", (), (Section("c", items=(figure, figure)),)), tmp_path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Where the disk refuses, the error names the place and what to do."""
    (tmp_path / "file").write_text("in the way")
    report = Report("t", "s", (), (Section("c", items=(Figure("balance", "", charts.class_balance(BALANCE)),)),))
    with pytest.raises(StorageError, match="choose another folder"):
        write_report(report, tmp_path / "file")
