"""What a stream and a multi-task run have in common: tasks read for one backbone, and the run that trains heads on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.config import Config
from warmstart.data import Source, Task, load_task, prepare, subsample
from warmstart.data.batch import Rows, labelled_batches
from warmstart.engine import TrainConfig, Trained, Work, pick_device, train
from warmstart.errors import ConfigError, DataError
from warmstart.evaluate import Scores, classification
from warmstart.evaluate.language import held_out
from warmstart.evaluate.predict import probabilities
from warmstart.heads import ClassifyHead
from warmstart.model import Bundle, Model, fresh_head, swap_head
from warmstart.objectives import ObjectiveConfig
from warmstart.schemes import Language
from warmstart.schemes.language import needed
from warmstart.schemes.several import Several, TaskBatch
from warmstart.types import Batch
from warmstart.workflows.finetune import FineTuneConfig, Splits, head_for
from warmstart.workflows.keeper import Keeper

EPOCHS = 5
"""passes over each task's texts, where nothing else is said"""
FORGETTING_TOKENS = 40_000
"""held-out tokens on which the language-model loss is measured"""


class TasksConfig(Config):
    """Several tasks on one backbone."""

    model: Positional[str]
    """the pretrained model: a bundle, or a run's folder"""
    tasks: Positional[Annotated[tuple[str, ...], Field(min_length=2)]]
    """the tasks' manifests (YAML)"""
    out: str = "runs/tasks"
    """folder of the run"""
    labels: int | None = Field(None, gt=1)
    """use only so many training texts of each task, stratified"""
    seeds: int = Field(3, gt=0)
    """how many seeds; fewer than three say little"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    head_dropout: float = Field(0.1, ge=0, lt=1)
    """share of the pooled state dropped in training"""
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig(learning_rate=5e-4, warmup=0.1, weight_decay=0.01)


def load_tasks(config: TasksConfig) -> list[Task]:
    """The tasks, each with a name of its own. Raises ``ConfigError`` where two have the same."""
    tasks = [load_task(path) for path in config.tasks]
    names = [task.name for task in tasks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"each task needs a name of its own, but {', '.join(twice)} came twice; change 'name' in one manifest")
    if config.train.steps or config.train.tokens or config.train.minutes:
        raise ConfigError("the length of a run of several tasks is told by --epochs; leave --steps, --tokens and --minutes out")
    if config.train.accumulate != 1 or config.train.evaluate_every:
        raise ConfigError("runs of several tasks read one batch a step; leave --accumulate and --evaluate-every out")
    if odd := [name for name in names if Path(name).name != name]:
        raise ConfigError(f"a task's name becomes a folder, but {odd[0]!r} cannot be one; change 'name' in its manifest")
    if strange := [task for task in tasks if task.kind != "label"]:
        raise ConfigError(f"tasks together need one label a text, but '{strange[0].name}' is of kind '{strange[0].kind}'")
    few = config.labels
    return [subsample(task, few, config.seed) if few and few < len(task.train) else task for task in tasks]


@dataclass(frozen=True)
class Ground:
    """The tasks as one backbone reads them."""

    bundle: Bundle
    splits: tuple[Splits, ...]
    config: TasksConfig

    @classmethod
    def of(cls, bundle: Bundle, tasks: Sequence[Task], config: TasksConfig) -> Ground:
        """Encode every task once."""
        reader = swap_head(bundle.model, head_for(tasks[0], FineTuneConfig()), 0)
        return cls(bundle, tuple(Splits.of(task, reader, bundle.tokenizer) for task in tasks), config)

    def fresh(self, seed: int) -> Several:
        """The pretrained backbone (a copy) under a fresh head for each task."""
        backbone = copy.deepcopy(self.bundle.model.backbone)
        settings = FineTuneConfig(head_dropout=self.config.head_dropout)
        heads = [fresh_head(head_for(splits.task, settings), backbone, seed + place) for place, splits in enumerate(self.splits)]
        assert all(isinstance(head, ClassifyHead) for head in heads)
        return Several(backbone, heads, causal=self.bundle.model.causal).to(pick_device())  # type: ignore[arg-type]

    def batches(self, task: int, seed: int) -> Callable[[int], TaskBatch]:
        """``batches(n)``: the n-th batch of a task, counted through its epochs."""
        splits = self.splits[task]
        size = (self.config.train.batch, 1)
        made = labelled_batches(splits.train, splits.task.train.labels, size, seed, splits.pad_id, causal=self.bundle.model.causal)
        return lambda number: TaskBatch.of(made(number)[0], task)

    def steps(self, task: int) -> int:
        """Steps that read a task's texts as often as was asked for."""
        return max(1, round((self.config.train.epochs or EPOCHS) * -(-len(self.splits[task].train) // self.config.train.batch)))

    def test(self, model: Several, task: int) -> Scores:
        """A task's scores on its test split."""
        splits = self.splits[task]
        said = probabilities(model.alone(task), splits.test, splits.pad_id)
        return classification(splits.task.test.labels, said, splits.task.labels)

    def validate(self, model: Several, tasks: Sequence[int]) -> float:
        """Mean over tasks of the metric on the validation split."""
        found = []
        for task in tasks:
            splits = self.splits[task]
            said = probabilities(model.alone(task), splits.validation, splits.pad_id, self.config.train.precision)
            found.append(classification(splits.task.validation.labels, said, splits.task.labels).score(splits.task.metric))
        return float(np.mean(found))


@dataclass(frozen=True)
class Lesson:
    """One training of a ``Several``."""

    batches: Callable[[int], list[Batch]]
    steps: int
    seed: int
    judged: tuple[int, ...]
    """tasks whose validation splits choose the kept weights"""
    penalty: Callable[[], Any] | None = None


def learn(model: Several, ground: Ground, lesson: Lesson) -> tuple[Trained, float]:
    """Train ``model`` in place; the weights of the best evaluation are kept. Returns the course and the kept validation score."""
    keeper = Keeper(model)
    settings = ground.config.train.model_copy(update={"evaluate_every": max(1, -(-lesson.steps // 10))})
    work = Work(
        lesson.batches,
        lesson.steps,
        lesson.seed,
        evaluate=lambda: {"score": ground.validate(model, lesson.judged)},
        observers=[lambda step, figures: keeper.offer(step, figures["score"])],
        penalty=lesson.penalty,
        show=False,
    )
    trained = train(model, work, settings)
    keeper.restore()
    return trained, keeper.score


class LanguageLoss:
    """The loss of the pretrained language head on a text, whatever the backbone below it has learned since."""

    def __init__(self, bundle: Bundle, text: str) -> None:
        self.language, self.bundle, self.text = needed(Language.of(bundle)), bundle, text

    def of(self, backbone: Any) -> float:
        """Mean nats per target, under the objective of the bundle."""
        model = Model(backbone, self.bundle.model.head, causal=self.bundle.model.causal)
        self.language.attach(model)
        model = Model(backbone, model.get_submodule("language"), causal=model.causal)  # type: ignore[arg-type]
        objective: ObjectiveConfig = self.language.objective
        with TemporaryDirectory() as folder:
            corpus = prepare([Source(path=self.text)], self.bundle.tokenizer, Path(folder))
            rows = Rows(corpus, self.bundle.tokenizer.vocabulary(), objective, self.bundle.model.backbone.config.max_tokens)
            was = backbone.training
            model.eval()
            figures = held_out(model, rows, FORGETTING_TOKENS)
            backbone.train(was)
        return float(np.mean([value for name, value in figures.items() if name.endswith("loss")]))


def task_bundle(ground: Ground, model: Several, task: int, entry: dict[str, Any]) -> Bundle:
    """One task's head on the shared backbone, as a bundle of its own."""
    origin, labels = ground.bundle, ground.splits[task].task.labels
    alone = model.alone(task).cpu().eval()
    return replace(origin, model=alone, labels=labels, history=(*origin.history, entry), calibration=None)


def check_text(bundle: Bundle, text: str | None) -> LanguageLoss | None:
    """What measures the language-model loss, if a text is given. Raises what reading it raises."""
    if text is None:
        return None
    if not Path(text).exists():
        raise DataError(f"there is no text at {text}; --text names a file or a folder")
    return LanguageLoss(bundle, text)
