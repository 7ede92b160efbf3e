"""Recipes: every shipped one runs to its end at its smallest length; steps are resumed, overridden and checked beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.models import SENTENCES
from warmstart.cli import main
from warmstart.commands.recipe import RecipeConfig, read_recipe, recipe
from warmstart.config import read_yaml
from warmstart.errors import ConfigError

RECIPES = Path(__file__).parents[1] / "recipes"
FILES = sorted(RECIPES.glob("*.yaml"))


pytestmark = pytest.mark.usefixtures("no_second_process")


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_recipe_runs_tiny(file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first step to the last, each leaving its report."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    monkeypatch.chdir(RECIPES.parent)
    steps = read_recipe(str(file), tmp_path, "tiny")
    recipe(RecipeConfig(file=str(file), out=str(tmp_path / "run"), length="tiny"))
    assert list(json.loads((tmp_path / "run" / "recipe.json").read_text())) == list(steps)
    for name, step in steps.items():
        if step["command"] in ("pretrain", "adapt", "answers"):
            assert (tmp_path / "run" / name / "report.html").exists()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_length_is_sound(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every length of every recipe reads as settings without a single unknown key, before anything runs."""
    monkeypatch.setenv("WARMSTART_DATA", "/nowhere")
    for length in [None, *read_yaml(file, {"out": "x"})["lengths"]]:
        with pytest.raises(ConfigError, match="has no step 'nothing'"):
            recipe(RecipeConfig(file=str(file), out=str(tmp_path), length=length, only=("nothing",)))
        assert read_recipe(str(file), tmp_path, length)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A recipe of one step, with one length."""
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES * 30))
    file = tmp_path / "small.yaml"
    file.write_text(f"""
title: small
steps:
  lm:
    command: pretrain
    text: [{tmp_path}/text.txt]
    tokenizer: {{vocab_size: 330, sentinels: 0}}
    preset: tiny
    backbone: {{max_length: 16}}
    train: {{steps: 4, batch: 2}}
lengths:
  short: {{lm: {{train: {{steps: 2}}}}}}
""")
    return file


def test_a_done_step_is_not_run_again(small: Path, tmp_path: Path) -> None:
    """The second run changes nothing and takes no time."""
    out = tmp_path / "run"
    assert main(["recipe", str(small), "--out", str(out), "--length", "short"]) == 0
    weights = (out / "lm" / "bundle" / "weights.safetensors").stat().st_mtime_ns
    assert main(["recipe", str(small), "--out", str(out), "--length", "short"]) == 0
    assert (out / "lm" / "bundle" / "weights.safetensors").stat().st_mtime_ns == weights


def test_a_length_overrides_what_it_names(small: Path, tmp_path: Path) -> None:
    """And nothing else; ``${out}`` is the run's folder."""
    assert read_recipe(str(small), tmp_path, None)["lm"]["train"] == {"steps": 4, "batch": 2}
    assert read_recipe(str(small), tmp_path, "short")["lm"]["train"] == {"steps": 2, "batch": 2}


WRONG = {
    "length": (["--length", "shrt"], "has no length 'shrt'; did you mean 'short'?"),
    "step": (["--only", "ml"], "has no step 'ml'; known: lm"),
}


@pytest.mark.parametrize(("flags", "message"), WRONG.values(), ids=WRONG)
def test_wrong_flags(small: Path, tmp_path: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One message, exit code 2, nothing written."""
    assert main(["recipe", str(small), "--out", str(tmp_path / "run"), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


CHANGES = {
    "no command": ("command: pretrain", "out: x", "step 'lm' must name its command"),
    "unknown command": ("command: pretrain", "command: pretain", "unknown command 'pretain'; did you mean 'pretrain'?"),
    "unknown key": ("preset: tiny", "presets: tiny", "step 'lm': unknown key 'presets'"),
    "strange step": ("short: {lm:", "short: {ml:", "length 'short' names a step 'ml'; known: lm"),
    "unknown name": (
        "command: pretrain",
        "command: pretrain\n    out: ${nowhere}",
        "uses ${nowhere}, but the environment variable",
    ),
}


@pytest.mark.parametrize(("old", "new", "message"), CHANGES.values(), ids=CHANGES)
def test_wrong_recipes(small: Path, tmp_path: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in the file is found before the first step runs."""
    small.write_text(small.read_text().replace(old, new))
    assert main(["recipe", str(small), "--out", str(tmp_path / "run"), "--length", "short"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
