"""Files and functions stay small enough to read."""

from __future__ import annotations

import ast
from pathlib import Path

import warmstart

ROOT = Path(warmstart.__file__).parent
FILE, FUNCTION, PARAMETERS = 500, 60, 6


def test_files_are_short() -> None:
    """No file has more than 500 lines."""
    long = [f"{path.relative_to(ROOT)}: {n}" for path in ROOT.rglob("*.py") if (n := len(path.read_text().splitlines())) > FILE]
    assert not long, long


def test_functions_are_short_and_take_few_parameters() -> None:
    """No function has more than 60 lines or 6 parameters beside self."""
    wrong = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = len([a for a in arguments if a.arg not in ("self", "cls", "ctx")])
                if path.parent.name == "estimators" and node.name == "__init__":
                    continue  # scikit-learn's form: an argument for every setting
                if lines > FUNCTION or count > PARAMETERS:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines, {count} parameters")
    assert not wrong, wrong
