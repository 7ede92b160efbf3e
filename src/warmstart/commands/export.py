"""``export``: write a model for other tools, read it back and compare; on a task, report the score and speed of each form."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from warmstart.adapters.insertion import inserted_adapters, merge_adapters
from warmstart.adapters.settings import LoraConfig
from warmstart.commands.settings import ExportConfig
from warmstart.data.encode import Encoded
from warmstart.data.scorings import ScoringRun
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError
from warmstart.interop.convert import from_huggingface
from warmstart.interop.export import embedding_bundle, output_difference, to_huggingface
from warmstart.interop.families import FAMILIES
from warmstart.interop.load import load_text_model
from warmstart.interop.onnx import GRAPH, INT8_GRAPH, OnnxModel, relative_difference, stack_to_onnx, to_onnx
from warmstart.model.bundle import Bundle
from warmstart.model.stack import Stack
from warmstart.stats.formatting import file_size, model_name, percent
from warmstart.system.console import console, print_table
from warmstart.system.outputs import free_output
from warmstart.system.storage import file_sha256
from warmstart.tasks import check_task_type, task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import described
from warmstart.tasks.scoring import score_test
from warmstart.tasks.task_type import TaskType
from warmstart.tasks.thresholds import at_thresholds, thresholds_of

TIMED = 500
"""number of test texts that are timed, at most"""
ROUNDS = 3


class Form(NamedTuple):
    """One form of a model on a task's test split."""

    name: str
    score: float
    changed: int
    """number of predictions that differ from the model's"""
    seconds: float
    """for the timed texts: the median of alternating rounds"""
    size: int
    """bytes on disk"""


def export_model(config: ExportConfig) -> Path:
    """The ``export`` command: merge LoRA, write, read back and compare."""
    if config.to != "onnx" and (config.int8 or config.task):
        raise ConfigError(f"--int8 and --task need --to onnx, but --to is {config.to}; remove them")
    if config.to == "page":
        return _export_page(config)
    place, bundle = config.folder, load_text_model(config.model, "The export")
    if isinstance(bundle, Stack):
        return _export_stack(bundle, config)
    if config.to == "onnx":
        return export_onnx(bundle, config)
    if any(isinstance(adapter, LoraConfig) for adapter in inserted_adapters(bundle.model)):
        merge_adapters(bundle.model)
    if config.to == "sentence-transformers":
        bundle = embedding_bundle(bundle)
    name = to_huggingface(bundle, place)
    gap = output_difference(bundle, from_huggingface(place))
    console.print(f"{place}: {FAMILIES[name].title} ({name}); read back, outputs differ by at most {gap:.2g}")
    return Path(place)


def _export_page(config: ExportConfig) -> Path:
    from warmstart.app.one_file.contents import tells_unknown
    from warmstart.app.one_file.document import write_model_page

    name = model_name(config.model)
    file = free_output(config.out or f"{name}.html")
    if file.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a page is HTML, so --out must end in .html, but is {file}; name another file")
    model = load_text_model(config.model, "The page")
    gap = write_model_page(model, config.model, name, file)
    console.print(
        f"{file}: {file_size(file.stat().st_size)}, open it in any browser; read back, its rounded weights change outputs by "
        f"at most {gap:.2g} of the largest one; `warmstart doctor {file} --bundle {config.model}` compares them again",
    )
    if tells_unknown(model):
        console.print("The page does not mark texts that are like those of none of its labels, as predict and serve do.")
    return file


def _export_stack(stack: Stack, config: ExportConfig) -> Path:
    if config.to != "onnx":
        raise ConfigError(
            f"--to {config.to} needs one network, but {config.model} is a stack or a baseline; use --to onnx or --to page"
        )
    if config.int8 or config.task:
        raise ConfigError("--int8 and --task need one network; remove them, or export a member of the stack, MODEL/members/1")
    gap = stack_to_onnx(stack, config.folder)
    console.print(
        f"{config.folder}: {stack.names}; read back by its predict.py without warmstart, predictions differ by at most {gap:.2g}",
    )
    return Path(config.folder)


def export_onnx(bundle: Bundle, config: ExportConfig) -> Path:
    """Write, compare, print. Raises ``DataError`` if the task is not the one that the model was adapted to."""
    task, folder, int8 = load_task(config.task) if config.task else None, Path(config.folder), config.int8
    scoring = ScoringRun.of(config)
    if task is not None:
        _check_task(bundle, task)
    gap = to_onnx(bundle, folder, int8=int8)
    console.print(f"{folder / GRAPH}: read back by onnxruntime, outputs differ by at most {gap:.2g} of the largest one")
    if task is not None:
        _print_forms(task, compare_forms(bundle, task, [folder / GRAPH, *[folder / INT8_GRAPH] * int8], scoring))
    elif int8:
        gap = relative_difference(bundle.model, OnnxModel(folder / INT8_GRAPH, bundle.model))
        console.print(
            f"{folder / INT8_GRAPH}: outputs differ by up to {gap:.2g} of the largest one; --task shows the effect on predictions",
        )
    return folder


def compare_forms(bundle: Bundle, task: Task, files: list[Path], scoring: ScoringRun) -> list[Form]:
    """The model and its graphs on the test split; timed in alternating rounds."""
    task_type, pad = task_type_of(task), bundle.tokenizer.specials.pad
    encoded = task_type.encode(bundle.model, bundle.tokenizer, task.test.texts)
    models: dict[str, nn.Module] = {"warmstart": bundle.model} | {file.name: OnnxModel(file, bundle.model) for file in files}
    sizes = {"warmstart": sum(4 * tensor.numel() for tensor in bundle.model.weights().values())}
    graphs = [file_sha256(file) for file in files]  # these hold the weights
    sizes |= {file.name: file.stat().st_size for file in files}
    values = {name: task_type.predict(model, encoded, pad) for name, model in models.items()}  # type: ignore[arg-type]
    seconds = _timed(task_type, models, encoded.take(np.arange(min(TIMED, len(encoded)))), pad)
    decided = {name: at_thresholds(value, thresholds_of(bundle)) for name, value in values.items()}
    rows = {name: described(bundle, value, task.test.texts, 1) for name, value in values.items()}
    return [
        Form(
            name,
            score_test(task, decided[name], scoring.method(f"exported, {name}", ["exported", name, *graphs]), None).score,
            sum(_differ(row, other) for row, other in zip(rows["warmstart"], rows[name], strict=True)),
            seconds[name],
            sizes[name],
        )
        for name in models
    ]


def _print_forms(task: Task, forms: list[Form]) -> None:
    texts = min(TIMED, len(task.test))
    rows = [(form.name, percent(form.score), form.changed, f"{texts / form.seconds:,.0f}", file_size(form.size)) for form in forms]
    header = ("form", task.metric, "changed", "texts/s", "size")
    print_table(f"{task.name}: {task.metric} on {len(task.test)} test texts", rows, header)


def _check_task(bundle: Bundle, task: Task) -> None:
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
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def _differ(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two predictions differ, whatever their probabilities; numbers differ from a thousandth on."""
    first, second = (next(value for name, value in row.items() if name != "words") for row in (mine, other))
    return abs(first - second) > 1e-3 * abs(first) if isinstance(first, float) else bool(first != second)
