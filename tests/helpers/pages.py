"""The pages of the documents, read once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES = (*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "results").glob("*.md")))
PAGES = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in FILES}
"""path from the root -> text"""


def command_lines(page: str) -> list[str]:
    """Every call of warmstart in the fenced blocks of a page, without the prompt."""
    blocks = re.findall(r"```(?:sh|text)\n(.*?)```", page, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?warmstart (?!.*--(help|print-config))", line)]
