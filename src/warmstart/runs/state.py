"""The state of a run, read from its folder: its command, how far it is, who writes it, its last figures. Needs no torch.

Nothing is written and no lock is taken. What cannot be read is said to be damaged or foreign; it is never an error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from warmstart.config import read_yaml
from warmstart.errors import ConfigError
from warmstart.notebook import Shown
from warmstart.runs.record import read_record_of
from warmstart.system.locks import LOCK, Holder, holder_of
from warmstart.system.storage import HISTORY_FILE, RUN_FILE, SETTINGS, STEPS_FOLDER, is_leftover, json_or_none
from warmstart.training.log import read_metrics

State = Literal["running", "finished", "stopped", "damaged", "foreign"]
TRIALS = "trials"
"""folder of the results of a sweep's trials, in the folder of the run"""
DEPTH = 4
"""folders within folders in which runs are looked for"""
_CONTENTS = {"bundle", "bundles", "checkpoints", "figures", TRIALS, "text", STEPS_FOLDER}
"""folders that belong to a run and hold none"""


@dataclass(frozen=True)
class RunState(Shown, view="commands.runs:run_view"):
    """One folder, as it was when it was read."""

    path: Path
    name: str
    """its path below the folder that was listed"""

    @cached_property
    def settings(self) -> dict[str, Any] | None:
        """The settings in ``config.yaml``; None if there is none, or if it is damaged."""
        try:
            return read_yaml(self.path / SETTINGS)
        except ConfigError:
            return None

    @cached_property
    def record(self) -> dict[str, Any]:
        """The record in ``run.json``."""
        return read_record_of(self.path)

    @cached_property
    def command(self) -> str:
        """The command that made it; empty if its files do not say."""
        return str(self.record.get("command", ""))

    @property
    def headline(self) -> str:
        """The headline, one sentence; empty before its end."""
        return str(self.record.get("headline", ""))

    @property
    def subject(self) -> str:
        """The task, the minimal pairs or the text that it reads."""
        values = self.settings or {}
        subject = next((values[key] for key in ("task", "tasks", "data", "pairs", "text", "model") if values.get(key)), "")
        names = [subject] if isinstance(subject, str) else subject if isinstance(subject, list) else []
        return ", ".join(map(str, names))

    @cached_property
    def holder(self) -> Holder | None:
        """The process that writes there now."""
        return holder_of(self.path / LOCK)

    @cached_property
    def state(self) -> State:
        """State of the run: done, being written, stopped before its end, damaged, or not a run at all."""
        if not is_run(self.path):
            return "foreign"
        if self.holder:
            return "running"
        if self.damage:
            return "damaged"
        return "finished" if self.record.get("state") == "finished" else "stopped"

    @property
    def damage(self) -> tuple[str, ...]:
        """The files that cannot be read, or are not what was written."""
        damaged = [SETTINGS] if (self.path / SETTINGS).exists() and self.settings is None else []
        return (*damaged, *(f"{TRIALS}/{name}" for name, trial in self.trials.items() if trial is None))

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        try:
            return read_metrics(self.path / "metrics.jsonl")
        except OSError:
            return []

    @cached_property
    def trials(self) -> dict[str, tuple[float, str, float] | None]:
        """The trials of a sweep, by file: score on the texts that choose, method and seconds; None if the file is damaged."""
        return {file.name: _trial(file) for file in sorted((self.path / TRIALS).glob("*.json"))}

    @property
    def _trials_done(self) -> list[tuple[float, str, float]]:
        """Lines with a score that chooses."""
        return [trial for trial in self.trials.values() if trial and not math.isnan(trial[0])]

    @property
    def unit(self) -> str:
        """The unit that ``done`` counts."""
        return TRIALS if (self.path / TRIALS).is_dir() else "steps"

    @property
    def done(self) -> int | None:
        """Steps of training, trials, or else steps of the run that are done; None if it does not record them."""
        if self.unit == TRIALS:
            return len(self._trials_done)
        return max((row["step"] for row in self.log), default=_whole(self.record.get("done")))

    @property
    def planned(self) -> int | None:
        """Steps or trials in all, if the run says so."""
        train = (self.settings or {}).get("train")
        steps = train.get("steps") if isinstance(train, dict) and self.log else None
        return _whole(self.record.get("planned", steps))

    @property
    def loss(self) -> float | None:
        """The last held-out loss; without one the last loss of training."""
        held_out = [row["held_out"].get("loss") for row in self.log if isinstance(row.get("held_out"), dict)]
        training = [row.get("loss") for row in self.log if "loss" in row]
        return next((float(value) for value in (*held_out[::-1], *training[::-1]) if isinstance(value, int | float)), None)

    @cached_property
    def score(self) -> tuple[str, float] | None:
        """A method and its mean test score, or, before there is one, the best score on the texts that choose.

        None also if the run says that its score is not known.
        """
        if (recorded := self.record.get("score", ())) is None:
            return None
        if isinstance(recorded, list):
            return str(recorded[0]), float(recorded[1])
        validation, method, _ = max(self._trials_done, default=(None, "", 0.0), key=lambda trial: trial[0])
        return None if validation is None else (f"{method}, validation", validation)

    @property
    def seconds(self) -> float | None:
        """Seconds of training or of all trials; where neither is recorded, from its begin to its end."""
        logged = max((row["seconds"] for row in self.log if isinstance(row.get("seconds"), int | float)), default=None)
        if logged is not None or self._trials_done:
            return logged if logged is not None else sum(seconds for _, _, seconds in self._trials_done)
        times = [_stat(self.path / name, "st_mtime") for name in (SETTINGS, RUN_FILE)]
        return times[1] - times[0] if self.state == "finished" and all(times) and times[1] >= times[0] else None

    @cached_property
    def changed(self) -> float:
        """When a file of it was last written, in seconds since 1970; that its model was used changes nothing."""
        files = (file for file in files_of(self.path) if file.name != HISTORY_FILE)
        return float(max((_stat(file, "st_mtime") for file in files), default=_stat(self.path, "st_mtime")))

    @cached_property
    def size(self) -> int:
        """Bytes on disk."""
        return folder_size(self.path)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, fit for JSON."""
        names = ("command", "subject", "state", "headline", "unit", "done", "planned", "loss", "seconds", "changed", "size")
        return {
            "run": str(self.path),
            **{name: getattr(self, name) for name in names},
            "score": dict(zip(("method", "value"), self.score, strict=True)) if self.score else None,
            "holder": self.holder._asdict() if self.holder else None,
            "damage": list(self.damage),
        }


def is_run(path: Path) -> bool:
    """True for a folder with the settings or the record of a run."""
    return any((path / name).is_file() for name in (SETTINGS, RUN_FILE))


def find_runs(folder: Path) -> Iterator[RunState]:
    """The folder itself if it is a run, the runs inside, and what lies directly in it and is none."""
    runs = list(_runs_below(folder, folder, DEPTH))
    yield from runs
    inner = [run.path for run in runs]
    if is_run(folder):
        return
    for place in sorted(folder.iterdir()):
        runs_inside = any(run == place or place in run.parents for run in inner)
        if not runs_inside and not place.name.startswith(".") and not place.name.endswith(f".{HISTORY_FILE}"):
            yield RunState(place, place.name)


def _runs_below(place: Path, base: Path, depth: int) -> Iterator[RunState]:
    if is_run(place):
        yield RunState(place, str(place.relative_to(base)) if place != base else place.resolve().name)
    if depth:
        try:
            inner = sorted(inner_place for inner_place in place.iterdir() if inner_place.is_dir() and not inner_place.is_symlink())
        except OSError:
            return
        for inner_place in inner:
            if inner_place.name not in _CONTENTS and not is_leftover(inner_place.name):
                yield from _runs_below(inner_place, base, depth - 1)


def _trial(file: Path) -> tuple[float, str, float] | None:
    """Score on the texts that choose, method and seconds of a trial; None if its file is damaged."""
    try:
        values = json_or_none(file) or {}
        seconds = float(values["seconds"]) + float(values["search_seconds"]) - float(values["seconds_saved"])
        return float(values["validation"]), str(values["trial"]["method"]["name"]), seconds
    except (ValueError, KeyError, TypeError):
        return None


def files_of(folder: Path) -> Iterator[Path]:
    """All files of a folder, in folders inside too; links are not followed. A single file is itself."""
    if not folder.is_dir() or folder.is_symlink():
        yield folder
        return
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def folder_size(folder: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(_stat(file, "st_size") for file in files_of(folder))


def _stat(file: Path, name: Literal["st_size", "st_mtime"]) -> Any:
    """A figure of a file; 0 if it was removed meanwhile."""
    try:
        return getattr(file.lstat(), name)
    except OSError:
        return 0


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
