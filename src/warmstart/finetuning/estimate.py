"""The cost of one fine-tuning run: the time of one measured step, and the parameters that train.

Steps use a few training texts and a copy of the model; nothing of it is kept.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from warmstart.data.budget import LabelBudget
from warmstart.data.encode import Encoded
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import FineTuning, reads_features, run_length, task_model, training_inputs
from warmstart.finetuning.inputs import EncodedTask, set_class_means
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.scheme import EmbeddingRows
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.finetuning.selection import SelectionSettings
from warmstart.model.bundle import Bundle
from warmstart.stats.formatting import file_size, time_span
from warmstart.system.device import pick_device
from warmstart.tasks import task_type_of
from warmstart.training.loop import TrainingJob, train
from warmstart.types import Batch

BATCHES = 4
"""batches of texts from which steps are measured"""
WEIGHT_BYTES = 4
"""bytes of a saved weight"""


@dataclass(frozen=True)
class RunCost:
    """The expected cost of one run."""

    seconds: float
    once: float
    """seconds that only the first of the runs with this frozen backbone spends: its texts are read once"""
    trained: int
    """parameters that train; all others stay those of the backbone"""


def cost_sentence(what: str, seconds: float, trained: int) -> str:
    """``cost_sentence("6 runs", 95, 1_000_000)`` -> ``"Estimate: 6 runs take about 48 seconds to 3.2 minutes, longer beside …"``.

    The range is from half to twice of what a measured step leads to expect.
    """
    return (
        f"Estimate: {what} take about {time_span(seconds / 2)} to {time_span(2 * seconds)}, longer beside other programs; a run "
        f"trains up to {trained:,} parameters, which take {file_size(WEIGHT_BYTES * trained)} when they are saved; baselines are "
        "not counted."
    )


@dataclass(frozen=True)
class Estimator:
    """Estimates the cost of runs of one backbone on one task."""

    bundle: Bundle
    encoded: EncodedTask
    config: FineTuneConfig
    _steps: dict[str, tuple[float, int]] = field(default_factory=dict)
    """for each scheme the seconds of a step and the trained parameters"""

    def cost_within(self, scheme_name: str, budget: LabelBudget, choice: SelectionSettings) -> RunCost:
        """The cost of ``fine_tune_within``: of the models that choose, and of the last one at its greatest length."""
        last = self._cost(scheme_name, self.encoded.within(budget))
        rates = 1 if choice.selection == "none" else len(choice.rates) or 1
        if not budget.cross_validated:
            return replace(last, seconds=rates * last.seconds)
        chosen = choice.choose or choice.selection != "none"
        folds = sum(self._cost(scheme_name, self.encoded.fold(fold)).seconds for fold in budget.folds) if chosen else 0.0
        return replace(last, seconds=last.seconds + rates * folds)

    def _cost(self, scheme_name: str, encoded: EncodedTask) -> RunCost:
        config = self.config.model_copy(update={"scheme": scheme_name})
        steps, settings = run_length(encoded, config.train, make_scheme(scheme_name, config.options))
        frozen = reads_features(encoded.task, config)
        read_train, read_validation, read_test = (
            _tokens(part) * self._seconds_per_token for part in (encoded.train, encoded.validation, encoded.test)
        )
        if scheme_name not in self._steps:
            self._steps[scheme_name] = self._step_seconds(scheme_name)
        step, trained = self._steps[scheme_name]
        assert settings.evaluate_every
        evaluations = max(1, math.ceil((steps or 0) / settings.evaluate_every))
        reading = 0.0 if frozen else evaluations * read_validation + read_test
        training = steps * config.train.accumulate * step if steps else 60 * (config.train.minutes or 0.0)
        once = read_train + read_validation + read_test if frozen else 0.0
        return RunCost(training + reading, once, trained)

    @cached_property
    def _sample(self) -> EncodedTask:
        """A few training texts, of all lengths."""
        order = np.argsort(self.encoded.train.lengths, kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, min(len(order), BATCHES * self.config.train.batch)).round().astype(int)]
        task, part = self.encoded.task, self.encoded.train.take(chosen)
        split = task.train.take(chosen)
        small = replace(task, train=split, validation=split)
        return replace(self.encoded, task=small, train=part, validation=part, features=FeatureCache())

    def _step_seconds(self, scheme_name: str) -> tuple[float, int]:
        """The second step of a scheme, after one that warms up, and the parameters that train; random numbers stay as they were."""
        single = self.config.train.model_copy(update={"accumulate": 1, "evaluate_every": 0})
        config = self.config.model_copy(update={"scheme": scheme_name, "train": single})
        language, scheme = LanguageTask.of(self.bundle), make_scheme(scheme_name, config.options)
        with torch.random.fork_rng():
            model = task_model(self.bundle, self._sample.task, config, 0, scratch=False).to(pick_device())
            groups = FineTuning(self._sample, config, 0, "", language).prepare(model)
            sample = self._sample.with_lower_states(model)
            if scheme.contrast or config.head_start == "class-means":
                set_class_means(model, sample, 0)
            groups = EmbeddingRows(model.backbone, groups, None if scheme.language_weight else sample.training_ids()).groups
            inputs, starts = training_inputs(model, sample, config, scheme, (0, language)), list[float]()

            def batches(step: int) -> list[Batch]:
                starts.append(time.perf_counter())
                return inputs.batches(step)

            job = TrainingJob(batches, 2, 0, progress_bar=False, groups=groups, loss=inputs.loss, prepare=inputs.prepare)
            train(model, job, single)
        trained = (one for name, one in model.named_parameters() if one.requires_grad and not name.startswith("language."))
        return time.perf_counter() - starts[1], sum(one.numel() for one in trained)

    @cached_property
    def _seconds_per_token(self) -> float:
        """Seconds per token of reading texts without training."""
        model = task_model(self.bundle, self.encoded.task, self.config, 0, scratch=False).to(pick_device())
        part, seconds = self._sample.train, list[float]()
        for _ in range(2):
            started = time.perf_counter()
            task_type_of(self.encoded.task).predict(model, part, self.encoded.pad_id)
            seconds.append(time.perf_counter() - started)
        return seconds[-1] / _tokens(part)


def _tokens(encoded: Encoded) -> int:
    return max(1, sum(len(row) for row in encoded.rows))
