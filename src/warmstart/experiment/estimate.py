"""The cost of a sweep, before it starts, and the time that is left while it runs.

Time is that of one measured step of each method (``finetuning/estimate.py``), space what trains and what is saved. Baselines,
pretraining and the resampling of scores are not in the estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmstart.data.budget import label_budget
from warmstart.experiment.store import selection_settings
from warmstart.experiment.trial import Method, Trial, TrialResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.estimate import WEIGHT_BYTES, Estimator, RunCost, cost_sentence
from warmstart.finetuning.inputs import EncodedTask
from warmstart.model.bundle import Bundle
from warmstart.notebook import Shown
from warmstart.stats.formatting import time_span

_LONG = 3600.0
"""seconds beyond which the estimate says how to have an answer sooner"""
_SHORTER = "For an answer sooner: --seeds 3, fewer --schemes, or --budget 30m, after which the same command runs the rest."

Place = tuple[str, int | None, int]
"""a method, by its id over tasks, a number of labels, and one of learning rates"""


def _place(trial: Trial) -> Place:
    return trial.method.id_over_tasks, trial.labels, len(trial.learning_rates)


@dataclass
class SweepEstimate(Shown, view="commands.race.page:estimate_view"):
    """The expected cost of a sweep, refined as trials finish."""

    costs: Mapping[Place, RunCost]
    """expected cost of one trial of every trained method"""
    planned: Counter[Place]
    """number of trials that are still to run"""
    once: float
    """seconds of reading the texts with the frozen backbones"""
    jobs: int
    task: str
    """name of the task"""
    finished: dict[Place, list[float]] = field(default_factory=dict)
    """the seconds of the trials that have run"""

    @property
    def seconds(self) -> float:
        """Expected seconds of all trials that are planned and have not run."""
        return self._left() + (0.0 if self.finished else self.once)

    @property
    def trained(self) -> int:
        """The most parameters that a trial trains."""
        return max((cost.trained for cost in self.costs.values()), default=0)

    @property
    def saved(self) -> int:
        """The most bytes that a trial's model takes beside the backbone."""
        return WEIGHT_BYTES * self.trained

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
        """Seconds of one trial of a network; None if it has none here."""
        return next((cost.seconds for place, cost in self.costs.items() if place[0] == method.id_over_tasks), None)

    def drop(self, trials: Iterable[Trial]) -> None:
        """Take trials that will not run from the plan."""
        self.planned.subtract(map(_place, trials))

    @property
    def left(self) -> str:
        """``"about 3.2 minutes left"``."""
        return f"about {time_span(self._left())} left"

    def _left(self) -> float:
        """Seconds left, by the mean of a method's own trials; before there is one, by its cost, corrected by the others' errors."""
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
