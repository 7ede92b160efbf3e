"""What a sweep consists of: methods, their trials, and the result of each trial. This file needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from warmstart.config import Config


class Method(Config):
    """A baseline, or a backbone and how it is adapted."""

    name: str
    """what tables call it; two methods may share a name"""
    family: Literal["baseline", "adapted", "scratch"]
    """needs no backbone, starts from a pretrained one, or from a fresh one of the same shape"""
    backbone: str = ""
    """a bundle, or a run's folder"""
    backbone_digest: str = ""
    """identifies the bundle's bytes"""
    scheme: str = ""
    """how the backbone is adapted"""
    shared_backbone: str = ""
    """the backbone that all methods share, if this one's is that backbone after continued pretraining"""
    continued_pretraining_seconds: float = 0.0
    """seconds spent once, before all its trials"""

    @property
    def id(self) -> str:
        """Identifies the method in files, whatever it is called: ``adapted/lora/1f5a...``."""
        own = self.name if self.family == "baseline" else self.scheme
        return "/".join(part for part in (self.family, own, self.backbone_digest[:16]) if part)

    @property
    def id_over_tasks(self) -> str:
        """The same for every task, although continued pretraining makes a backbone of its own for each."""
        own = self.name if self.family == "baseline" else self.scheme
        return "/".join(part for part in (self.family, own, self.shared_backbone or self.backbone) if part)


class Trial(Config):
    """One training run of one method."""

    method: Method
    seed: int
    learning_rate: float = 0.0
    """0 if the method has none"""
    labels: int | None = None
    """training texts, drawn by the seed; None: all"""
    resample: bool = False
    """on a split into training, validation and test texts that the seed draws"""

    @property
    def same_for_every_seed(self) -> bool:
        """Whether nothing in it depends on the seed: a baseline on all training texts of the task's own split."""
        return self.method.family == "baseline" and not self.labels and not self.resample

    @property
    def settings(self) -> str:
        """Everything but the seed, for people."""
        rate = f" at learning rate {self.learning_rate:g}" if self.learning_rate else ""
        labels = f", {self.labels} labels" if self.labels else ""
        return f"{self.method.name}{rate}{labels}{', splits of its seeds' * self.resample}"

    def __str__(self) -> str:
        rate = f" at learning rate {self.learning_rate:g}" if self.learning_rate else ""
        labels = f", {self.labels} labels" if self.labels else ""
        return f"{self.method.name}{rate}{labels}, seed {self.seed}{' and its split' * self.resample}"


@dataclass(frozen=True)
class TrialResult:
    """The scores and costs of a trial. Letters: R resamples."""

    score: float
    """the metric on the test split"""
    resampled: tuple[float, ...]
    """(R,) the same on resamples of it"""
    seconds: float
    """wall time, with evaluations and with the time that cached features saved"""
    validation: float
    """the metric on the validation split, at the kept weights"""
    resampled_validation: tuple[float, ...] = ()
    """(R,) the same on resamples of it"""
    memory: int | None = None
    """peak bytes, on top of the program, the backbone and the texts"""
    trainable: int = 0
    """parameters that trained"""
    new: int = 0
    """parameters that the pretrained backbone does not have"""
    disk: int = 0
    """bytes to keep for this task beside the backbone: new weights and changed weights"""
    collapsed: bool = False
    """it learned nothing"""
    diverged: bool = False
    """its loss became NaN or infinite: the figures are those of the constant prediction"""
    note: str = ""
    """settings that the method chose for itself"""
    seconds_saved: float = 0.0
    """of the seconds, those that an earlier trial spent on reading the same texts with the same frozen backbone"""
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

    def of(self, method: Method) -> list[Trial]:
        """All trials of a method."""
        return [trial for trial in self.trials if trial.method == method]
