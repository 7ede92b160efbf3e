"""A report: one HTML file with everything inlined, and its figures as SVG files beside it.

It opens from disk and needs no network; a content security policy enforces that, and allows only the one script that it names by
its hash: that of the drawings, and of what a section offers to be tried.
Every figure is a picture at first, in the colours of a light page and of a dark one; if scripts may run, an interactive
drawing with tooltips takes its place on the screen. All texts are escaped. The same report gives the same bytes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstart.report.charts import DARK, NOT_COLOURS, in_dark, number_categories
from warmstart.report.drawing import NO_PICTURES, DrawingError, javascript_bundle, svg
from warmstart.report.parts import Report, paragraphs_once
from warmstart.report.templates import page_template, verdict_html
from warmstart.runs.record import end_record
from warmstart.runs.verdict import VERDICT_FILE, write_verdict
from warmstart.system.console import console
from warmstart.system.storage import PAGE_FILE, atomic_folder, atomic_write

DRAW = """
const DARK = /* colours */, NOT_COLOURS = new Set(/* not colours */);
const scheme = matchMedia("(prefers-color-scheme: dark)");
function inDark(spec) {
  if (typeof spec === "string") return DARK[spec] ?? spec;
  if (Array.isArray(spec)) return spec.map(inDark);
  if (spec === null || typeof spec !== "object") return spec;
  return Object.fromEntries(Object.entries(spec).map(([key, part]) => [key, NOT_COLOURS.has(key) ? part : inDark(part)]));
}
function inLines(part) { // names of two parts, "a + b", stand in two lines, so that none is cut to what another is cut to
  if (part === null || typeof part !== "object") return;
  const axis = part.y?.axis, names = axis?.labelExpr;
  if (names?.endsWith("_names[datum.value]")) {
    Object.assign(axis, { labelExpr: `split(${names}, regexp(" (?=[+·(])"))`, labelFontSize: 10, labelLimit: 120 });
  }
  Object.values(part).forEach(inLines);
}
function draw(figure) {
  const light = JSON.parse(figure.querySelector("script").textContent), spec = scheme.matches ? inDark(light) : light;
  const narrow = typeof spec.width === "number" && figure.clientWidth - 38 < spec.width; // the menu is on the right
  if (narrow) {
    spec.width = figure.clientWidth;
    Object.assign(spec.config.legend, { orient: "top", columns: 2 });
    Object.assign(spec.config.axis, { labelLimit: 110 });
    inLines(spec);
  }
  const actions = !narrow && { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(figure.querySelector(".live"), spec, { ast: true, renderer: "svg", actions, downloadFileName: figure.dataset.name })
    .then(() => {
      figure.querySelector("summary")?.setAttribute("aria-label", "Save this chart");
      figure.classList.add("drawn");
      figure.classList.toggle("in-dark", scheme.matches);
      if (figure.scrollWidth > figure.clientWidth) figure.tabIndex = 0;
    });
}
const drawAll = () => document.querySelectorAll(".drawing").forEach((figure) => figure.clientWidth && draw(figure));
drawAll();
const opened = ({ target }) => target.open && target.querySelectorAll(".drawing:not(.drawn)").forEach(draw);
document.addEventListener("toggle", opened, true);
scheme.addEventListener("change", drawAll);
const reachable = new ResizeObserver((parts) => parts.forEach(({ target: part }) => {
  if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
}));
for (const part of document.querySelectorAll(".scroll, pre")) reachable.observe(part);
"""
"""Puts the interactive drawing in the place of each picture; from a dark page the light picture is printed. ``ast``: expressions
are interpreted, so that the policy need not allow ``eval``."""

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""characters that XML cannot hold; one of them makes the drawing library end the whole process"""


@dataclass(frozen=True)
class Drawn:
    """The figures of a report, by name; none where they cannot be drawn."""

    specs: dict[str, dict[str, Any]]
    light: dict[str, str]
    dark: dict[str, str]
    script: str
    missing: str = ""
    """why there are none, as complete sentences"""


def write_report(report: Report, folder: Path) -> Path:
    """Write ``folder/report.html`` and ``folder/figures/*.svg``, the last files of a run; returns the page's path.

    They replace an older report; other files of the folder stay. Raises ``StorageError`` when the disk refuses.
    """
    drawn = _drawn(report)
    page = folder / PAGE_FILE
    with atomic_folder(folder / "figures") as figures:
        for name, picture in drawn.light.items():
            (figures / f"{name}.svg").write_text(picture, encoding="utf-8")
    atomic_write(page, render(report, drawn).encode(errors="replace"))  # a command line may hold bytes that are not text
    (folder / VERDICT_FILE).unlink(missing_ok=True)  # that of an earlier run
    if report.verdict:
        write_verdict(report.verdict, folder)
    end_record(folder, report.sentence)
    return page


def _drawn(report: Report) -> Drawn:
    """The figures of a report, or why there are none, which is printed, too."""
    names = [figure.name for figure in report.figures()]
    assert len(set(names)) == len(names), f"each figure needs a name of its own: {names}"
    specs = {figure.name: drawable(number_categories(figure.chart.to_dict())) for figure in report.figures()}
    try:
        light = {name: svg(spec) for name, spec in specs.items()}
        dark = {name: svg(in_dark(spec)) for name, spec in specs.items()}
        return Drawn(specs, light, dark, _script())
    except DrawingError:
        console.print(NO_PICTURES)
        return Drawn({}, {}, {}, "", NO_PICTURES)


def drawing_script() -> str:
    """``DRAW`` with the colours of the theme."""
    return DRAW.replace("/* colours */", json.dumps(DARK)).replace("/* not colours */", json.dumps(NOT_COLOURS))


def drawable(value: Any) -> Any:
    """A spec, or a part of one, with U+FFFD in place of each forbidden character of its texts."""
    if isinstance(value, str):
        return FORBIDDEN.sub("\ufffd", value)
    if isinstance(value, dict):
        return {key: drawable(part) for key, part in value.items()}
    return [drawable(part) for part in value] if isinstance(value, list) else value


def render(report: Report, drawn: Drawn) -> str:
    """The page's HTML."""
    report = paragraphs_once(report)
    script = "\n".join([drawn.script, *(section.live.script for section in report.sections if section.live)])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    images = {name: {"light": _base64(drawn.light[name]), "dark": _base64(drawn.dark[name])} for name in drawn.specs}
    # "<" is written \u003c inside strings of JSON, so that no text can close the script element
    drawings = {name: json.dumps(spec).replace("<", "\\u003c") for name, spec in drawn.specs.items()}
    first = verdict_html(report.verdict.for_terminals) if report.verdict else ""
    how = {"report": report, "drawings": drawings, "images": images, "script": script, "missing": drawn.missing}
    return page_template("page.html.jinja").render(how | {"digest": digest, "verdict": first})


def _base64(picture: str) -> str:
    return base64.b64encode(picture.encode()).decode()


@functools.cache
def _script() -> str:
    """Vega, Vega-Lite, Vega-Embed and ``DRAW`` in one script; bundling takes a second, so it is done once."""
    script = javascript_bundle(drawing_script())
    assert "</script" not in script.lower(), "the script would end early"
    assert "<!--" not in script, "the script would be read as a comment"
    return script
