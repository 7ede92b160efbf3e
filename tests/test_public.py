"""The public interface: every name that is listed exists, and every link of the documents leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import warmstart

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


def test_files_named_in_the_documents_exist() -> None:
    """Links of the README and of the documents lead somewhere."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_architecture_names_every_concern() -> None:
    """docs/architecture.md and the folders tell one story."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    for place in (ROOT / "src" / "warmstart").iterdir():
        if place.suffix == ".py" or (place / "__init__.py").exists():
            name = place.stem
            assert name.startswith("__") or f"`{name}`" in page, name
