"""What a sweep will cost, before it starts, and the time that is left while it runs.

Time is that of one measured step of each method, space what trains and what is saved. Steps use a few training texts and a copy of
the model; nothing of it is kept. Baselines, continued pretraining and the resampling of scores are not in the estimate.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.encode import Encoded
from warmstart.experiment.store import selection_settings
from warmstart.experiment.trial import Method, Trial, TrialResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import FineTuning, reads_features, run_length, task_model, training_inputs
from warmstart.finetuning.inputs import EncodedTask, set_class_means
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.scheme import EmbeddingRows
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.finetuning.selection import SelectionSettings
from warmstart.model.bundle import Bundle
from warmstart.notebook import Shown
from warmstart.stats.formatting import file_size, time_span
from warmstart.system.device import pick_device
from warmstart.tasks import task_type_of
from warmstart.training.loop import TrainingJob, train
from warmstart.types import Batch

_LONG = 3600.0
"""seconds beyond which the estimate says how to have an answer sooner"""
_SHORTER = "For an answer sooner: --seeds 3, fewer --schemes, or --budget 30m, after which the same command runs the rest."

BATCHES = 4
"""batches of texts from which steps are measured"""
_FLOAT32 = 4
"""bytes of a saved weight"""

Place = tuple[str, int | None, int]
"""a method, by what identifies it before and after continued pretraining, a number of labels, and one of learning rates"""


def _place(trial: Trial) -> Place:
    return trial.method.id_over_tasks, trial.labels, len(trial.learning_rates)


@dataclass(frozen=True)
class RunCost:
    """What one run is expected to take."""

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
        f"trains up to {trained:,} parameters, which take {file_size(_FLOAT32 * trained)} when they are saved; baselines are not "
        "counted."
    )


@dataclass
class SweepEstimate(Shown, view="commands.race.page:estimate_view"):
    """The expected cost of a sweep, refined as trials finish."""

    costs: Mapping[Place, RunCost]
    """of one trial of every trained method"""
    planned: Counter[Place]
    """how many trials are still to run"""
    once: float
    """seconds of reading the texts with the frozen backbones"""
    jobs: int
    task: str
    """its name"""
    finished: dict[Place, list[float]] = field(default_factory=dict)
    """the seconds of the trials that have run"""

    @property
    def seconds(self) -> float:
        """Of all trials that are planned and have not run."""
        return self._left() + (0.0 if self.finished else self.once)

    @property
    def trained(self) -> int:
        """The most parameters that a trial trains."""
        return max((cost.trained for cost in self.costs.values()), default=0)

    @property
    def saved(self) -> int:
        """The most bytes that a trial's model takes beside the backbone."""
        return _FLOAT32 * self.trained

    @property
    def sentence(self) -> str:
        """Trials, minutes and sizes, as a complete sentence."""
        jobs = f" with {self.jobs} jobs" if self.jobs > 1 else ""
        sentence = cost_sentence(f"{self.planned.total():,} trials on {self.task}{jobs}", self.seconds, self.trained)
        return sentence if self.seconds < _LONG else f"{sentence} {_SHORTER}"

    def to_dict(self) -> dict[str, Any]:
        """The cost of all trials, as plain values."""
        sizes = {"trained": self.trained, "saved": self.saved}
        return {"task": self.task, "trials": self.planned.total(), "seconds": self.seconds, "jobs": self.jobs, **sizes}

    def finish(self, trial: Trial, result: TrialResult) -> None:
        """A trial has run."""
        self.planned[_place(trial)] -= 1
        self.finished.setdefault(_place(trial), []).append(result.search_seconds + result.seconds - result.seconds_saved)

    def seconds_of(self, method: Method) -> float | None:
        """Of one trial of a network; None if it has none here."""
        return next((cost.seconds for place, cost in self.costs.items() if place[0] == method.id_over_tasks), None)

    def drop(self, trials: Iterable[Trial]) -> None:
        """These will not run."""
        self.planned.subtract(map(_place, trials))

    @property
    def left(self) -> str:
        """``"about 3.2 minutes left"``."""
        return f"about {time_span(self._left())} left"

    def _left(self) -> float:
        """By the mean of a method's own trials; before there is one, by its cost, corrected as those of the others were wrong."""
        known = {place: sum(times) / len(times) for place, times in self.finished.items()}
        expected = sum(self.costs[place].seconds * len(times) for place, times in self.finished.items() if place in self.costs)
        spent = sum(sum(times) for place, times in self.finished.items() if place in self.costs)
        factor = spent / expected if expected else 1.0
        costs = {place: cost.seconds * factor for place, cost in self.costs.items()} | known
        return sum(costs.get(place, 0.0) * max(0, count) for place, count in self.planned.items()) / self.jobs


def estimate_sweep(
    trials: Sequence[Trial], tune: FineTuneConfig, jobs: int, task: str, prepare: Callable[[Trial], tuple[Bundle, EncodedTask]]
) -> SweepEstimate:
    """The cost of trials on the task of this name, from a measured step of each method; nothing is written.

    ``prepare`` loads the backbone of a trial, and the texts as it reads them.
    """
    estimators, costs, once = dict[str, Estimator](), dict[Place, RunCost](), dict[str, float]()
    for trial in trials:
        method, place = trial.method, _place(trial)
        if not method.fine_tunes or place in costs:
            continue
        if (read := method.backbone) not in estimators:
            estimators[read] = Estimator(*prepare(trial), tune)
        estimator = estimators[read]
        budget = label_budget(estimator.encoded.task, trial.labels, trial.selection, trial.seed)
        costs[place] = estimator.cost_within(method.scheme or "full", budget, selection_settings(trial))
        once[read] = max(once.get(read, 0.0), costs[place].once)
    return SweepEstimate(costs, Counter(map(_place, trials)), sum(once.values()), jobs, task)


@dataclass(frozen=True)
class Estimator:
    """Estimates the cost of runs of one backbone on one task."""

    bundle: Bundle
    encoded: EncodedTask
    config: FineTuneConfig
    _steps: dict[str, tuple[float, int]] = field(default_factory=dict)
    """of each scheme the seconds of a step, and the parameters that train"""

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
        """Of reading texts without training."""
        model = task_model(self.bundle, self.encoded.task, self.config, 0, scratch=False).to(pick_device())
        part, seconds = self._sample.train, list[float]()
        for _ in range(2):
            started = time.perf_counter()
            task_type_of(self.encoded.task).predict(model, part, self.encoded.pad_id)
            seconds.append(time.perf_counter() - started)
        return seconds[-1] / _tokens(part)


def _tokens(encoded: Encoded) -> int:
    return max(1, sum(len(row) for row in encoded.rows))
