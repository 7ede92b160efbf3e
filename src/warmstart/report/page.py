"""A report: one HTML file with everything inlined, and its figures as SVG files beside it.

It opens from disk and needs no network; a content security policy enforces that, and allows only the one script that it names by
its hash. Every figure is a picture at first; if scripts may run, the interactive drawing with tooltips replaces it. All texts are
escaped. The same report gives the same bytes.

This file does not know what is reported: it takes sentences, tables and charts.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vl_convert

from warmstart.report.categories import number_categories
from warmstart.report.charts import Chart
from warmstart.report.study_links import insert_links, read_links
from warmstart.report.templates import page_template
from warmstart.storage import PAGE_FILE, atomic_folder, atomic_write

DRAW = """
for (const figure of document.querySelectorAll(".drawing")) {
  const spec = JSON.parse(figure.querySelector("script").textContent);
  const width = figure.clientWidth - 38; // the menu is on the right
  if (typeof spec.width === "number" && width < spec.width) {
    spec.width = width;
    Object.assign(spec.config.legend, { orient: "top", columns: 2 });
    Object.assign(spec.config.axis, { labelLimit: 110 });
  }
  const drawing = document.createElement("div");
  const actions = { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(drawing, spec, { ast: true, renderer: "svg", actions, downloadFileName: figure.dataset.name })
    .then(() => figure.querySelector("img").replaceWith(drawing));
}
"""
"""Replaces each picture by the interactive drawing. ``ast``: expressions are interpreted, so the policy need not allow ``eval``."""

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""characters that XML cannot hold; one of them makes the drawing library end the whole process"""
NUMBER = re.compile(r"[-+−]?[\d.,]+(\s?(%|s|ms|min|points))?(\s\(.*\))?|-|–|nan")
"""a cell that is right-aligned: a number, with its unit or interval"""


@dataclass(frozen=True)
class Figure:
    """A chart with its caption."""

    name: str
    """name of the SVG file, unique in a report"""
    caption: str
    chart: Chart


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; columns of numbers are right-aligned."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def numeric(self) -> list[bool]:
        """Which columns hold numbers only. Empty cells are ignored; a column of empty cells is text."""
        columns = [[row[i] for row in self.rows if row[i]] for i in range(len(self.header))]
        return [bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Section:
    """A heading, sentences, then figures and tables, then preformatted text."""

    title: str
    text: Sequence[str] = ()
    """one paragraph each"""
    items: Sequence[Figure | Table] = ()
    pre: str = ""
    """preformatted text: commands and settings"""
    folded: bool = False
    """closed until the reader opens it"""

    @property
    def anchor(self) -> str:
        """The target of links inside the page: ``"Audit of the data"`` -> ``"audit-of-the-data"``."""
        return re.sub(r"[^\w]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Report:
    """Everything on one page."""

    title: str
    sentence: str
    """the result, in one sentence"""
    tiles: Sequence[tuple[str, str]]
    """key figures: name and formatted value"""
    sections: Sequence[Section]
    footer: str = ""
    """where the figures come from"""

    def figures(self) -> list[Figure]:
        """All figures, in the page's order."""
        return [item for section in self.sections for item in section.items if isinstance(item, Figure)]


def write_report(report: Report, folder: Path) -> Path:
    """Write ``folder/report.html`` and ``folder/figures/*.svg``; returns the page's path.

    They replace an older report; other files of the folder stay. Raises ``StorageError`` when the disk refuses.
    """
    specs, pictures = _drawn(report)
    page = folder / PAGE_FILE
    with atomic_folder(folder / "figures") as figures:
        for name, picture in pictures.items():
            (figures / f"{name}.svg").write_text(picture, encoding="utf-8")
    html = insert_links(render(report, specs, pictures), read_links(folder))
    atomic_write(page, html.encode(errors="replace"))  # a command line may hold bytes that are not text
    return page


def write_page(report: Report, file: Path) -> Path:
    """Write the page alone, wherever it is wanted; its figures are in it. Returns its path."""
    atomic_write(file, render(report, *_drawn(report)).encode(errors="replace"))
    return file


def _drawn(report: Report) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The specs and the pictures of all figures, by name."""
    names = [figure.name for figure in report.figures()]
    assert len(set(names)) == len(names), f"each figure needs a name of its own: {names}"
    specs = {figure.name: drawable(number_categories(figure.chart.to_dict())) for figure in report.figures()}
    return specs, {name: svg(spec) for name, spec in specs.items()}


def svg(spec: dict[str, Any]) -> str:
    """A Vega-Lite spec as an SVG picture; nothing is fetched."""
    picture: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return picture


def drawable(value: Any) -> Any:
    """A spec, or a part of one, with U+FFFD in place of each forbidden character of its texts."""
    if isinstance(value, str):
        return FORBIDDEN.sub("\ufffd", value)
    if isinstance(value, dict):
        return {key: drawable(part) for key, part in value.items()}
    return [drawable(part) for part in value] if isinstance(value, list) else value


def render(report: Report, specs: dict[str, dict[str, Any]], pictures: dict[str, str]) -> str:
    """The page's HTML."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    images = {name: base64.b64encode(picture.encode()).decode() for name, picture in pictures.items()}
    # "<" is written \u003c inside strings of JSON, so that no text can close the script element
    drawings = {name: json.dumps(spec).replace("<", "\\u003c") for name, spec in specs.items()}
    return page_template("page.html.jinja").render(report=report, drawings=drawings, images=images, script=script, digest=digest)


@functools.cache
def _script() -> str:
    """Vega, Vega-Lite, Vega-Embed and ``DRAW`` in one script; bundling takes a second, so it is done once."""
    script: str = vl_convert.javascript_bundle(DRAW)
    assert "</script" not in script.lower(), "the script would end early"
    assert "<!--" not in script, "the script would be read as a comment"
    return script
