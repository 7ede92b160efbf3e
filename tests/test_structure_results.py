"""What a command or a study computes, what it says and what it draws are three files that do not mix.

``measure.py`` computes and knows nothing of reports; ``result.py`` holds figures and sentences and needs neither torch nor charts;
``page.py`` draws a result and can run no model.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import warmstart
from warmstart.commands import COMMANDS
from warmstart.report.result import StudyResult

ROOT = Path(warmstart.__file__).parent


def modules(part: str) -> list[str]:
    """Every ``commands/NAME/PART.py`` and ``studies/NAME/PART.py``, as a module of the package."""
    paths = [path for package in ("commands", "studies") for path in sorted((ROOT / package).glob(f"*/{part}.py"))]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def imported(module: str) -> Iterator[str]:
    """The modules that a file imports when it runs: also inside functions, but not for types alone."""
    tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("module", modules("measure"))
def test_measuring_knows_no_report(module: str) -> None:
    """It returns arrays; its sentences and charts are other files."""
    wrong = [name for name in imported(module) if name.startswith(("warmstart.report", "altair", "vl_convert"))]
    assert not wrong, f"{module} imports {wrong}"


def test_a_page_runs_no_model() -> None:
    """What it imports, apart from the report package, needs no torch: no function of it can run a model."""
    imports = {
        module: {name.rpartition(".")[0].removeprefix("warmstart.") for name in imported(module) if name.startswith("warmstart.")}
        for module in modules("page")
    }
    drawing = ("report", "run", "warmstart")  # other pages are checked by themselves
    names = {name for found in imports.values() for name in found if name.split(".")[0] not in drawing and name[-5:] != ".page"}
    problems = problems_without_torch(sorted(names))
    wrong = {module: sorted(found & problems.keys()) for module, found in imports.items() if found & problems.keys()}
    assert not wrong, wrong


IMPORT_WITHOUT_TORCH = """
import importlib, json, sys
sys.modules.update(dict.fromkeys(("torch", "altair", "vl_convert")))  # importing None is an ImportError
problems = {}
for module in json.loads(sys.argv[1]):
    try:
        importlib.import_module(f"warmstart.{module}")
    except ImportError as error:
        problems[module] = str(error)
print(json.dumps(problems))
"""


def problems_without_torch(names: Sequence[str]) -> dict[str, str]:
    """The modules that cannot be imported without torch and charts, each with the error, found in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT_TORCH, json.dumps(names)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    problems: dict[str, str] = json.loads(done.stdout)
    return problems


def test_results_need_neither_torch_nor_charts() -> None:
    """Every ``result.py`` can be imported on a machine that has neither: figures and sentences are plain Python."""
    problems = problems_without_torch([*modules("result"), "report.result", "stats.formatting"])
    assert not problems, problems


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("study ")])
def test_every_study_returns_a_study_result(name: str) -> None:
    """Programs and notebooks handle all studies alike; what is particular to one is in its details."""
    _, function = COMMANDS[name].load()
    assert typing.get_type_hints(function)["return"] is StudyResult
