"""Text that every installation has: the docstrings of the installed Python libraries.

    def mean(data):                        Docstring(module="statistics", name="mean",
        '''Return the arithmetic     ->              text="Return the arithmetic mean of data.")
        mean of data.'''

Source files are parsed, not imported, so no code runs and nothing is downloaded. About ten seconds yield some 27 million characters
of English about mathematics, networks, files and machine learning, always in the same order. Test folders, generated code, and
docstrings that a library creates while it is imported are not read.
"""

from __future__ import annotations

import ast
import gc
import inspect
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from warmstart.errors import DataError

PACKAGES = (
    *("numpy", "scipy", "sklearn", "torch", "polars", "altair", "pydantic", "rich", "jinja2", "tyro", "tokenizers", "safetensors"),
    *("joblib", "sympy", "mpmath", "networkx", "fsspec", "narwhals", "jsonschema"),  # these come with the ones above
)
"""libraries that are read besides the standard library; one that is not installed is left out"""

SKIPPED = {"test", "tests", "testing", "idle_test", "conftest", "_vendor", "_vendored", "externals", "schema"}
"""folders and files that are skipped: tests, vendored libraries, generated code"""

MIN_DOCSTRING_WORDS = 3
"""shorter docstrings are left out"""

_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Docstring:
    """One docstring."""

    module: str
    """dotted name of its module; a module is one file"""
    name: str
    """what it documents: ``"Fraction.limit_denominator"``, or the last part of the module's name"""
    text: str
    """the docstring without its indentation"""


def read_docstrings(packages: Sequence[str] | None = None) -> list[Docstring]:
    """The docstrings of ``packages`` (top-level names), by default of the standard library and ``PACKAGES``.

    Of equal docstrings only the first is kept. Packages that are not installed and files that do not parse are left out. Raises
    ``DataError`` for a dotted name, because looking it up would import its parent.
    """
    names = [*sorted(sys.stdlib_module_names), *PACKAGES] if packages is None else packages
    if dotted := [name for name in names if "." in name]:
        raise DataError(f"docstrings are read of whole packages such as 'json', but got {dotted[0]!r}; name the top-level package")
    unique: dict[str, Docstring] = {}
    with _parsing():
        for name in names:
            for module, path in _modules(name):
                for docstring in _read(module, path):
                    unique.setdefault(docstring.text, docstring)
    return list(unique.values())


def _modules(name: str) -> list[tuple[str, Path]]:
    """(dotted name, file) of every module of a top-level package, sorted by name."""
    root = _root(name)
    if root is None or root.is_file():
        return [(name, root)] if root else []
    relative = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
    kept = (path.parts for path in relative if SKIPPED.isdisjoint(path.parts) and not path.name.startswith("test_"))
    modules = ((".".join((name, *parts)).removesuffix(".__init__"), root.joinpath(*parts).with_suffix(".py")) for parts in kept)
    return sorted(modules)


def _root(name: str) -> Path | None:
    """The folder or the single file of a top-level package; None if it is not installed, or not written in Python."""
    if name in sys.stdlib_module_names:
        folder = Path(sysconfig.get_path("stdlib")) / name  # find_spec does not know the files of frozen modules
        return next((path for path in (folder, folder.with_suffix(".py")) if path.exists()), None)
    spec = find_spec(name)  # for a top-level name this imports nothing
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0])
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _read(module: str, path: Path) -> Iterator[Docstring]:
    try:
        source = path.read_bytes()
        if b'"""' not in source and b"'''" not in source:
            return  # parsing takes nearly all of the time, and one file in five has no docstring
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # a template, or code for another version of Python
    for name, node in _definitions(tree, ""):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            text = inspect.cleandoc(first.value.value).encode("utf-8", "ignore").decode()  # without lone surrogates
            if len(text.split()) >= MIN_DOCSTRING_WORDS:
                yield Docstring(module, name or module.rpartition(".")[2], text)


def _definitions(node: _Definition, name: str) -> Iterator[tuple[str, _Definition]]:
    """A module, class or function and all definitions nested directly in it, each with its name, in the order of the file."""
    yield name, node
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _definitions(child, f"{name}.{child.name}".lstrip("."))


@contextmanager
def _parsing() -> Iterator[None]:
    """Without warnings, and without the garbage collector: syntax trees have no cycles, and looking for them doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the files
            yield
    finally:
        if collecting:
            gc.enable()
