"""Several tasks on one backbone: a head for each, their settings, their encoded texts, and a run that keeps its best weights.

Letters: B batch, T tokens, C classes, R resamples.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from warmstart.backbone.backbone import Backbone
from warmstart.data.batches import labelled_batches
from warmstart.data.budget import LabelBudget, label_budget, labels_sentence
from warmstart.data.scorings import LedgerSummary, ScoringRun, read_ledger
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.config import ContinualConfig, FineTuneConfig
from warmstart.finetuning.finetune import head_config_for
from warmstart.finetuning.inputs import EncodedTask
from warmstart.heads.per_text import ClassificationHead
from warmstart.model.bundle import Bundle
from warmstart.model.folder import model_digest
from warmstart.model.history import Record
from warmstart.model.model import Model, fresh_head, swap_head
from warmstart.stats.splits import share_training_texts
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_named_tasks
from warmstart.tasks.scoring import score_test
from warmstart.training.held_out import EarlyStopping
from warmstart.training.loop import EVALUATIONS, TrainingJob, TrainOutput, train
from warmstart.types import Batch

EPOCHS = 5
"""passes over each task's training texts, if the settings name no number"""


@dataclass(frozen=True)
class TaskBatch(Batch):
    """Texts of one task."""

    task: int = 0
    """index of the task, and of its head"""


class MultitaskModel(nn.Module):
    """One backbone with a head for each task."""

    def __init__(self, backbone: Backbone, heads: Sequence[ClassificationHead], *, causal: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleList(heads)
        self.causal = causal

    def head(self, task: int) -> ClassificationHead:
        """The head of a task."""
        head = self.heads[task]
        assert isinstance(head, ClassificationHead)
        return head

    def logits(self, batch: Batch, task: int) -> Tensor:
        """(B, C): what a task's head computes for a batch."""
        states = self.backbone.forward_batch(batch, causal=self.causal).last_hidden_state
        return self.head(task)(states, batch.attention_mask)

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a task's batch in nats, with that task's head."""
        assert isinstance(batch, TaskBatch)
        assert batch.targets is not None
        return self.head(batch.task).loss(self.logits(batch, batch.task), batch.targets)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        return self.state_dict(keep_vars=True)

    def single_task(self, task: int) -> Model:
        """The backbone (the same object) with one task's head."""
        return Model(self.backbone, self.head(task), causal=self.causal)


def load_tasks(config: ContinualConfig) -> list[Task]:
    """The tasks. Raises ``ConfigError`` if two have the same name, or the settings do not fit several tasks or one of them."""
    tasks = load_named_tasks(config.tasks)
    if wrong := [task for task in tasks if not task_type_of(task).one_label]:
        raise ConfigError(f"each task must have one label per text, but '{wrong[0].name}' is a {wrong[0].type} task; remove it")
    for task in tasks:
        _budget(task, config, config.seed)
    return tasks


def _budget(task: Task, config: ContinualConfig, seed: int) -> LabelBudget:
    """The labels of one task that a seed may look at. Raises ``ConfigError`` if the settings do not fit the task."""
    try:
        return label_budget(task, config.labels, config.selection, seed)
    except DataError as error:
        labels = f"--labels {config.labels}: " if config.labels else ""
        raise ConfigError(f"{labels}'{task.name}': {error}") from None


@dataclass(frozen=True)
class TaskSuite:
    """Several tasks, encoded for one backbone."""

    bundle: Bundle
    encoded: tuple[EncodedTask, ...]
    config: ContinualConfig
    scoring: ScoringRun
    workplace: Path | None = None
    """folder of the checkpoints of the next training run"""

    @classmethod
    def of(cls, bundle: Bundle, tasks: Sequence[Task], config: ContinualConfig) -> TaskSuite:
        """Encode every task once."""
        scoring = ScoringRun.of(config)
        reader = swap_head(bundle.model, head_config_for(tasks[0], FineTuneConfig()), 0)
        return cls(bundle, tuple(EncodedTask.of(task, reader, bundle.tokenizer) for task in tasks), config, scoring)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(encoded.task.name for encoded in self.encoded)

    def within(self, seed: int) -> TaskSuite:
        """The suite with the labelled texts that a seed may look at, and the test texts; for a suite of whole tasks."""
        return replace(self, encoded=tuple(one.within(_budget(one.task, self.config, seed)) for one in self.encoded))

    @property
    def one_split(self) -> bool:
        """True if the seeds share too many training texts of a task for intervals to cover other ones."""
        sizes = [len(encoded.task.train) for encoded in self.encoded]
        return any(share_training_texts(self.config.labels or size, size, self.config.seeds) for size in sizes)

    @property
    def label_findings(self) -> tuple[str, ...]:
        """The use of the labels of each task, as a sentence; for a suite of whole tasks."""
        budgets = [_budget(one.task, self.config, self.config.seed) for one in self.encoded]
        return tuple(labels_sentence(budget, self.config.selection) for budget in budgets)

    def at(self, workplace: Path | None) -> TaskSuite:
        """The suite whose next training run keeps its checkpoints there."""
        return replace(self, workplace=workplace)

    def seed_to_save(self, scores: Sequence[float | None]) -> int:
        """The seed to save, from 0 on, by its validation ``scores``; printed with the reason."""
        drawn = self.config.labels is not None
        found = 0 if drawn or None in scores else max(range(len(scores)), key=lambda number: scores[number] or 0.0)
        why = "the best one on validation" if self.config.selection == "holdout" else "the first one, because no label chooses"
        why = "the first one, because every seed draws its own labels" if drawn and self.config.selection == "holdout" else why
        console.print(f"The saved models are those of seed {self.config.seed + found}, {why}.")
        return found

    def new_model(self, seed: int) -> MultitaskModel:
        """A copy of the pretrained backbone with a new head for each task."""
        backbone = copy.deepcopy(self.bundle.model.backbone)
        settings = FineTuneConfig()
        configs = [head_config_for(encoded.task, settings) for encoded in self.encoded]
        heads = [fresh_head(config, backbone, seed + number) for number, config in enumerate(configs)]
        assert all(isinstance(head, ClassificationHead) for head in heads)
        return MultitaskModel(backbone, heads, causal=self.bundle.model.causal).to(pick_device())  # type: ignore[arg-type]

    def batches(self, task: int, seed: int) -> Callable[[int], TaskBatch]:
        """``batches(n)``: the n-th batch of a task, counted through its epochs."""
        encoded = self.encoded[task]
        size, labels = (self.config.train.batch, 1), encoded.task.train.labels
        batches = labelled_batches(encoded.train, labels, size, seed, encoded.pad_id, causal=self.bundle.model.causal)
        return lambda number: TaskBatch.of(batches(number)[0], task=task)

    def steps(self, task: int) -> int:
        """Steps for the wanted number of passes over a task's training texts."""
        per_epoch = -(-len(self.encoded[task].train) // self.config.train.batch)
        return max(1, round((self.config.train.epochs or EPOCHS) * per_epoch))

    def resampled_test(self, model: MultitaskModel, task: int, name: str, seed: int) -> tuple[float, np.ndarray]:
        """A task's test score by its metric, and (R,) the same on resamples; the ledger calls the model ``name``."""
        encoded = self.encoded[task]
        probabilities = task_type_of(encoded.task).predict(model.single_task(task), encoded.test, encoded.pad_id)
        settings = {key: value for key, value in self.config.to_dict().items() if key not in ("out", "seed", "seeds")}
        method = self.scoring.method(name, [name, model_digest(self.config.model), settings])
        scored = score_test(encoded.task, probabilities, method, seed)
        return scored.score, scored.resampled

    def finish(self) -> tuple[LedgerSummary, ...]:
        """All runs are complete: what the ledgers now say of the test split of each task."""
        tasks = [encoded.task for encoded in self.encoded]
        return tuple(read_ledger(task) for task in tasks)

    def validate(self, model: MultitaskModel, tasks: Sequence[int]) -> float | None:
        """The mean over ``tasks`` of the metric on the texts that choose; None if none do."""
        if self.config.selection == "none":
            return None
        scores = []
        for number in tasks:
            encoded, task = self.encoded[number], self.encoded[number].task
            predictions = task_type_of(task).predict(
                model.single_task(number), encoded.validation, encoded.pad_id, self.config.train.precision
            )
            scores.append(task_type_of(task).scores(task.validation, predictions, task).score(task.metric))
        return float(np.mean(scores))

    def train(
        self,
        model: MultitaskModel,
        batches: Callable[[int], list[Batch]],
        steps: int,
        seed: int,
        *,
        validate: Sequence[int],
    ) -> tuple[TrainOutput, float | None]:
        """Train ``model`` in place. Keeps the weights of the best mean score of the tasks ``validate``, or the last if none choose.

        Returns what the run took, and that score; None without texts that choose.
        """
        early_stopping, chosen = EarlyStopping(model), self.config.selection == "holdout"
        settings = self.config.train.complete(max(1, -(-steps // EVALUATIONS)))
        job = TrainingJob(
            batches,
            steps,
            seed,
            evaluate=(lambda: {"score": self.validate(model, validate)}) if chosen else None,
            callbacks=[lambda step, metrics: early_stopping.update(step, metrics["score"])],
            progress_bar=False,
            more=early_stopping,
        )
        output = train(model, job, settings, self.workplace)
        if not chosen:
            return output, None
        early_stopping.restore()
        return output, early_stopping.kept_score

    def task_bundle(self, model: MultitaskModel, task: int, record: Record) -> Bundle:
        """One task's head on the shared backbone as a bundle of its own; ``record`` is added to its history."""
        labels, history = self.encoded[task].task.labels, (*self.bundle.history, record)
        return replace(self.bundle, model=model.single_task(task).cpu().eval(), labels=labels, history=history, calibration=None)
