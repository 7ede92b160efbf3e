"""What packages and services read: image, recipe, citation, templates and the hosted CI agree with the project."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line)


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


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
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {target for command in commands for target in re.findall(r"^make (\S+)", command)} <= {*targets}
    assert ".ci/run" in commands


def test_the_image_is_pinned_and_runs_as_nobody_special() -> None:
    """torch as in the constraints, a user without rights, and nothing copied that ``.dockerignore`` leaves out."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert any(f"torch=={PINNED['torch']}" in line for line in lines)
    assert [line for line in lines if line.startswith("USER ")] == ["USER warmstart"]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert {name for names in copied for name in names} <= allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_templates_are_forms() -> None:
    """Each asks for something that must be answered."""
    for file in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(file.read_text(encoding="utf-8"))
        if file.name != "config.yml":
            assert {"name", "description", "body"} <= form.keys()
            assert any(one.get("validations", {}).get("required") for one in form["body"]), file.name
