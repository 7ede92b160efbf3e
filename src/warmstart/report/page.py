"""A report: one HTML file with everything inlined, and its figures as SVG files beside it.

It opens from disk and asks the network for nothing; a content security policy holds it to that, and lets no script run but the
one that it names by its hash. Every figure is a picture at first; where scripts run, the drawing with tooltips takes its place.
All texts are escaped. The same report gives the same bytes.

This file knows nothing of what is reported: it is handed sentences, tables and charts.
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

from warmstart.report.charts import Chart
from warmstart.report.joined import filled, told
from warmstart.report.templates import template
from warmstart.storage import whole_folder, write_forced

DRAW = """
for (const place of document.querySelectorAll(".drawing")) {
  const spec = JSON.parse(place.querySelector("script").textContent);
  const room = place.clientWidth - 38; // the menu stands on the right
  if (typeof spec.width === "number" && room < spec.width) {
    spec.width = room;
    Object.assign(spec.config.legend, { orient: "top", columns: 2 });
    Object.assign(spec.config.axis, { labelLimit: 110 });
  }
  const stage = document.createElement("div");
  const actions = { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(stage, spec, { ast: true, renderer: "svg", actions, downloadFileName: place.dataset.name })
    .then(() => place.querySelector("img").replaceWith(stage));
}
"""
"""Puts the live drawing in the picture's place. ``ast``: expressions are interpreted, so the policy need not allow ``eval``."""

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""characters that XML cannot hold; the drawing library ends the whole process when it meets one"""
NUMBER = re.compile(r"[-+−]?[\d.,]+(\s?(%|s|ms|min|points))?(\s\(.*\))?|-|–|nan")
"""what stands right-aligned in a table: a number, with its unit or interval"""


@dataclass(frozen=True)
class Figure:
    """A chart with its caption."""

    name: str
    """names the SVG file; each name once in a report"""
    caption: str
    chart: Chart


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; columns of numbers are right-aligned."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def numeric(self) -> list[bool]:
        """Which columns hold numbers only; empty cells say nothing, and a column of them is text."""
        columns = [[row[i] for row in self.rows if row[i]] for i in range(len(self.header))]
        return [bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Section:
    """A heading, sentences, then figures and tables, then text to be shown as it stands."""

    title: str
    text: Sequence[str] = ()
    """one paragraph each"""
    items: Sequence[Figure | Table] = ()
    pre: str = ""
    """for commands and settings"""
    folded: bool = False
    """shown only when asked for"""

    @property
    def anchor(self) -> str:
        """Where links inside the page lead: ``"Audit of the data"`` -> ``"audit-of-the-data"``."""
        return re.sub(r"[^\w]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Report:
    """Everything on one page."""

    title: str
    sentence: str
    """the result, in one sentence"""
    tiles: Sequence[tuple[str, str]]
    """key figures: what, and how much"""
    sections: Sequence[Section]
    footer: str = ""
    """where the figures come from"""

    def figures(self) -> list[Figure]:
        """All figures, in the page's order."""
        return [item for section in self.sections for item in section.items if isinstance(item, Figure)]


def write_report(report: Report, folder: Path) -> Path:
    """Write ``folder/report.html`` and ``folder/figures/*.svg``; returns the page's path.

    An older report gives way; other files of the folder stay. Raises ``StorageError`` when the disk refuses.
    """
    names = [figure.name for figure in report.figures()]
    assert len(set(names)) == len(names), f"each figure needs a name of its own: {names}"
    specs = {figure.name: drawable(figure.chart.to_dict()) for figure in report.figures()}
    pictures = {name: svg(spec) for name, spec in specs.items()}
    page = folder / "report.html"
    with whole_folder(folder / "figures") as aside:
        for name, picture in pictures.items():
            (aside / f"{name}.svg").write_text(picture, encoding="utf-8")
    html = filled(render(report, specs, pictures), told(folder))
    write_forced(page, html.encode(errors="replace"))  # a command line may hold what is no text
    return page


def svg(spec: dict[str, Any]) -> str:
    """A Vega-Lite spec as an SVG picture; nothing is fetched."""
    picture: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return picture


def drawable(value: Any) -> Any:
    """A spec, or a part of one, with U+FFFD for each forbidden character in its texts."""
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
    return template("page.html.jinja").render(report=report, drawings=drawings, images=images, script=script, digest=digest)


@functools.cache
def _script() -> str:
    """Vega, Vega-Lite, Vega-Embed and ``DRAW`` in one; slow to make (a second), so made once."""
    script: str = vl_convert.javascript_bundle(DRAW)
    assert "</script" not in script.lower(), "the script would end too early"
    assert "<!--" not in script, "the script would be read as a comment"
    return script
