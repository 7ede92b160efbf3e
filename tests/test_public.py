"""The public face: what is listed exists, what the README shows runs, and settings explain themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import warmstart
from warmstart.cli import COMMANDS, parse
from warmstart.config import Config, expand, read_yaml
from warmstart.errors import ConfigError, suggest
from warmstart.registry import Registry
from warmstart.seeding import derive, rng
from warmstart.storage import whole_folder, write_forced

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
    import importlib
    import shlex

    words = shlex.split(line)[1:]
    if words[0] not in ("--help",) and "--help" not in words:
        command = COMMANDS[words[0]]
        module = importlib.import_module(f"warmstart.workflows.{command.module}")
        assert parse(getattr(module, command.settings), words[1:], line) is not None


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


class Inner(Config):
    """For the tests below."""

    rank: int = 3
    """a number"""


class Outer(Config):
    """For the tests below."""

    inner: Inner = Inner()
    name: str


def test_unknown_missing_and_wrong_settings_are_named() -> None:
    """With the whole path of the key, the value that came, and the nearest known key."""
    with pytest.raises(ConfigError, match=r"unknown key 'inner\.rnak'; did you mean 'rank'\? known: rank"):
        Outer.build({"name": "x", "inner": {"rnak": 1}})
    with pytest.raises(ConfigError, match="key 'name' is required"):
        Outer.build({})
    with pytest.raises(ConfigError, match=r"'inner\.rank' .*integer.*\(got 'three'\)"):
        Outer.build({"name": "x", "inner": {"rank": "three"}})


def test_yaml_takes_values_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``${NAME}`` must be set; ``${NAME:-default}`` need not be."""
    file = tmp_path / "a.yaml"
    file.write_text("place: ${HERE}/x\nother: ${THERE:-there}/y\n")
    monkeypatch.setenv("HERE", "here")
    assert read_yaml(file) == {"place": "here/x", "other": "there/y"}
    with pytest.raises(ConfigError, match="environment variable NOWHERE is not set"):
        expand("${NOWHERE}", "a.yaml", {})
    file.write_text("- a\n- b\n")
    with pytest.raises(ConfigError, match="must hold 'key: value' settings, but holds list"):
        read_yaml(file)
    file.write_text("a: [1")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        read_yaml(file)


def test_randomness_depends_on_names_not_on_history() -> None:
    """The same names give the same numbers, other names others; the values are fixed for ever."""
    assert rng(0, "a", 1).integers(0, 10**9) == rng(0, "a", 1).integers(0, 10**9)
    assert len({derive(seed, name) for seed in range(20) for name in ("a", "b", "ab")}) == 60
    assert derive(0, "dropout", 7) == 7277878575559796213


def test_registries_suggest() -> None:
    """A missing name is a ConfigError with the nearest one."""
    table = Registry("fruit", {"apple": 1, "pear": 2})
    assert dict(table) == {"apple": 1, "pear": 2}
    with pytest.raises(ConfigError, match="unknown fruit 'aple'; did you mean 'apple'"):
        table["aple"]
    assert suggest("xyz", ["b", "a"]) == "known: a, b"


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """An error inside leaves the old folder and nothing else; success replaces it."""
    target = tmp_path / "t"
    with whole_folder(target) as aside:
        (aside / "a").write_text("old")

    def fail() -> None:
        with whole_folder(target) as aside:
            (aside / "a").write_text("new")
            raise RuntimeError("oops")

    with pytest.raises(RuntimeError, match="oops"):
        fail()
    assert (target / "a").read_text() == "old"
    with whole_folder(target) as aside:
        (aside / "b").write_text("new")
    assert [file.name for file in target.iterdir()] == ["b"]
    assert [place.name for place in tmp_path.iterdir()] == ["t"]


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    """Nothing temporary stays beside it."""
    write_forced(tmp_path / "f", b"abc")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("f", b"abc")]
