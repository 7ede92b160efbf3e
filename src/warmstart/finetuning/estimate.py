"""What fine-tuning will cost, before it starts: its FLOPs by formula (``cost``) at the pace of this machine, from a few steps.

A training step takes ``head + (full - head) FLOPs / FLOPs of full``: the seconds of a step of the head alone and of a step of the
whole model are measured, the FLOPs of a scheme lie between. Texts that are only read cost their tokens.

The measured steps use a few training texts and a copy of the model; nothing of it is kept.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median

import numpy as np
import torch

from warmstart.cost.flops import flops_per_token
from warmstart.cost.memory import training_memory
from warmstart.cost.workload import Workload
from warmstart.data.budget import LabelBudget
from warmstart.data.encode import Encoded
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import reads_features, run_length, task_model, training_inputs
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.scheme import EmbeddingRows, apply_scheme
from warmstart.finetuning.schemes import make_scheme
from warmstart.finetuning.selection import SelectionSettings
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.stats.formatting import file_size, time_span
from warmstart.system.device import in_bfloat16, pick_device
from warmstart.tasks import task_type_of
from warmstart.training.loop import TrainingJob, train
from warmstart.types import Batch

MEASURED_STEPS, BATCHES = 4, 4
"""steps that are measured, of which the first warms up, on so many batches of texts"""


@dataclass(frozen=True)
class RunCost:
    """What one run is expected to take."""

    seconds: float
    once: float
    """seconds that only the first of the runs with this frozen backbone spends: its texts are read once"""
    memory: float
    """peak bytes, on top of the program and the texts"""


def cost_sentence(what: str, seconds: float, memory: float) -> str:
    """``cost_sentence("6 runs", 95, 3e8)`` -> ``"Estimate: 6 runs take about 48 seconds to 3.2 minutes, longer beside …"``.

    The range is from half to twice of what a few measured steps lead to expect.
    """
    return (
        f"Estimate: {what} take about {time_span(seconds / 2)} to {time_span(2 * seconds)}, longer beside other programs, and up "
        f"to {file_size(memory)} of memory beside the program, the backbones and the texts; baselines are not counted."
    )


@dataclass(frozen=True)
class Estimator:
    """Estimates the cost of runs of one backbone on one task."""

    bundle: Bundle
    encoded: EncodedTask
    config: FineTuneConfig

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
        scheme, model = make_scheme(scheme_name, config.options), self._model(config)
        steps, settings = run_length(encoded, config.train, scheme)
        frozen = reads_features(encoded.task, config)
        lengths = encoded.train.lengths
        workload = Workload(config.train.batch, int(lengths.max()), bfloat16=in_bfloat16(config.train.precision, pick_device()))
        read_train, read_validation, read_test = (
            _tokens(part) * self._seconds_per_token for part in (encoded.train, encoded.validation, encoded.test)
        )
        step, memory = self._head_step, training_memory(model, workload).peak
        if not frozen:
            flops = flops_per_token(model, replace(workload, tokens=max(1, round(lengths.mean())))).training
            step += max(0.0, self._full_step - self._head_step) * flops / self._full_flops
        assert settings.evaluate_every
        evaluations = max(1, math.ceil((steps or 0) / settings.evaluate_every))
        reading = 0.0 if frozen else evaluations * read_validation + read_test
        training = steps * config.train.accumulate * step if steps else 60 * (config.train.minutes or 0.0)
        once = read_train + read_validation + read_test if frozen else 0.0
        return RunCost(training + reading, once, memory)

    def _model(self, config: FineTuneConfig) -> Model:
        model = task_model(self.bundle, self.encoded.task, config, 0, scratch=False)
        apply_scheme(model, make_scheme(config.scheme, config.options))
        return model

    @cached_property
    def _sample(self) -> EncodedTask:
        """A few training texts, of all lengths."""
        order = np.argsort(self.encoded.train.lengths, kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, min(len(order), BATCHES * self.config.train.batch)).round().astype(int)]
        task, part = self.encoded.task, self.encoded.train.take(chosen)
        split = task.train.take(chosen)
        small = replace(task, train=split, validation=split)
        return replace(self.encoded, task=small, train=part, validation=part, features=FeatureCache())

    @cached_property
    def _full_step(self) -> float:
        return self._step_seconds("full")

    @cached_property
    def _head_step(self) -> float:
        return self._step_seconds("probe")

    @cached_property
    def _full_flops(self) -> float:
        tokens = max(1, round(self._sample.train.lengths.mean()))
        model = self._model(self.config.model_copy(update={"scheme": "full"}))
        return flops_per_token(model, Workload(self.config.train.batch, tokens)).training

    def _step_seconds(self, scheme_name: str) -> float:
        """The median of a few steps, without the first; torch's random numbers stay as they were."""
        single = self.config.train.model_copy(update={"accumulate": 1})
        config = self.config.model_copy(update={"scheme": scheme_name, "train": single})
        scheme = make_scheme(scheme_name, config.options)
        with torch.random.fork_rng():
            model = task_model(self.bundle, self._sample.task, config, 0, scratch=False).to(pick_device())
            groups = EmbeddingRows(model.backbone, apply_scheme(model, scheme), self._sample.training_ids()).groups
            inputs, starts = training_inputs(model, self._sample, config, scheme, (0, None)), list[float]()

            def batches(step: int) -> list[Batch]:
                starts.append(time.perf_counter())
                return inputs.batches(step)

            settings = config.train.model_copy(update={"evaluate_every": 0})
            job = TrainingJob(batches, MEASURED_STEPS, 0, progress_bar=False, groups=groups, loss=inputs.loss)
            train(model, job, settings)
        return median(after - before for before, after in pairwise([*starts[1:], time.perf_counter()]))

    @cached_property
    def _seconds_per_token(self) -> float:
        """Of reading texts without training."""
        model = self._model(self.config.model_copy(update={"scheme": "full"})).to(pick_device())
        part, seconds = self._sample.train, list[float]()
        for _ in range(2):
            started = time.perf_counter()
            task_type_of(self.encoded.task).predict(model, part, self.encoded.pad_id)
            seconds.append(time.perf_counter() - started)
        return seconds[-1] / _tokens(part)


def _tokens(encoded: Encoded) -> int:
    return max(1, sum(len(row) for row in encoded.rows))
