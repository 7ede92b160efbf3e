"""Training a language model to generate answers to questions.

Letters: N questions.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from warmstart.backbone.backbone import Backbone
from warmstart.config import Advanced, Config, setting_paths
from warmstart.data.splits import calibration_split
from warmstart.data.test_ledger import ScoredMethod, ScoringRun, read_ledger
from warmstart.data.text_key import TextHashes, key_of, text_hashes_wanted
from warmstart.errors import ConfigError, ModelError
from warmstart.finetuning.answers_result import AnswersResult
from warmstart.finetuning.finetune import DEFAULT_EPOCHS
from warmstart.finetuning.runs import PRETRAINED, SCRATCH, best_run
from warmstart.heads.language_modeling import LMHead
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.files import model_digest, save
from warmstart.model.history import AnswersRecord, ComparisonRecord, TaskRecord
from warmstart.model.model import Model, fresh_head
from warmstart.runs.record import write_record
from warmstart.runs.run import Run, provenance
from warmstart.seeding import seed_torch
from warmstart.stats.abstention import find_threshold
from warmstart.stats.comparison import MethodResult, MethodTable
from warmstart.stats.differences import MethodScores
from warmstart.stats.formatting import percent
from warmstart.stats.splits import THIS_SPLIT
from warmstart.system.console import console, print_comparison
from warmstart.system.device import pick_device
from warmstart.tasks.answers import (
    Answer,
    AnsweredQuestions,
    AnswerTask,
    answer_batches,
    confidences,
    exact_matches,
    generate_answers,
    load_answer_task,
    max_answer_tokens,
)
from warmstart.tasks.scoring import score_test_answers
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.distributed import world
from warmstart.training.early_stopping import EarlyStopping
from warmstart.training.loop import TrainingJob, TrainOutput, train

METRIC = "exact match"
MOST_COMMON = "most common answer"
"""name of the baseline"""
SET_APART = 0.5
"""fraction of the validation questions that guarantees an error rate, if none is given"""


class AnswerOptions(Config):
    """Options of ``adapt`` for a task of type answers alone."""

    scratch_epochs: Advanced[float] = Field(75, gt=0)
    """answers: passes of the same network from scratch, which needs more of them"""
    target_error: Advanced[float] = Field(0.1, gt=0, lt=1)
    """answers: largest error rate among the answers given; below the threshold for it, the model abstains"""
    confidence_level: Advanced[float] = Field(0.95, gt=0, lt=1)
    """answers: probability with which that error rate is guaranteed"""


@dataclass(frozen=True)
class _Asked:
    """The settings of ``adapt`` that a task of answers heeds, beside its ``AnswerOptions``."""

    model: str
    task: str
    out: str
    seeds: int
    seed: int
    scratch: bool
    baselines: bool
    calibration_fraction: float
    train: TrainConfig

    @classmethod
    def of(cls, config: AnswerOptions) -> _Asked:
        """Those of ``config``. Raises ``ConfigError`` for any other that is not as usual, and for several processes."""
        values, names = config.to_dict(), {one.name for one in fields(cls)} - {"train"}
        usual = dict(setting_paths(type(config).build({"model": "", "task": ""}).to_dict()))
        for path, value in setting_paths(values):
            heeded = path in names or path in AnswerOptions.model_fields or path.startswith("tune.train.")
            if not heeded and value != usual.get(path):
                flag = path.rpartition(".")[2].replace("_", "-")
                raise ConfigError(f"--{flag} does nothing for a task whose answers are generated; remove it")
        if world().several:
            raise ConfigError("a task whose answers are generated is learned by one process; run it without torchrun")
        return cls(**{name: values[name] for name in names}, train=TrainConfig.build(values["tune"]["train"]))


@dataclass(frozen=True)
class AnswerPredictions:
    """The answers to the questions of one split."""

    answers: tuple[str, ...]
    confidence: np.ndarray
    """(N,) the model's probability of each answer"""
    correct: np.ndarray
    """(N,) bool: the answer is exactly the right one"""

    @classmethod
    def of(cls, answers: Sequence[Answer], correct: np.ndarray) -> AnswerPredictions:
        """Generated answers with what is known of them."""
        return cls(tuple(one.text for one in answers), confidences(answers), correct)


@dataclass(frozen=True)
class AnswerRun:
    """A model that was trained to answer questions, with one seed."""

    model: Model
    seed: int
    training: TrainOutput
    curve: tuple[tuple[int, float], ...]
    """(step, exact match on the validation questions) of every evaluation"""
    validation_score: float
    max_answer_tokens: int
    """an answer has at most this many tokens"""
    test: AnswerPredictions


def answer_model(bundle: Bundle, seed: int, *, scratch: bool) -> Model:
    """A copy of the bundle's model, or a new one of the same shape, that reads from left to right."""
    if not scratch:
        model = copy.deepcopy(bundle.model)  # a copy keeps its adapters
        model.causal = True
        return model
    origin = bundle.model.backbone
    seed_torch(seed, "backbone")
    backbone = Backbone(origin.config, origin.vocab_size)
    return Model(backbone, fresh_head(bundle.model.head.config, backbone, seed), causal=True)


def train_to_answer(
    model: Model, bundle: Bundle, task: AnswerTask, config: TrainConfig, seed: int, named: tuple[str, Path | None]
) -> dict[str, Any]:
    """Train ``model`` on the answers, in place; the weights with the best exact match on the validation questions are kept.

    ``named`` is what the run is called, and where its checkpoints are kept. Returns what ``answer_run`` reads: the run without its
    model, and the answers to the test questions, which are not scored.
    """
    model.to(pick_device())
    tokenizer, max_length = bundle.tokenizer, model.backbone.config.max_length
    mean_tokens = float(np.mean([len(ids) for ids in tokenizer.encode(task.train.questions)]))
    steps = config.count_text_steps(len(task.train), mean_tokens, DEFAULT_EPOCHS)
    early_stopping, max_tokens = EarlyStopping(model), max_answer_tokens(tokenizer, task.train.answers, max_length)
    title, workplace = named

    def validate() -> dict[str, Any]:
        return {METRIC: float(predict_answers(model, tokenizer, task.validation, max_tokens).correct.mean())}

    job = TrainingJob(
        answer_batches(tokenizer, task.train, max_length, (config.batch, config.accumulate), seed),
        steps,
        seed,
        title,
        evaluate=validate,
        callbacks=[lambda step, metrics: early_stopping.update(step, metrics[METRIC])],
        more=early_stopping,
    )
    output = train(model, job, config, workplace)
    early_stopping.restore()
    answers = generate_answers(model, tokenizer, task.test.questions, max_tokens)
    model.cpu().eval()
    return {
        "seed": seed,
        "training": asdict(output),
        "curve": tuple(early_stopping.curve),
        "validation_score": early_stopping.kept_score,
        "max_answer_tokens": max_tokens,
        "answers": [(one.text, one.confidence) for one in answers],
    }


def answer_run(model: Model, values: Mapping[str, Any], task: AnswerTask, method: ScoredMethod) -> AnswerRun:
    """The run of a model that ``train_to_answer`` trained, with its test answers scored; ``method`` is what the ledger calls it."""
    values = dict(values)
    answers = [Answer(*one) for one in values.pop("answers")]
    test = AnswerPredictions.of(answers, score_test_answers(task, answers, method, values["seed"]))
    return AnswerRun(model, **values | {"training": TrainOutput(**values["training"]), "test": test})


def predict_answers(model: Model, tokenizer: Tokenizer, split: AnsweredQuestions, max_tokens: int) -> AnswerPredictions:
    """Answer the questions of a split, each with at most ``max_tokens`` tokens."""
    answers = generate_answers(model, tokenizer, split.questions, max_tokens)
    return AnswerPredictions.of(answers, exact_matches(answers, split))


def split_calibration_questions(task: AnswerTask, fraction: float) -> tuple[AnswerTask, AnsweredQuestions]:
    """The task without a random fraction of its validation questions, and those questions; they are the same for every seed.

    They choose neither weights nor seed, so a threshold found on them gives a guarantee; of copies, or of a group, a single
    question serves. Raises ``DataError`` if either part would be empty.
    """
    kept, calibration = calibration_split(task.validation.units, fraction)
    return replace(task, validation=task.validation.take(kept)), task.validation.take(calibration)


def adapt_to_answers(config: AnswerOptions, write_page: Callable[[AnswersResult, Config, Path], Path]) -> AnswersResult:
    """Train, compare, find the threshold, save the best run as a bundle, write the report: ``adapt`` for a task of answers.

    ``config`` is that of ``adapt``, and ``write_page`` writes the report into the run's folder. Raises ``ConfigError`` for settings
    that do nothing here, and ``ModelError`` for a model that cannot generate.
    """
    asked = _Asked.of(config)
    bundle, task = load_model(asked.model), load_answer_task(asked.task)
    if not isinstance(bundle.model.head, LMHead):
        raise ModelError("answers are generated by a language head, but this model has another head; use the pretrained model")
    if not (bundle.model.causal or bundle.generates):
        raise ModelError(
            "answers are generated from left to right, but this model is bidirectional; "
            "pretrain one with --objective causal, span or hybrid"
        )
    scoring = ScoringRun.of(config)
    run = Run.open(asked.out, config)
    result = _compared(bundle, task, asked, config, (scoring, run))
    save(_answers_bundle(bundle, result, asked.train, task), run.folder / "bundle")
    print_comparison(f"{task.name}: {METRIC} on {len(task.test)} test questions", result.comparison)
    for sentence in (THIS_SPLIT, result.threshold.sentence(), *result.ledger.findings):
        console.print(sentence)
    write_record(run.folder, score=(result.comparison.rows[0].name, result.comparison.rows[0].interval.mean))
    page = write_page(result, config, run.folder)
    console.print(f"bundle: {run.folder / 'bundle'} (seed {result.best.seed}, best on validation)\nreport: {page}")
    return result


def _compared(
    bundle: Bundle, task: AnswerTask, asked: _Asked, options: AnswerOptions, asks: tuple[ScoringRun, Run]
) -> AnswersResult:
    """Run the pretrained model and one from scratch with the same seeds, and compare them with the most common answer."""
    settings, (scoring, run) = {PRETRAINED: asked.train}, asks
    if asked.scratch:
        budget = dict.fromkeys(("steps", "tokens", "minutes")) | {"epochs": options.scratch_epochs}
        settings[SCRATCH] = asked.train.model_copy(update=budget)
    task, calibration_questions = split_calibration_questions(task, asked.calibration_fraction or SET_APART)
    seeds = range(asked.seed, asked.seed + asked.seeds)
    origin, runs = model_digest(asked.model), dict[str, tuple[AnswerRun, ...]]()
    for name, schedule in settings.items():
        method = scoring.method(name, ["answers", name, origin, schedule.to_dict()])
        runs[name] = tuple(_run(bundle, task, schedule, seed, (method, run)) for seed in seeds)
    trainable = sum(parameter.numel() for parameter in bundle.model.parameters())
    rows = []
    for name, results in runs.items():
        seconds = float(np.mean([run.training.seconds for run in results]))
        rows.append(
            replace(_row(name, [run.test.correct for run in results], task.test.units), seconds=seconds, trainable=trainable)
        )
    if asked.baselines:
        (most_common, _), *_ = Counter(task.train.answers).most_common(1)
        constant = scoring.method(MOST_COMMON, ["baseline", MOST_COMMON])
        always = score_test_answers(task, [Answer(most_common.strip(), 1.0)] * len(task.test), constant, None)
        rows.append(replace(_row(MOST_COMMON, [always], task.test.units), note=f"always {most_common}"))
    best = best_run(runs)
    held_out = predict_answers(best.model.to(pick_device()), bundle.tokenizer, calibration_questions, best.max_answer_tokens)
    best.model.cpu()
    threshold = find_threshold(held_out.confidence.round(6), held_out.correct, options.target_error, options.confidence_level)
    return AnswersResult(task, MethodTable(METRIC, tuple(rows)), runs, held_out, threshold, read_ledger(task))


def _answers_bundle(origin: Bundle, result: AnswersResult, train: TrainConfig, loaded: AnswerTask) -> Bundle:
    """The best run as a bundle, with its history and the confidences of its held-out answers.

    ``loaded`` is the task as it was read, before questions were set apart.
    """
    best = result.best
    pairs = zip(result.held_out.confidence, result.held_out.correct, strict=True)
    sizes = {name: len(getattr(result.task, name)) for name in ("train", "validation", "test")}
    record = AnswersRecord(
        objective=origin.objective,
        generates=True,
        task=TaskRecord(name=result.task.name, **sizes, **_text_hashes(loaded)),
        settings=train.to_dict(),
        seed=best.seed,
        comparison=ComparisonRecord.of(result.comparison, [THIS_SPLIT, *result.ledger.findings]),
        max_answer_tokens=best.max_answer_tokens,
        held_out_answers=tuple((round(float(confidence), 6), bool(correct)) for confidence, correct in pairs),
        provenance=provenance(),
    )
    return Bundle(best.model, origin.tokenizer, history=(*origin.history, record))


def _text_hashes(task: AnswerTask) -> dict[str, Any]:
    """Those of the questions, for the history; the calibration questions are part of the validation split."""
    if not text_hashes_wanted():
        return {}
    return {
        "splits": task.text_hashes(),
        "labelled": TextHashes.of([*map(key_of, task.train.questions + task.validation.questions)]),
    }


def _row(name: str, correct: Sequence[np.ndarray], units: np.ndarray) -> MethodResult:
    """The fraction of correct answers, also on resamples of the questions or ``units`` (N,); ``correct`` (N,) of each run."""
    found = MethodScores.from_texts(name, np.array(correct, dtype=float), units)
    return MethodResult(name, found.scores, resampled=found.resampled)


def _run(bundle: Bundle, task: AnswerTask, config: TrainConfig, seed: int, asks: tuple[ScoredMethod, Run]) -> AnswerRun:
    """One run, or what is kept of it."""
    method, run = asks
    title, model = f"{method.name}, seed {seed}", answer_model(bundle, seed, scratch=method.name == SCRATCH)

    def make(step: Run) -> dict[str, Any]:
        found = train_to_answer(model, bundle, task, config, seed, (title, step.place))
        return found | {"weights": model.weights()}

    values = run.step(title, make)
    model.load_state_dict(values.pop("weights"), strict=False)
    result = answer_run(model.eval(), values, task, method)
    console.print(f"{title}: {percent(result.test.correct.mean())} correct in {result.training.seconds:.0f} s")
    return result
