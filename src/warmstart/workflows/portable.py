"""``export --to onnx``: write the graph and compare it with the model; on a task, say how good each form is and how fast."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from warmstart.data import Task, load_task
from warmstart.data.batch import Encoded
from warmstart.engine import console
from warmstart.errors import DataError
from warmstart.interop.onnx import EXACT, SMALL, Portable, parity, to_onnx
from warmstart.kinds import kind_for, kind_of
from warmstart.kinds.kind import Kind
from warmstart.model import Bundle
from warmstart.workflows.run import print_table
from warmstart.workflows.standings import amount

TIMED = 500
"""test texts that are timed, at most"""
ROUNDS = 3


class Form(NamedTuple):
    """One form of a model on a task's test split."""

    name: str
    score: float
    changed: int
    """texts of which it says something else than the model"""
    seconds: float
    """for the timed texts: the median of alternating rounds"""
    size: int
    """bytes on disk"""


def export_onnx(bundle: Bundle, folder: Path, task: str | None, *, int8: bool) -> Path:
    """Write, compare, print. Raises ``DataError`` where the task is not the one that the model was adapted to."""
    given = load_task(task) if task else None
    if given is not None:
        _check(bundle, given)
    gap = to_onnx(bundle, folder, int8=int8)
    console.print(f"{folder / EXACT}: read back by onnxruntime, outputs differ by at most {gap:.2g} of the largest", markup=False)
    files = [folder / EXACT, *[folder / SMALL] * int8]
    if given is not None:
        texts = min(TIMED, len(given.test))
        rows = [
            (form.name, f"{100 * form.score:.1f} %", form.changed, f"{texts / form.seconds:,.0f}", amount(form.size))
            for form in compare(bundle, given, files)
        ]
        header = ("form", given.metric, "changed", "texts/s", "size")
        print_table(f"{given.name}: {given.metric} on {len(given.test)} test texts", rows, header)
    elif int8:
        far = parity(bundle.model, Portable(folder / SMALL, bundle.model))
        console.print(
            f"{folder / SMALL}: outputs differ by up to {far:.2g} of the largest; what that does to a task is seen with --task",
            markup=False,
        )
    return folder


def compare(bundle: Bundle, task: Task, files: list[Path]) -> list[Form]:
    """The model and its graphs on the test split; timed in alternating rounds."""
    kind, pad = kind_of(task), bundle.tokenizer.specials.pad
    encoded = kind.encode(bundle.model, bundle.tokenizer, task.test.texts)
    models: dict[str, tuple[nn.Module, int]] = {
        "warmstart": (bundle.model, sum(4 * tensor.numel() for tensor in bundle.model.weights().values()))
    }
    models |= {file.name: (Portable(file, bundle.model), file.stat().st_size) for file in files}
    said = {name: kind.said(model, encoded, pad) for name, (model, _) in models.items()}  # type: ignore[arg-type]
    seconds = _timed(
        kind, {name: model for name, (model, _) in models.items()}, encoded.take(np.arange(min(TIMED, len(encoded)))), pad
    )
    own = kind.answers(bundle, task.test.texts, said["warmstart"], 1)
    forms = []
    for name, (_, size) in models.items():
        other = kind.answers(bundle, task.test.texts, said[name], 1)
        changed = sum(_differ(one, two) for one, two in zip(own, other, strict=True))
        forms.append(Form(name, kind.scores(task.test, said[name], task).score(task.metric), changed, seconds[name], size))
    return forms


def _check(bundle: Bundle, task: Task) -> None:
    kind = kind_for(bundle.model.head)
    if kind is not kind_of(task) or bundle.labels != task.labels:
        raise DataError(
            f"the task must be the one that the model was adapted to, but the model is of kind '{kind.name}' with labels "
            f"{list(bundle.labels)}, and '{task.name}' of kind '{task.kind}' with {list(task.labels)}"
        )


def _timed(kind: Kind, models: dict[str, nn.Module], encoded: Encoded, pad: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            start = time.perf_counter()
            kind.said(model, encoded, pad)  # type: ignore[arg-type]
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(found)) for name, found in times.items()}


def _differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers to a text differ, however sure they are; numbers differ from a thousandth on."""
    said, new = (next(value for name, value in row.items() if name != "words") for row in (one, other))
    return abs(said - new) > 1e-3 * abs(said) if isinstance(said, float) else bool(said != new)
