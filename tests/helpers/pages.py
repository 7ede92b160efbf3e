"""The pages of the documents, read once."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "results").glob("*.md")))
PAGES = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in FILES}
"""path from the root -> text"""
