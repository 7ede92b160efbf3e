"""The layout: one folder or file per command and study, one direction of imports, one home for every name."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import warmstart
from warmstart.commands import COMMANDS

ROOT = Path(warmstart.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PARTS = {"commands": {"command", "result", "page"}, "studies": {"command", "measure", "result", "page"}}
"""the files that the folder of a command or a study may hold"""
TOP = {"commands", "studies", "estimators", "serve", "cli", "__init__", "__main__"}
"""what no library package imports"""
SHARED = {
    ("quickstart", "pretrain"),
    ("quickstart", "adapt"),
    ("cost", "pretrain"),
    ("plan", "race"),
    ("study objectives", "pretrain"),
    ("study objectives", "study probe"),
    ("study objectives", "study attention"),
}
"""a command that uses another command; at most ten pairs"""


def module_of(path: Path) -> tuple[str, ...]:
    """``commands/race/page.py`` -> ("commands", "race", "page"); a package is its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


def imports(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every import of the package in a file, lazy and TYPE_CHECKING ones included, as (line, module relative to the package)."""
    here = ["warmstart", *path.relative_to(ROOT).with_suffix("").parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else []
            stem = base + (node.module.split(".") if node.module else [])
            names = [[*stem, alias.name] for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import_module" in path.read_text():
            names = [node.value.split(".")] if node.value.startswith("warmstart.") and " " not in node.value else []
        else:
            continue
        for name in names:
            if name[0] == "warmstart" and len(name) > 1:
                yield node.lineno, existing(tuple(name[1:]))


def existing(name: tuple[str, ...]) -> tuple[str, ...]:
    """The longest beginning of a dotted name that is a module."""
    while name and not (ROOT.joinpath(*name).with_suffix(".py").exists() or (ROOT.joinpath(*name) / "__init__.py").exists()):
        name = name[:-1]
    return name


def command_of(module: tuple[str, ...]) -> str | None:
    """The command that a module belongs to: ``studies.diff.page`` -> "study diff"."""
    if len(module) < 2 or module[0] not in PARTS:
        return None
    name = module[1].rstrip("_").replace("_", "-")
    return f"study {name}" if module[0] == "studies" else name


@pytest.mark.parametrize("package", PARTS)
def test_folders_and_files_are_the_table_of_commands(package: str) -> None:
    """Under ``commands`` and ``studies`` stands one file or folder per row of the table, and nothing else."""
    places = [place for place in (ROOT / package).iterdir() if place.name not in ("__init__.py", "__pycache__")]
    found = sorted(str(command_of((package, place.stem))) for place in places)
    assert found == sorted(name for name in COMMANDS if name.startswith("study ") == (package == "studies"))
    for place in places:
        if place.is_dir():
            names = {file.stem for file in place.glob("*.py")} - {"__init__"}
            assert "command" in names, place
            assert names <= PARTS[package], f"{place}: {names - PARTS[package]}"
            assert not [inner for inner in place.iterdir() if inner.is_dir() and inner.name != "__pycache__"]


def test_library_packages_import_no_command() -> None:
    """Nor a study, an estimator or the command line; lazy imports and tables of module names included."""
    wrong = []
    for path in FILES:
        module = module_of(path)
        if module[0] in TOP:
            continue
        wrong += [
            f"{path}:{line} imports {'.'.join(name)}" for line, name in imports(path) if name and name[0] in TOP - {"__init__"}
        ]
    assert not wrong, wrong


def test_packages_form_no_circle() -> None:
    """Library packages import each other in one direction."""
    graph: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        module = module_of(path)
        if module[0] not in ("__init__", "__main__"):
            graph[module[0]] |= {name[0] for _, name in imports(path) if name and name[0] != module[0]}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"packages import each other in a circle: {' -> '.join(error.args[1])}") from None


def test_files_form_no_circle() -> None:
    """Files import each other in one direction, in nested folders too (imports for types alone are left out: they run nothing)."""
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for path in FILES:
        typing = {
            line
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for line in range(node.lineno, (node.end_lineno or 0) + 1)
        }
        graph[module_of(path)] = {name for line, name in imports(path) if name and line not in typing} - {module_of(path)}
    graph.pop(("__init__",))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"files import each other in a circle: {['.'.join(name) for name in error.args[1]]}") from None


def test_commands_import_commands_only_from_the_allow_list() -> None:
    """A command uses library packages; another command only if the list above says so."""
    used = set()
    for path in FILES:
        one = command_of(module_of(path))
        used |= {(one, other) for _, name in imports(path) if one and (other := command_of(name)) and other != one}
    assert len(SHARED) <= 10
    assert used == SHARED, f"not allowed: {used - SHARED}; not needed: {SHARED - used}"


def test_the_guard_of_the_server_imports_the_standard_library_alone() -> None:
    """So the command line knows who may reach a server without the extra that it needs, and at once."""
    tree = ast.parse((ROOT / "serve" / "guard.py").read_text())
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names


def test_no_public_name_is_defined_twice() -> None:
    """A name means one thing in the whole package; functions that run a command may share theirs with the library."""
    homes: dict[str, set[str]] = defaultdict(set)
    run = {(command.module, command.function) for command in COMMANDS.values()}
    for path in FILES:
        module = ".".join(module_of(path))
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            else:
                continue
            for name in names:
                if not name.startswith("_") and (module, name) not in run:
                    homes[name].add(module)
    twice = {name: sorted(modules) for name, modules in homes.items() if len(modules) > 1}
    assert not twice, twice
