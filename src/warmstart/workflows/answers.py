"""Teaching a language model to answer questions in writing, and finding out when it should not.

The same network from scratch and the commonest answer stand beside it. The bar below which it abstains is found on held-out
questions and kept in the bundle's history with their confidences, so that ``predict --target-error`` can find any other bar later.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.backbone import Backbone
from warmstart.config import Config
from warmstart.data import Answered, AnswerTask, load_answers
from warmstart.data.answers import answer_batches
from warmstart.engine import TrainConfig, Work, console, pick_device, train
from warmstart.errors import ModelError
from warmstart.evaluate import Bar, Comparison, Row, find_bar
from warmstart.evaluate.answers import Answer, answer, confidences, exact, room_for
from warmstart.evaluate.resample import resampled
from warmstart.heads import LanguageHead
from warmstart.model import Bundle, Model, fresh_head, save
from warmstart.seeding import seed_torch
from warmstart.workflows.answers_page import answers_page
from warmstart.workflows.finetune import DEFAULT_EPOCHS
from warmstart.workflows.keeper import Keeper
from warmstart.workflows.outcome import PRETRAINED, SCRATCH, Answers, Taught, best_run
from warmstart.workflows.run import load_model, open_run, print_comparison, provenance

METRIC = "exact match"
COMMONEST = "commonest answer"


class AnswersConfig(Config):
    """Teach a language model to answer questions in writing, over several seeds, and find out when it should not answer."""

    model: Positional[str]
    """the pretrained language model: a bundle, or a run's folder"""
    task: Positional[str]
    """the task's manifest (YAML): questions as texts, answers as labels"""
    out: str = "runs/answers"
    """folder of the run"""
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig(epochs=10, batch=64, learning_rate=6e-4, warmup=0.1, weight_decay=0.1)
    seeds: int = Field(3, gt=0)
    """how many seeds; fewer than three say little"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    scratch_epochs: float | None = Field(75, gt=0)
    """passes that the same network gets from scratch, which needs more of them; none leaves it out"""
    target_error: float = Field(0.1, gt=0, lt=1)
    """share of wrong answers, among those given, that is not to be passed"""
    certainty: float = Field(0.95, gt=0, lt=1)
    """probability with which that must hold"""


def answers(config: AnswersConfig) -> Answers:
    """Teach, compare, find the bar, save the best run as a bundle, write the report; the ``answers`` command."""
    bundle = load_model(config.model)
    if not isinstance(bundle.model.head, LanguageHead):
        raise ModelError("answers are written by a language head, but this model has another; give the pretrained model itself")
    if not (bundle.model.causal or bundle.generates):
        raise ModelError(
            "answers are written from left to right, but this model reads both ways; pretrain one causal, span or hybrid"
        )
    task = load_answers(config.task)
    folder = open_run(config.out, config, resume=False)
    found = compare_answers(bundle, task, config)
    print_comparison(f"{task.name}: {METRIC} on {len(task.test)} test questions", found.comparison)
    console.print(found.bar.sentence(), markup=False)
    save(taught_bundle(bundle, found, config), folder / "bundle")
    page = answers_page(found, config, folder)
    console.print(f"bundle: {folder / 'bundle'} (seed {found.best.seed}, best on validation)\nreport: {page}")
    return found


def compare_answers(bundle: Bundle, task: AnswerTask, config: AnswersConfig) -> Answers:
    """Run the pretrained model and the one from scratch with the same seeds, beside the commonest answer."""
    plans = {PRETRAINED: config.train}
    if config.scratch_epochs is not None:
        budget = dict.fromkeys(("steps", "tokens", "minutes")) | {"epochs": config.scratch_epochs}
        plans[SCRATCH] = config.train.model_copy(update=budget)
    seeds = range(config.seed, config.seed + config.seeds)
    runs = {name: tuple(_run(name, bundle, task, plan, seed) for seed in seeds) for name, plan in plans.items()}
    trainable = sum(parameter.numel() for parameter in bundle.model.parameters())
    rows = [
        replace(
            _row(name, [run.test[1] for run in done]),
            seconds=float(np.mean([run.trained.seconds for run in done])),
            trainable=trainable,
        )
        for name, done in runs.items()
    ]
    (commonest, _), *_ = Counter(task.train.answers).most_common(1)
    always = np.array([right == commonest for right in task.test.answers])
    rows.append(replace(_row(COMMONEST, [always]), note=f"always {commonest}"))
    bar = find_bar(*best_run(runs).known, config.target_error, config.certainty)
    return Answers(task, Comparison(METRIC, tuple(rows)), runs, bar)


def _row(name: str, right: Sequence[np.ndarray]) -> Row:
    """How many of its answers are right, also on resamples of the questions; ``right`` (N,) of each run."""
    drawn = [resampled("accuracy", np.ones(len(run), dtype=np.int64), run.astype(np.int64), 2) for run in right]
    return Row(name, tuple(float(run.mean()) for run in right), resampled=np.array(drawn))


def teach(model: Model, bundle: Bundle, task: AnswerTask, plan: TrainConfig, seed: int, title: str) -> Taught:
    """Train ``model`` on the answers, in place; the weights that answer most validation questions rightly are kept."""
    model.to(pick_device())
    tokenizer, tokens = bundle.tokenizer, model.backbone.config.max_tokens
    mean_tokens = float(np.mean([len(ids) for ids in tokenizer.encode(task.train.questions)]))
    steps = plan.count_text_steps(len(task.train), mean_tokens, DEFAULT_EPOCHS)
    keeper, longest = Keeper(model), room_for(tokenizer, task.train.answers, tokens)

    def ask(examples: Answered) -> tuple[tuple[str, ...], tuple[np.ndarray, np.ndarray]]:
        given = answer(model, tokenizer, examples.questions, longest)
        return tuple(one.text for one in given), (confidences(given), exact(given, examples))

    def validate() -> dict[str, Any]:
        return {METRIC: float(ask(task.validation)[1][1].mean())}

    batches = answer_batches(tokenizer, task.train, tokens, (plan.batch, plan.accumulate), seed)
    observers = [lambda step, figures: keeper.offer(step, figures[METRIC])]
    trained = train(model, Work(batches, steps, seed, title, evaluate=validate, observers=observers), plan)
    keeper.restore()
    _, known = ask(task.validation)
    said, test = ask(task.test)
    return Taught(model.cpu().eval(), seed, trained, tuple(keeper.curve), keeper.score, longest, known, test, said)


def taught_bundle(origin: Bundle, found: Answers, config: AnswersConfig) -> Bundle:
    """The best run as a bundle, with its history: held-out confidences too, from which any bar can be found later."""
    best = found.best
    entry: dict[str, Any] = {
        "command": "answers",
        "objective": origin.history[-1]["objective"],
        "generates": True,
        "task": {"name": found.task.name, "train": len(found.task.train), "test": len(found.task.test)},
        "train": config.train.plain(),
        "seed": best.seed,
        "comparison": found.comparison.plain(),
        "longest_answer": best.longest,
        "held_out_answers": [[round(float(sure), 6), bool(right)] for sure, right in zip(*best.known, strict=True)],
        "provenance": provenance(),
    }
    return Bundle(best.model, origin.tokenizer, history=(*origin.history, entry))


def answered_by(bundle: Bundle, questions: Sequence[str]) -> list[Answer]:
    """What a bundle that was taught answers."""
    return answer(bundle.model, bundle.tokenizer, questions, bundle.history[-1]["longest_answer"])


def bar_of(bundle: Bundle, target: float, certainty: float) -> Bar:
    """The bar for another target, from the held-out answers that the bundle keeps. Raises ``ModelError`` where it has none."""
    kept: Sequence[tuple[float, bool]] = bundle.history[-1].get("held_out_answers", ()) if bundle.history else ()
    if not kept:
        raise ModelError("this bundle keeps no held-out answers to find a bar on; teach it with `warmstart answers` first")
    sure, right = (np.array(column) for column in zip(*kept, strict=True))
    return find_bar(sure, right.astype(bool), target, certainty)


def _run(name: str, bundle: Bundle, task: AnswerTask, plan: TrainConfig, seed: int) -> Taught:
    model = copy.deepcopy(bundle.model)  # with what is inserted in it
    model.causal = True
    if name == SCRATCH:
        origin = bundle.model.backbone
        seed_torch(seed, "backbone")
        backbone = Backbone(origin.config, origin.vocab_size)
        model = Model(backbone, fresh_head(bundle.model.head.config, backbone, seed), causal=True)
    done = teach(model, bundle, task, plan, seed, title=f"{name}, seed {seed}")
    console.print(f"{name}, seed {seed}: {100 * done.test[1].mean():.1f} % right in {done.trained.seconds:.0f} s")
    return done
