"""Recipes: complete experiments as YAML, each step a command with its settings, run by one command.

    title: the lab
    steps:
      lm: {command: pretrain, text: [corpus.txt], preset: lab, train: {epochs: 2}}
      tuned: {command: adapt, model: '${out}/lm', task: task.yaml}
    lengths:
      tiny: {lm: {train: {epochs: null, steps: 3}}, tuned: {seeds: 1}}

Each step writes into the folder of its name; ``${out}`` is the folder of the recipe. A length overrides settings, and may drop a
step (``tuned: null``). A step that is done is not run again, also if the recipe was killed before it could note that; one that was
stopped goes on, or starts again. A step that is done but would now have other settings, other inputs or another version is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from tyro.conf import Positional

from warmstart.commands import COMMANDS, with_preset
from warmstart.config import Advanced, Config, Effectless, read_yaml
from warmstart.errors import ConfigError, suggest
from warmstart.experiment.backends import known_backend
from warmstart.runs.made_of import made_of
from warmstart.runs.record import is_complete
from warmstart.runs.state import BEGUN
from warmstart.system.console import console
from warmstart.system.locks import LOCK, hold
from warmstart.system.storage import RECIPE_FILE, SETTINGS, atomic_write, is_leftover, json_or_none, names_a_folder


class RecipeConfig(Config):
    """Run a recipe: several commands one after another, with settings from one file."""

    file: Positional[str]
    """the recipe (YAML)"""
    out: Effectless[str | None] = None
    """folder of the run, with one folder per step; default: runs/ and the name of the recipe"""
    length: str | None = None
    """one of the lengths that the recipe defines, for instance tiny; default: the steps as they are"""
    only: Advanced[tuple[str, ...]] = ()
    """run only these steps"""
    jobs: Effectless[Advanced[int | None]] = Field(None, gt=0)
    """trials at once, in steps that are a race; default: as the recipe says"""
    backend: Effectless[Advanced[Annotated[str, AfterValidator(known_backend)] | None]] = None
    """where the trials of these steps run, as in `warmstart race`; default: as the recipe says"""


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
    plans = {name: (command, _spread_over(settings, config)) for name, (command, settings) in plans.items()}
    folder.mkdir(parents=True, exist_ok=True)
    hold(folder / LOCK, str(folder))
    done = _read_done(folder)
    for name, (command, settings) in plans.items():
        if not config.only or name in config.only:
            _run_step(name, (command, settings), folder, done, {"length": config.length, "steps": len(plans)})
    return folder


def _run_step(name: str, step: tuple[str, Config], folder: Path, done: dict[str, dict[str, Any]], about: Mapping[str, Any]) -> None:
    """Run a step that is not done; ``done`` is what is known of all, and is written before and after it."""
    command, settings = step
    made, known = made_of(settings), done.get(name, {})
    if known and not known.get(BEGUN) and ("out" not in type(settings).model_fields or _has_result(command, settings)):
        _refuse_changes(name, known["made_of"], made, folder)
        return
    entry: dict[str, Any] = {"command": command, **about, "made_of": made}
    if known and _has_result(command, settings):  # killed when all was done but to say so here
        _refuse_changes(name, known["made_of"], made, folder)
        console.rule(f"{name}: {command} was finished when the recipe was stopped", align="left")
    else:
        console.rule(f"{name}: {command}", align="left")
        if not _has_result(command, settings):
            _write_done(folder, done | {name: entry | {BEGUN: True}})
        started = time.monotonic()
        _, run = COMMANDS[command].load()
        run(settings)
        entry |= {"seconds": round(time.monotonic() - started, 1)}
    done[name] = entry
    _write_done(folder, done)


def _spread_over(settings: Config, config: RecipeConfig) -> Config:
    """The settings of a step; those of a sweep with what the recipe's own flags say of where they run."""
    if "backend" not in type(settings).model_fields:
        return settings
    given = {"jobs": config.jobs, "backend": config.backend}
    return settings.model_copy(update={name: value for name, value in given.items() if value is not None})


def _has_result(command: str, settings: Config) -> bool:
    """Whether there is what a step leaves at its end: its last file, a run's report, or what it puts in place whole."""
    out = getattr(settings, "out", None)
    if out is None:
        return False
    path = Path(out)
    if COMMANDS[command].last_file:
        return (path / COMMANDS[command].last_file).exists()
    if (path / SETTINGS).exists() or not path.is_dir():
        return is_complete(path) or path.is_file()
    return any(file.name != LOCK and not is_leftover(file.name) for file in path.iterdir())


def _write_done(folder: Path, done: Mapping[str, Any]) -> None:
    atomic_write(folder / RECIPE_FILE, json.dumps(done, indent=1).encode())


def _refuse_changes(name: str, before: Mapping[str, str], now: Mapping[str, str], folder: Path) -> None:
    """Raise ``ConfigError`` if a step that is done was made of something else."""
    if changed := [one for one in {**before, **now} if before.get(one) != now.get(one)]:
        raise ConfigError(
            f"step '{name}' is done in {folder}, but what it was made of has changed ({', '.join(changed[:5])}); remove "
            f"{folder / name} and the step from {folder / RECIPE_FILE} to run it again, or choose another --out"
        )


def read_recipe(file: str, folder: Path, length: str | None) -> dict[str, dict[str, Any]]:
    """The steps of a recipe at one length: name -> settings with their ``command``."""
    spec = RecipeSpec.build(read_yaml(file, {"out": str(folder)}), file)
    if length is not None and length not in spec.lengths:
        raise ConfigError(f"{file} has no length '{length}'; {suggest(length, spec.lengths)}")
    changes = spec.lengths[length] if length else {}
    if unknown := [name for name in changes if name not in spec.steps]:
        raise ConfigError(f"{file}: length '{length}' names a step '{unknown[0]}'; {suggest(unknown[0], spec.steps)}")
    if wrong := [name for name in spec.steps if not names_a_folder(name)]:
        raise ConfigError(f"{file}: a step's name becomes a folder, but {wrong[0]!r} cannot be one; rename the step")
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


def _read_done(folder: Path) -> dict[str, Any]:
    file = folder / RECIPE_FILE
    found = json_or_none(file)
    if found is None and file.exists():
        raise ConfigError(f"{file} must say which steps are done, but cannot be read; choose another --out")
    return found or {}
