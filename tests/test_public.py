"""The public interface: every name that is listed exists, the reference is complete, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import warmstart
from warmstart.commands import COMMANDS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", warmstart.__all__)
def test_every_public_name_exists_and_explains_itself(name: str) -> None:
    """``warmstart.NAME`` is what it says, also after the subpackages were imported."""
    thing = getattr(warmstart, name)
    assert thing is not None
    if name != "__version__":
        assert thing.__doc__
        assert name in dir(warmstart)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        _ = warmstart.pretrian


def pages() -> list[Path]:
    """Every document."""
    return [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "results").glob("*.md"))]


def test_files_named_in_the_documents_exist() -> None:
    """Links lead somewhere, and so do paths of source files."""
    for page in pages():
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
        for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|yaml))`", page.read_text()):
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
