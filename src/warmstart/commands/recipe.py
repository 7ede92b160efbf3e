"""Recipes: complete experiments as YAML, each step a command with its settings, run by one command.

    title: the lab
    steps:
      lm: {command: pretrain, text: [corpus.txt], preset: lab, train: {epochs: 2}}
      tuned: {command: adapt, model: '${out}/lm', task: task.yaml}
    lengths:
      tiny: {lm: {train: {epochs: null, steps: 3}}, tuned: {seeds: 1}}

Each step writes into the folder of its name; ``${out}`` is the folder of the recipe. A length overrides settings, and may drop a
step (``tuned: null``). A step that is done is not run again, and interrupted pretraining is resumed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field
from tyro.conf import Positional

from warmstart.commands import COMMANDS, with_preset
from warmstart.config import Advanced, Config, read_yaml
from warmstart.console import console
from warmstart.errors import ConfigError, suggest
from warmstart.storage import atomic_write

DONE = "recipe.json"


class RecipeConfig(Config):
    """Run a recipe: several commands one after another, with settings from one file."""

    file: Positional[str]
    """the recipe (YAML)"""
    out: str | None = None
    """folder of the run, with one folder per step; default: runs/ and the name of the recipe"""
    length: str | None = None
    """one of the lengths that the recipe defines, for instance tiny; default: the steps as they are"""
    only: Advanced[tuple[str, ...]] = ()
    """run only these steps"""


class RecipeSpec(Config):
    """The file of a recipe."""

    title: str
    """what the recipe shows"""
    steps: dict[str, dict[str, Any]] = Field(min_length=1)
    """name -> command and its settings, in order"""
    lengths: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """name -> step -> settings that override it, or null to leave it out"""


def recipe(config: RecipeConfig) -> Path:
    """Run the steps that are not done yet; returns the folder. The ``recipe`` command."""
    folder = Path(config.out or Path("runs") / Path(config.file).stem)
    steps = read_recipe(config.file, folder, config.length)
    if unknown := [name for name in config.only if name not in steps]:
        raise ConfigError(f"{config.file} has no step '{unknown[0]}'; {suggest(unknown[0], steps)}")
    plans = {name: _plan(name, values, folder, config.file) for name, values in steps.items()}  # all are checked before any runs
    done = _read_done(folder)
    for name, (command, settings) in plans.items():
        if name in done or (config.only and name not in config.only):
            continue
        console.rule(f"{name}: {command}", align="left")
        started = time.monotonic()
        _, run = COMMANDS[command].load()
        run(_resumed(command, settings))
        done[name] = {"command": command, "seconds": round(time.monotonic() - started, 1), "length": config.length}
        atomic_write(folder / DONE, json.dumps(done, indent=1).encode())
    return folder


def read_recipe(file: str, folder: Path, length: str | None) -> dict[str, dict[str, Any]]:
    """The steps of a recipe at one length: name -> settings with their ``command``."""
    spec = RecipeSpec.build(read_yaml(file, {"out": str(folder)}), file)
    if length is not None and length not in spec.lengths:
        raise ConfigError(f"{file} has no length '{length}'; {suggest(length, spec.lengths)}")
    changes = spec.lengths[length] if length else {}
    if unknown := [name for name in changes if name not in spec.steps]:
        raise ConfigError(f"{file}: length '{length}' names a step '{unknown[0]}'; {suggest(unknown[0], spec.steps)}")
    dropped = {name for name, change in changes.items() if change is None}
    return {name: _merged(step, changes.get(name, {})) for name, step in spec.steps.items() if name not in dropped}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes`` on top, mappings within mappings too."""
    nested = {
        key: _merged(base[key], value)
        for key, value in changes.items()
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
    }
    return {**base, **changes, **nested}


def _plan(name: str, values: Mapping[str, Any], folder: Path, file: str) -> tuple[str, Config]:
    """A step's command and its settings, checked."""
    given = dict(values)
    command = given.pop("command", None)
    if not isinstance(command, str):
        raise ConfigError(f"{file}: step '{name}' must name its command, for instance 'command: pretrain'")
    settings, _ = COMMANDS[command].load()
    if "out" in settings.model_fields:
        given.setdefault("out", str(folder / name))
    return command, settings.build(with_preset(given) if "backbone" in settings.model_fields else given, f"{file}, step '{name}'")


def _resumed(command: str, settings: Config) -> Config:
    """Pretraining that has left checkpoints is resumed."""
    out = getattr(settings, "out", None)
    unfinished = command == "pretrain" and out and (Path(out) / "checkpoints").exists()
    return settings.model_copy(update={"resume": out}) if unfinished else settings


def _read_done(folder: Path) -> dict[str, Any]:
    file = folder / DONE
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}
