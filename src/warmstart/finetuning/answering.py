"""Training a language model to generate answers to questions.

Letters: N questions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.backbone.backbone import Backbone
from warmstart.data.scorings import ScoredMethod
from warmstart.finetuning.finetune import DEFAULT_EPOCHS
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import seed_torch
from warmstart.system.device import pick_device
from warmstart.tasks.answers import (
    Answer,
    AnsweredQuestions,
    AnswerTask,
    answer_batches,
    confidences,
    exact_matches,
    generate_answers,
    max_answer_tokens,
)
from warmstart.tasks.scoring import score_test_answers
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import EarlyStopping
from warmstart.training.loop import TrainingJob, TrainOutput, train

METRIC = "exact match"


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
