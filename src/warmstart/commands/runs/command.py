"""``warmstart runs``: lists, compares, follows and cleans the runs of a folder.

It reads; only ``--clean --yes`` removes anything, and never a model.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field, model_validator
from tyro.conf import Positional

from warmstart.commands.runs.result import (
    CleaningResult,
    Removable,
    RunsComparison,
    RunsResult,
    end_of_run,
    names_of,
    step_line,
    trial_line,
)
from warmstart.config import Config
from warmstart.errors import ConfigError, StorageError, suggest
from warmstart.runs.state import TRIALS, RunState, find_runs, folder_size, is_run
from warmstart.system.console import console, print_table
from warmstart.system.locks import LOCK, hold, releasing_locks
from warmstart.system.stopping import Terminated
from warmstart.system.storage import STEPS_FOLDER, json_or_none, leftovers

LOOK_AGAIN = 0.5
"""seconds between two looks at a run that is followed"""
LAST_LINES = 5
"""lines of the past that are shown of a run that is followed"""
CACHES = {
    "checkpoints": "checkpoints of a finished run",
    "text": "tokenized text of a finished run",
    STEPS_FOLDER: "steps of a finished run",
}
"""folders in that of a run that serve only to go on, or to save time"""


class RunsConfig(Config):
    """List the runs and sweeps of a folder; compare some, follow one, or remove what none needs any more."""

    folder: Positional[str] = "runs"
    """folder in which the runs are"""
    compare: tuple[str, ...] | None = Field(None, min_length=2)
    """show these runs side by side: settings that differ, results and, with --page, loss curves; names in the folder, or paths"""
    follow: str | None = None
    """print the progress of this run as it comes, until it ends; Ctrl-C stops looking, not the run"""
    clean: bool = False
    """list what could be removed: checkpoints and caches of finished runs, leftovers of dead processes"""
    yes: bool = False
    """with --clean: remove it; never a model, never anything of a run that a process writes"""
    page: str | None = None
    """also write the table or the comparison as this HTML file"""

    @model_validator(mode="after")
    def _one_thing_at_a_time(self) -> RunsConfig:
        given = [name for name, one in (("compare", self.compare), ("follow", self.follow), ("clean", self.clean)) if one]
        if len(given) > 1:
            raise ValueError(f"runs does one thing at a time, but {' and '.join(given)} were given; name one of them")
        if self.yes and not self.clean:
            raise ValueError("yes must come with clean, which says what would be removed, but clean is not given; add --clean")
        return self


def list_runs(config: RunsConfig) -> RunsResult | RunsComparison | CleaningResult | RunState:
    """The ``runs`` command."""
    folder = Path(config.folder)
    if config.follow:
        return _follow(_named(config.follow, folder))
    if config.compare:
        return _compare(tuple(_named(name, folder) for name in config.compare), config)
    if not folder.is_dir():
        raise ConfigError(f"{folder} must be a folder of runs, but there is none; name one, `warmstart runs FOLDER`")
    runs = sorted(find_runs(folder), key=lambda run: -run.changed)
    if config.clean:
        return _clean(folder, runs, config)
    result = RunsResult(folder, tuple(runs))
    if runs:
        print_table(str(folder), result.table(), result.HEADER)
    _print_sentences(result.findings)
    if config.page:
        from warmstart.commands.runs.page import write_runs_page

        console.print(f"page: {write_runs_page(result, Path(config.page))}")
    return result


def _named(name: str, folder: Path) -> RunState:
    """The run of this name in the folder, or at this path. Raises ``ConfigError`` if there is none."""
    for path in (folder / name, Path(name)):
        if is_run(path):
            return RunState(path, name)
    known = names_of([*find_runs(folder)]) if folder.is_dir() else []
    raise ConfigError(f"{name} must be a run in {folder}, or the path of one, but is neither; {suggest(name, known)}")


def _compare(runs: tuple[RunState, ...], config: RunsConfig) -> RunsComparison:
    result = RunsComparison(runs)
    if rows := result.settings_table():
        print_table("settings that differ", rows, result.header)
    print_table("results", result.results_table(), result.header)
    _print_sentences(result.findings)
    if config.page:
        from warmstart.commands.runs.page import write_runs_comparison

        console.print(f"page: {write_runs_comparison(result, Path(config.page))}")
    return result


def _follow(run: RunState) -> RunState:
    """Print what comes until nobody writes the run any more; Ctrl-C ends this, and leaves the run alone."""
    lines = _Lines(run.path)
    try:
        while True:
            now = RunState(run.path, run.name)
            running = now.holder  # asked before the lines are read: what a process wrote last is shown
            for line in lines.new(now):
                console.print(line)
            if not running:
                console.print(end_of_run(now))
                return now
            time.sleep(LOOK_AGAIN)
    except Terminated:
        raise
    except KeyboardInterrupt:
        console.print(f"{run.name} goes on; `warmstart runs --follow {run.name}` looks again")
        return RunState(run.path, run.name)


class _Lines:
    """What is new in a run since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.trials: set[str] | None = None

    def new(self, run: RunState) -> Iterator[str]:
        """The new lines of the log, and the trials that have been finished."""
        if len(run.log) < self.rows:  # a resumed run cuts off what follows its checkpoint
            self.rows = 0
        first = self.rows == 0
        fresh = run.log[self.rows :]
        self.rows = len(run.log)
        yield from (step_line(row, run.planned) for row in (fresh[-LAST_LINES:] if first else fresh))
        files = {file.name for file in (self.path / TRIALS).glob("*.json")}
        known = files if self.trials is None else self.trials
        if self.trials is None and files:
            yield f"{len(files)} trials are done"
        for number, name in enumerate(sorted(files - known), len(known) + 1):
            values = json_or_none(self.path / TRIALS / name)
            if values is not None:
                yield trial_line(values, number, run.planned)
        self.trials = files


def _clean(folder: Path, runs: Sequence[RunState], config: RunsConfig) -> CleaningResult:
    """Say what could be removed; with ``--yes`` remove it."""
    items = [*_removable(folder, runs)]
    kept = [reason for item in items if (reason := _remove(item))] if config.yes else []
    result = CleaningResult(tuple(item for item in items if not config.yes or not item.path.exists()), tuple(kept), config.yes)
    if result.items:
        print_table("removed" if config.yes else "could be removed", result.table(), result.HEADER)
    _print_sentences(result.findings)
    return result


def _removable(folder: Path, runs: Sequence[RunState]) -> Iterator[Removable]:
    """What no run needs: not of one that a process writes, nor of one inside such a run."""
    held = [run.path for run in runs if run.holder]
    for run in runs:
        if run.state != "finished" or any(place in (run.path, *run.path.parents) for place in held):
            continue
        for name, why in CACHES.items():
            place = run.path / name
            if place.is_dir() and not place.is_symlink() and (name != "checkpoints" or (run.path / "bundle").is_dir()):
                yield Removable(place, why, folder_size(place), run)
    for place in leftovers(folder):
        if not any(one in place.parents for one in held):
            yield Removable(place, "left by a process that was killed", folder_size(place), None)


def _remove(item: Removable) -> str:
    """Remove it, unless a process has come to write its run meanwhile; returns why it was kept."""
    try:
        with releasing_locks():
            if item.run is not None:
                hold(item.run.path / LOCK, str(item.run.path))
            if item.path.is_dir() and not item.path.is_symlink():
                shutil.rmtree(item.path)
            else:
                item.path.unlink()
    except (OSError, StorageError) as error:
        return f"{item.path} is kept: {error}."
    return ""


def _print_sentences(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        console.print(sentence)
