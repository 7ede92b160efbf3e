"""Processes that we start run nothing that lies in the current folder or in the user's site packages."""

from __future__ import annotations

import ast
import os
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmstart
from warmstart.system.processes import isolated_children, run_python

SOURCE = Path(warmstart.__file__).parent
STARTERS = {
    "subprocess.run", "subprocess.Popen", "multiprocessing.Process", "multiprocessing.Pool", "joblib.Parallel", "os.fork",
    "os.system", "os.execv", "torch.multiprocessing",
}  # fmt: skip
"""what starts a process"""
PLANTED = ("random", "torch", "joblib", "warnings", "tempfile", "threading", "usercustomize", "sitecustomize")
LOKY = """
import joblib
def square(i): import random; return i * i
with isolated_children():
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(square)(i) for i in range(4)))
"""


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    """The current folder, and the site packages of a user whose Python has them, hold files that betray their execution.

    Returns the environment of a process there.
    """
    user = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(tmp_path / "user")}))
    here = tmp_path / "here"
    for folder in (user, here):
        folder.mkdir(parents=True)
        for name in PLANTED:
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write(__file__ + '\\n')\n")
    paths = [str(SOURCE.parent), sysconfig.get_path("purelib")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUSERBASE": str(tmp_path / "user"), "HERE": str(here)}


@pytest.mark.parametrize("code", ["print(run_python('import random, torch; print(torch.__file__)'))", LOKY], ids=["ours", "joblib"])
def test_planted_modules_are_never_executed(code: str, planted: dict[str, str], tmp_path: Path) -> None:
    """Neither by our own processes nor by workers of joblib, although the user's shell names the current folder in PYTHONPATH."""
    first = (
        "import os; os.environ['PYTHONPATH'] = os.pathsep + os.environ['PYTHONPATH']\n"
        "from warmstart.system.processes import isolated_children, run_python\n"
    )
    python = getattr(sys, "_base_executable", sys.executable)  # that of a virtual environment never reads user site packages
    command = [python, "-P", "-s", "-c", first + code]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=planted["HERE"], env=planted)
    assert run.returncode == 0, run.stderr
    assert "returncode=0" in run.stdout or "[0, 1, 4, 9]" in run.stdout, run.stdout
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


def test_the_module_form_does_not_run_the_current_folder_either(planted: dict[str, str], tmp_path: Path) -> None:
    """``python -m warmstart`` puts the current folder first on its path; no module of ours is imported from there."""
    for name in ("warnings", "threading", "usercustomize", "sitecustomize"):  # read by Python itself before any line of ours
        (Path(planted["HERE"]) / f"{name}.py").unlink()
    environment = planted | {"PYTHONPATH": str(SOURCE.parent), "PYTHONNOUSERSITE": "1"}
    command = [sys.executable, "-m", "warmstart", "doctor", "nothing"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=planted["HERE"], env=environment)
    assert run.returncode == 2, run.stderr
    assert "there is no bundle at nothing" in run.stderr
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


def test_isolation_ends_with_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's environment is afterwards what it was; an empty entry of PYTHONPATH, the current folder, is not handed on."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "lib"]))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with isolated_children():
        assert os.environ["PYTHONPATH"] == str(Path("lib").resolve())
        assert os.environ["PYTHONSAFEPATH"] == os.environ["PYTHONNOUSERSITE"] == "1"
    assert os.environ["PYTHONPATH"] == f"{os.pathsep}lib"
    assert "PYTHONSAFEPATH" not in os.environ


def test_user_site_packages_that_hold_torch_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed with ``pip install --user`` can still save a model."""
    import torch

    monkeypatch.setattr(site, "getusersitepackages", lambda: str(Path(torch.__file__).parents[1]))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    with isolated_children():
        assert "PYTHONNOUSERSITE" not in os.environ


def test_a_process_works_in_an_empty_folder() -> None:
    """No file of the user is within its reach by a relative name."""
    assert run_python("import os; print(os.listdir())").stdout.strip() == "[]"


def _calls(node: ast.AST, isolated: bool = False) -> Iterator[tuple[str, bool]]:
    """(dotted name, whether it stands inside ``with isolated_children()``) of every call below a node."""
    if isinstance(node, ast.With):
        names = "".join(ast.unparse(item.context_expr) for item in node.items)
        isolated = isolated or "isolated_children" in names or "isolated_workers" in names
    if isinstance(node, ast.Call):
        yield ast.unparse(node.func), isolated
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, isolated)


def test_every_start_of_a_process_is_isolated() -> None:
    """One anywhere in the package, and a command itself, as torch.compile starts processes, is inside ``isolated_children``."""
    files = {file: ast.parse(file.read_text(encoding="utf-8")) for file in SOURCE.rglob("*.py")}
    found = [(file, name, isolated) for file, tree in files.items() for name, isolated in _calls(tree) if name in STARTERS]
    assert [one for one in found if not one[2]] == []
    assert len(found) >= 2
    assert ("run", True) in set(_calls(files[SOURCE / "cli.py"]))
