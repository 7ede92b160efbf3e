"""The public statistics: documented with a source, a runnable example and the test that proves them, in one page."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warmstart.stats
from warmstart.stats.differences import MethodScores, paired_difference

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reference" / "statistics.md"
MODULES = sorted(path.stem for path in Path(warmstart.stats.__file__).parent.glob("[a-z]*.py"))
ROWS = [(re.findall(r"`(\w+)`", names), re.findall(r"`(\w+)`", modules)) for names, modules in
        re.findall(r"^\| (`.+?`) \| (`.+?`) \|", PAGE.read_text(), flags=re.MULTILINE)]  # fmt: skip
PUBLIC = {
    name: found
    for names, modules in ROWS
    for name in names
    for module in modules
    if (found := getattr(importlib.import_module(f"warmstart.stats.{module}"), name, None))
}
"""each name on the page, from the module that stands beside it"""
FUNCTIONS = [name for name, found in PUBLIC.items() if inspect.isfunction(found)]


def test_importing_the_package_costs_nothing() -> None:
    """Neither numpy nor scipy is loaded before a module is imported."""
    code = "import sys, warmstart.stats; print(sorted({'numpy', 'scipy', 'torch'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_name_is_defined_in_a_module_beside_it() -> None:
    """Under that name; and no other module stands there."""
    for names, modules in ROWS:
        found = [PUBLIC[name] for name in names]
        assert [one.__name__ for one in found] == names
        assert not names or {one.__module__ for one in found} == {f"warmstart.stats.{module}" for module in modules}, names


def test_the_examples_of_docstrings_run() -> None:
    """Every ``>>>`` in the package gives what stands under it."""
    for module in MODULES:
        assert doctest.testmod(importlib.import_module(f"warmstart.stats.{module}"), extraglobs={"np": np}).failed == 0, module


def test_a_public_function_has_an_example_a_source_and_a_proof() -> None:
    """An example that runs, a year of publication, and a test, which ``test_a_proof_uses_what_it_proves`` looks up."""
    for name in FUNCTIONS:
        text = " ".join((PUBLIC[name].__doc__ or "").split())
        assert ">>>" in text, f"{name}: no example"
        assert re.search(r"\b(1[89]|20)\d\d\b", text), f"{name}: no source"
        assert re.search(r"tests/test_\w+\.py\W+.*?test_\w+", text), f"{name}: no test is named"


@functools.cache
def named(file: Path) -> dict[str, Any]:
    """The functions and constants of a file."""
    body = ast.parse(file.read_text()).body
    constants = {ast.unparse(one.targets[0]): one for one in body if isinstance(one, ast.Assign)}
    return constants | {one.name: one for one in body if isinstance(one, ast.FunctionDef)}


def definitions(file: Path) -> dict[str, Any]:
    """Those of a test file, and of the helpers that all tests share."""
    return {name: one for path in (*sorted((TESTS / "helpers").glob("*.py")), file) for name, one in named(path).items()}


def names_used(file: Path, test: str) -> set[str]:
    """The names that a test uses, by itself or in what it uses of its file and of ``helpers``."""
    known, used, todo = definitions(file), set[str](), [test]
    while todo:
        found = {getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(known[todo.pop()])} - used
        used |= found
        todo += [name for name in found if name in known]
    return used


def proofs() -> Iterator[tuple[str, Path, str]]:
    """(function or method, file, test) of every test that a docstring of ``warmstart.stats`` names."""
    for module in MODULES:
        for one in ast.walk(ast.parse((Path(warmstart.stats.__file__).parent / f"{module}.py").read_text())):
            if isinstance(one, ast.FunctionDef):
                text = " ".join((ast.get_docstring(one) or "").split())
                for file, tests in re.findall(r"tests/(test_\w+\.py)(.*?)(?=tests/|$)", text):
                    yield from ((one.name, TESTS / file, test) for test in re.findall(r"\b(test_\w+)", tests))


def test_a_proof_uses_what_it_proves() -> None:
    """The test that a docstring names calls the function; a slow one prints its figures, and the page says how to run it."""
    commands = " ".join(re.findall(r"python -m pytest (.*) -m proofs -s$", PAGE.read_text(), flags=re.MULTILINE)).split()
    for name, file, test in proofs():
        used = names_used(file, test)
        assert name in used, (name, test)
        decorators = ast.unparse(ast.Module([*definitions(file)[test].decorator_list], []))
        if "mark.proofs" in decorators or "pytestmark = pytest.mark.proofs" in file.read_text():
            assert "print" in used, test
            assert f"tests/{file.name}" in commands, test


def rows_of_page() -> dict[str, str]:
    """Each name in the first column of the tables, and the test in the last one, if any."""
    rows = re.findall(r"^\| (`.+?`) \|.*\| (?:`(test_\w+)`.*)?\|$", PAGE.read_text(), flags=re.MULTILINE)
    return {name: proof for names, proof in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_page_names_the_test_that_a_docstring_names() -> None:
    """docs/reference/statistics.md names, for each function, the test that its docstring names."""
    rows = rows_of_page()
    assert rows.keys() == PUBLIC.keys()
    for name in FUNCTIONS:
        assert rows[name], f"{name} has no test"
        assert rows[name] in (PUBLIC[name].__doc__ or ""), name
    files = {file: file.read_text() for file in TESTS.glob("test_*.py")}
    for cell, test in re.findall(r"^\| (`.+?`) \|.*\| `(test_\w+)`.*\|$", PAGE.read_text(), flags=re.MULTILINE):
        file = next(file for file, text in files.items() if f"def {test}(" in text)
        for name in re.findall(r"`(?:\w+\.)?(\w+)", cell):  # of a method its own name
            assert name in names_used(file, test), (name, test)


def test_the_worked_example_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """It needs nothing but numpy and ``warmstart.stats``."""
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[:2]
    assert set(re.findall(r"^(?:import|from) (\S+)", code, flags=re.MULTILINE)) == {"numpy", "warmstart.stats.differences"}
    exec(compile(code, "docs/reference/statistics.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_scores_from_texts_are_resampled_alike() -> None:
    """Two methods that are right on the same texts do not differ on any resample; groups are drawn together."""
    right = np.random.default_rng(0).random((3, 40)) < 0.7
    one = MethodScores.from_texts("a", right, groups=np.repeat(np.arange(10), 4))
    found = paired_difference(one, MethodScores.from_texts("b", right, groups=np.repeat(np.arange(10), 4)))
    assert (found.mean, found.error, found.p) == (0, 0, 1)
    alone = MethodScores.from_texts("a", right)
    assert one.resampled.shape == alone.resampled.shape == (3, 1000)
    assert alone.resampled.mean(axis=1) == pytest.approx(np.array(alone.scores), abs=0.01)
