"""Guidelines as HTML: the headings, lists, stressed words and code of Markdown; everything else as it was written."""

from __future__ import annotations

import re
from itertools import groupby

from markupsafe import Markup

from warmstart.report.templates import with_code

_HEADING, _ITEM = re.compile(r"#{1,6}\s+(.*?)\s*#*$"), re.compile(r"\s*[-*+]\s+(.*)")
_NUMBERED = re.compile(r"\s*(\d{1,6})[.)]\s+(.*)")


def guidelines_html(text: str) -> Markup:
    """Escaped, with the lines of a paragraph as they are; for an element with ``white-space: pre-wrap``."""
    found = list[str]()
    for kind, lines in groupby(text.strip().splitlines(), _kind):
        some = [*lines]
        if kind == "item":
            found.append("<ul>" + "".join(f"<li>{_inline(_ITEM.match(line)[1])}</li>" for line in some) + "</ul>")  # type: ignore[index]
        elif kind == "numbered":
            rows = [_NUMBERED.match(line).groups() for line in some]  # type: ignore[union-attr]
            found.append("<ol>" + "".join(f'<li value="{int(number)}">{_inline(words)}</li>' for number, words in rows) + "</ol>")
        elif kind == "heading":
            found += [f"<h3>{_inline(_HEADING.match(line)[1])}</h3>" for line in some]  # type: ignore[index]
        elif kind:
            found.append("<p>" + "\n".join(map(_inline, some)) + "</p>")
    return Markup("".join(found))


def _kind(line: str) -> str:
    if not line.strip():
        return ""
    kinds = {"heading": _HEADING, "item": _ITEM, "numbered": _NUMBERED}
    return next((kind for kind, pattern in kinds.items() if pattern.match(line)), "text")


def _inline(text: str) -> str:
    strong = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(with_code(text)))
    return re.sub(r"(?<![\w*])\*([^\s*<](?:[^*<]*[^\s*<])?)\*(?![\w*])", r"<em>\1</em>", strong)
