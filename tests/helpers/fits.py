"""The results of a fit and of a quickstart without running one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from helpers.tasks import cats
from warmstart.commands.quickstart.result import QuickstartResult
from warmstart.data.audit import audit
from warmstart.experiment.fit_result import FitResult
from warmstart.experiment.trial import OutOfFold
from warmstart.stats.proportions import wilson_interval

METHODS = {
    "majority": ("baseline", 0.5, 0.0), "naive Bayes + EM": ("baseline", 0.7, 0.1),
    "frozen vectors + EM · minilm": ("frozen", 0.85, 0.3), "stack": ("stack", 0.8, 0.25),
}  # fmt: skip
"""family, accuracy and gain of each method"""


def fit_result() -> FitResult:
    """Four methods on sixty labels, of which the encoder's is best."""
    task, chance = cats(), np.random.default_rng(0)
    labels, found = task.train.labels, list[OutOfFold]()
    for name, (family, accuracy, gain) in METHODS.items():
        right = chance.random(len(labels)) < accuracy
        probabilities = np.full((len(labels), 2), 0.3)
        probabilities[np.arange(len(labels)), np.where(right, labels, 1 - labels)] = 0.7
        predicted = (probabilities > 0.5).astype(float)
        found.append(OutOfFold(name, family, probabilities, predicted, right.astype(float), float(right.mean()), gain, 0.5))
    return FitResult(task, 200, tuple(found), task.train, audit(task), ("lora · minilm",))


def quickstart_result(with_words: float = 0.6) -> QuickstartResult:
    """With two numbers of labels, and a thousand test texts."""
    encoder = {60: wilson_interval(0.85, 1000), 120: wilson_interval(0.9, 1000)}
    words = {60: wilson_interval(with_words, 1000), 120: wilson_interval(0.8, 1000)}
    curves = {"frozen vectors + EM · minilm": encoder, "naive Bayes + EM": words}
    return QuickstartResult(replace(fit_result(), tested=encoder[60]), curves)
