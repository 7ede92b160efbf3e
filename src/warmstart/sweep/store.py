"""What the cells of a race or a curve are, and where their results are kept: each is run once.

A cell's file is named by everything that its result depends on: the texts of the task, the bytes of the backbone's bundle, every
setting of the run. The same command finds what is done already, and one with more methods or more seeds goes on from it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from warmstart.config import Config
from warmstart.data.task import Task
from warmstart.errors import BundleError
from warmstart.finetuning.config import FineTuneConfig
from warmstart.model.files import find_bundle
from warmstart.storage import atomic_write, sha256

VERSION = 2
"""counted up when old results mean something else"""


class Entrant(Config):
    """A method that takes part."""

    name: str
    """what tables call it"""
    kind: Literal["baseline", "adapted", "scratch"]
    """needs no backbone, starts from a pretrained one, or from a fresh one of the same shape"""
    backbone: str = ""
    """a bundle, or a run's folder"""
    origin: str = ""
    """names the bundle's bytes"""
    scheme: str = ""
    """how the backbone is adapted"""
    parent: str = ""
    """the backbone that all methods share, where this one's went on with pretraining from it"""
    before: float = 0.0
    """seconds spent once before all its runs"""


class Cell(Config):
    """One run of one method."""

    entrant: Entrant
    seed: int
    rate: float = 0.0
    """learning rate, where the method has one"""
    labels: int | None = None
    """training texts, drawn by the seed; None: all"""

    def __str__(self) -> str:
        labels = f", {self.labels} labels" if self.labels else ""
        return f"{self.entrant.name}{f' at {self.rate:g}' if self.rate else ''}{labels}, seed {self.seed}"


@dataclass(frozen=True)
class Result:
    """What came of a cell."""

    score: float
    """the metric on the test split"""
    resampled: tuple[float, ...]
    """(R,) the same on resamples of it"""
    seconds: float
    """wall time of the run, evaluations included, and of the reading that it found done"""
    validation: float
    """the metric on the validation split, at the kept weights"""
    held: tuple[float, ...] = ()
    """(R,) the same on resamples of it: whether methods differ there decides the advice"""
    memory: int | None = None
    """bytes that the run took at its highest, on top of the program, the backbone and the texts"""
    trainable: int = 0
    """parameters that trained"""
    new: int = 0
    """parameters that the pretrained backbone has not"""
    disk: int = 0
    """bytes that keeping this task takes, beside the backbone: what is new, and what moved"""
    collapsed: bool = False
    """it learned nothing"""
    diverged: bool = False
    """its loss was no number any more: the figures are of what takes no learning"""
    note: str = ""
    """settings that the method chose for itself"""
    spared: float = 0.0
    """of the seconds, those that an earlier run had spent on reading the same texts by the same frozen backbone"""
    threads: int = 0
    """that the run had"""
    jobs: int = 1
    """runs at once"""


class Ground(Config):
    """What all cells of one command share; small, and sent to every worker."""

    task: str
    """the task's manifest"""
    digest: str
    """names its texts and labels"""
    folder: str
    """where results are kept"""
    tune: FineTuneConfig
    """how a model is fitted"""
    drop_leaks: bool = False
    """without training texts that also stand in validation or test"""
    threads: int = 0
    """of each worker; 0: as torch has it"""
    jobs: int = 1
    """workers at once"""
    deadline: float | None = None
    """moment (seconds since 1970) after which no cell is begun"""


def find(cell: Cell, ground: Ground) -> Result | None:
    """What was kept of a cell, if it was run before; a damaged file is as none."""
    try:
        kept = json.loads(file_of(cell, ground).read_text(encoding="utf-8"))
        kept.pop("cell")
        return Result(**kept | {name: tuple(kept[name]) for name in ("resampled", "held")})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(cell: Cell, ground: Ground, result: Result) -> None:
    """Write what came of a cell where ``find`` looks for it."""
    file = file_of(cell, ground)
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, json.dumps({"cell": cell.to_dict()} | asdict(result)).encode(), "the result of a run")


def file_of(cell: Cell, ground: Ground) -> Path:
    """The cell's file, named by all that the result depends on: not by what the method is called, nor by where files lie."""
    trained = cell.entrant.kind != "baseline"
    settings = settings_of(cell, ground).to_dict() if trained else None
    method = cell.entrant.kind if trained else cell.entrant.name
    said = [VERSION, method, cell.seed, cell.labels, ground.digest, cell.entrant.origin, settings]
    return Path(ground.folder) / f"{sha256(json.dumps(said, sort_keys=True).encode())[:24]}.json"


def settings_of(cell: Cell, ground: Ground) -> FineTuneConfig:
    """How this cell's model is fitted; Muon's rate goes up and down with the other."""
    train = ground.tune.train
    scale = cell.rate / train.learning_rate if train.optimizer == "muon" else 1.0
    train = train.model_copy(update={"learning_rate": cell.rate, "muon_learning_rate": train.muon_learning_rate * scale})
    return ground.tune.model_copy(update={"scheme": cell.entrant.scheme or "full", "train": train})


def ground_of(task: Task, path: str, folder: Path, tune: FineTuneConfig, *, without_leaks: bool) -> Ground:
    """What the cells of one command on ``task``, read from ``path``, share."""
    kept = str(folder / "cells")
    return Ground(task=path, digest=task.digest, folder=kept, tune=tune, drop_leaks=without_leaks)


def bundle_digest(path: str) -> str:
    """Names a bundle: its manifest holds the hash of every tensor and of the tokenizer. Raises ``BundleError`` where none is."""
    manifest = find_bundle(path) / "bundle.json"
    if not manifest.is_file():
        raise BundleError(
            f"each backbone must be a saved bundle, or a run's folder, but {path} is none; `warmstart import` makes one"
        )
    return sha256(manifest.read_bytes())
