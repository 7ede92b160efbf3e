"""``export --to onnx``: write the graph and compare it with the model; on a task, say how good each form is and how fast."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import nn
from tyro.conf import Positional

from warmstart.adapters.insertion import inserted_adapters, merge_adapters
from warmstart.adapters.lora import LoraConfig
from warmstart.commands.import_ import bundles_differ
from warmstart.config import Config
from warmstart.console import console, print_table
from warmstart.data.encode import Encoded
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError
from warmstart.interop.convert import from_huggingface
from warmstart.interop.export import to_huggingface
from warmstart.interop.families import FAMILIES
from warmstart.interop.load import load_model
from warmstart.interop.onnx import EXACT, SMALL, Portable, parity, to_onnx
from warmstart.interop.peft import write_lora
from warmstart.model.bundle import Bundle
from warmstart.stats.formatting import file_size
from warmstart.tasks import check_task_type, task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.task_type import TaskType


class ExportConfig(Config):
    """Write a model in a form that other tools read."""

    model: Positional[str]
    """a bundle, or a run's folder"""
    out: str
    """folder to make"""
    to: Literal["hf", "peft", "onnx"] = "hf"
    """hf: config.json, model.safetensors and tokenizer.json, as transformers reads them; peft: a model's LoRA weights alone; onnx:
    one graph from token ids to what the head says, as onnxruntime runs it"""
    int8: bool = False
    """onnx: also write the graph with weights of 8 bits"""
    task: str | None = None
    """onnx: the task's manifest (YAML); each form's score on its test split, and its speed"""


def export_model(config: ExportConfig) -> Path:
    """The ``export`` command: fold LoRA in, write, read back and compare."""
    if config.to != "onnx" and (config.int8 or config.task):
        raise ConfigError(f"--int8 and --task go with --to onnx, but --to is {config.to}; leave them out")
    bundle = load_model(config.model)
    if config.to == "peft":
        write_lora(bundle, config.out)
        console.print(f"{config.out}: LoRA weights for peft; `--to hf` of the model without them writes their base", markup=False)
        return Path(config.out)
    if config.to == "onnx":
        return export_onnx(bundle, Path(config.out), config.task, int8=config.int8)
    if any(isinstance(made, LoraConfig) for made in inserted_adapters(bundle.model)):
        merge_adapters(bundle.model)
    name = to_huggingface(bundle, config.out)
    gap = bundles_differ(bundle, from_huggingface(config.out))
    console.print(f"{config.out}: {FAMILIES[name].title} ({name}); read back, outputs differ by at most {gap:.2g}", markup=False)
    return Path(config.out)


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
            (form.name, f"{100 * form.score:.1f} %", form.changed, f"{texts / form.seconds:,.0f}", file_size(form.size))
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
    task_type, pad = task_type_of(task), bundle.tokenizer.specials.pad
    encoded = task_type.encode(bundle.model, bundle.tokenizer, task.test.texts)
    models: dict[str, tuple[nn.Module, int]] = {
        "warmstart": (bundle.model, sum(4 * tensor.numel() for tensor in bundle.model.weights().values()))
    }
    models |= {file.name: (Portable(file, bundle.model), file.stat().st_size) for file in files}
    said = {name: task_type.predict(model, encoded, pad) for name, (model, _) in models.items()}  # type: ignore[arg-type]
    seconds = _timed(
        task_type, {name: model for name, (model, _) in models.items()}, encoded.take(np.arange(min(TIMED, len(encoded)))), pad
    )
    own = task_type.describe(said["warmstart"], task.test.texts, bundle.labels, 1)
    forms = []
    for name, (_, size) in models.items():
        other = task_type.describe(said[name], task.test.texts, bundle.labels, 1)
        changed = sum(_differ(one, two) for one, two in zip(own, other, strict=True))
        forms.append(Form(name, task_type.scores(task.test, said[name], task).score(task.metric), changed, seconds[name], size))
    return forms


def _check(bundle: Bundle, task: Task) -> None:
    if check_task_type(bundle, task) and bundle.labels != task.labels:
        raise DataError(
            f"the task must be the one that the model was adapted to, but the model has the labels {list(bundle.labels)}, "
            f"and '{task.name}' has {list(task.labels)}"
        )


def _timed(task_type: TaskType, models: dict[str, nn.Module], encoded: Encoded, pad: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            start = time.perf_counter()
            task_type.predict(model, encoded, pad)  # type: ignore[arg-type]
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(found)) for name, found in times.items()}


def _differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers to a text differ, however sure they are; numbers differ from a thousandth on."""
    said, new = (next(value for name, value in row.items() if name != "words") for row in (one, other))
    return abs(said - new) > 1e-3 * abs(said) if isinstance(said, float) else bool(said != new)
