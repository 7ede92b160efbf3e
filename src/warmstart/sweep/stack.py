"""``stack``: the best method with a pretrained backbone and the best without, combined; both are chosen within the labels.

Their probabilities are averaged, after each was calibrated by a temperature on the texts that choose, which neither had learned
from when it predicted them (Guo et al. 2017). A method that is far surer than it should be would otherwise outvote the other.

Letters: M texts that choose, N test texts, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from warmstart.stats.calibration import apply_temperature, fit_temperature
from warmstart.sweep.store import TrialPredictions
from warmstart.sweep.trial import Trial, TrialResult

STACK = "stack"
MEMBERS = (("adapted", "frozen"), ("baseline", "scratch"))
"""the families from which one method each is taken: with a pretrained backbone, and without"""


def best_member(results: Mapping[Trial, TrialResult], families: Sequence[str]) -> Trial | None:
    """The trial of these families with the best score on the texts that choose; of equals the first. None if there is none."""
    found = [trial for trial in results if trial.method.family in families and not results[trial].collapsed]
    return max(found, key=lambda trial: results[trial].validation, default=None)


def average(members: Sequence[TrialPredictions], labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of calibrated probabilities for the texts that choose (M, C) and the test texts (N, C).

    ``labels`` (M,) are those of the texts that choose.
    """
    temperatures = [fit_temperature(one.choosing, labels) for one in members]
    pairs = [[apply_temperature(part, temperature) for part in one] for one, temperature in zip(members, temperatures, strict=True)]
    choosing, test = (np.mean(parts, axis=0) for parts in zip(*pairs, strict=True))
    return choosing, test
