"""Recipes: every shipped one runs to its end at its smallest length; steps are resumed, overridden and checked beforehand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from helpers.models import SENTENCES
from warmstart.cli import main
from warmstart.commands import COMMANDS
from warmstart.commands import recipe as recipe_module
from warmstart.commands.recipe import RecipeConfig, _has_result, read_recipe, recipe
from warmstart.commands.settings import TokenizeConfig
from warmstart.config import EFFECTLESS, NAMES_FILES, NAMES_TASKS, read_yaml
from warmstart.data.source import LabelledTableFlags
from warmstart.errors import ConfigError
from warmstart.experiment.config import AdaptConfig
from warmstart.runs.made_of import input_hashes
from warmstart.runs.record import end_record, read_record_of, write_record

RECIPES = Path(__file__).parents[1] / "recipes"
FILES = sorted(RECIPES.glob("*.yaml"))


@pytest.mark.data
@pytest.mark.journeys
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_recipe_runs_tiny(file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first step to the last, each leaving its report."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    monkeypatch.chdir(RECIPES.parent)
    steps = read_recipe(str(file), tmp_path, "tiny")
    recipe(RecipeConfig(file=str(file), out=str(tmp_path / "run"), length="tiny"))
    assert list(read_record_of(tmp_path / "run")["steps"]) == list(steps)
    for name, step in steps.items():
        if step["command"] in ("pretrain", "adapt"):
            assert (tmp_path / "run" / name / "report.html").exists()


def test_every_length_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every length of every recipe reads as settings without a single unknown key, before anything runs."""
    monkeypatch.setenv("WARMSTART_DATA", "/nowhere")
    for file in FILES:
        for length in [None, *read_yaml(file, {"out": "x"})["lengths"]]:
            with pytest.raises(ConfigError, match="has no step 'nothing'"):
                recipe(RecipeConfig(file=str(file), out=str(tmp_path), length=length, only=("nothing",)))
            for name, step in read_recipe(str(file), tmp_path, length).items():
                assert recipe_module._plan(name, step, tmp_path, str(file))


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
    """The second run changes nothing and takes no time; a length overrides what it names, and nothing else."""
    out = tmp_path / "run"
    assert read_recipe(str(small), tmp_path, None)["lm"]["train"] == {"steps": 4, "batch": 2}
    assert read_recipe(str(small), tmp_path, "short")["lm"]["train"] == {"steps": 2, "batch": 2}
    assert main(["recipe", str(small), "--out", str(out), "--length", "short"]) == 0
    weights = (out / "lm" / "bundle" / "weights.safetensors").stat().st_mtime_ns
    assert main(["recipe", str(small), "--out", str(out), "--length", "short"]) == 0
    assert (out / "lm" / "bundle" / "weights.safetensors").stat().st_mtime_ns == weights


CHANGES = [
    ("command: pretrain", "out: x", "step 'lm' must name its command"),
    ("command: pretrain", "command: pretain", "unknown command 'pretain'; did you mean 'pretrain'?"),
    ("preset: tiny", "presets: tiny", "step 'lm': unknown key 'presets'"),
    ("short: {lm:", "short: {ml:", "length 'short' names a step 'ml'; known: lm"),
    ("command: pretrain", "command: pretrain\n    out: ${nowhere}", "uses ${nowhere}, but the environment variable"),
]
"""a part of the recipe, what stands there instead, and what is said"""


def test_wrong_recipes_and_flags(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in the file or the flags is found before the first step runs: one message, exit code 2, nothing written."""
    text, words = small.read_text(), ["recipe", str(small), "--out", str(tmp_path / "run")]
    wrong = [(text.replace(old, new), ["--length", "short"], message) for old, new, message in CHANGES]
    wrong.append((text, ["--length", "shrt"], "has no length 'shrt'; did you mean 'short'?"))
    wrong.append((text, ["--only", "ml"], "has no step 'ml'; known: lm"))
    for content, flags, message in wrong:
        small.write_text(content)
        assert main([*words, *flags]) == 2, message
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_a_done_step_that_would_now_be_another_is_refused(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another length, an edited step, a changed text or another version: each is named, and nothing is skipped in silence."""
    out, text, recipe_text = tmp_path / "run", tmp_path / "text.txt", small.read_text()
    run = ["recipe", str(small), "--out", str(out)]
    assert main([*run, "--length", "short"]) == 0
    weights = (out / "lm" / "bundle" / "weights.safetensors").read_bytes()

    def refused(*flags: str) -> str:
        assert main([*run, *flags]) == 2
        said = capsys.readouterr().err
        assert "step 'lm' is done in" in said
        return said

    assert "('train')" in refused()
    small.write_text(recipe_text.replace("preset: tiny", "seed: 3\n    preset: tiny"))
    assert "('seed')" in refused("--length", "short")
    small.write_text(recipe_text)
    before = text.read_text()
    text.write_text(before + "more")
    assert f"({text})" in refused("--length", "short")
    text.write_text(before)
    steps = read_record_of(out)["steps"]
    del steps["lm"]["made_of"]["the version"]
    write_record(out, steps=steps)
    assert "(the version)" in refused("--length", "short")
    (out / "run.json").write_text("[1")
    assert main([*run, "--length", "short"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert (out / "lm" / "bundle" / "weights.safetensors").read_bytes() == weights


def test_a_step_that_ended_before_the_recipe_could_note_it_is_done(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not run again; made of other text, it is refused."""
    out, words = tmp_path / "run", ["recipe", str(small), "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:

        def killed(folder: Path, **values: Any) -> None:
            if values.get("done"):
                raise KeyboardInterrupt
            write_record(folder, **values)

        patch.setattr(recipe_module, "write_record", killed)
        assert main(words) == 130
    assert (out / "lm" / "report.html").exists()
    weights = (out / "lm" / "bundle" / "weights.safetensors").stat().st_mtime_ns
    before = (tmp_path / "text.txt").read_text()
    (tmp_path / "text.txt").write_text(before + "more")
    assert main(words) == 2
    assert f"step 'lm' is done in {out}, but what it was made of has changed ({tmp_path}/text.txt)" in capsys.readouterr().err
    (tmp_path / "text.txt").write_text(before)
    assert main(words) == 0
    assert "lm: pretrain was finished when the recipe was stopped" in capsys.readouterr().err
    assert (out / "lm" / "bundle" / "weights.safetensors").stat().st_mtime_ns == weights
    assert read_record_of(out)["steps"]["lm"]["done"]
    assert read_record_of(out)["state"] == "finished"


def test_tokens_of_a_run_without_its_end_are_not_done(tmp_path: Path) -> None:
    """``tokenize`` was stopped: a recipe goes on with it."""
    settings = TokenizeConfig(text=("a",), out=str(tmp_path))
    write_record(tmp_path, command="tokenize", state="running")
    assert not _has_result(settings)
    end_record(tmp_path, "It is done.")
    assert _has_result(settings)


def test_files_that_a_step_reads_are_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a manifest of any ending names, one by one or by a pattern; a word that is also a folder's name is none."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("text,label\n")
    (tmp_path / "one.csv").write_text("text,label\n")
    (tmp_path / "task.txt").write_text("name: t\ntrain: data/*.csv\ntest: {path: one.csv}\n")
    (tmp_path / "full").mkdir()
    monkeypatch.chdir(tmp_path)
    given = AdaptConfig(task="task.txt", model="nowhere")
    before = input_hashes(given)
    assert sorted(before) == ["data/*.csv", "one.csv", "task.txt"]
    for name, file in (("data/*.csv", "data/b.csv"), ("one.csv", "one.csv")):
        (tmp_path / file).write_text("text,label\nx,y\n")
        assert input_hashes(given)[name] != before[name]


def test_a_setting_that_names_files_says_so() -> None:
    """Its type is ``FileInput`` or ``TaskInput``, or ``Effectless``: else a file that has changed would not be noticed."""
    others = (*LabelledTableFlags.model_fields, "save", "checksum")
    for name in ("pretrain", "tokenize", "adapt", "race", "evaluate", "predict", "generate", "import"):
        for setting, field in COMMANDS[name].load_settings().model_fields.items():
            said = re.search(r"\b(files?|folders?|manifests?|bundles?)\b", field.description or "") and "str" in str(
                field.annotation
            )
            marked = any(one in field.metadata for one in (NAMES_FILES, NAMES_TASKS, EFFECTLESS))
            assert marked or not said or setting in others, f"{name}: {setting}"


def test_a_step_in_a_folder_that_is_not_its_own_is_not_taken_for_done(small: Path, tmp_path: Path) -> None:
    """However often it is tried."""
    words = ["pretrain", str(tmp_path / "text.txt"), "--preset", "tiny", "--max-length", "16", "--steps", "2", "--batch", "2"]
    tokenizer = ["--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "0"]
    assert main([*words, *tokenizer, "--out", str(tmp_path / "run" / "lm")]) == 0
    for _ in range(2):
        assert main(["recipe", str(small), "--out", str(tmp_path / "run")]) == 2
    assert "lm" not in read_record_of(tmp_path / "run").get("steps", {})
