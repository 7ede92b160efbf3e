"""Recipes: complete experiments as YAML, each step a command with its settings, run by one command.

    title: the lab
    steps:
      lm: {command: pretrain, text: [corpus.txt], preset: lab, train: {epochs: 2}}
      tuned: {command: adapt, model: '${out}/lm', task: task.yaml}
    lengths:
      tiny: {lm: {train: {epochs: null, steps: 3}}, tuned: {seeds: 1}}

Each step writes into the folder of its name; ``${out}`` is the folder of the recipe. A length overrides settings, and may drop a
setting (``tokenizer: null``) or a step (``tuned: null``). A step that is done is not run again, also if the recipe was killed
before it could note that; one that was stopped goes on, or starts again. A step that is done but would now have other settings,
inputs or another version is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from tyro.conf import Positional

from warmstart.commands import COMMANDS, with_preset
from warmstart.config import Advanced, Config, Effectless, read_yaml
from warmstart.errors import ConfigError, suggest
from warmstart.runs.record import end_record, is_complete, read_record_of, write_record
from warmstart.system.backends import known_backend
from warmstart.system.console import console
from warmstart.system.locks import LOCK
from warmstart.system.storage import RUN_FILE, is_leftover, names_a_folder


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
    """place where the trials of these steps run, as in `warmstart race`; default: as the recipe says"""


class RecipeSpec(Config):
    """The file of a recipe."""

    title: str
    """one line about the recipe"""
    steps: dict[str, dict[str, Any]] = Field(min_length=1)
    """name -> command and its settings, in order"""
    lengths: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """name -> step -> settings that override it, or null to leave it out"""


def recipe(config: RecipeConfig) -> Path:
    """Run the steps that are not done yet; returns the folder. The ``recipe`` command."""
    from warmstart.runs.run import Run

    folder = Path(config.out or Path("runs") / Path(config.file).stem)
    steps = read_recipe(config.file, folder, config.length)
    if unknown := [name for name in config.only if name not in steps]:
        raise ConfigError(f"{config.file} has no step '{unknown[0]}'; {suggest(unknown[0], steps)}")
    plans = {name: _plan(name, values, folder, config.file) for name, values in steps.items()}  # all are checked before any runs
    plans = {name: (command, _spread_over(settings, config)) for name, (command, settings) in plans.items()}
    steps_done = _steps_of(folder)
    Run.open(str(folder), config, extend=True)
    write_record(folder, planned=len(plans))
    for name, step in plans.items():
        if not config.only or name in config.only:
            _run_step(name, step, folder, steps_done)
    if sum(step["done"] for step in steps_done.values()) >= len(plans):
        end_record(folder, f"All steps of {config.file} are done.")
    return folder


def _run_step(name: str, step: tuple[str, Config], folder: Path, known: dict[str, dict[str, Any]]) -> None:
    """Run a step that is not done; ``known`` is what run.json says of all, written before one begins from nothing, and after it."""
    from warmstart.runs.made_of import made_of

    command, settings = step
    made, before = made_of(settings), known.get(name)
    gated = getattr(settings, "gate", None) is not None and not (before and before["done"])  # it may have stopped the recipe
    complete = _has_result(settings) and not gated

    def note(*, done: bool, seconds: float | None = None) -> None:
        known[name] = {"made_of": made, "done": done, "seconds": seconds}
        write_record(folder, steps=known, done=sum(step["done"] for step in known.values()))

    if before and (complete or (before["done"] and "out" not in type(settings).model_fields)):
        if changed := [one for one in {**before["made_of"], **made} if before["made_of"].get(one) != made.get(one)]:
            raise ConfigError(
                f"step '{name}' is done in {folder}, but what it was made of has changed ({', '.join(changed[:5])}); remove "
                f"{folder / name} to run it again, or choose another --out"
            )
        if not before["done"]:  # killed when all was done but to say so here
            console.rule(f"{name}: {command} was finished when the recipe was stopped", align="left")
            note(done=True)
    else:
        console.rule(f"{name}: {command}", align="left")
        if not complete:
            note(done=False)
        started, (_, run) = time.monotonic(), COMMANDS[command].load()
        run(settings)
        note(done=True, seconds=round(time.monotonic() - started, 1))


def _spread_over(settings: Config, config: RecipeConfig) -> Config:
    """The settings of a step; those of a sweep with what the recipe's own flags say of where they run."""
    if "backend" not in type(settings).model_fields:
        return settings
    given = {"jobs": config.jobs, "backend": config.backend}
    return settings.model_copy(update={name: value for name, value in given.items() if value is not None})


def _has_result(settings: Config) -> bool:
    """Whether there is what a step leaves at its end: a run that says so, or what it puts in place whole."""
    if (out := getattr(settings, "out", None)) is None:
        return False
    path = Path(out)
    if (path / RUN_FILE).exists() or not path.is_dir():
        return is_complete(path) or path.is_file()
    return any(file.name != LOCK and not is_leftover(file.name) for file in path.iterdir())


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
    given = {key: value for key, value in values.items() if value is not None}
    command = given.pop("command", None)
    if not isinstance(command, str):
        raise ConfigError(f"{file}: step '{name}' must name its command, for instance 'command: pretrain'")
    settings = COMMANDS[command].load_settings()
    if "out" in settings.model_fields:
        given.setdefault("out", str(folder / name))
    return command, settings.build(with_preset(given) if "backbone" in settings.model_fields else given, f"{file}, step '{name}'")


def _steps_of(folder: Path) -> dict[str, Any]:
    """The steps of a recipe in run.json: the inputs of each, and whether it is done."""
    record = read_record_of(folder)
    if not record and (folder / RUN_FILE).exists():
        raise ConfigError(f"{folder / RUN_FILE} must say which steps are done, but cannot be read; choose another --out")
    return dict(record.get("steps", {}))
