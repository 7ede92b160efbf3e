"""``warmstart runs``: lists the runs of a folder, or follows one. It only reads."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tyro.conf import Positional

from warmstart.config import Config
from warmstart.errors import ConfigError, suggest
from warmstart.notebook import Shown
from warmstart.runs.state import TRIALS, RunState, find_runs, is_run
from warmstart.stats.formatting import file_size, percent, time_span
from warmstart.system.console import console, print_table
from warmstart.system.stopping import Terminated
from warmstart.system.storage import MANIFEST, json_or_none

if TYPE_CHECKING:
    from warmstart.report.parts import Report
    from warmstart.runs.tally import Tally


LOOK_AGAIN = 0.5
"""seconds between two looks at a run that is followed"""
LAST_LINES = 5
"""lines of the past that are shown of a run that is followed"""


class RunsConfig(Config):
    """List the runs and sweeps of a folder, follow one, or show what a model predicted, month by month."""

    folder: Positional[str] = "runs"
    """folder in which the runs are; of a model, or its run, what it predicted by month"""
    follow: str | None = None
    """print the progress of this run as it comes, until it ends; Ctrl-C stops looking, not the run"""


def list_runs(config: RunsConfig) -> RunsResult | ModelMonths | RunState:
    """The ``runs`` command."""
    folder = Path(config.folder)
    if config.follow:
        return _follow(_named(config.follow, folder))
    if not folder.is_dir():
        raise ConfigError(f"{folder} must be a folder of runs, but there is none; name one, `warmstart runs FOLDER`")
    from warmstart.runs.tally import history_of, read_tallies

    file, digest = history_of(folder)
    if file and (file.is_file() or not is_run(folder)):
        return _by_month(ModelMonths(folder, digest, tuple(read_tallies(file))))
    runs = sorted(find_runs(folder), key=lambda run: -run.changed)
    result = RunsResult(folder, tuple(runs))
    if runs:
        print_table(str(folder), result.table(), result.HEADER)
    for sentence in result.findings:
        console.print(sentence)
    return result


def _by_month(result: ModelMonths) -> ModelMonths:
    """Print what a model predicted."""
    if result.tallies:
        print_table(f"{result.model} by month (UTC)", result.table(), result.header)
    for sentence in result.findings:
        console.print(sentence, markup=False)
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


STATES = ("running", "stopped", "damaged", "finished", "foreign")
"""in the order in which the sentence counts them"""


@dataclass(frozen=True)
class RunsResult(Shown, view="commands.runs:runs_view"):
    """The runs of a folder, the last written first."""

    folder: Path
    runs: tuple[RunState, ...]

    HEADER: ClassVar = ("run", "command", "task or text", "state", "done", "last figure", "written", "time", "size")
    """names the columns of ``table``"""

    def table(self) -> list[tuple[str, ...]]:
        """One row for each run, under ``HEADER``."""
        return [
            (
                run.name,
                run.command or "unknown",
                run.subject or kind_of_foreign(run),
                state_cell(run),
                done_cell(run),
                figure_cell(run),
                moment(run.changed),
                time_span(run.seconds) if run.seconds is not None else "",
                file_size(run.size),
            )
            for run in self.runs
        ]

    @property
    def findings(self) -> list[str]:
        """Numbers of runs in each state, and the faults of damaged ones."""
        if not self.runs:
            return [f"{self.folder} is empty: nothing has been run there."]
        counts = {state: sum(run.state == state for run in self.runs) for state in STATES}
        counted = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        size = file_size(sum(run.size for run in self.runs if not self._inside_another(run)))
        damaged = [f"{run.name} is damaged: {', '.join(run.damage[:3])}." for run in self.runs if run.damage]
        return [f"{self.folder} holds {counted}; {size} in all.", *damaged]

    def _inside_another(self, run: RunState) -> bool:
        return any(other.path in run.path.parents for other in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """All runs as plain values, fit for JSON."""
        return {"folder": str(self.folder), "runs": [run.to_dict() for run in self.runs]}


@dataclass(frozen=True)
class ModelMonths(Shown, view="commands.runs:months_view"):
    """Counts of what a model predicted, and earlier models of its run, month by month."""

    model: Path
    digest: str
    """first 12 digits of the model's digest"""
    tallies: tuple[Tally, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns of ``table``."""
        from warmstart.runs.tally import top_labels

        if any("mean" in tally.sums for tally in self.tallies):
            return ("month", "texts", "mean", "deviation")
        labels = top_labels(self.tallies)
        others = any(tally.labels.keys() - {*labels} for tally in self.tallies)
        return ("month", "texts", "unknown", "confidence", *labels, *(["others"] if others else []))

    def table(self) -> list[tuple[str, ...]]:
        """One row for each month and model, under ``header``; labels are shares of the texts."""
        from warmstart.runs.tally import MONTH, summed, top_labels

        rows = list[tuple[str, ...]]()
        for month in summed(self.tallies, MONTH):
            row = (month.date + " (earlier model)" * (month.model != self.digest), f"{month.texts:,}")
            if "mean" in self.header:
                rows.append((*row, *(f"{month.to_dict().get(name, math.nan):.4g}" for name in ("mean", "deviation"))))
                continue
            labels = [month.labels.get(name, 0) for name in top_labels(self.tallies)]
            counts = [month.sums.get("unknown"), month.sums.get("confidence"), *labels, sum(month.labels.values()) - sum(labels)]
            rows.append((*row, *("" if count is None else percent(count / month.texts, 0) for count in counts))[: len(self.header)])
        return rows

    @property
    def findings(self) -> list[str]:
        """A sentence about what has changed, and the number of texts that earlier models predicted."""
        from warmstart.runs.tally import shift_sentence

        own = [tally for tally in self.tallies if tally.model == self.digest]
        others = sum(tally.texts for tally in self.tallies) - sum(tally.texts for tally in own)
        earlier = f"{others:,} text{'s' * (others != 1)} of earlier models here are not compared."
        return [shift_sentence(own), *([earlier] if others else [])]

    def to_dict(self) -> dict[str, Any]:
        """The months, and what has changed of this model, as plain values, fit for JSON."""
        from warmstart.runs.tally import MONTH, shift_of, summed

        own = [tally for tally in self.tallies if tally.model == self.digest]
        shift, months = shift_of(own), [tally.to_dict() for tally in summed(self.tallies, MONTH)]
        return {"model": self.digest, "months": months, "changed": shift and shift._asdict(), "findings": self.findings}


def kind_of_foreign(run: RunState) -> str:
    """The kind of a folder or file that is no run."""
    if run.state != "foreign":
        return ""
    if (run.path / MANIFEST).is_file():
        return "a saved model"
    return "a folder without settings" if run.path.is_dir() else "a file"


def state_cell(run: RunState) -> str:
    """``running (process 4711 on node-3)``."""
    return f"running (process {run.holder.process} on {run.holder.host})" if run.holder else run.state


def done_cell(run: RunState) -> str:
    """``12 of 40 trials``."""
    if run.done is None or run.state == "foreign":
        return ""
    of = f" of {run.planned:,}" if run.planned is not None else ""
    return f"{run.done:,}{of} {run.unit}"


def figure_cell(run: RunState) -> str:
    """A score with its method, or the last loss."""
    if run.score:
        return f"{percent(run.score[1])} ({run.score[0]})"
    return f"loss {run.loss:.3f}" if run.loss is not None else ""


def moment(seconds: float) -> str:
    """Seconds since 1970 as local date and time."""
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M") if seconds else ""


def trial_line(values: Mapping[str, Any], number: int, planned: int | None) -> str:
    """A finished trial of a sweep, from the values in its file."""
    of = f" of {planned}" if planned else ""
    if not {"trial", "validation", "seconds"} <= values.keys():
        return f"trial {number}{of}: its file is damaged"
    trial, score = values["trial"], float(values.get("score") or math.nan)
    labels = f", {trial['labels']} labels" if trial.get("labels") else ""
    chosen = f"{percent(values['validation'])} on the texts that choose"
    shown = chosen if math.isnan(score) else f"{percent(score)} on test"
    return f"trial {number}{of}: {trial['method']['name']}{labels}, seed {trial['seed']}: {shown}, {time_span(values['seconds'])}"


def step_line(row: Mapping[str, Any], planned: int | None) -> str:
    """A line of the log of training."""
    of = f" of {planned:,}" if planned else ""
    held_out = row.get("held_out")
    if isinstance(held_out, Mapping):
        figures = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in held_out.items() if _is_number(value))
        return f"step {row['step']:,}{of}: held out, {figures}"
    parts = [f"{name} {row[name]:.4f}" for name in ("loss",) if _is_number(row.get(name))]
    parts += [f"{row['tokens_per_second']:,.0f} tokens/s"] if _is_number(row.get("tokens_per_second")) else []
    parts += [time_span(row["seconds"])] if _is_number(row.get("seconds")) else []
    return f"step {row['step']:,}{of}: {', '.join(parts)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def end_of_run(run: RunState) -> str:
    """A sentence about the end of a run that no process writes any more."""
    figure = figure_cell(run)
    told = {
        "finished": f"{run.name} is finished{f': {figure}' if figure else ''}.",
        "stopped": f"{run.name} was stopped before its end{f', at {done_cell(run)}' if done_cell(run) else ''}.",
        "damaged": f"{run.name} is damaged: {', '.join(run.damage[:3])}.",
    }
    return told.get(run.state, f"{run.name} is no run.")


def runs_view(result: RunsResult) -> Report:
    """The runs of a folder, in a notebook."""
    from warmstart.report.parts import Report, Section, Table, headline

    states = [run.state for run in result.runs]
    tiles = [(state, str(states.count(state))) for state in dict.fromkeys(states)]
    section = Section("Runs", result.findings[1:], (Table(result.HEADER, result.table()),))
    return Report(f"Runs: {result.folder}", headline(result.findings[0]), tiles, (section,))


def run_view(run: RunState) -> Report:
    """A run that was followed to its end, in a notebook."""
    from warmstart.report.parts import Report, Section, Table, headline

    section = Section("State", (), (Table(RunsResult.HEADER, RunsResult(run.path.parent, (run,)).table()),))
    return Report(f"Run: {run.name}", headline(end_of_run(run)), (), (section,))


def months_view(result: ModelMonths) -> Report:
    """What a model predicted, in a notebook."""
    from warmstart.report.parts import Report, Section, Table, headline

    section = Section("Months", result.findings[1:], (Table(result.header, result.table()),))
    return Report(f"Model: {result.model}", headline(result.findings[0]), (), (section,))
