"""The rules of the code: one direction of imports, one home for every name and statistic, small files, shapes in docstrings.

``result.py`` holds the figures and sentences of a command and needs neither torch nor charts until it is drawn; where it takes more
than a section to draw it, ``page.py`` does, which runs no model. A study is one file; what it measures lies in ``inspection``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import typing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import PackageNotFoundError, requires
from itertools import accumulate
from pathlib import Path
from typing import Any

import benchmarks.house as house
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import warmstart
from warmstart.commands import COMMANDS
from warmstart.report.result import StudyResult

ROOT = Path(warmstart.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PARTS = {"commands": {"command", "result", "page"}, "studies": set[str]()}
"""the files that the folder of a command may hold; a study has none"""
OTHER = {"__init__.py", "__pycache__", "settings.py"}
"""what else lies beside them"""
LONGEST_FILE, LONGEST_FUNCTION, PARAMETERS = 500, 60, 6
SHAPED = ("backbone", "heads", "objectives", "inspection")
"""packages whose public functions state the shape of every tensor and array that they take"""
DIMENSION = r"(?:\.\.\.|[A-Z]\d?|\d+|[a-z_]+)(?:/\d)?(?: or \d+)?(?: ?[+*-] ?\w+| [A-Z])*"
SHAPE = re.compile(rf"\({DIMENSION},(?: {DIMENSION},)*(?: {DIMENSION})?\)|\bscalar\b")
"""``(B, T, D)``, ``(N,)``, ``(L + 1, D)``, ``(B or 1, T)``, ``(..., D)``, or the word scalar"""
STATISTICS = {"multinomial", "nanquantile", "percentile", "nanpercentile", "ppf", "isf", "false_discovery_control"}
"""methods that resample, take the ends of an interval, or look up a distribution"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(path: Path) -> ast.Module:
    """A file of the package, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> tuple[str, ...]:
    """``commands/race/page.py`` -> ("commands", "race", "page"); a package is its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


def for_types(tree: ast.Module) -> set[int]:
    """The nodes that run for a type checker alone."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    return {id(inner) for block in blocks for inner in ast.walk(block)}


@cache
def imports(path: Path, *, running: bool = False) -> tuple[tuple[str, ...], ...]:
    """Modules of the package that a file imports, lazily too, and by a table of names; ``running``: not those for types alone."""
    here, found = ["warmstart", *path.relative_to(ROOT).with_suffix("").parts], []
    skipped = for_types(tree_of(path)) if running else set()
    by_name = "import_module" in path.read_text(encoding="utf-8")
    for node in ast.walk(tree_of(path)):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = (here[: len(here) - node.level] if node.level else []) + (node.module.split(".") if node.module else [])
            found += [[*stem, alias.name] for alias in node.names]
        elif by_name and isinstance(node, ast.Constant) and re.fullmatch(r"warmstart\.[\w.]+", str(node.value)):
            found.append(node.value.split("."))  # type: ignore[union-attr, arg-type]
    return tuple(existing(tuple(name[1:])) for name in found if name[0] == "warmstart" and len(name) > 1)


@cache
def existing(name: tuple[str, ...]) -> tuple[str, ...]:
    """The longest beginning of a dotted name that is a module."""
    while name and not (ROOT.joinpath(*name).with_suffix(".py").exists() or (ROOT.joinpath(*name) / "__init__.py").exists()):
        name = name[:-1]
    return name


def command_of(module: tuple[str, ...]) -> str | None:
    """The command that a module belongs to: ``studies.probe`` -> "study probe"."""
    if len(module) < 2 or module[0] not in PARTS or module[1] == "settings":
        return None
    name = module[1].rstrip("_").replace("_", "-")
    return f"study {name}" if module[0] == "studies" else name


def test_folders_and_files_are_the_table_of_commands() -> None:
    """Under ``commands`` stands a file or folder per row of the table, under ``studies`` a file, and nothing else but settings."""
    for package, parts in PARTS.items():
        places = [place for place in (ROOT / package).iterdir() if place.name not in OTHER]
        found = sorted(str(command_of((package, place.stem))) for place in places if place.suffix in ("", ".py"))
        assert found == sorted(name for name in COMMANDS if name.startswith("study ") == (package == "studies"))
        for place in filter(Path.is_dir, places):
            names = {inner.stem for inner in place.iterdir()} - {"__init__", "__pycache__"}
            assert {"command"} <= names <= parts, place


def test_a_room_imports_only_rooms_above_it() -> None:
    """In the order of the table of docs/explanation/architecture.md; lazily, by a table of names and for types too."""
    order = [*house.rows()]
    rooms = {name: room for room, names in house.FILES.items() for name in names.split()}

    def place(module: tuple[str, ...]) -> int:
        room = rooms.get(module[0], module[0])
        return order.index(room if room in order else "cli")

    lower = [(module_of(path), name) for path in FILES for name in imports(path) if name and place(name) > place(module_of(path))]
    wrong = {(".".join(one), ".".join(other)) for one, other in lower}
    assert not wrong, wrong


def graph_of_files() -> dict[str, set[str]]:
    """File -> the files that it imports, lazily and for types too, and the packages around them, but for its own."""
    files = {path.relative_to(ROOT.parent): path for path in FILES}
    files |= {path.relative_to(BENCHMARKS.parent): path for path in BENCHMARKS.glob("*.py")}
    known = {".".join(place.with_suffix("").parts).removesuffix(".__init__"): path for place, path in files.items()}
    graph = dict[str, set[str]]()
    for module, path in known.items():
        named = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [f"{getattr(node, 'module', '')}.{alias.name}".lstrip(".") for node in named for alias in node.names]
        graph[module] = set()
        for name in names:
            around = [one for one in accumulate(name.split("."), "{}.{}".format) if one in known]
            graph[module] |= {one for one in around if one == around[-1] or not f"{module}.".startswith(f"{one}.")}
    return graph


def test_files_form_no_circle() -> None:
    """Each is imported in one direction, the benchmarks too; a package is its ``__init__.py``."""
    try:
        TopologicalSorter(graph_of_files()).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}") from None


def test_few_commands_import_another() -> None:
    """A command uses library packages, and at most ten pairs of commands share more than those."""
    pairs = {(command_of(module_of(path)), command_of(name)) for path in FILES for name in imports(path)}
    pairs = {(one, other) for one, other in pairs if one and other and one != other}
    assert len(pairs) <= 10, pairs


def test_no_public_name_is_defined_twice() -> None:
    """A name means one thing in the whole package; functions that run a command may share theirs with the library."""
    homes = defaultdict[str, set[str]](set)
    run = {(command.module, command.function) for command in COMMANDS.values()}
    for path in FILES:
        for node in tree_of(path).body:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            names += [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            for name in names:
                if not name.startswith("_") and (".".join(module_of(path)), name) not in run:
                    homes[name].add(".".join(module_of(path)))
    twice = {name: sorted(modules) for name, modules in homes.items() if len(modules) > 1}
    assert not twice, twice


def parts(name: str) -> list[Path]:
    """Every ``commands/COMMAND/NAME.py``."""
    return sorted((ROOT / "commands").glob(f"*/{name}.py"))


IMPORT_WITHOUT_TORCH = """
import importlib, json, sys
sys.modules.update(dict.fromkeys(("torch", "altair", "vl_convert")))  # importing None is an ImportError
problems = []
for module in json.loads(sys.argv[1]):
    try:
        importlib.import_module(f"warmstart.{module}")
    except ImportError:
        problems.append(module)
print(json.dumps(problems))
"""


def without_torch(names: Sequence[tuple[str, ...]]) -> set[str]:
    """The modules that cannot be imported without torch and charts, found in a process of its own."""
    words = [sys.executable, "-c", IMPORT_WITHOUT_TORCH, json.dumps([".".join(name) for name in names])]
    return set(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))


def test_results_and_pages_run_no_model() -> None:
    """Each ``result.py``, and what a page imports apart from charts, is plain Python that needs neither torch nor charts."""
    used = {name for path in parts("page") for name in imports(path, running=True)}
    used = {name for name in used if name and name[0] not in ("report", "run") and name[-1] != "page"}
    results = [module_of(path) for path in parts("result")]
    assert without_torch([*sorted(used), *results, ("report", "result"), ("stats", "formatting")]) == set()


def test_every_study_returns_a_study_result() -> None:
    """Programs and notebooks handle all studies alike; what is particular to one is in its details."""
    studies = [command.load()[1] for name, command in COMMANDS.items() if name.startswith("study ")]
    assert {typing.get_type_hints(function)["return"] for function in studies} == {StudyResult}


def test_files_and_functions_are_short() -> None:
    """So that a reader sees the whole; scikit-learn's form of an estimator has an argument for every setting."""
    wrong = []
    for path in FILES:
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_FILE:
            wrong.append(f"{path}: {count} lines")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, Function) and not (path.stem == "estimators" and node.name == "__init__"):
                lines = (node.end_lineno or 0) - node.lineno + 1
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                count = len([name for name in names if name not in ("self", "cls", "ctx")])
                if lines > LONGEST_FUNCTION or count > PARAMETERS:
                    wrong.append(f"{path}:{node.lineno} {node.name}: {lines} lines, {count} parameters")
    assert not wrong, wrong


def public_functions(node: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Public functions and methods, without the signatures that only declare an overload."""
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from public_functions(child)
        elif isinstance(child, Function) and not (
            child.name.startswith("_") or "overload" in map(ast.unparse, child.decorator_list)
        ):
            yield child


def test_functions_state_the_shapes_of_tensors() -> None:
    """As many shapes as there are tensors and arrays among the arguments and results; a scalar is called one."""
    missing = []
    for path in (path for package in SHAPED for path in (ROOT / package).glob("*.py")):
        for function in public_functions(tree_of(path)):
            arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            kinds = [ast.unparse(kind) for kind in (*(one.annotation for one in arguments), function.returns) if kind]
            tensors = sum(bool(re.search(r"\b(Tensor|ndarray)\b", kind)) and "Callable" not in kind for kind in kinds)
            shapes = len(SHAPE.findall(ast.get_docstring(function) or ""))
            if shapes < max(tensors, 2 * (function.name == "forward")):
                missing.append(f"{path}: {function.name}: {shapes} shapes for {tensors} tensors")
    assert not missing, missing


def statistics_in(tree: ast.AST) -> Iterator[str]:
    """What belongs to ``stats`` in one file; torch's own functions are no statistics of results."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in STATISTICS and ast.unparse(node.value) != "torch":
            yield node.attr
        elif isinstance(node, ast.Constant) and node.value in (1.96, 0.975):
            yield str(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom) and re.search(r"scipy(\.| import )stats", ast.unparse(node)):
            yield "scipy.stats"


def test_statistics_are_written_in_stats_only() -> None:
    """No bootstrap, interval, distribution or test stands in another package, and no percentage is written by hand."""
    for code in ("rng(0).multinomial(3, p)", "np.quantile(x, 0.975)", "from scipy import stats", "1.96 * error"):
        assert [*statistics_in(ast.parse(code))], code
    elsewhere = [path for path in FILES if path.parent != ROOT / "stats"]
    wrong = [(path, what) for path in elsewhere for what in statistics_in(tree_of(path))]
    wrong += [(path, "a percentage") for path in elsewhere if "{100 *" in path.read_text(encoding="utf-8")]
    assert not wrong, wrong


HERE = Path(__file__).parent
TESTS = {
    "test_many.py": """
import pytest
@pytest.mark.parametrize("number", range(3))
def test_many(number):
    pytest.skip("no cups")
@pytest.mark.skipif(True, reason="no GPU")
def test_one():
    pass
@pytest.mark.browser
@pytest.mark.xfail
def test_known():
    raise KeyError
""",
    "test_marked.py": """
import pytest
from helpers.browser import IN_A_BROWSER
pytestmark = IN_A_BROWSER[0]
def test_page():
    pytest.skip("no server")
""",
    "test_whole.py": """
import pytest
pytest.importorskip("no_such_module", reason="no module")
from helpers.browser import IN_A_BROWSER
pytestmark = IN_A_BROWSER
""",
}


@pytest.mark.journeys
@pytest.mark.parametrize("chromium", [True, False])
def test_skipped_tests_are_listed_and_those_of_the_browser_fail(chromium: bool, tmp_path: Path) -> None:
    """Each reason once, with its number; tests in a browser, and whole files of them, fail where there is one."""
    for name, content in TESTS.items():
        (tmp_path / name).write_text(content)
    (programs := tmp_path / "programs").mkdir()
    if chromium:
        (programs / "chromium").touch(0o755)
    environment = os.environ | {"PATH": str(programs), "PYTHONPATH": str(HERE)}
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n browser: in a browser\n journeys: long\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "helpers.skips", "--continue-on-collection-errors"]
    found = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    listed = [line for line in found.stdout.splitlines() if line[1:].startswith(" skipped: no ")]
    assert (listed[0], "1 skipped: no GPU" in listed) == ("3 skipped: no cups", True)
    for reason in ("no server", "no module"):
        assert (f"so its tests must run, but one was skipped: {reason}; run `make setup`" in found.stdout) == chromium
        assert (f"1 skipped: {reason}" in found.stdout) != chromium
    assert found.returncode == int(chromium), found.stdout


REPOSITORY = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = dict(
    line.split("==") for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line
)


def read(path: str) -> Any:
    return yaml.safe_load((REPOSITORY / path).read_text(encoding="utf-8"))


def test_versions_agree() -> None:
    """One version everywhere."""
    assert read("CITATION.cff")["version"] == PROJECT["version"] == read("packaging/conda/recipe.yaml")["context"]["version"]


def test_every_package_is_pinned_to_a_version_that_the_others_accept() -> None:
    """All that `make` installs, also what packages need themselves: a new release elsewhere cannot break a fresh set-up."""
    unpinned, refused, seen = set(), set(), set()
    waiting = [("warmstart", frozenset({"dev"}))]
    while waiting:
        package, extras = waiting.pop()
        if (package, extras) in seen:
            continue
        seen.add((package, extras))
        try:
            needed = [Requirement(line) for line in requires(package) or []]
        except PackageNotFoundError:  # an optional part of a package, for another system or Python
            continue
        for one in needed:
            if one.marker and not any(one.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                continue
            name = canonicalize_name(one.name)
            if name != "warmstart":
                version = PINNED.get(name)
                if version is None:
                    unpinned.add(name)
                elif not one.specifier.contains(version, prereleases=True):
                    refused.add(f"{package} needs {one.name}{one.specifier}, pinned is {version}")
            waiting.append((name, frozenset(one.extras)))
    assert (unpinned, refused) == (set(), set())


def test_the_conda_recipe_requires_what_the_project_requires() -> None:
    """The same packages in the same versions; PyTorch has another name there."""
    wanted = {re.sub(r"^(torch)\b", "pytorch", one) for one in PROJECT["dependencies"]}
    given = {one.replace(" ", "") for one in read("packaging/conda/recipe.yaml")["requirements"]["run"]}
    assert given == wanted | {f"python{PROJECT['requires-python']}"}


def test_the_hosted_ci_covers_every_system_and_python() -> None:
    """Those of the classifiers; its commands exist; it may only read."""
    workflow = read(".github/workflows/ci.yml")
    matrix = workflow["jobs"]["fast"]["strategy"]["matrix"]
    pythons = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    assert matrix["python"] == pythons
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "windows", "macos"}
    assert workflow["permissions"] == {"contents": "read"}
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {target for command in commands for target in re.findall(r"^make (\S+)", command)} <= {*targets}
    assert ".ci/run" in commands


def test_the_image_is_pinned_and_runs_as_nobody_special() -> None:
    """torch as in the constraints, a user without rights, and nothing copied that ``.dockerignore`` leaves out."""
    lines = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert any(f"torch=={PINNED['torch']}" in line for line in lines)
    assert [line for line in lines if line.startswith("USER ")] == ["USER warmstart"]
    allowed = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert {name for names in copied for name in names} <= allowed
    assert all((REPOSITORY / name).exists() for name in allowed)


def test_templates_are_forms() -> None:
    """Each asks for something that must be answered."""
    for file in sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(file.read_text(encoding="utf-8"))
        if file.name != "config.yml":
            assert {"name", "description", "body"} <= form.keys()
            assert any(one.get("validations", {}).get("required") for one in form["body"]), file.name
