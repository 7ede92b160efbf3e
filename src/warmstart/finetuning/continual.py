"""Learning several tasks by one strategy and with one seed, and what is measured on the way: test scores, forgetting, language.

After every task, all tasks so far are tested with their own heads, and the pretrained language head reads a text that it was never
trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from warmstart.corpora.rows import PretrainingRows
from warmstart.corpora.write import tokenized_text
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.task_suite import MultitaskModel, TaskSuite
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.registry import Registry
from warmstart.runs.run import Run
from warmstart.seeding import derive, rng
from warmstart.stats.forgetting import ALONE, IN_TURN, JOINT, WHOLE, ContinualRun
from warmstart.stats.formatting import percent
from warmstart.stats.ratios import resampled_ratios
from warmstart.stats.resampling import resample_counts
from warmstart.system.console import console
from warmstart.training.held_out import held_out_loss
from warmstart.types import Batch


class Strategy:
    """Plain fine-tuning on one task after another; the references override what they change."""

    anew: ClassVar[bool] = False
    """each stage starts from the pretrained backbone"""

    def __init__(self, suite: TaskSuite, seed: int) -> None:
        self.suite, self.seed = suite, seed

    def stages(self) -> list[tuple[int, ...]]:
        """The tasks that each training run learns."""
        return [(task,) for task in range(len(self.suite.encoded))]

    def batches(self, tasks: tuple[int, ...]) -> tuple[Callable[[int], list[Batch]], int]:
        """The batches of each step of a stage, and its number of steps; each task's own texts come in their own order."""
        fractions = sampling_fractions([len(self.suite.encoded[task].train) for task in tasks])
        order = task_order(fractions, sum(map(self.suite.steps, tasks)), self.seed)
        numbers = np.cumsum(order == np.arange(len(tasks))[:, None], axis=1) - 1
        own = [self.suite.batches(task, self.seed) for task in tasks]
        return lambda step: [own[order[step]](int(numbers[order[step], step]))], len(order)

    def stream(self, tasks: tuple[int, ...]) -> int:
        """The seed of all else that is drawn in a stage, such as dropout."""
        return derive(self.seed, "stream", *tasks)


class Joint(Strategy):
    """All tasks at once: each step reads texts of one of them."""

    def stages(self) -> list[tuple[int, ...]]:
        """One, of all tasks."""
        return [tuple(range(len(self.suite.encoded)))]

    def stream(self, tasks: tuple[int, ...]) -> int:
        """The seed of what the only stage draws."""
        return derive(self.seed, "together")


class Alone(Strategy):
    """Each task on a backbone of its own."""

    anew = True

    def stream(self, tasks: tuple[int, ...]) -> int:
        """Another one than in turn."""
        return derive(self.seed, "alone", *tasks)


STRATEGIES: Registry[type[Strategy]] = Registry("strategy", {IN_TURN: Strategy, JOINT: Joint, ALONE: Alone})


def sampling_fractions(sizes: Sequence[int]) -> np.ndarray:
    """The fraction of batches from each task, in proportion to its number of texts."""
    return np.array(sizes) / sum(sizes)


def task_order(fractions: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """(steps,) int64: the task of each of ``steps`` batches: exactly these fractions (largest remainder), in a random order.

    ``task_order([.75, .25], 4, 0)`` has three 0s and one 1.
    """
    exact = fractions * steps
    counts = np.floor(exact).astype(int)
    for task in np.argsort(counts - exact, kind="stable")[: steps - counts.sum()]:
        counts[task] += 1
    tasks = np.repeat(np.arange(len(fractions)), counts)
    return rng(seed, "turns").permutation(tasks)


HELD_OUT_TOKENS = 40_000
"""tokens of the held-out text on which the language-model loss is measured"""


def learn_tasks(
    suite: TaskSuite, name: str, seed: int, steps: Run, language: PretrainingLoss | None = None
) -> tuple[ContinualRun, MultitaskModel]:
    """Learn all tasks of ``suite``, with the labels of this seed, by a strategy: a step of ``steps``, in which each stage is one.

    Returns the run and its model, of the last stage.
    """
    whole = steps.step(f"{name}, seed {seed}", lambda step: _learn(suite, (name, seed), step, language))
    model = suite.new_model(seed)
    model.load_state_dict(whole.pop("weights"))
    run = ContinualRun(seed, **whole)
    at_end = ", ".join(f"{task} {percent(score)}" for task, score in zip(suite.names, run.scores[-1], strict=True))
    console.print(f"{name}, seed {seed}: {at_end} at the end, in {run.seconds:.0f} s")
    return run, model.eval()


def _learn(suite: TaskSuite, named: tuple[str, int], run: Run, language: PretrainingLoss | None) -> dict[str, Any]:
    """The fields of a ``ContinualRun`` but its seed, and the weights at the end. ``named`` is (strategy, seed)."""
    name, seed = named
    strategy, model = STRATEGIES[name](suite, seed), suite.new_model(seed)
    language = None if strategy.anew else language
    rows, losses, seconds = [], [language.measure(model)] if language else [], 0.0

    def learn(tasks: tuple[int, ...], step: Run) -> dict[str, Any]:
        batches, steps = strategy.batches(tasks)
        output, _ = suite.at(step.place).train(model, batches, steps, strategy.stream(tasks), validate=tasks)
        described = f"strategy {name} after {suite.names[tasks[0]] if len(tasks) == 1 else WHOLE}"
        tested = tasks if strategy.anew else range(tasks[-1] + 1)
        scores = [suite.resampled_test(model, task, described, seed) for task in tested]
        loss = language.measure(model) if language else None
        return {"weights": model.weights(), "tested": scores, "loss": loss, "seconds": output.seconds}

    for number, tasks in enumerate(strategy.stages()):
        model = suite.new_model(seed) if strategy.anew else model
        stage = run.step(f"stage {number}", partial(learn, tasks))
        model.load_state_dict(stage["weights"])
        rows.append(stage["tested"])
        seconds += stage["seconds"]
        losses += [stage["loss"]] if language else []
    rows = [[one for row in rows for one in row]] if strategy.anew else rows
    return {
        "weights": model.weights(),
        "scores": tuple(tuple(score for score, _ in row) for row in rows),
        "resampled": tuple(tuple(resampled for _, resampled in row) for row in rows),
        "language_losses": tuple(loss for loss, _ in losses),
        "resampled_losses": tuple(resampled for _, resampled in losses),
        "seconds": seconds,
        "validation_score": None if strategy.anew else suite.validate(model, range(len(suite.encoded))),
    }


class PretrainingLoss:
    """The loss of the pretrained language head on a text, on top of a backbone that has been trained since."""

    def __init__(self, bundle: Bundle, text: str) -> None:
        if not Path(text).exists():
            raise DataError(f"there is no text at {text}; --text must name a file or a folder")
        self.language, self.bundle, self.text = LanguageTask.required(bundle), bundle, text

    def measure(self, model: MultitaskModel) -> tuple[float, np.ndarray]:
        """Mean nats per target, under the bundle's objective, with the model's backbone; and (R,) on resamples of the documents."""
        backbone, origin = model.backbone, self.bundle
        with_head = Model(backbone, origin.model.head, causal=origin.model.causal)
        self.language.attach(with_head)
        with_head = Model(backbone, with_head.get_submodule("language"), causal=origin.model.causal)  # type: ignore[arg-type]
        with TemporaryDirectory() as folder:
            store = tokenized_text([Source(path=self.text)], origin.tokenizer, Path(folder))
            vocabulary = origin.tokenizer.vocabulary()
            rows = PretrainingRows(store, vocabulary, self.language.objective, origin.model.backbone.config.max_length)
            training = backbone.training
            with_head.eval()
            loss = held_out_loss(with_head, rows, HELD_OUT_TOKENS)
            backbone.train(training)
        weights = resample_counts(len(loss.sums), rng(len(loss.sums), "held-out documents"))
        return float(loss.value), resampled_ratios(loss.sums, loss.counts, weights)
