"""The building's floors: a module imports only from floors below its own, and files of one folder form no circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import warmstart

FLOORS = [
    {"errors"},
    {"types", "config", "seeding", "registry", "storage"},
    {"tokenizer", "backbone", "heads", "objectives", "inserts"},
    {"data", "model"},
    {"schemes", "engine", "interop", "generation"},
    {"evaluate", "analysis", "report"},
    {"kinds"},
    {"workflows"},
    {"estimators", "study"},
    {"serve"},
    {"cli"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
ROOT = Path(warmstart.__file__).parent
ABOVE = [("schemes", "engine"), ("inserts", "backbone")]
"""Neighbours on one floor of which the first may use the second: a scheme hands the loop its groups of parameters, an insert knows
the places of the backbone that it is put into, while the backbone knows of none."""


def imports(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Every import of the package in a file, as (line, dotted parts); lazy and TYPE_CHECKING ones included."""
    here = [warmstart.__name__, *path.relative_to(ROOT).with_suffix("").parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else []
            stem = base + (node.module.split(".") if node.module else [])
            names = [[*stem, alias.name] for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name[0] == warmstart.__name__ and len(name) > 1)


def test_every_import_points_down() -> None:
    """A concern knows only the floors below it."""
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        concern = path.relative_to(ROOT).with_suffix("").parts[0]
        if concern in ("__init__", "__main__"):
            continue  # the flat public face may see everything
        for line, name in imports(path):
            target = name[1]
            if target in ("__version__", concern) or (concern, target) in ABOVE:
                continue
            if FLOOR[target] >= FLOOR[concern]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} {concern} ({FLOOR[concern]}) imports {target} ({FLOOR[target]})")
    assert not wrong, "imports must point down:\n" + "\n".join(wrong)


def test_files_of_a_folder_form_no_circle() -> None:
    """Within a concern, too, imports have one direction (TYPE_CHECKING ones are left to the eye: they run nothing)."""
    for folder in sorted(place for place in ROOT.iterdir() if (place / "__init__.py").exists()):
        graph: dict[str, set[str]] = {}
        for path in folder.glob("*.py"):
            if path.stem != "__init__":
                names = [name for _, name in imports(path) if name[1] == folder.name and len(name) > 2]
                graph[path.stem] = {name[2] for name in names if (folder / f"{name[2]}.py").exists()} - {path.stem}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            raise AssertionError(f"{folder.name}: files import each other in a circle: {error.args[1]}") from None


def test_every_concern_has_a_floor() -> None:
    """A new folder or file must be given its place."""
    names = {path.relative_to(ROOT).with_suffix("").parts[0] for path in ROOT.rglob("*.py")}
    assert names - {"__init__", "__main__"} <= FLOOR.keys()
