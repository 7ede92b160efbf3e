"""Quality gates: ``evaluate --gate``, which stops a build unless a score is high enough beyond chance.

A gate is passed if the whole 95% interval lies above it, failed if the whole interval lies under it, and undecided between. A build
stops at both of the latter, by exit codes that differ: a bad model needs another model, an undecided gate more labelled texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.errors import ConfigError, GateError
from warmstart.json_output import plain
from warmstart.notebook import Shown
from warmstart.stats.extrapolation import round_labels
from warmstart.stats.formatting import percent, percent_interval, points_interval
from warmstart.stats.intervals import Estimate
from warmstart.stats.noise import texts_to_decide
from warmstart.stats.scores import metric_range

EXIT_CODES = {"passed": 0, "failed": 1, "undecided": 3}
_ALONE = {"passed": "is at least", "failed": "is under", "undecided": "may be above or under"}
_AGAINST = {"passed": "is not", "failed": "is", "undecided": "may or may not be"}


@dataclass(frozen=True)
class Gate:
    """A gate, and the score of a model, or the difference of two, that it judges."""

    gate: float
    """percent that the score must reach; of two models, points by which the new one may be worse"""
    metric: str
    score: Estimate
    """share, or difference of shares, with its 95% interval"""
    texts: int
    """independent test texts"""
    names: tuple[str, str] | None = None
    """the new model and the one that it is compared with"""

    @classmethod
    def of(
        cls, gate: float | None, metric: str, score: Estimate, units: np.ndarray, names: tuple[str, str] | None = None
    ) -> Gate | None:
        """A gate of so many percent or points, if there is one; test texts with the same of ``units`` (N,) are dependent."""
        return None if gate is None else cls(gate, metric, score, len(np.unique(units)), names)

    @property
    def least(self) -> float:
        """The least share, or difference of shares, that passes."""
        return (-self.gate if self.names else self.gate) / 100

    @property
    def verdict(self) -> str:
        """Passed, failed or undecided."""
        if self.score.low >= self.least:
            return "passed"
        return "failed" if self.score.high < self.least else "undecided"

    @property
    def labels_needed(self) -> int | None:
        """Further independent texts that would decide in 4 of 5 cases; 0 if it is decided, None if the score is the gate itself."""
        if self.verdict != "undecided":
            return 0
        texts = texts_to_decide(*self.score, self.least, self.texts)
        return None if texts is None else max(1, texts - self.texts)

    def sentence(self) -> str:
        """The verdict and its reason."""
        metric = self.metric.replace("_", " ")
        if self.names:
            score = f"difference in {metric} {points_interval(*self.score)}"
            margin = f"{self.gate:g} point{'s' * (self.gate != 1)}"
            state = f"{self.names[0]} {_AGAINST[self.verdict]} worse than {self.names[1]} by more than {margin}"
        else:
            score = f"{metric} {percent_interval(*self.score)}"
            state = f"it {_ALONE[self.verdict]} {percent(self.least, trim=True)}"
        return f"Gate {self.verdict}: {score}, so {state}.{self._more() if self.verdict == 'undecided' else ''}"

    def _more(self) -> str:
        """A sentence about the labels that an undecided gate takes."""
        if self.labels_needed is None:
            return " It is the gate itself, which no number of texts decides."
        more = round_labels(self.labels_needed)
        return f" If that is its true value, about {more} more independent labelled texts would decide in 4 of 5 cases."

    def to_dict(self) -> dict[str, Any]:
        """Gate, score and interval in percent or points, with the verdict; fit for JSON."""
        value, low, high = (round(100 * number, 4) for number in self.score)
        judged = {"metric": self.metric, "score": value, "interval": [low, high], "labels_needed": self.labels_needed}
        return {"gate": self.gate, "verdict": self.verdict, **judged}


@dataclass(frozen=True)
class Gated(Shown):
    """The result of an evaluation, with its gate; a notebook shows the former."""

    result: Any
    gate: Gate

    def to_dict(self) -> dict[str, Any]:
        """The result, and the gate under its name."""
        return {**plain(self.result), "gate": self.gate.to_dict()}

    def _repr_html_(self) -> str:
        return str(self.result._repr_html_())

    def passed(self) -> Gated:
        """Itself. Raises ``GateError``, which holds it, unless the gate is passed."""
        if self.gate.verdict != "passed":
            raise GateError(self.gate.sentence(), EXIT_CODES[self.gate.verdict], self)
        return self


def check_gate(gate: float | None, *, against: bool, pairs: bool) -> None:
    """Raise ``ConfigError`` for a gate that cannot be meant, before any model is loaded."""
    if gate is None:
        return
    if pairs:
        raise ConfigError("--gate judges scores on a task, but --pairs has none; leave out one of the two")
    if not against and 0 < gate <= 1:
        meant = percent(gate, trim=True)
        raise ConfigError(f"--gate must be in percent, but is {gate:g}; for {meant} write --gate {meant[:-1]}")


def check_gate_metric(gate: float | None, metric: str | None) -> None:
    """Raise ``ConfigError`` for a gate on a metric that is no percentage, or on a language model, which has none."""
    if gate is not None and (metric is None or metric_range(metric) != (0.0, 1.0)):
        score = metric or "that of a language model"
        raise ConfigError(f"--gate needs a score from 0 to 100%, which {score} is not; leave out --gate")
