"""Docstrings: everything public has one, and what takes tensors says their shapes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmstart

ROOT = Path(warmstart.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
SHAPED = ("backbone", "heads", "objectives", "inspection")
"""packages whose public functions state the shape of every tensor and array that they take"""
DIMENSION = r"(?:\.\.\.|[A-Z]\d?|\d+|[a-z_]+)(?:/\d)?(?: or \d+)?(?: ?[+*-] ?\w+| [A-Z])*"
SHAPE = re.compile(rf"\({DIMENSION},(?: {DIMENSION},)*(?: {DIMENSION})?\)|\bscalar\b")
"""``(B, T, D)``, ``(N,)``, ``(L + 1, D)``, ``(B or 1, T)``, ``(..., D)``, or the word scalar"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public(node: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Every public class, function and method inside, with its dotted name."""
    for child in node.body:
        if isinstance(child, ast.ClassDef | Function) and not child.name.startswith("_") and not is_overload(child):
            yield f"{name}.{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{name}.{child.name}")


def is_overload(node: ast.ClassDef | Function) -> bool:
    """Whether it only declares one signature of a function that is defined below it."""
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)


def module_name(file: Path) -> str:
    """``src/warmstart/heads/span.py`` -> ``heads.span``."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def holds_tensors(annotation: ast.expr | None) -> bool:
    """Whether an annotation is a tensor or an array, or a collection of them."""
    text = ast.unparse(annotation) if annotation else ""
    return bool(re.search(r"\b(Tensor|ndarray)\b", text)) and "Callable" not in text


def tensors_of(function: Function) -> int:
    """How many of its arguments and results are tensors; a ``forward`` has at least one of each."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    count = sum(holds_tensors(one.annotation) for one in arguments) + holds_tensors(function.returns)
    return max(count, 2 * (function.name == "forward"))


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_everything_public_has_a_docstring(file: Path) -> None:
    """Modules, classes, functions and methods."""
    tree = ast.parse(file.read_text())
    names = [] if ast.get_docstring(tree) else [module_name(file)]
    names += [name for name, node in public(tree, module_name(file)) if not ast.get_docstring(node)]
    assert not names


@pytest.mark.parametrize("package", SHAPED)
def test_functions_state_the_shapes_of_tensors(package: str) -> None:
    """As many shapes as there are tensors and arrays among the arguments and results; a scalar is called one."""
    missing = []
    for file in sorted((ROOT / package).glob("*.py")):
        for name, node in public(ast.parse(file.read_text()), module_name(file)):
            if isinstance(node, Function):
                shapes, tensors = len(SHAPE.findall(ast.get_docstring(node) or "")), tensors_of(node)
                if shapes < tensors:
                    missing.append(f"{name}: {shapes} shapes for {tensors} tensors")
    assert not missing
