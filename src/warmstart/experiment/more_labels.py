"""What more labels would bring to a fit: its method learns from a part of the labels of each fold, and the curve is continued.

Letters: N texts.
"""

from __future__ import annotations

import time

import numpy as np

from warmstart.experiment.execution import baseline_within
from warmstart.experiment.inputs import trial_budget
from warmstart.experiment.sweep import Sweep
from warmstart.experiment.trial import Method, SweepRuns
from warmstart.stats.differences import MethodScores
from warmstart.stats.extrapolation import extrapolate
from warmstart.stats.intervals import Estimate

REPETITIONS = 5
"""of the folds, each with others"""
SHARES = (0.35, 0.5, 0.7, 1.0)
"""of the labels that learn in each fold"""
ROUND_NUMBERS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
"""numbers of further labels that may be spoken of"""


def more_labels(method: Method, sweep: Sweep, runs: SweepRuns, until: float) -> tuple[int, Estimate] | None:
    """A number of further labels, at most as many as there are, and the points of accuracy that they add, with a 90% interval.

    None if it learned nothing from more labels. ``method`` is a cheap one. Raises ``TimeoutError`` if ``until`` (seconds since
    1970) is over before all is known.
    """
    first = next(trial for trial in runs.of(method) if trial in runs.results)
    trials = [first.model_copy(update={"seed": first.seed + number}) for number in range(REPETITIONS)]
    scores, units = dict[int, MethodScores](), trial_budget(first, sweep.context).choosing.units
    count = len(trial_budget(first, sweep.context))
    for share in SHARES:
        right, sizes = list[np.ndarray](), list[int]()
        for trial in trials:
            if time.time() > until:
                raise TimeoutError
            budget, run, _ = baseline_within(trial, sweep.context, share)
            right.append(np.asarray(run.choosing.argmax(axis=1) == budget.choosing.labels))
            sizes += [len(fold.learn) for fold in budget.folds]
        # one of each class is more than a small share
        scores[round(float(np.mean(sizes)))] = MethodScores.from_texts("", np.stack(right), units)
    curve = extrapolate(scores, pool=count)
    further = max((number for number in ROUND_NUMBERS if number <= count), default=0)
    return (further, curve.gain(count, count + further)) if curve and further else None
