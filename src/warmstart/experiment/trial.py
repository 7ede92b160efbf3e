"""The parts of a sweep: methods, their trials, and the result of each trial. This file needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from warmstart.config import Config, Effectless
from warmstart.types import SelectionName

OWN_BACKBONE = "pool"
"""placeholder for a backbone that is pretrained on the task's own text"""


def described_settings(name: str, learning_rate: float = 0.0, labels: int | None = None, selection: str = "") -> str:
    """A method for people, with the ``--selection`` that chose its settings.

    ``described_settings("lora", 5e-4, 100, "holdout")`` -> ``"lora at learning rate 0.0005, 100 labels, selection holdout"``
    """
    rate = f" at learning rate {learning_rate:g}" if learning_rate else ""
    return f"{name}{rate}{f', {labels} labels' if labels else ''}{f', selection {selection}' if selection else ''}"


class Method(Config):
    """A baseline, or a backbone and how it is adapted."""

    name: str
    """name in tables; two methods may share one"""
    family: Literal["baseline", "frozen", "adapted", "scratch", "stack"]
    """needs no backbone; reads a pretrained one's vectors; adapts a pretrained one; trains a fresh one of the same shape; or
    combines two others"""
    backbone: Effectless[str] = ""
    """a bundle, or a run's folder"""
    backbone_digest: str = ""
    """identifies the bundle's bytes"""
    backbone_parameters: Effectless[int] = 0
    """number of parameters of the backbone"""
    scheme: str = ""
    """the way in which the backbone is adapted"""
    pretraining_seconds: Effectless[float] = 0.0
    """seconds of pretraining on the task's own text, spent once, before all its trials"""
    own_pretraining: Effectless[str] = ""
    """description of the pretraining on the task's own text, for people; empty: the backbone was given"""

    @property
    def id(self) -> str:
        """Identifies the method in files, whatever it is called: ``adapted/lora/1f5a...``."""
        return "/".join(part for part in (self.family, self._own, self.backbone_digest[:16]) if part)

    @property
    def id_over_tasks(self) -> str:
        """An id that is the same for every task, although pretraining on the task's text makes a backbone of its own for each."""
        backbone = OWN_BACKBONE if self.own_pretraining else self.backbone
        return "/".join(part for part in (self.family, self._own, backbone) if part)

    @property
    def _own(self) -> str:
        return self.name if self.family == "baseline" else self.scheme

    @property
    def combines(self) -> bool:
        """True if the method is a weighted mean of others (``experiment/stack.py``)."""
        return self.family == "stack"

    @property
    def fine_tunes(self) -> bool:
        """True if a network trains."""
        return self.family in ("adapted", "scratch")


class Trial(Config):
    """A user with a number of labels: a method chooses its settings within them, is fitted, and predicts the test split once."""

    method: Method
    seed: int
    draw: int | None = None
    """the seed that draws the labels and the folds, where all seeds share those of one; None: its own"""
    learning_rates: tuple[float, ...] = ()
    """learning rates that the method chooses from; none if it trains no network"""
    labels: int | None = None
    """labelled texts that are drawn: everything that anything looks at; None: all"""
    selection: SelectionName = "holdout"
    """the procedure that chooses settings within these labels"""
    competes: bool = True
    """its method is compared with others on the texts that choose, so that these are predicted even with ``none``"""
    resample: bool = False
    """True if the seed draws the split into training, validation and test texts, too"""

    @property
    def split_seed(self) -> int | None:
        """The seed that draws its split; None: the task's own split."""
        return self.seed if self.resample else None

    @property
    def same_for_every_seed(self) -> bool:
        """True if nothing in the trial depends on the seed: no network, and all texts of the task's own splits."""
        return (
            self.method.family in ("baseline", "frozen") and not self.labels and not self.resample and self.selection == "holdout"
        )

    @property
    def chooses_rate(self) -> bool:
        """True if the trial only chooses the learning rate of all seeds: luck on validation is not scored."""
        return self.method.fine_tunes and self.labels is None and len(self.learning_rates) > 1

    def __str__(self) -> str:
        described = described_settings(self.method.name, labels=self.labels)
        return f"{described}, seed {self.seed}{' and its split' * self.resample}{', choice of a rate' * self.chooses_rate}"


@dataclass(unsafe_hash=True)
class Limits:
    """Until when trials run, and in a fit which method a network must still be able to beat; all that changes while they run.

    Any limits are equal, since no result depends on them.
    """

    deadline: float = field(default=math.inf, compare=False)
    """moment (seconds since 1970) after which no trial starts"""
    in_turn: bool = field(default=False, compare=False)
    """methods run one after the other: a network may end after any fold, and learns from all labels only once it is chosen"""
    refits: float = field(default=0.0, compare=False)
    """seconds before the deadline that fitting the networks that have run to all labels takes"""
    right: np.ndarray | None = field(default=None, compare=False)
    """(N,) True where the best method so far predicts a text that is left out"""
    units: np.ndarray | None = field(default=None, compare=False)
    """(N,) number of the independent unit of each text"""
    beaten: list[str] = field(default_factory=list, compare=False)
    """names of the methods that could hardly win any more after some of their folds"""


@dataclass(frozen=True)
class TrialResult:
    """The scores and costs of a trial. Letters: R resamples."""

    score: float
    """the metric on the test split; nan if the trial only chose a learning rate"""
    resampled: tuple[float, ...]
    """(R,) the same on resamples of it"""
    seconds: float
    """wall time of the last fit, with evaluations and with the time that cached features saved"""
    validation: float
    """the metric on the texts that choose, of models that did not learn from them"""
    resampled_validation: tuple[float, ...] = ()
    """(R,) the same on resamples of them"""
    gain: tuple[float, float] | None = None
    """nats per text that chooses over the label frequencies, and the standard error (``loss_gain``); None without probabilities"""
    no_signal: float | None = None
    """p-value against the hypothesis that a stack's labels have nothing to do with their texts (``p_of_no_signal``)"""
    members: tuple[tuple[str, float, float], ...] = ()
    """id, weight and temperature of each method in a stack"""
    candidates: tuple[str, ...] = ()
    """ids of the methods that a stack could choose from"""
    learning_rate: float = 0.0
    """the one that was chosen; 0 if the method has none"""
    steps: int = 0
    """steps of the last fit; 0 if no network trains, or none learned from all texts yet"""
    tried: tuple[tuple[float, float], ...] = ()
    """each learning rate that did not diverge, with its score on the texts that choose"""
    diverged_rates: tuple[float, ...] = ()
    """learning rates at which the loss became NaN or infinite"""
    search_seconds: float = 0.0
    """seconds of choosing, beside the last fit"""
    budget: str = ""
    """use of the labels, as a complete sentence"""
    trainable: int = 0
    """parameters that trained"""
    new: int = 0
    """parameters that the pretrained backbone does not have"""
    disk: int = 0
    """bytes to keep for this task beside the backbone: new weights and changed weights"""
    collapsed: bool = False
    """True if the method learned nothing"""
    diverged: bool = False
    """True if the loss became NaN or infinite at every learning rate: the figures are those of the constant prediction"""
    note: str = ""
    """settings that the method chose for itself"""
    setting: float | None = None
    """the setting that a baseline chose; 0 if there is nothing to choose"""
    seconds_saved: float = 0.0
    """part of ``seconds`` that an earlier trial or run spent on reading the same texts with the same frozen backbone"""
    threads: int = 0
    """CPU threads of the trial"""
    jobs: int = 1
    """trials at once"""
    split_sizes: tuple[int, ...] = ()
    """training, validation and test texts of its own split, before ``labels`` are drawn; empty: the split is the task's"""


@dataclass(frozen=True)
class SweepRuns:
    """The trials with one number of labels, and the results of those that the time allowed."""

    trials: tuple[Trial, ...]
    results: Mapping[Trial, TrialResult]
    stopped: tuple[Method, ...] = ()
    """methods that could no longer win after their first seed, where the time is too short for all"""

    def of(self, method: Method) -> list[Trial]:
        """All scored trials of a method."""
        return [trial for trial in self.trials if trial.method == method and not trial.chooses_rate]

    def search_of(self, method: Method) -> TrialResult | None:
        """The trial that chose the learning rate of all seeds; None if there is none, or the time was too short."""
        results = (self.results.get(trial) for trial in self.trials if trial.method == method and trial.chooses_rate)
        return next((result for result in results if result), None)


class OutOfFold(NamedTuple):
    """One method, by its predictions for the labelled texts when they are left out."""

    name: str
    family: str
    probabilities: np.ndarray
    """(N, C)"""
    predicted: np.ndarray
    """(N, C) 1 for each label that it predicts, else 0"""
    right: np.ndarray
    """(N,) 1 if its prediction is right, else 0"""
    score: float
    """the task's metric"""
    gain: float
    """nats per text over the label frequencies, calibrated"""
    seconds: float
    """seconds of one fit"""
    votes: bool = False
    """True if it has learned from votes of a language model"""
    columns: bool = False
    """True if it reads other columns of the table beside the text"""
