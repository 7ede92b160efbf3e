"""The running of cells: one method at one rate, with one seed and so many labels.

Cells are independent, and spread over the workers of joblib, or of whichever of its backends is chosen around the call.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from warmstart.baselines import BASELINES, baselines_for
from warmstart.baselines.majority import collapsed
from warmstart.console import console
from warmstart.data.audit import drop_leaks
from warmstart.data.task import Split, Task, subsample
from warmstart.device import pick_device
from warmstart.errors import DataError, DivergedError, ModelError
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import FineTuneResult, fine_tune, head_config_for, task_model
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.model.bundle import Bundle
from warmstart.model.files import find_bundle, load_bundle
from warmstart.model.model import swap_head
from warmstart.sweep.store import Cell, Entrant, Ground, Result, find, keep, settings_of
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.task_type import take_predictions
from warmstart.training.peak_memory import track_peak_memory

_ALONE = threading.Lock()
"""torch's generator belongs to the process: of workers that are threads, one runs at a time"""


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
        said = "[yellow]diverged[/yellow]" if result.diverged else f"{100 * result.score:.1f} % in {result.seconds:.1f} s{lost}"
        console.print(f"{number} of {len(missing)}: {cell}: {said}")
    return done


def _spread(cells: Sequence[Cell], ground: Ground, jobs: int) -> Iterator[tuple[Cell, Result | None]]:
    """The cells' results as they come. One job runs here; more run in processes that share the cores."""
    if jobs == 1 or not cells:
        yield from ((cell, run_cell(cell, ground)) for cell in cells)
        return
    shared = ground.model_copy(update={"threads": max(1, (os.cpu_count() or 1) // jobs), "jobs": jobs})
    work: Iterable[Any] = (joblib.delayed(_numbered)(place, cell, shared) for place, cell in enumerate(cells))
    for place, result in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(work):
        yield cells[place], result


def _numbered(place: int, cell: Cell, ground: Ground) -> tuple[int, Result | None]:
    return place, run_cell(cell, ground)


def run_cell(cell: Cell, ground: Ground) -> Result | None:
    """Run one cell and keep its result; None where the deadline has passed. Any process that sees the files can run it.

    A run that diverges has a result too, that of what takes no learning. Raises ``ModelError``, which names the cell, where the
    model does not fit.
    """
    with _ALONE:
        if ground.deadline is not None and time.time() > ground.deadline:
            return None
        if ground.threads:
            torch.set_num_threads(ground.threads)
        try:
            result = _baseline(cell, ground) if cell.entrant.kind == "baseline" else _tuned(cell, ground)
        except DivergedError:
            result = _diverged(cell, ground)
        except ModelError as error:
            raise ModelError(f"{cell}: {error}") from None
    result = replace(result, threads=torch.get_num_threads(), jobs=ground.jobs)
    keep(cell, ground, result)
    return result


def _baseline(cell: Cell, ground: Ground) -> Result:
    task = _task(ground)
    if cell.labels:
        task = subsample(task, cell.labels, cell.seed)
    started = time.perf_counter()
    both = Split(task.validation.texts + task.test.texts, np.concatenate([task.validation.labels, task.test.labels]))
    result = BASELINES[cell.entrant.name].predict(replace(task, test=both))
    seconds = time.perf_counter() - started
    count = len(task.validation)
    parts = [
        (task.validation, take_predictions(result.predictions, np.arange(count))),
        (task.test, take_predictions(result.predictions, np.arange(count, len(both)))),
    ]
    (validation, held), (score, resampled) = ((_score(task, *part), _resampled(task, *part)) for part in parts)
    return Result(score, resampled, seconds, validation, held, note=result.note)


def _diverged(cell: Cell, ground: Ground) -> Result:
    name = next(iter(baselines_for(_task(ground))))
    floor = _baseline(cell.model_copy(update={"entrant": Entrant(name=name, kind="baseline")}), ground)
    return replace(floor, collapsed=True, diverged=True, note=f"diverged at rate {cell.rate:g}")


def _tuned(cell: Cell, ground: Ground) -> Result:
    bundle, shared, whole = _workshop(cell.entrant.backbone, cell.entrant.origin, cell.entrant.parent, ground)
    splits = whole.sample(cell.labels, cell.seed) if cell.labels else whole
    config = settings_of(cell, ground)
    with track_peak_memory(pick_device()) as peak:
        started, spared = time.perf_counter(), splits.features.seconds_saved
        model = task_model(bundle, splits.task, config, cell.seed, scratch=cell.entrant.kind == "scratch")
        done = fine_tune(model, splits, config, cell.seed, "", LanguageTask.of(bundle))
        seconds, spared = time.perf_counter() - started, splits.features.seconds_saved - spared
    return replace(_result(done, splits.task, shared, (seconds + spared, peak.bytes)), spared=spared)


def _result(done: FineTuneResult, task: Task, bundle: Bundle, cost: tuple[float, int | None]) -> Result:
    """What came of a run; what is new and what moved is counted against ``bundle``, which all tasks share."""
    old = {f"backbone.{name}": tensor for name, tensor in bundle.model.backbone.state_dict().items()}
    weights = done.model.weights()
    new = {name: tensor for name, tensor in weights.items() if name not in old}
    moved = [tensor for name, tensor in weights.items() if name in old and not torch.equal(tensor, old[name])]
    return Result(
        score=done.test_scores.score(task.metric),
        resampled=_resampled(task, task.test, done.test_predictions),
        seconds=cost[0],
        validation=_score(task, task.validation, done.validation_predictions),
        held=_resampled(task, task.validation, done.validation_predictions),
        memory=cost[1],
        trainable=done.trainable,
        new=sum(tensor.numel() for tensor in new.values()),
        disk=sum(tensor.numel() * tensor.element_size() for tensor in (*new.values(), *moved)),
        collapsed=collapsed(task, done.test_scores),
    )


def _score(task: Task, split: Split, said: Any) -> float:
    return task_type_of(task).scores(split, said, task).score(task.metric)


def _resampled(task: Task, split: Split, said: Any) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in task_type_of(task).resampled_scores(split, said, task))


def _task(ground: Ground) -> Task:
    return _read_task(ground.task, ground.digest, ground.drop_leaks)


@functools.lru_cache(maxsize=2)
def _read_task(path: str, digest: str, without_leaks: bool) -> Task:
    """The task, read once in each process; raises ``DataError`` where it is no longer the one of that digest."""
    task = load_task(path)
    task = drop_leaks(task) if without_leaks else task
    if task.digest != digest:
        raise DataError(f"the texts of {path} must stay as they are while runs are under way, but they changed; start again")
    return task


@functools.lru_cache(maxsize=4)
def _workshop(backbone: str, origin: str, parent: str, ground: Ground) -> tuple[Bundle, Bundle, EncodedTask]:
    """The bundle, the one that all tasks share, and the encoded texts, made once in each process.

    Frozen features are shared by all through the disk.
    """
    bundle = load_bundle(find_bundle(backbone))
    task = _task(ground)
    splits = EncodedTask.of(task, swap_head(bundle.model, head_config_for(task, ground.tune), 0), bundle.tokenizer)
    shared = load_bundle(find_bundle(parent)) if parent else bundle
    return bundle, shared, replace(splits, features=FeatureCache(Path(ground.folder) / "features"))
