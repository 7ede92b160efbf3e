"""Text that every installation has: the docstrings of the installed Python libraries.

    def mean(data):                        Docstring(module="statistics", name="mean",
        '''Return the arithmetic     ->              text="Return the arithmetic mean of data.")
        mean of data.'''

Source files are parsed, not imported, so no code runs and nothing is downloaded. About ten seconds yield some 27 million characters
of English about mathematics, networks, files and machine learning, always in the same order. Test folders, generated code, and
docstrings that a library creates while it is imported are not read.

Of these a task is made, without a data file: to tell which field a docstring belongs to.

    sympy.physics.optics.waves: "Superpose two waves of     ->   text   "Superpose two _ of equal frequency and return
    equal frequency and return the sum, a third wave."                   the sum, a third _."     label  physics

- Names that give the label away are masked: all words of ``AREAS``, and of the docstring's own module.
- Splits are cut by module: no file is in two splits.
- Every area has equally many examples in each split, so accuracy is a fair metric.

The docstrings are those of the installed versions of the libraries, so scores compare on one machine only. An area with too few
docstrings is left out.
"""

from __future__ import annotations

import ast
import gc
import inspect
import re
import sys
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import numpy as np

from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.seeding import rng

PACKAGES = (
    *("numpy", "scipy", "sklearn", "torch", "polars", "altair", "pydantic", "rich", "jinja2", "tyro", "tokenizers", "safetensors"),
    *("joblib", "sympy", "mpmath", "networkx", "fsspec", "narwhals", "jsonschema"),  # these come with the ones above
)
"""libraries that are read besides the standard library; one that is not installed is left out"""

SKIPPED = {"test", "tests", "testing", "idle_test", "conftest", "_vendor", "_vendored", "externals", "schema"}
"""folders and files that are skipped: tests, vendored libraries, generated code"""

MIN_DOCSTRING_WORDS = 3
"""shorter docstrings are left out"""

AREAS: dict[str, str] = {
    "concurrency": "asyncio concurrent joblib multiprocessing queue sched selectors signal subprocess threading",
    "distributed training": "torch.distributed torch.nn.parallel",
    "file formats": "bz2 configparser csv email gzip json lzma mailbox netrc plistlib scipy.io tarfile wave xml zipfile",
    "geometry": "scipy.spatial sympy.geometry sympy.vector",
    "graph theory": "networkx",
    "integration and interpolation": "mpmath.calculus numpy.polynomial scipy.integrate scipy.interpolate sympy.integrals",
    "linear algebra": "mpmath.matrices numpy.linalg scipy.linalg scipy.sparse sympy.matrices torch.sparse",
    "machine learning": "sklearn.cluster sklearn.decomposition sklearn.ensemble sklearn.gaussian_process sklearn.linear_model "
    "sklearn.metrics sklearn.mixture sklearn.model_selection sklearn.neighbors sklearn.svm sklearn.tree",
    "networking": "ftplib http imaplib ipaddress poplib smtplib socket socketserver ssl urllib webbrowser wsgiref xmlrpc",
    "neural networks": "torch.ao.nn torch.nn torch.optim",
    "optimisation": "scipy.optimize",
    "physics": "sympy.physics",
    "signal and image processing": "numpy.fft scipy.fft scipy.ndimage scipy.signal torch.signal",
    "statistics": "scipy.stats statistics sympy.stats torch.distributions",
    "text processing": "difflib gettext html jinja2 re shlex sklearn.feature_extraction.text string textwrap tokenize",
    "user interface": "cmd curses idlelib rich tkinter turtle",
}
"""area -> its modules, with everything in them; the longest matching name decides"""

QUOTA = {"test": 66, "validation": 19, "train": 80}
"""examples of each area in each split, filled in this order; only training may get fewer, down to ``MIN_TRAIN``"""
MIN_TRAIN = 32
"""an area that leaves fewer training examples is left out"""
MAX_PER_MODULE = 15
"""examples of one module, so that no large file dominates its area"""
MIN_WORDS, MAX_WORDS = 10, 40
"""words of an example: shorter texts are left out, longer ones lose their end"""
HIDDEN_NAME = "_"
"""replaces a name"""

_AREA_OF = {module: area for area, modules in AREAS.items() for module in modules.split()}

_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Docstring:
    """One docstring."""

    module: str
    """dotted name of its module; a module is one file"""
    name: str
    """name of the documented object: ``"Fraction.limit_denominator"``, or the last part of the module's name"""
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
    """Suppress warnings and the garbage collector: syntax trees have no cycles, and looking for them doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the files
            yield
    finally:
        if collecting:
            gc.enable()


# ------------------------------------------------------------------------------------------------ the task


@dataclass(frozen=True)
class _Example:
    module: str
    area: str
    text: str


def docstring_task(docstrings: Sequence[Docstring], seed: int = 0) -> Task:
    """The task "which area does this text document?", with 80 / 19 / 66 examples (``QUOTA``) of each of some 15 areas.

    The seed decides which modules are in which split; the areas depend on the docstrings alone. Raises ``DataError`` if fewer than
    two areas have enough docstrings.
    """
    areas: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for example in _examples(docstrings):
        areas[example.area][example.module].append(example.text)
    kept = sorted(area for area, modules in areas.items() if _is_enough(modules))
    if len(kept) < 2:
        raise DataError(
            f"the task needs docstrings of at least two areas, but among {len(docstrings)} docstrings only "
            f"{', '.join(kept) or 'no area'} has enough; pass read_docstrings() of all installed libraries"
        )
    parts: dict[str, list[tuple[str, int]]] = {name: [] for name in QUOTA}
    for number, area in enumerate(kept):
        for name, texts in _split(areas[area], area, seed).items():
            parts[name].extend((text, number) for text in texts)
    splits = {name: _shuffled(part, rng(seed, "documentation", name)) for name, part in parts.items()}
    return Task("documentation", tuple(kept), splits["train"], splits["validation"], splits["test"])


def _examples(docstrings: Sequence[Docstring]) -> list[_Example]:
    """Every docstring of a public name that is long enough, in order. Copies count once; copies in several areas not at all."""
    kept: dict[str, _Example] = {}
    ambiguous = set()
    for docstring in docstrings:
        area = _area(docstring.module) if _is_public(docstring.name) else None
        text = _masked(docstring) if area else ""
        if area and sum(word != HIDDEN_NAME for word in re.findall(r"\w+", text)) >= MIN_WORDS:
            first = kept.setdefault(_key(text), _Example(docstring.module, area, text))
            if first.area != area:
                ambiguous.add(_key(text))
    return [example for key, example in kept.items() if key not in ambiguous]


def _is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def _area(module: str) -> str | None:
    """The area of a module: ``"torch.nn.parallel.comm"`` -> ``"distributed training"``."""
    while module:
        if module in _AREA_OF:
            return _AREA_OF[module]
        module = module.rpartition(".")[0]
    return None


def _opening(docstring: Docstring) -> str:
    r"""The prose at the beginning of a docstring, on one line and without markup.

    ``"Add two waves.\n\nThey may differ.\n\n>>> add(a, b)"`` -> ``"Add two waves. They may differ."``
    """
    paragraphs = docstring.text.split("\n\n")
    more = takewhile(lambda paragraph: not _NOT_PROSE.match(paragraph), paragraphs[1:])
    return re.sub(r":[a-z:]+:(?=`)|[`*]", "", " ".join(" ".join((paragraphs[0], *more)).split()))


_NOT_PROSE = re.compile(r"\s|>>>|\.\. |[-*] |[:@]\w|[A-Z][\w ]*(?::?\s*$|:\s*\n)|.*\n[-=~^]{3,}")
"""the beginning of an example, a list, a table of parameters or a heading"""


def _masked(docstring: Docstring) -> str:
    """The first ``MAX_WORDS`` words of the opening, with names that give the area away replaced by ``HIDDEN_NAME``."""
    names = _GIVEAWAY | _stems(docstring.module)
    text = re.sub("[A-Za-z]+", lambda word: HIDDEN_NAME if _stem(word[0]) in names else word[0], _opening(docstring))
    return " ".join(re.sub(r"(?<!\w)_[._]*_(?!\w)", HIDDEN_NAME, text).split()[:MAX_WORDS])


def _stem(word: str) -> str:
    return word.lower().removesuffix("s")


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in re.findall("[A-Za-z]+", text)} - {"and"}


_GIVEAWAY = _stems(" ".join((*AREAS, *AREAS.values())))


def _key(text: str) -> str:
    """The key of near copies: the letters."""
    return re.sub(r"[\W_\d]+", " ", text.lower()).strip()


def _is_enough(modules: Mapping[str, Sequence[str]]) -> bool:
    """True if the quotas can be filled in any order of the modules: each filled split may waste part of one."""
    wanted = QUOTA["test"] + QUOTA["validation"] + MIN_TRAIN + 2 * (MAX_PER_MODULE - 1)
    return sum(min(len(texts), MAX_PER_MODULE) for texts in modules.values()) >= wanted


def _split(modules: Mapping[str, list[str]], area: str, seed: int) -> dict[str, list[str]]:
    """An area's texts for each split: whole modules in random order fill one split after the other."""
    draw = rng(seed, "documentation", area)
    names = sorted(modules)
    order = iter([names[i] for i in draw.permutation(len(names))])
    parts: dict[str, list[str]] = {}
    for part, quota in QUOTA.items():
        texts: list[str] = []
        while len(texts) < quota and (name := next(order, None)):
            texts.extend(modules[name][i] for i in draw.permutation(len(modules[name]))[:MAX_PER_MODULE])
        parts[part] = texts[:quota]
    return parts


def _shuffled(part: Sequence[tuple[str, int]], draw: np.random.Generator) -> Split:
    chosen = [part[i] for i in draw.permutation(len(part))]
    return Split(tuple(text for text, _ in chosen), np.array([label for _, label in chosen], dtype=np.int64))
