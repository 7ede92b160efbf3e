"""One fine-tuning run: a model, a labelled task, a scheme and a seed in; test predictions out.

Every comparison consists of such runs.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from warmstart.backbone.backbone import Backbone
from warmstart.data.task import Task
from warmstart.errors import ConfigError
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import predict_from_features
from warmstart.finetuning.inputs import EncodedTask, TrainingInputs, set_class_means
from warmstart.finetuning.losses import LanguageTask, require_language_head
from warmstart.finetuning.scheme import EmbeddingRows, Scheme, apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import TaskHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import seed_torch
from warmstart.system.device import pick_device
from warmstart.tasks import task_type_of
from warmstart.tasks.task_type import HeadSettings
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import EarlyStopping
from warmstart.training.log import shown
from warmstart.training.loop import TrainingJob, TrainOutput, train
from warmstart.training.optimizers import ParameterGroup

DEFAULT_EPOCHS = 10
MIN_STEPS = 60
MAX_EVALUATIONS = 20


@dataclass(frozen=True)
class FineTuneResult:
    """The result of one run."""

    model: Model
    seed: int
    validation_score: float
    """the task's metric on the validation split, with the kept weights; nan without validation texts"""
    curve: tuple[tuple[int, float], ...]
    """(step, validation metric) of every evaluation"""
    training: TrainOutput
    trainable: int
    """number of parameters that trained and that the model keeps"""
    test_predictions: Any
    """for the test split, None if it has no texts; (N, C) probabilities if each text has one label"""
    validation_predictions: Any
    """predictions for the validation split"""


def head_config_for(task: Task, config: FineTuneConfig) -> TaskHeadConfig:
    """The settings of the head that this task needs. Raises ``ConfigError`` if they are for windows, and it reads none."""
    windows = config.window_settings
    settings = HeadSettings(config.pooling, config.head_dropout, config.head_hidden, **dict(windows))
    head = task_type_of(task).head(task, settings)
    if windows.windows != "none" and head.window_settings != windows:
        raise ConfigError(
            f"--windows is for tasks with one prediction for a text or a pair, but '{task.name}' is a {task.type} task; remove it"
        )
    if isinstance(head, ClassificationHeadConfig) and make_scheme(config.scheme, config.options).contrast:
        return head.model_copy(update={"normalize": True, "dropout": 0.0})
    return head


def task_model(bundle: Bundle, task: Task, config: FineTuneConfig, seed: int, *, scratch: bool) -> Model:
    """A model for the task: a copy of the bundle's backbone, or a new one of the same shape, with a new head.

    A copy that stays frozen shares the memory of its weights.
    """
    origin, shared = bundle.model.backbone, dict[int, Any]()
    if make_scheme(config.scheme, config.options).keeps_features:
        shared = {id(one): nn.Parameter(one.detach()) for one in origin.parameters()}
    seed_torch(seed, "backbone")
    backbone = Backbone(origin.config, origin.vocab_size) if scratch else copy.deepcopy(origin, shared)  # it keeps its adapters
    head = fresh_head(head_config_for(task, config), backbone, seed)
    direction = config.attention_direction
    return Model(backbone, head, causal=bundle.model.causal if direction == "as-pretrained" else direction == "causal")


def check_scheme(bundle: Bundle, task: Task, config: FineTuneConfig) -> None:
    """Check that the scheme fits model and task, before anything is written or trained; raises what ``fine_tune`` would raise."""
    scheme = make_scheme(config.scheme, config.options)
    _check_one_label(task, config)
    head_config_for(task, config)
    if scheme.language_weight:
        LanguageTask.required(bundle)
    apply_scheme(copy.deepcopy(bundle.model), scheme)


@dataclass(frozen=True)
class FineTuning:
    """Data and settings of one run."""

    encoded: EncodedTask
    config: FineTuneConfig
    seed: int
    title: str = "fine-tuning"
    """title of the progress bar; empty: no bar"""
    language: LanguageTask | None = None
    """the pretrained language head, for schemes with ``lm-loss``"""
    workplace: Path | None = None
    """folder of checkpoints, from which the same run goes on; None: no checkpoints"""
    events: Path | None = None
    """the folder where TensorBoard finds the log, under the title; with a workplace only"""

    @property
    def scheme(self) -> Scheme:
        """The scheme by which the model is adapted."""
        return make_scheme(self.config.scheme, self.config.options)

    def prepare(self, model: Model) -> list[ParameterGroup]:
        """Insert what the scheme adds, freeze what does not train, and return the parameters that do."""
        model.drops = self.scheme.contrast is None
        if self.scheme.language_weight:
            require_language_head(self.language).attach(model)
        return apply_scheme(model, self.scheme, self.seed)

    def run(self, model: Model) -> FineTuneResult:
        """Train ``model`` (with its task head) in place; see ``fine_tune``."""
        config, scheme = self.config, self.scheme
        _check_settings(self.encoded.task, config)
        model.to(pick_device())
        groups = self.prepare(model)
        encoded = self.encoded.with_lower_states(model)
        if scheme.contrast or config.head_start == "class-means":
            set_class_means(model, encoded, self.seed)
        trainable = sum(p.numel() for group in groups for name, p in group.parameters.items() if not name.startswith("language."))
        inputs = training_inputs(model, encoded, config, scheme, (self.seed, self.language))
        # a language loss also reads tokens that hide or replace those of the texts
        rows = EmbeddingRows(model.backbone, groups, None if scheme.language_weight else encoded.training_ids())
        steps, settings = run_length(encoded, config.train, scheme)
        unfrozen = scheme.unfreezing.complete_at(model.backbone.config.depth)
        early_stopping = EarlyStopping(model, config.keep, config.patience, unfrozen)
        validation = _Validation(encoded.task, inputs, rows, early_stopping)
        job = TrainingJob(
            inputs.batches,
            steps,
            self.seed,
            self.title,
            evaluate=validation.evaluate if len(encoded.validation) else None,
            groups=rows.groups,
            loss=inputs.loss,
            prepare=inputs.prepare,
            should_stop=early_stopping.should_stop,
            callbacks=[validation.update],
            progress_bar=bool(self.title),
            more=early_stopping,
        )
        with shown(self.events, self.title) as observe:
            output = train(model, replace(job, observe=observe), settings, self.workplace)
        if scheme.language_weight:
            del model.language
        early_stopping.restore()
        rows.restore()
        if scheme.contrast:
            set_class_means(model, encoded, self.seed, trained=True)
            validation.evaluate_again()
        test_predictions, validation_predictions = predict_test(model, encoded, config), validation.of_kept_weights()
        return FineTuneResult(
            model=model.cpu().eval(),
            seed=self.seed,
            validation_score=validation.kept_score,
            curve=tuple(early_stopping.curve),
            training=output,
            trainable=trainable,
            test_predictions=test_predictions,
            validation_predictions=validation_predictions,
        )


def fine_tune(
    model: Model,
    encoded: EncodedTask,
    config: FineTuneConfig,
    seed: int,
    title: str = "fine-tuning",
    language: LanguageTask | None = None,
) -> FineTuneResult:
    """Train ``model`` (with its task head) on the training split, in place.

    The validation split decides which weights are kept. If it has no texts, nothing is evaluated, and the last weights are kept.
    The test split is predicted at the end, and not scored here (``tasks/scoring.py`` does). ``language`` is the pretrained language
    head for schemes with ``lm-loss``; the model loses it afterwards. Raises ``ModelError`` if such a scheme has none.
    Without a ``title`` there is no progress bar.
    """
    return FineTuning(encoded, config, seed, title, language).run(model)


class _Validation:
    """Scores the validation split during a run, and keeps the predictions of the weights that are kept."""

    def __init__(self, task: Task, inputs: TrainingInputs, rows: EmbeddingRows, early_stopping: EarlyStopping) -> None:
        self.task, self.inputs, self.rows, self.early_stopping = task, inputs, rows, early_stopping
        self.latest: Any = None
        self._kept: Any = None
        self._changed_score: float | None = None

    def evaluate(self) -> dict[str, Any]:
        """The task's metric, with the present weights."""
        with self.rows.whole():
            self.latest = self.inputs.predict_validation()
        return {self.task.metric: self._score(self.latest)}

    def _score(self, predictions: Any) -> float:
        task = self.task
        return task_type_of(task).scores(task.validation, predictions, task).score(task.metric)

    def update(self, step: int, metrics: dict[str, Any]) -> None:
        """Take note of an evaluation."""
        if self.early_stopping.update(step, metrics[self.task.metric]):
            self._kept = self.latest

    def evaluate_again(self) -> None:
        """The kept weights have changed since they were evaluated."""
        if self.early_stopping.curve:
            self._kept = self.inputs.predict_validation()
            self._changed_score = self._score(self._kept)

    @property
    def kept_score(self) -> float:
        """The task's metric with the kept weights; nan without evaluations."""
        if self._changed_score is not None:
            return self._changed_score
        return self.early_stopping.kept_score if self.early_stopping.curve else math.nan

    def of_kept_weights(self) -> Any:
        """The predictions of the weights that are kept, which the model has again; None without evaluations."""
        if self._kept is None and self.early_stopping.curve:  # an earlier process evaluated them
            self._kept = self.inputs.predict_validation()
        return self._kept


def predict_test(model: Model, encoded: EncodedTask, config: FineTuneConfig) -> Any:
    """Predictions for the test split, without calibration, by a model on its device; None if the split has no texts.

    If the scheme keeps the features of texts the same, they are read once, for all runs.
    """
    if not len(encoded.test):
        return None
    if reads_features(encoded.task, config):
        features = encoded.features.get(model, encoded.test, encoded.pad_id)
        return predict_from_features(model, features, encoded.test.windows)
    return task_type_of(encoded.task).predict(model, encoded.test, encoded.pad_id)


def reads_features(task: Task, config: FineTuneConfig) -> bool:
    """True if a run reads cached features of texts: the scheme keeps them the same, and the task has one prediction per text."""
    scheme = make_scheme(config.scheme, config.options)
    return scheme.keeps_features and config.cache_features and task_type_of(task).pooled


def training_inputs(
    model: Model, encoded: EncodedTask, config: FineTuneConfig, scheme: Scheme, rest: tuple[int, LanguageTask | None]
) -> TrainingInputs:
    """The run's inputs; from cached features if the scheme keeps them the same. ``rest`` is (seed, language)."""
    seed, language = rest
    cached = reads_features(encoded.task, config)
    inputs = (TrainingInputs.from_features if cached else TrainingInputs.from_texts)(model, encoded, config, seed)
    if scheme.contrast:
        inputs = inputs.with_contrast(model, encoded, config, scheme.contrast, seed)
    if scheme.language_weight:
        inputs = inputs.with_language_loss(model, encoded, require_language_head(language), scheme.language_weight, seed)
    return inputs


def run_length(encoded: EncodedTask, config: TrainConfig, scheme: Scheme) -> tuple[int | None, TrainConfig]:
    """The number of steps, and the settings of the loop.

    If no budget is named, it is ten epochs, but at least 60 steps: few texts need many passes (Mosbach et al. 2021). If no interval
    is named, each epoch ends with an evaluation, but a run has no more than twenty.
    """
    mean_tokens = float(np.mean([len(row) for row in encoded.train.rows]) * encoded.train.rows_per_example.mean())
    per_epoch = -(-len(encoded.train) // (config.batch * config.accumulate))
    least = MIN_STEPS
    steps = config.count_text_steps(len(encoded.train), mean_tokens, max(DEFAULT_EPOCHS, least / per_epoch))
    every = config.evaluate_every or max(per_epoch, -(-(steps or 0) // MAX_EVALUATIONS))
    return steps, config.model_copy(update={"evaluate_every": every})


def _check_settings(task: Task, config: FineTuneConfig) -> None:
    """Raise ``ConfigError`` for settings that need validation texts or one label per text, if the task has not."""
    check_patience(task, config)
    _check_one_label(task, config)


def _check_one_label(task: Task, config: FineTuneConfig) -> None:
    if task_type_of(task).one_label:
        return
    settings = (config.class_weights, config.head_hidden, config.head_start)
    if settings != ("none", "none", "random") or config.label_smoothing:
        raise ConfigError(
            "--class-weights, --label-smoothing, --head-hidden and --head-start are for tasks with one label per text, "
            f"but '{task.name}' is a {task.type} task; remove them"
        )
    if make_scheme(config.scheme, config.options).contrast:
        raise ConfigError(
            f"contrast compares texts that have one label each, but '{task.name}' is a {task.type} task; choose another scheme"
        )


def check_patience(task: Task, config: FineTuneConfig) -> None:
    """Raise ``ConfigError`` if runs are to stop early, but the task has no validation texts that could tell when."""
    if config.patience and not len(task.validation):
        raise ConfigError("--patience needs texts that choose and do not learn; remove it, or use --selection holdout")
