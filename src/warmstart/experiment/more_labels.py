"""What more labels would bring to a fit: its method learns from a part of the labels of each fold, and the curve is continued.

Letters: N texts.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from warmstart.experiment.execution import baseline_within
from warmstart.experiment.inputs import trial_budget
from warmstart.experiment.store import SweepContext, read_predictions
from warmstart.experiment.sweep import Sweep
from warmstart.experiment.trial import Method, SweepRuns, Trial
from warmstart.stats.differences import MethodScores
from warmstart.stats.extrapolation import extrapolate
from warmstart.stats.intervals import Estimate

SHARES = (0.35, 0.5, 0.7, 1.0)
"""of the labels that learn in each fold"""
ROUND_NUMBERS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
"""numbers of further labels that may be spoken of"""


def more_labels(method: Method, sweep: Sweep, runs: SweepRuns, until: float) -> tuple[int, Estimate] | None:
    """A number of further labels, at most as many as there are, and the points of accuracy that they add, with a 90% interval.

    None if it learned nothing from more labels. ``method`` is a cheap one. Raises ``TimeoutError`` if it had time for one
    repetition, or if ``until`` (seconds since 1970) is over before all is known.
    """
    trials = [trial for trial in runs.of(method) if trial in runs.results]
    if len(trials) < 2:
        raise TimeoutError
    scores, budget = dict[int, MethodScores](), trial_budget(trials[0], sweep.context)
    count = len(budget)
    for share in SHARES:
        right = list[np.ndarray]()
        for trial in trials:
            if time.time() > until:
                raise TimeoutError
            right.append(_right(trial, sweep.context, share))
        part = replace(budget, share=share)
        learn = round(float(np.mean([len(fold.learn) for fold in part.folds])))  # one of each class is more than a small share
        scores[learn] = MethodScores.from_texts("", np.stack(right), budget.choosing.units)
    curve = extrapolate(scores, pool=count)
    further = max((number for number in ROUND_NUMBERS if number <= count), default=0)
    return (further, curve.gain(count, count + further)) if curve and further else None


def _right(trial: Trial, context: SweepContext, share: float) -> np.ndarray:
    """(N,) whether the trial's method predicts each text correctly when it is left out and a share of the others teaches it."""
    labels = trial_budget(trial, context).choosing.labels
    known = read_predictions(trial, context) if share == 1 else None
    predicted = known.choosing if known else baseline_within(trial, context, share)[1].choosing
    return np.asarray(predicted.argmax(axis=1) == labels)
