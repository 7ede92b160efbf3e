"""Public names and the documents: each name exists, links lead somewhere, and the site builds offline from both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import warmstart
from warmstart.commands import COMMANDS
from warmstart.experiment.config import RaceConfig
from warmstart.flags import all_flags, count_flags

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "results").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    found: Counter[str] = Counter()
    made = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        made.add(f"{anchor}-{found[anchor]}" if found[anchor] else anchor)
        found[anchor] += 1
    return made


def test_every_public_name_exists_and_explains_itself() -> None:
    """``warmstart.NAME`` is what it says, also after the subpackages were imported; an unknown one is an ``AttributeError``."""
    for name in warmstart.__all__:
        assert name == "__version__" or (getattr(warmstart, name).__doc__ and name in dir(warmstart)), name
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        _ = warmstart.pretrian


def test_links_lead_somewhere() -> None:
    """To a file, to a heading of this or another page; paths of source files exist too."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"
        for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|yaml))`", text):
            assert (ROOT / path).exists() or (ROOT / "src" / "warmstart" / path).exists(), f"{page.name} names {path}"


def test_the_reference_is_complete() -> None:
    """docs/reference/reference.md lists every command and every public name."""
    page = (ROOT / "docs" / "reference" / "reference.md").read_text()
    assert not [name for name in COMMANDS if f"`{name}`" not in page]
    assert not [name for name in warmstart.__all__ if name != "__version__" and f"`ws.{name}" not in page]


def test_the_architecture_names_every_concern() -> None:
    """docs/explanation/architecture.md and the folders tell one story."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    for place in (ROOT / "src" / "warmstart").iterdir():
        if place.suffix == ".py" or (place / "__init__.py").exists():
            name = place.stem
            assert name.startswith("__") or f"`{name}`" in page, name


def test_every_page_is_in_the_contents() -> None:
    """The start page names it, so that the sidebar has it."""
    start = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in sorted(DOCS.rglob("*.md")):
        name = page.relative_to(DOCS).as_posix()
        assert name == "index.md" or name.startswith("project/") or f"({name})" in start, name


def test_the_flags_of_the_reference_are_those_of_the_help() -> None:
    """As many as ``--help`` and ``--help-all`` show, with a help and the defaults of the command."""
    for name, command in COMMANDS.items():
        settings = command.load_settings()
        flags = [*all_flags(settings)]
        shown = Counter("advanced" if flag.advanced else "basic" for flag in flags)
        assert shown == Counter(count_flags(settings)), name
        assert all(flag.help for flag in flags), [flag.name for flag in flags if not flag.help]
    race = {flag.name: flag for flag in all_flags(RaceConfig)}
    assert (race["--seed"].values, race["--seed"].default, race["--seed"].advanced) == ("whole number", "0", True)
    assert race["--selection"].values == "cross-validation, holdout, none, or left out"


@pytest.mark.journeys
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    """Every page, the reference of every command and public name; nothing in it is fetched from elsewhere."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-d", str(tmp_path / "cache")]
    built = subprocess.run(
        [*command, str(DOCS), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = {file.relative_to(tmp_path / "site").as_posix(): file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.html")}
    assert {f"reference/generated/{name.replace(' ', '-')}.html" for name in COMMANDS} <= pages.keys()
    assert {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")} <= pages.keys()
    assert "warmstart.adapt" in pages["reference/generated/python.html"]
    for name, text in pages.items():
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', text), name
