"""Several seeds as one model: the mean of their probabilities, or one network with the mean of their weights.

    mean   a stack of the networks: as many times the memory, and as many times the time for a text
    soup   one network (Wortsman et al. 2022, a uniform soup): no more than a single seed takes

A soup needs one start and the same texts: the backbones of all seeds begin at the same pretrained weights. Their heads begin with
small random weights of their own, which the mean makes smaller still. Texts that the networks had not learned from decide whether
the mean or the soup is kept: its score there must not be below the mean score of the single seeds. For a soup under
cross-validation, the networks that the seeds trained for one fold are averaged.

``interpolate`` mixes the weights before and after fine-tuning.

Letters: S seeds, N texts, C classes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.data.budget import LabelBudget
from warmstart.errors import ConfigError, ModelError
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.selection import BudgetedRun
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model, parameter_counts
from warmstart.stack.stack import Member, Stack
from warmstart.tasks import task_type_of
from warmstart.tasks.predict import uncalibrated_predictions
from warmstart.tasks.thresholds import scores_left_out

EnsembleName = Literal["mean", "soup"]
TIMED_TEXTS = 200
"""texts that are read to measure how long one takes"""
STACKABLE = ("classification", "multilabel", "regression")
"""types of tasks whose predictions have a mean that a stack can hold"""


class Soup:
    """The mean of the weights of networks of the same shape, added one after another."""

    def __init__(self) -> None:
        self._first: Model | None = None
        self._sums = dict[str, Tensor]()
        self._count = 0

    def add(self, model: Model) -> None:
        """Another network counts in the mean; it is not changed."""
        self._first = self._first or copy.deepcopy(model)
        self._count += 1
        for name, tensor in model.state_dict().items():
            self._sums[name] = tensor.cpu().double() + self._sums.get(name, 0)

    @property
    def model(self) -> Model:
        """A network with the mean of the weights."""
        assert self._first is not None, "a mean needs a network"
        found = copy.deepcopy(self._first)
        found.load_state_dict({name: total / self._count for name, total in self._sums.items()})
        return found.eval()


@dataclass
class FoldSoups:
    """A soup of the networks of all seeds for each fold; every seed must have the same folds."""

    by_fold: dict[int, Soup] = field(default_factory=dict)

    def add(self, fold: int, model: Model) -> None:
        """The network that a seed trained for a fold."""
        self.by_fold.setdefault(fold, Soup()).add(model)

    def predictions(self, encoded: EncodedTask, budget: LabelBudget) -> Any:
        """What the soups predict for ``budget.choosing``, each for the texts of its own fold."""
        task_type, parts = task_type_of(budget.whole), list[Any]()
        for number, fold in enumerate(budget.folds):
            model = self.by_fold[number].model
            parts.append(task_type.predict(model, encoded.fold(fold).validation, encoded.pad_id))
        return budget.joined(parts)


@dataclass(frozen=True)
class Averaged:
    """The seeds as one model."""

    kind: EnsembleName
    name: str
    """with the number of seeds"""
    model: Bundle | Stack
    """without calibration"""
    choosing: Any
    """predictions for the texts that choose; None if there are none"""
    test_predictions: Any
    score: float
    """the metric on the texts that choose; nan if there are none"""
    parameters: int
    seconds: float
    """to predict a text, measured on the first test texts"""


def check_ensemble(name: EnsembleName, task_type: str, seeds: int, *, chooses: bool) -> None:
    """Raise ``ConfigError`` if the seeds cannot become one model, before any is trained."""
    if seeds < 2:
        raise ConfigError(f"--ensemble {name} needs two seeds at least, but has {seeds}; give --seeds 5, or remove it")
    if name == "soup" and not chooses:
        raise ConfigError(
            "--ensemble soup needs texts that choose, because a mean of weights can be worse than each of them; use "
            "--selection cross-validation, or --ensemble mean"
        )
    if name == "mean" and task_type not in STACKABLE:
        raise ConfigError(
            f"--ensemble mean needs a task of the type {', '.join(STACKABLE[:-1])} or {STACKABLE[-1]}, but this is a {task_type} "
            "task; use --ensemble soup"
        )


def average_probabilities(
    encoded: EncodedTask, budget: LabelBudget, runs: Sequence[BudgetedRun], networks: Sequence[Bundle]
) -> Averaged:
    """The mean of the predictions of all seeds, as a stack of the networks of ``runs``."""
    members = tuple(Member(f"seed {run.seed}", one) for run, one in zip(runs, networks, strict=True))
    stack = Stack(members, encoded.task.type, encoded.task.labels)
    choosing, test = [run.choosing for run in runs], [run.final.test_predictions for run in runs]
    parameters = sum(parameter_counts(run.final.model)["total"] for run in runs)
    mean = None if choosing[0] is None else np.mean(choosing, axis=0)
    score, seconds = _score(budget, mean), seconds_per_text(stack, encoded.task.test.texts)
    return Averaged("mean", f"mean of {len(runs)} seeds", stack, mean, np.mean(test, axis=0), score, parameters, seconds)


def average_weights(encoded: EncodedTask, budget: LabelBudget, networks: Sequence[Bundle], folds: FoldSoups) -> Averaged:
    """One network with the mean of the weights of ``networks``; ``folds`` averaged those that were trained to choose."""
    soup, task_type = Soup(), task_type_of(encoded.task)
    for one in networks:
        soup.add(one.model)
    model = soup.model
    choosing = folds.predictions(encoded, budget) if folds.by_fold else None
    test = task_type.predict(model, encoded.test, encoded.pad_id)
    bundle = replace(networks[0], model=model)
    parameters, seconds = parameter_counts(model)["total"], seconds_per_text(bundle, encoded.task.test.texts)
    score, name = _score(budget, choosing), f"soup of {len(networks)} seeds"
    return Averaged("soup", name, bundle, choosing, test, score, parameters, seconds)


def seconds_per_text(model: Bundle | Stack, texts: Sequence[Any]) -> float:
    """How long a model takes to predict one of the first ``texts``, all read at once."""
    started = time.perf_counter()
    uncalibrated_predictions(model, texts[:TIMED_TEXTS])
    return (time.perf_counter() - started) / max(1, len(texts[:TIMED_TEXTS]))


def _score(budget: LabelBudget, choosing: Any) -> float:
    if choosing is None:
        return float("nan")
    task = budget.task
    return float(scores_left_out(task, budget.choosing, choosing).score(task.metric))


# A model between the pretrained and the adapted weights (WiSE-FT, Wortsman et al. 2022).


@torch.no_grad()
def interpolate(before: nn.Module, after: Model, fraction: float) -> Model:
    """A new model whose backbone lies ``fraction`` of the way from ``before``'s weights to ``after``'s; the head is ``after``'s.

    Equation 1 of the paper: in between, a model can keep what it learned in pretraining and in adaptation. ``before`` is the
    pretrained model. Raises ``ModelError`` if the backbones do not have the same weights.
    """
    if not 0 <= fraction <= 1:
        raise ConfigError(f"fraction must lie between 0 (the weights before) and 1 (the weights after), but is {fraction}")
    between = copy.deepcopy(after)
    start = before.get_submodule("backbone").state_dict()
    end = between.backbone.state_dict()
    if different := sorted(name for name in start.keys() | end.keys() if not _same_shape(start.get(name), end.get(name))):
        raise ModelError(
            f"both models must have the same backbone weights, but these differ: {', '.join(different)}; "
            "remove the adapters first, with merge_adapters(model) or remove_adapters(model)"
        )
    for name, tensor in end.items():
        tensor.lerp_(start[name].to(tensor.device), 1 - fraction)
    return between


def _same_shape(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape
