"""The HTML templates of pages."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup, escape

from warmstart.system.console import harmless

if TYPE_CHECKING:
    from warmstart.runs.verdict import Verdict

_HERE = Path(__file__).parent
VERDICT_STYLE = _HERE / "verdict.css"
"""style sheet of the first screen (``verdict_html``), which goes after the common one"""
COMMON_STYLE = _HERE / "common.css"
"""the style sheet of what all pages share: colours, light and dark, and rows of tables that become cards on a phone"""


@functools.cache
def page_template(name: str, *folders: Path) -> jinja2.Template:
    """A template of the first of some folders, or of this one, that has the file. It escapes everything that is put into it."""
    loader = jinja2.FileSystemLoader([*folders, _HERE])
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_shown
    )
    environment.filters["code"] = with_code
    environment.globals["icon"] = icon()
    return environment.get_template(name)


def verdict_html(verdict: Verdict, *, box: str = "", actions: Mapping[str, str | None] | None = None) -> Markup:
    """The first screen as HTML, with its ``h1``; all texts but ``box`` are escaped.

    ``box``: HTML that stands in place of the command of TRY where a server runs. ``actions``: for the name of a step the address
    that does it, as a button in place of its command, or None to leave it out.
    """
    module = page_template("verdict.html.jinja").module
    return Markup(module.verdict(verdict, Markup(box), actions or {}))  # type: ignore[attr-defined]


def _shown(value: object) -> object:
    """Text with visible signs for characters that a page would obey, such as those that turn the direction; markup stays."""
    return harmless(value) if type(value) is str else value


def with_code(text: str) -> Markup:
    """A sentence whose commands between backticks are set as code; everything in it is escaped."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(harmless(text)))))


@functools.cache
def icon() -> str:
    """The logo as a data URI, for the tab of a browser."""
    return "data:image/svg+xml;base64," + base64.b64encode((_HERE / "logo.svg").read_bytes()).decode()
