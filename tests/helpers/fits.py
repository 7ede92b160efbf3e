"""The result of a fit without running one."""

from __future__ import annotations

import numpy as np

from helpers.tasks import cats
from warmstart.data.audit import audit
from warmstart.experiment.fit_result import FitResult, OutOfFold

METHODS = {
    "majority": ("baseline", 0.5, 0.0), "naive Bayes + EM": ("baseline", 0.7, 0.1),
    "class means + label names + EM · minilm": ("frozen", 0.85, 0.3), "stack": ("stack", 0.8, 0.25),
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
        found.append(OutOfFold(name, family, probabilities, predicted, right.astype(float), (float(right.mean()),) * 5, gain, 0.5))
    return FitResult(task, 200, tuple(found), task.train, audit(task), ("lora · minilm",))
