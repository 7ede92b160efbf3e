"""The wheel and the source distribution: what they hold, and that they work outside of the checkout with the core dependencies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

from warmstart.version import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
COPIED = ("src", "tests", "docs", "notebooks", "recipes", "benchmarks")
"""folders of the checkout that are copied to be built, with all files at its top"""
HIDDEN = (
    "aiohttp", "axe_playwright_python", "captum", "cleanlab", "dask", "distributed", "fastapi", "httpx", "mapie",
    "onnx", "onnxruntime", "onnxscript", "pandas", "peft", "playwright", "starlette",
    "tensorboard", "transformers", "uvicorn",
)  # fmt: skip
"""the modules of the extras; fsspec itself comes with torch"""
HIDES = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in {HIDDEN} else find(name, *rest)
"""
"""a ``sitecustomize`` of a Python that finds none of them"""
EVERY_COMMAND = """
from warmstart.commands import COMMANDS
for name, command in COMMANDS.items():
    command.load()
import warmstart
for name in warmstart.__all__:
    getattr(warmstart, name)
print(warmstart.__file__)
"""
TINY = ["--labels", "32", "--minutes", "0.05", "--packages", "sympy", "networkx"]
NETWORK = ["--width", "8", "--heads", "2", "--depth", "1", "--max-length", "8", "--tokenizer.type", "character", "--steps", "1"]
pytestmark = pytest.mark.journeys


@dataclass(frozen=True)
class Built:
    """What was built, from a copy of the checkout."""

    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


def build(source: Path, out: Path, *kinds: str) -> None:
    """Build distributions with the setuptools that is installed: no network."""
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True, cwd=out.parent)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel and the sdist of the checkout, and the wheel of that sdist."""
    place = tmp_path_factory.mktemp("built")
    for name in COPIED:
        shutil.copytree(
            ROOT / name, place / "checkout" / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "_build")
        )
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, place / "checkout")
    build(place / "checkout", place / "out", "--wheel", "--sdist")
    sdist = next((place / "out").glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    build(next((place / "unpacked").iterdir()), place / "again", "--wheel")
    return Built(sdist, next((place / "out").glob("*.whl")), next((place / "again").glob("*.whl")))


def bare_environment() -> dict[str, str]:
    """The variables of this process without those that tell Python where to find modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@dataclass(frozen=True)
class Installed:
    """A virtual environment outside of the checkout in which the wheel is installed, and an empty folder to work in."""

    folder: Path
    empty: Path

    def run(self, *words: str, hide_extras: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command there."""
        environment = bare_environment() | ({"PYTHONPATH": str(self.folder / "hides")} if hide_extras else {})
        command = [str(self.folder / SCRIPTS / words[0]), *words[1:]]
        return subprocess.run(command, cwd=self.empty, env=environment, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """warmstart comes from the wheel; its dependencies are those of this Python, so that nothing is fetched."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / SCRIPTS / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, str(built.wheel)], check=True, env=bare_environment())
    own = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    # a folder that a .pth names is searched last, and its own .pth files, such as that of an editable warmstart, are not read
    Path(own.stdout.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    (folder / "hides").mkdir()
    (folder / "hides" / "sitecustomize.py").write_text(HIDES, encoding="utf-8")
    return Installed(folder, tmp_path_factory.mktemp("empty"))


def members(wheel: Path) -> set[str]:
    """The names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package(built: Built) -> None:
    """Modules, templates, the files of the pages that are served, lessons and recipes; nothing else but its own description."""
    package = {
        file.relative_to(ROOT / "src").as_posix()
        for file in (ROOT / "src" / "warmstart").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    lessons = {file.relative_to(ROOT).as_posix() for kind in ("notebooks/*.ipynb", "recipes/**/*.yaml") for file in ROOT.glob(kind)}
    found = {name.partition("/data/share/warmstart/")[2] or name for name in members(built.wheel) if ".dist-info/" not in name}
    assert found == package | lessons
    assert {Path(name).suffix for name in package} >= {".py", ".jinja", ".js", ".css", ".typed"}


def test_the_sdist_gives_the_same_wheel(built: Built) -> None:
    """File by file, and it holds what the tests and the documents need."""
    assert members(built.wheel_of_sdist) == members(built.wheel)
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/conftest.py", "tests/helpers/tasks.py", "docs/index.md", "CHANGELOG.md"} <= names
    assert {"Makefile", "constraints.txt", "LICENSE", "SECURITY.md", "benchmarks/__main__.py"} <= names
    assert {f"recipes/{file.name}" for file in (ROOT / "recipes").glob("*.yaml")} <= names
    assert {f"notebooks/{file.name}" for file in (ROOT / "notebooks").glob("*.ipynb")} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_describes_itself(built: Built) -> None:
    """Version, licence, the Pythons it is for, each extra, and the README."""
    with zipfile.ZipFile(built.wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        about = Parser().parsestr(archive.read(name).decode())
    assert about["Version"] == __version__ == PROJECT["version"]
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == PROJECT["requires-python"]
    assert set(about.get_all("Classifier")) == set(PROJECT["classifiers"])
    assert set(about.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert about.get_payload().startswith("# warmstart")
    assert about["Author"]
    assert "@" not in about.as_string().partition("\n\n")[0]


def test_the_installed_command_answers_in_an_empty_folder(installed: Installed) -> None:
    """As a script and as a module; what is imported is the wheel."""
    version, helped = installed.run("warmstart", "--version"), installed.run("python", "-m", "warmstart", "--help")
    assert (version.returncode, version.stdout, version.stderr) == (0, f"warmstart {__version__}\n", "")
    assert helped.returncode == 0, helped.stderr
    assert "usage: warmstart COMMAND" in helped.stdout
    where = installed.run("python", "-c", "import warmstart; print(warmstart.__file__)").stdout
    assert Path(where.strip()).is_relative_to(installed.folder)


def test_every_command_loads_without_the_extras(installed: Installed) -> None:
    """So does everything that ``import warmstart`` offers: what an extra brings is imported where it is used."""
    run = installed.run("python", "-W", "error", "-c", EVERY_COMMAND, hide_extras=True)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).is_relative_to(installed.folder)


def test_the_quickstart_needs_no_extra(installed: Installed) -> None:
    """Comparing methods, the charts of the report and the check of the model in a fresh process."""
    run = installed.run("python", "-m", "warmstart", "quickstart", "--out", "q", *TINY, hide_extras=True)
    assert run.returncode == 0, run.stderr
    assert (installed.empty / "q" / "bundle" / "bundle.json").is_file()
    assert "<svg" in (installed.empty / "q" / "report.html").read_text(encoding="utf-8")


NEEDS = [
    (("serve", "lm"), "app"),
    (("label", "texts.txt", "--labels", "a", "b", "--out", "labels"), "app"),
    (("export", "lm", "--to", "onnx", "--out", "onnx"), "onnx"),
    (("pretrain", "https://127.0.0.1/texts/", "--out", "fetched"), "remote"),
]


def test_a_command_names_the_extra_that_it_needs(installed: Installed) -> None:
    """One sentence and exit code 2."""
    (installed.empty / "texts.txt").write_text("One text.\nAnother text.\n", encoding="utf-8")
    pretraining = ["pretrain", "texts.txt", "--out", "lm", "--held-out", "none", *NETWORK]
    assert installed.run("warmstart", *pretraining, hide_extras=True).returncode == 0
    for words, extra in NEEDS:
        run = installed.run("warmstart", *words, hide_extras=True)
        assert (run.returncode, "Traceback" in run.stderr) == (2, False), run.stderr
        assert f'pip install "warmstart[{extra}]"' in run.stderr
