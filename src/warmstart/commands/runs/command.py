"""``warmstart runs``: lists the runs of a folder, or follows one. It only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tyro.conf import Positional

from warmstart.commands.runs.result import RunsResult, end_of_run, step_line, trial_line
from warmstart.config import Config
from warmstart.errors import ConfigError, suggest
from warmstart.runs.state import TRIALS, RunState, find_runs, is_run
from warmstart.system.console import console, print_table
from warmstart.system.stopping import Terminated
from warmstart.system.storage import json_or_none

LOOK_AGAIN = 0.5
"""seconds between two looks at a run that is followed"""
LAST_LINES = 5
"""lines of the past that are shown of a run that is followed"""


class RunsConfig(Config):
    """List the runs and sweeps of a folder, or follow one."""

    folder: Positional[str] = "runs"
    """folder in which the runs are"""
    follow: str | None = None
    """print the progress of this run as it comes, until it ends; Ctrl-C stops looking, not the run"""


def list_runs(config: RunsConfig) -> RunsResult | RunState:
    """The ``runs`` command."""
    folder = Path(config.folder)
    if config.follow:
        return _follow(_named(config.follow, folder))
    if not folder.is_dir():
        raise ConfigError(f"{folder} must be a folder of runs, but there is none; name one, `warmstart runs FOLDER`")
    runs = sorted(find_runs(folder), key=lambda run: -run.changed)
    result = RunsResult(folder, tuple(runs))
    if runs:
        print_table(str(folder), result.table(), result.HEADER)
    for sentence in result.findings:
        console.print(sentence)
    return result


def _named(name: str, folder: Path) -> RunState:
    """The run of this name in the folder, or at this path. Raises ``ConfigError`` if there is none."""
    for path in (folder / name, Path(name)):
        if is_run(path):
            return RunState(path, name)
    known = [run.name for run in find_runs(folder) if run.state != "foreign"] if folder.is_dir() else []
    raise ConfigError(f"{name} must be a run in {folder}, or the path of one, but is neither; {suggest(name, known)}")


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
    """The news of a run since the last look."""

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
