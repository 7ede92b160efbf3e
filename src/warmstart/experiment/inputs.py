"""The inputs of a trial: its task, labels, pool and backbone; each read once in a process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from warmstart.baselines import BASELINES
from warmstart.data.audit import Audit
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.pool import Pool, task_pool
from warmstart.data.task import Task, resplit
from warmstart.errors import DataError
from warmstart.experiment.store import SweepContext
from warmstart.experiment.trial import Trial
from warmstart.finetuning.finetune import head_config_for
from warmstart.finetuning.inputs import EncodedTask
from warmstart.heads.pooled import join_windows
from warmstart.interop.encoders import find_model
from warmstart.model.already_read import already_read
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle
from warmstart.model.folder import model_digest
from warmstart.model.history import seen_labels
from warmstart.model.model import Model, swap_head
from warmstart.system.console import console
from warmstart.tasks import task_type_of


def trial_task(trial: Trial, context: SweepContext) -> Task:
    """The task of a trial, on its own split."""
    return task_of(context, trial.split_seed)


def trial_budget(trial: Trial, context: SweepContext) -> LabelBudget:
    """The labelled texts that a trial may look at."""
    draw = trial.seed if trial.draw is None else trial.draw
    budget = label_budget(trial_task(trial, context), trial.labels, trial.selection, draw).for_seed(trial.seed)
    name = trial.method.scheme or trial.method.name
    quick = not trial.method.fine_tunes and name in BASELINES and BASELINES[name].quick
    return replace(budget, parts=context.parts) if quick else budget


@functools.lru_cache(maxsize=2)
def pool_of(context: SweepContext, split_seed: int | None) -> Pool:
    """The texts without labels, on the split that a seed draws; None: the task's own."""
    return task_pool(task_of(context, split_seed), context.pool)


def trial_vectors(trial: Trial, context: SweepContext) -> Callable[[Sequence[Any]], np.ndarray] | None:
    """Inputs -> (N, D), their vectors by the frozen backbone of a trial, which reads each text once; None if it has none."""
    if trial.method.family != "frozen":
        return None
    bundle, encoded = prepared(trial, context)
    model, task_type = _reader_model(bundle, encoded, context), task_type_of(encoded.task)

    def vectors(inputs: Sequence[Any]) -> np.ndarray:
        rows = task_type.encode(model, bundle.tokenizer, inputs)
        states = encoded.features.get(model, rows, encoded.pad_id)[:, -1].cpu()  # (R, D) of the last layer for R rows
        if rows.windows is not None:
            states = join_windows(states, torch.from_numpy(rows.windows), context.tune.unweighted.windows)
        return states.numpy()

    return vectors


def texts_read_before(trial: Trial, context: SweepContext) -> str:
    """One sentence if the frozen backbone of a trial had read texts of its task before the sweep; else empty."""
    bundle, encoded = prepared(trial, context)
    splits = (encoded.train, encoded.validation, encoded.test)
    return encoded.features.read_before(_reader_model(bundle, encoded, context), splits, context.threads)


def _reader_model(bundle: Bundle, encoded: EncodedTask, context: SweepContext) -> Model:
    return swap_head(bundle.model, head_config_for(encoded.task, context.tune), 0)


@functools.lru_cache(maxsize=2)
def task_of(context: SweepContext, split_seed: int | None) -> Task:
    """The task, or the split that a seed draws of its texts, made once in each process.

    Leaks are dropped from each split. Raises ``DataError`` if the task is no longer the one with the context's digest.
    """
    whole = context.load_task()
    task = context.without_leaks(whole)
    if task.digest != context.digest:
        raise DataError(f"the texts of {context.task} changed while trials were running; start again")
    return task if split_seed is None else context.without_leaks(resplit(whole, split_seed))


def bundle_at(path: str) -> Bundle:
    """The bundle at a path, or of an encoder's name, loaded once in each process until it changes."""
    place = str(find_model(path))
    return _bundle(place, model_digest(place))


@functools.lru_cache(maxsize=4)
def _bundle(place: str, digest: str) -> Bundle:
    return load_bundle(place)


def prepared(trial: Trial, context: SweepContext) -> tuple[Bundle, EncodedTask]:
    """The bundle of a trial, and the texts as it reads them; kept in this process."""
    return _prepare(trial.method.backbone, trial.method.backbone_digest, trial.split_seed, context)


@functools.lru_cache(maxsize=4)
def _prepare(backbone: str, digest: str, split_seed: int | None, context: SweepContext) -> tuple[Bundle, EncodedTask]:
    """The bundle and the encoded texts, made once in each process.

    The digest makes a changed bundle another entry of the cache.
    """
    bundle = bundle_at(backbone)
    task = task_of(context, split_seed)
    encoded = EncodedTask.of(task, swap_head(bundle.model, head_config_for(task, context.tune), 0), bundle.tokenizer)
    return bundle, encoded


def print_audit(found: Audit, backbones: Mapping[str, Bundle], task: str) -> Audit:
    """The audit of a task of this name, printed; also which backbones, by path, have read its texts or seen its labels before."""
    seen = tuple(path for path, bundle in backbones.items() if seen_labels(bundle.history, task))
    known = tuple(sentence for path, bundle in backbones.items() for sentence in already_read(bundle.history, path, task))
    found = replace(found, already_trained=seen, already_read=known)
    for finding in found.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}")
    return found
