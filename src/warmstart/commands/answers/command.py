"""Training a language model to answer questions in writing, and finding the confidence below which it should abstain.

It is compared with the same network from scratch and with the most common answer. The threshold is found on the validation
questions; the bundle keeps their confidences, so that ``predict --target-error`` can find any other threshold later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.commands.answers.page import write_answers_page
from warmstart.commands.answers.result import AnswersResult
from warmstart.config import Advanced, Config
from warmstart.console import console, print_comparison
from warmstart.errors import ModelError
from warmstart.finetuning.answering import METRIC, AnswerRun, answer_model, train_to_answer
from warmstart.finetuning.runs import PRETRAINED, SCRATCH, best_run
from warmstart.heads.language_modeling import LMHead
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.history import AnswersRecord, ComparisonRecord, TaskRecord
from warmstart.run import open_run, provenance
from warmstart.stats.abstention import find_threshold
from warmstart.stats.comparison import Comparison, MethodResult
from warmstart.stats.formatting import percent
from warmstart.stats.resampling import resample_classification
from warmstart.tasks.answers import AnswerTask, load_answer_task
from warmstart.training.config import TrainConfig

MOST_COMMON = "most common answer"
"""name of the baseline"""


class AnswersConfig(Config):
    """Train a language model to answer questions in writing, over several seeds, and find out when it should abstain."""

    model: Positional[str]
    """the pretrained language model: a bundle, or the folder of a run"""
    task: Positional[str]
    """manifest of the task (YAML): questions as texts, answers as labels"""
    out: str = "runs/answers"
    """folder of the run"""
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig(epochs=10, batch=64, learning_rate=6e-4, warmup=0.1, weight_decay=0.1)
    seeds: int = Field(3, gt=0)
    """number of seeds; fewer than three give wide intervals"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    scratch_epochs: Advanced[float | None] = Field(75, gt=0)
    """passes of the same network from scratch, which needs more of them; none: do not train it"""
    target_error: float = Field(0.1, gt=0, lt=1)
    """largest error rate among the answers given; below the threshold for it, the model abstains"""
    confidence_level: Advanced[float] = Field(0.95, gt=0, lt=1)
    """probability with which that error rate is guaranteed"""


def answers(config: AnswersConfig) -> AnswersResult:
    """Train, compare, find the threshold, save the best run as a bundle, write the report; the ``answers`` command."""
    bundle = load_model(config.model)
    if not isinstance(bundle.model.head, LMHead):
        raise ModelError("answers are written by a language head, but this model has another head; use the pretrained model itself")
    if not (bundle.model.causal or bundle.generates):
        raise ModelError(
            "answers are written from left to right, but this model is bidirectional; "
            "pretrain one with --objective causal, span or hybrid"
        )
    task = load_answer_task(config.task)
    folder = open_run(config.out, config, resume=False)
    result = compare_answers(bundle, task, config)
    print_comparison(f"{task.name}: {METRIC} on {len(task.test)} test questions", result.comparison)
    console.print(result.threshold.sentence(), markup=False)
    save(answers_bundle(bundle, result, config), folder / "bundle")
    page = write_answers_page(result, config, folder)
    console.print(f"bundle: {folder / 'bundle'} (seed {result.best.seed}, best on validation)\nreport: {page}")
    return result


def compare_answers(bundle: Bundle, task: AnswerTask, config: AnswersConfig) -> AnswersResult:
    """Run the pretrained model and one from scratch with the same seeds, and compare them with the most common answer."""
    settings = {PRETRAINED: config.train}
    if config.scratch_epochs is not None:
        budget = dict.fromkeys(("steps", "tokens", "minutes")) | {"epochs": config.scratch_epochs}
        settings[SCRATCH] = config.train.model_copy(update=budget)
    seeds = range(config.seed, config.seed + config.seeds)
    runs = {name: tuple(_run(name, bundle, task, train, seed) for seed in seeds) for name, train in settings.items()}
    trainable = sum(parameter.numel() for parameter in bundle.model.parameters())
    rows = []
    for name, results in runs.items():
        seconds = float(np.mean([run.training.seconds for run in results]))
        rows.append(replace(_row(name, [run.test.correct for run in results]), seconds=seconds, trainable=trainable))
    (most_common, _), *_ = Counter(task.train.answers).most_common(1)
    always = np.array([right == most_common for right in task.test.answers])
    rows.append(replace(_row(MOST_COMMON, [always]), note=f"always {most_common}"))
    held_out = best_run(runs).validation
    threshold = find_threshold(held_out.confidence, held_out.correct, config.target_error, config.confidence_level)
    return AnswersResult(task, Comparison(METRIC, tuple(rows)), runs, threshold)


def answers_bundle(origin: Bundle, result: AnswersResult, config: AnswersConfig) -> Bundle:
    """The best run as a bundle, with its history and the confidences of its held-out answers."""
    best = result.best
    pairs = zip(best.validation.confidence, best.validation.correct, strict=True)
    sizes = {name: len(getattr(result.task, name)) for name in ("train", "validation", "test")}
    record = AnswersRecord(
        objective=origin.objective,
        generates=True,
        task=TaskRecord(name=result.task.name, **sizes),
        settings=config.train.to_dict(),
        seed=best.seed,
        comparison=ComparisonRecord.of(result.comparison),
        max_answer_tokens=best.max_answer_tokens,
        held_out_answers=tuple((round(float(confidence), 6), bool(correct)) for confidence, correct in pairs),
        provenance=provenance(),
    )
    return Bundle(best.model, origin.tokenizer, history=(*origin.history, record))


def _row(name: str, correct: Sequence[np.ndarray]) -> MethodResult:
    """The fraction of correct answers, also on resamples of the questions; ``correct`` (N,) of each run."""
    resampled = [resample_classification("accuracy", np.ones(len(run), dtype=np.int64), run.astype(np.int64), 2) for run in correct]
    return MethodResult(name, tuple(float(run.mean()) for run in correct), resampled=np.array(resampled))


def _run(name: str, bundle: Bundle, task: AnswerTask, config: TrainConfig, seed: int) -> AnswerRun:
    model = answer_model(bundle, seed, scratch=name == SCRATCH)
    result = train_to_answer(model, bundle, task, config, seed, title=f"{name}, seed {seed}")
    console.print(f"{name}, seed {seed}: {percent(result.test.correct.mean())} correct in {result.training.seconds:.0f} s")
    return result
