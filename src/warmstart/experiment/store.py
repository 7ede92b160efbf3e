"""The files of a sweep: the result of each trial, found again by the next command, and one table of all trials.

A result's file is named by everything that the result depends on: the texts of the task, the bytes of the backbone's bundle, every
setting of the trial. So the same command continues where it stopped, and one with more methods or seeds runs only what is new.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import polars
from pydantic import Field

from warmstart.baselines import BASELINES
from warmstart.config import Config, Effectless, result_key
from warmstart.data.audit import drop_leaks
from warmstart.data.budget import FOLDS
from warmstart.data.scorings import ScoredMethod, ScoringRun
from warmstart.data.source import LabelledTableFlags
from warmstart.data.task import Task
from warmstart.errors import ConfigError
from warmstart.experiment.trial import Limits, SweepRuns, Trial, TrialResult, described_settings
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.selection import SelectionSettings
from warmstart.runs.state import TRIALS
from warmstart.system.backends import PROCESSES
from warmstart.system.storage import atomic_write, file_sha256, sealed, sha256, unsealed
from warmstart.tasks.load import load_task

VERSION = {"baseline": 11, "frozen": 13, "adapted": 10, "scratch": 10, "stack": 14}
"""version of the results of each family of methods, counted up when results change in meaning or form"""
PREDICTIONS = "predictions"
"""key of the hash of a trial's predictions, which are in a file beside its result"""


@dataclass(frozen=True)
class HeldTask:
    """A task that was given in memory, not as a file; equal to another of the same texts and labels."""

    digest: str
    task: Task = field(compare=False, repr=False)

    @classmethod
    def of(cls, task: Task | None) -> HeldTask | None:
        """The task, if there is one."""
        return cls(task.digest, task) if task else None


class SweepContext(Config):
    """Settings that all trials of one command share; small, and sent to wherever they run."""

    task: Effectless[str]
    """the task's manifest"""
    held: Effectless[Any] = Field(None, exclude=True)
    """a ``HeldTask`` in place of the manifest"""
    reading: Effectless[LabelledTableFlags] = LabelledTableFlags()
    """settings for reading a table"""
    digest: str
    """identifies its texts and labels"""
    folder: Effectless[str]
    """folder of the results"""
    tune: FineTuneConfig
    """settings of fine-tuning"""
    scoring: Effectless[ScoringRun] = ScoringRun(command="sweep")
    """the run that scores the test split"""
    pool: Effectless[str] = "rest"
    """the task's text without labels: ``rest``, ``none`` or a file"""
    pool_digest: str = ""
    """identifies its texts"""
    drop_leaks: bool = False
    """leave out training texts that are also in validation or test"""
    drop_near_leaks: bool = False
    """leave out those that are nearly the same, too"""
    threads: Effectless[int] = 0
    """threads of each trial; 0: torch's default"""
    jobs: Effectless[int] = 1
    """trials at once"""
    backend: Effectless[str] = PROCESSES
    """place of the trials: this machine's processes or a cluster"""
    equal_classes: bool = False
    """baselines are told nothing of how frequent classes are"""
    parts: int = FOLDS
    """folds of methods that fit in milliseconds"""
    limits: Effectless[Any] = Field(default_factory=Limits, exclude=True)
    """``Limits``: until when trials run"""

    def load_task(self) -> Task:
        """The task as it was given."""
        return self.held.task if self.held else load_task(self.task, flags=self.reading)

    def without_leaks(self, task: Task) -> Task:
        """The task without the leaks that are to be dropped."""
        return drop_leaks(task, near=self.drop_near_leaks) if self.drop_leaks or self.drop_near_leaks else task

    @classmethod
    def of(cls, task: Task, manifest: str, folder: Path, tune: FineTuneConfig, **settings: Any) -> SweepContext:
        """The context of trials on ``task``, read from ``manifest``, in the run's folder, with further settings."""
        return cls(task=manifest, digest=task.digest, folder=str(folder / TRIALS), tune=tune, **settings)


def find_result(trial: Trial, context: SweepContext) -> TrialResult | None:
    """The result of a trial that was run before; None if there is none, or if it cannot be used."""
    kept = _read_trial(result_file(trial, context))
    return kept[1] if kept else None


def _read_trial(file: Path) -> tuple[Trial, TrialResult] | None:
    try:
        values = unsealed(file.read_bytes())
        _check_predictions(file.with_suffix(".npz"), values.pop(PREDICTIONS, None))
        trial = Trial.build(values.pop("trial"), str(file))
        lists = ("resampled", "resampled_validation", "split_sizes", "diverged_rates", "candidates")
        gain = tuple(values["gain"]) if values["gain"] else None
        rows = {name: tuple(map(tuple, values[name])) for name in ("tried", "members")}
        return trial, TrialResult(**values | {name: tuple(values[name]) for name in lists} | rows | {"gain": gain})
    except (OSError, ValueError, KeyError, TypeError, ConfigError):
        return None


def _check_predictions(file: Path, digest: str | None) -> None:
    """Raise ``ValueError`` or ``OSError`` if the file of a trial's predictions is not the one with this hash."""
    if digest is not None and file_sha256(file) != digest:
        raise ValueError(f"{file} has changed")


class TrialPredictions(NamedTuple):
    """Predictions of a trial, in the form that the task type scores."""

    choosing: Any
    """predictions for the texts that choose"""
    test: Any
    """predictions for the test texts"""


def save_result(trial: Trial, context: SweepContext, result: TrialResult, predictions: TrialPredictions) -> None:
    """Write the result of a trial to where ``find_result`` looks for it; before it, its predictions, if they are numbers.

    Those of tags are objects, one per text.
    """
    file = result_file(trial, context)
    values = {"trial": trial.to_dict()} | asdict(result)
    if all(isinstance(array, np.ndarray) and array.dtype != object for array in predictions):
        content = io.BytesIO()
        np.savez_compressed(content, **{name: array.astype(np.float32) for name, array in predictions._asdict().items()})
        values[PREDICTIONS] = sha256(content.getvalue())
        atomic_write(file.with_suffix(".npz"), content.getvalue(), "the predictions of a trial")
    atomic_write(file, json.dumps(sealed(values)).encode(), "the result of a trial")


def read_predictions(trial: Trial, context: SweepContext) -> TrialPredictions | None:
    """The predictions of a trial that was run before; None if they are no numbers."""
    return _read_predictions(result_file(trial, context).with_suffix(".npz"))


def _read_predictions(file: Path) -> TrialPredictions | None:
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
            return TrialPredictions(arrays["choosing"], arrays["test"])
    except (OSError, ValueError, KeyError, BadZipFile):
        return None


def result_file(trial: Trial, context: SweepContext) -> Path:
    """The file of a trial's result, named by all that it depends on: not by a method's display name, nor by where files are."""
    return Path(context.folder) / f"{result_key(VERSION[trial.method.family], *_what_counts(trial, context))[:24]}.json"


def scored_method(trial: Trial, context: SweepContext, learning_rate: float) -> ScoredMethod:
    """The ledger's name of a trial that chose this learning rate: everything but its seed and the texts of the task."""
    described = described_settings(trial.method.name, learning_rate, trial.labels, trial.selection)
    trial = trial.model_copy(update={"seed": 0, "learning_rates": (learning_rate,), "competes": True})
    key = result_key(*_what_counts(trial, context.model_copy(update={"digest": ""})))
    return context.scoring.method(described + ", splits of its seeds" * trial.resample, [key])


def _what_counts(trial: Trial, context: SweepContext) -> tuple[Trial, SweepContext]:
    """Settings that this family reads; a change of any other finds the same results again."""
    method = trial.method
    name = "" if method.fine_tunes else method.scheme or method.name
    unread: dict[str, Any] = {"tune": FineTuneConfig()} if method.family == "baseline" else {}
    if not method.combines and not (name in BASELINES and BASELINES[name].reads_pool):
        unread["pool_digest"] = ""
    named = {"method": method.model_copy(update={"name": name})}
    return trial.model_copy(update=named), context.model_copy(update=unread)


def selection_settings(trial: Trial) -> SelectionSettings:
    """The settings by which this trial chooses its own."""
    return SelectionSettings(trial.selection, trial.learning_rates, choose=trial.competes)


def trial_settings(trial: Trial, context: SweepContext) -> FineTuneConfig:
    """The settings by which this trial's model is fine-tuned; of several learning rates, at the first."""
    scheme = {"scheme": trial.method.scheme or "full"}
    return context.tune.at_learning_rate(trial.learning_rates[0]).model_copy(update=scheme)


def write_runs_table(sweeps: Iterable[tuple[int, SweepRuns]], folder: Path) -> None:
    """Write all finished trials as one tidy table, ``runs.csv``, from (labels, runs): one row per trial."""
    rows = [row for labels, runs in sweeps for row in _rows(labels, runs)]
    atomic_write(folder / "runs.csv", polars.DataFrame(rows, infer_schema_length=None).write_csv().encode())


def _rows(labels: int, runs: SweepRuns) -> Iterator[dict[str, Any]]:
    for trial in runs.trials:
        if result := runs.results.get(trial):
            yield {
                "method": trial.method.name,
                **{name: getattr(trial.method, name) for name in ("family", "scheme", "backbone")},
                "labels": labels,
                "seed": trial.seed,
                "resample": trial.resample,
                "selection": trial.selection,
                "learning_rate": result.learning_rate or None,
                "tried": " ".join(f"{rate:g}:{score:.4f}" for rate, score in result.tried),
                "validation": result.validation,
                "score": None if trial.chooses_rate else result.score,
                "seconds": round(result.seconds, 3),
                "search_seconds": round(result.search_seconds, 3),
                "trained_parameters": result.trainable,
                "new_parameters": result.new,
                "task_bytes": result.disk,
                **{name: getattr(result, name) for name in ("collapsed", "diverged", "note")},
            }
