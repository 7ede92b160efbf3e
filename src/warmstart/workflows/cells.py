"""The cells of a race or a curve: one method at one rate, with one seed and so many labels. Each is run once, and kept.

A cell's file is named by everything that its result depends on: the texts of the task, the bytes of the backbone's bundle, every
setting of the run. The same command finds what is done already, and one with more methods or more seeds goes on from it. Cells
are independent, and spread over the workers of joblib, or of whichever of its backends is chosen around the call.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import joblib
import torch

from warmstart.config import Config
from warmstart.data import Task, drop_leaks, load_task, subsample
from warmstart.engine import console, pick_device
from warmstart.engine.highwater import watched
from warmstart.errors import BundleError
from warmstart.kinds import kind_of
from warmstart.model import Bundle, load, swap_head
from warmstart.schemes import Features, Language
from warmstart.storage import sha256, write_forced
from warmstart.workflows.adapt import task_model
from warmstart.workflows.finetune import FineTuneConfig, FineTuned, Splits, fine_tune, head_for
from warmstart.workflows.run import find_bundle

_ALONE = threading.Lock()
"""torch's generator belongs to the process: of workers that are threads, one runs at a time"""
VERSION = 1
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
    """wall time of the run, evaluations included"""
    validation: float | None = None
    """the metric on the validation split at the kept weights; a baseline has none"""
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
    note: str = ""
    """settings that the method chose for itself"""


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
    deadline: float | None = None
    """moment (seconds since 1970) after which no cell is begun"""


def run_cells(cells: Sequence[Cell], ground: Ground, jobs: int) -> dict[str, Result]:
    """The results by cell (written out, as ``str(cell)``); those that the time did not suffice for are missing."""
    done = dict[str, Result]()
    missing = list[Cell]()
    for cell in cells:
        kept = find(cell, ground)
        if kept:
            done[str(cell)] = kept
        else:
            missing.append(cell)
    if done:
        console.print(f"{len(done)} of {len(cells)} runs are done already")
    for number, (cell, result) in enumerate(_spread(missing, ground, jobs), 1):
        if result is None:
            continue
        done[str(cell)] = result
        lost = ", [yellow]collapsed[/yellow]" if result.collapsed else ""
        console.print(f"{number} of {len(missing)}: {cell}: {100 * result.score:.1f} % in {result.seconds:.1f} s{lost}")
    return done


def _spread(cells: Sequence[Cell], ground: Ground, jobs: int) -> Iterator[tuple[Cell, Result | None]]:
    """The cells' results as they come. One job runs here; more run in processes that share the cores."""
    if jobs == 1 or not cells:
        yield from ((cell, run_cell(cell, ground)) for cell in cells)
        return
    shared = ground.model_copy(update={"threads": max(1, (os.cpu_count() or 1) // jobs)})
    work: Iterable[Any] = (joblib.delayed(_numbered)(place, cell, shared) for place, cell in enumerate(cells))
    for place, result in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(work):
        yield cells[place], result


def _numbered(place: int, cell: Cell, ground: Ground) -> tuple[int, Result | None]:
    return place, run_cell(cell, ground)


def run_cell(cell: Cell, ground: Ground) -> Result | None:
    """Run one cell and keep its result; None where the deadline has passed. Any process that sees the files can run it."""
    with _ALONE:
        if ground.deadline is not None and time.time() > ground.deadline:
            return None
        if ground.threads:
            torch.set_num_threads(ground.threads)
        result = _baseline(cell, ground) if cell.entrant.kind == "baseline" else _tuned(cell, ground)
    file = _file(cell, ground)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_forced(file, json.dumps({"cell": cell.plain()} | asdict(result)).encode(), "the result of a run")
    return result


def find(cell: Cell, ground: Ground) -> Result | None:
    """What was kept of a cell, if it was run before; a damaged file is as none."""
    try:
        kept = json.loads(_file(cell, ground).read_text(encoding="utf-8"))
        kept.pop("cell")
        return Result(**kept | {"resampled": tuple(kept["resampled"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(cell: Cell, ground: Ground) -> Path:
    """Named by all that the result depends on: not by what the method is called, nor by where files lie."""
    trained = cell.entrant.kind != "baseline"
    settings = settings_of(cell, ground).plain() if trained else None
    method = cell.entrant.kind if trained else cell.entrant.name
    said = [VERSION, method, cell.seed, cell.labels, ground.digest, cell.entrant.origin, settings]
    return Path(ground.folder) / f"{sha256(json.dumps(said, sort_keys=True).encode())[:24]}.json"


def settings_of(cell: Cell, ground: Ground) -> FineTuneConfig:
    """How this cell's model is fitted; Muon's rate goes up and down with the other."""
    train = ground.tune.train
    scale = cell.rate / train.learning_rate if train.optimizer == "muon" else 1.0
    train = train.model_copy(update={"learning_rate": cell.rate, "muon_rate": train.muon_rate * scale})
    return ground.tune.model_copy(update={"scheme": cell.entrant.scheme or "full", "train": train})


def _baseline(cell: Cell, ground: Ground) -> Result:
    task = _task(ground)
    if cell.labels:
        task = subsample(task, cell.labels, cell.seed)
    started = time.perf_counter()
    kind = kind_of(task)
    said, note = kind.baselines()[cell.entrant.name](task)
    seconds, score = time.perf_counter() - started, kind.scores(task.test, said, task).score(task.metric)
    return Result(score, _resampled(task, said), seconds, note=note)


def _tuned(cell: Cell, ground: Ground) -> Result:
    bundle, whole = _workshop(cell.entrant.backbone, cell.entrant.origin, ground)
    splits = whole.sample(cell.labels, cell.seed) if cell.labels else whole
    config = settings_of(cell, ground)
    with watched(pick_device()) as mark:
        started = time.perf_counter()
        model = task_model(bundle, splits.task, config, cell.seed, scratch=cell.entrant.kind == "scratch")
        done = fine_tune(model, splits, config, cell.seed, "", Language.of(bundle))
        seconds = time.perf_counter() - started
    return _result(done, splits.task, bundle, (seconds, mark.taken))


def _result(done: FineTuned, task: Task, bundle: Bundle, cost: tuple[float, int | None]) -> Result:
    old = {f"backbone.{name}": tensor for name, tensor in bundle.model.backbone.state_dict().items()}
    weights = done.model.weights()
    new = {name: tensor for name, tensor in weights.items() if name not in old}
    moved = [tensor for name, tensor in weights.items() if name in old and not torch.equal(tensor, old[name])]
    return Result(
        score=done.test.score(task.metric),
        resampled=_resampled(task, done.probabilities),
        seconds=cost[0],
        validation=done.validation,
        memory=cost[1],
        trainable=done.trainable,
        new=sum(tensor.numel() for tensor in new.values()),
        disk=sum(tensor.numel() * tensor.element_size() for tensor in (*new.values(), *moved)),
        collapsed=kind_of(task).lost(task, done.test),
    )


def _resampled(task: Task, said: Any) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in kind_of(task).resampled(task.test, said, task))


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


def _task(ground: Ground) -> Task:
    return _read_task(ground.task, ground.digest, ground.drop_leaks)


@functools.lru_cache(maxsize=2)
def _read_task(path: str, digest: str, without_leaks: bool) -> Task:
    """The task, read once in each process for as long as its digest stays the same."""
    task = load_task(path)
    return drop_leaks(task) if without_leaks else task


@functools.lru_cache(maxsize=4)
def _workshop(backbone: str, origin: str, ground: Ground) -> tuple[Bundle, Splits]:
    """The bundle and the encoded texts, made once in each process; frozen features are shared by all through the disk."""
    bundle = load(find_bundle(backbone))
    splits = Splits.of(_task(ground), swap_head(bundle.model, head_for(_task(ground), ground.tune), 0), bundle.tokenizer)
    return bundle, replace(splits, features=Features(Path(ground.folder) / "features"))
