"""Reads the pages as GitHub shows them: contents from the lists of the start page, and the project's own files as pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
PROJECT = {"CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing", "SECURITY.md": "security"}
"""file at the top of the repository -> page of the folder ``project`` that shows it"""
GENERATED = ["reference/generated/commands", "reference/generated/python", "reference/generated/python-statistics"]
"""pages that the code writes"""
LINK = re.compile(r"(?<=\]\()(?!https?:)([^)#\s]+)((?:#[^)\s]*)?\))")
RESULT = re.compile(r"\[([^\]`]+)\]\((?:\.\./)*(results/[^)#\s]+)[^)\s]*\)")
"""a link to measured figures, which are no pages of the site: it opens the file"""

WORDS = re.compile(r"<!-- search: (.+) -->")
"""below the title of a page: words for which the search of the site finds it first"""
READABLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer': '<aside aria-label="This page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div id="search-results"></div>': '<h1>Search</h1>\n<div id="search-results" aria-live="polite"></div>',
}
"""what the theme and Sphinx write -> what a screen reader and a keyboard need"""


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this."""
    app.connect("source-read", _read)
    app.connect("build-finished", _make_readable)
    return {"parallel_read_safe": True}


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    shown = {f"project/{page}": file for file, page in PROJECT.items()}
    text = (ROOT / shown[name]).read_text(encoding="utf-8") if name in shown else source[0]
    text = WORDS.sub(lambda found: f"```{{index}} ! {found[1].replace(', ', ', ! ')}\n```", text)
    text = RESULT.sub(r"{download}`\1 </../\2>`", text)
    contents = _contents(text) if name == "index" else ""
    rule = _from_top if name in shown else _to_top if "/" in name else _to_top_from_start
    source[0] = LINK.sub(rule, text) + contents


def _make_readable(app: Sphinx, error: Exception | None) -> None:
    """Names for landmarks, levels for captions, and keys that scroll wide blocks, which the theme leaves out."""
    for file in () if error else Path(app.outdir).rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        for written, needed in READABLE.items():
            text = text.replace(written, needed)
        file.write_text(text, encoding="utf-8")


def _to_top(found: re.Match[str]) -> str:
    """A link to a file at the top of the repository, as one to its page."""
    file = found[1].rpartition("/")[2]
    return f"../project/{PROJECT[file]}.md{found[2]}" if file in PROJECT else found[0]


def _to_top_from_start(found: re.Match[str]) -> str:
    return _to_top(found).replace("../project/", "project/")


def _from_top(found: re.Match[str]) -> str:
    """A link in a file at the top of the repository, from the page that shows it."""
    target = found[1]
    if target in PROJECT:
        return f"{PROJECT[target]}.md{found[2]}"
    return f"../{target.removeprefix('docs/')}{found[2]}"


def _contents(start: str) -> str:
    """A table of contents for the sidebar: each bold kind of the start page, with the pages that its list links."""
    trees = []
    for kind, pages in re.findall(r"^\*\*([\w -]+)\*\*.*?\n\n((?:- .*\n?)+)", start, flags=re.MULTILINE):
        targets = [
            link for link in re.findall(r"^- \[[^\]]+\]\(([^)#]+)\.md\)", pages, flags=re.MULTILINE) if not link.startswith("..")
        ]
        targets += GENERATED if kind == "Reference" else []
        trees.append("\n".join(["", "```{toctree}", ":hidden:", f":caption: {kind}", "", *targets, "```", ""]))
    trees.append(
        "\n".join(
            ["", "```{toctree}", ":hidden:", ":caption: Project", "", *(f"project/{page}" for page in PROJECT.values()), "```", ""]
        )
    )
    return "\n".join(trees)
