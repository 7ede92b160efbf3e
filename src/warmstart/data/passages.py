"""Text that every installation already has: the documentation strings of the installed Python libraries.

    def mean(data):                        Passage(module="statistics", owner="mean",
        '''Return the arithmetic     ->            text="Return the arithmetic mean of data.")
        mean of data.'''

Notable: the source files are parsed, never imported, so nothing runs and nothing is downloaded; about ten seconds yield
some 27 million characters of English about mathematics, networks, files and learning machines. The order is always the same.
It does not read test folders, generated code, or documentation that a library writes into its objects while it is imported.
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
"""Libraries that are read besides Python's own; one that is not installed is left out."""

SKIPPED = {"test", "tests", "testing", "idle_test", "conftest", "_vendor", "_vendored", "externals", "schema"}
"""Folders and files that are passed over: tests, other libraries' code inside a library, code that a program wrote."""

SHORTEST = 3
"""A passage has at least this many words."""

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Passage:
    """One documentation string."""

    module: str
    """dotted path of the module that holds it; one module is one file"""
    owner: str
    """what it documents: ``"Fraction.limit_denominator"``, or the module's own name"""
    text: str
    """the string without its indentation"""


def passages(packages: Sequence[str] | None = None) -> list[Passage]:
    """The documentation strings of ``packages`` (top-level names), by default of Python's own library and ``PACKAGES``.

    Equal texts count once, the first one stays. Packages that are absent and files that do not parse are left out. Raises
    ``DataError`` for a dotted name, which could not be looked up without importing its parent.
    """
    names = [*sorted(sys.stdlib_module_names), *PACKAGES] if packages is None else packages
    if dotted := [name for name in names if "." in name]:
        raise DataError(f"passages are read from whole packages such as 'json', but got {dotted[0]!r}; name the top-level package")
    found: dict[str, Passage] = {}
    with _parsing():
        for name in names:
            for module, path in _modules(name):
                for passage in _read(module, path):
                    found.setdefault(passage.text, passage)
    return list(found.values())


def _modules(name: str) -> list[tuple[str, Path]]:
    """The (dotted path, file) of every module of a top-level package, sorted by dotted path."""
    root = _root(name)
    if root is None or root.is_file():
        return [(name, root)] if root else []
    relative = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
    kept = (path.parts for path in relative if SKIPPED.isdisjoint(path.parts) and not path.name.startswith("test_"))
    modules = ((".".join((name, *parts)).removesuffix(".__init__"), root.joinpath(*parts).with_suffix(".py")) for parts in kept)
    return sorted(modules)


def _root(name: str) -> Path | None:
    """The folder or the single file of a top-level package; None if it is absent or not written in Python."""
    if name in sys.stdlib_module_names:
        folder = Path(sysconfig.get_path("stdlib")) / name  # the import system hides the files of frozen modules
        return next((path for path in (folder, folder.with_suffix(".py")) if path.exists()), None)
    spec = find_spec(name)  # a top-level name is looked up without an import
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0])
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _read(module: str, path: Path) -> Iterator[Passage]:
    try:
        source = path.read_bytes()
        if b'"""' not in source and b"'''" not in source:
            return  # nearly all of the time goes into parsing, and one file in five has nothing to give
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # templates, code for another Python
    for owner, node in _documented(tree, ""):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            text = inspect.cleandoc(first.value.value).encode("utf-8", "ignore").decode()  # without lone surrogates
            if len(text.split()) >= SHORTEST:
                yield Passage(module, owner or module.rpartition(".")[2], text)


def _documented(node: _Documented, owner: str) -> Iterator[tuple[str, _Documented]]:
    """A module, class or function and all that are defined right inside it, each with its name, in the order of the file."""
    yield owner, node
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _documented(child, f"{owner}.{child.name}".lstrip("."))


@contextmanager
def _parsing() -> Iterator[None]:
    """Quiet, and without the cycle collector: a syntax tree has no cycles, and looking for them doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            yield
    finally:
        if collecting:
            gc.enable()
