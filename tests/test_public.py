"""The public interface: every name that is listed exists, every command of the README parses, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import warmstart
from warmstart.cli import parse
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


def readme_commands() -> list[str]:
    """Every line of the README's shell blocks that calls warmstart."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.startswith("warmstart ")]


@pytest.mark.parametrize("line", readme_commands())
def test_every_command_of_the_readme_parses(line: str) -> None:
    """Its flags exist and its values are valid."""
    import shlex

    words = shlex.split(line)[1:]
    if words[0] not in ("--help",) and "--help" not in words:
        name = next(name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS)
        settings, _ = COMMANDS[name].load()
        assert parse(settings, words[len(name.split()) :], line) is not None


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
