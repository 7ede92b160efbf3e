"""``stack``: a weighted mean of the probabilities of a sweep's methods, selected by the loss of the mean on the texts that choose.

Each method's probabilities are calibrated by a temperature first (Guo et al. 2017): otherwise one that is sure of its errors
would outvote the others. Losses and temperatures come from texts that the methods had not learned from when they predicted them.
Starting with the best method, the one that lowers the loss of the mean most is added, ``STEPS_PER_BAG`` times in all, and may be
added again. That is done for ``BAGS`` random halves of the methods, so that no method gets its place by chance alone; its share
of all steps is its weight (bagged ensemble selection with replacement, Caruana et al. 2004, sections 2.2 and 2.3). Methods with
less than ``LEAST_WEIGHT`` are left out. On development sets it loses about as little to the best method in hindsight as the best
of what was tried (results/simulations.md, ``benchmarks/stacking.py``).

Letters: M texts that choose, N test texts, C classes, K methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from warmstart.experiment.choose import MAJORITY_LABEL
from warmstart.experiment.store import TrialPredictions
from warmstart.experiment.trial import Trial, TrialResult
from warmstart.seeding import rng
from warmstart.stats.calibration import apply_temperature, each_label, fit_temperature, log_losses

STEPS_PER_BAG = 5
"""methods added for each bag"""
BAGS = 20
"""random subsets of the methods"""
KEPT_IN_BAG = 0.5
"""the chance of a method to be in a bag"""
LEAST_WEIGHT = 0.1
"""smallest weight: each method is fitted again where a stack is saved, and run where it predicts"""


def trials_of_seed(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """The trials that may be in the stack of a seed; those that are the same for every seed are in each."""
    return [trial for trial in trials if not trial.method.combines and (trial.seed == seed or trial.same_for_every_seed)]


def trials_in(stack: Trial, result: TrialResult, trials: Sequence[Trial]) -> list[Trial]:
    """The trials that a stack combines, in the order of its members."""
    by_id = {trial.method.id: trial for trial in trials_of_seed(trials, stack.seed)}
    return [by_id[name] for name, *_ in result.members]


def stackable_trials(results: Mapping[Trial, TrialResult]) -> list[Trial]:
    """The trials that predict probabilities, the lowest loss on the texts that choose first.

    Without the majority label. Of those that read an encoder's vectors the best,
    and where there are networks of those that read words: several of a kind would outvote the others (by 1.6 points on the
    development sets with 100 labels and one encoder).
    """
    gains = {trial: result.gain[0] for trial, result in results.items() if result.gain}
    stackable, kinds = list[Trial](), set[str]()
    alone = all(trial.method.family == "baseline" for trial in gains)
    for trial in sorted((trial for trial in gains if trial.method.name != MAJORITY_LABEL), key=lambda trial: -gains[trial]):
        method = trial.method
        kind = {"baseline": method.name if alone else "words", "frozen": method.backbone_digest}.get(method.family, method.id)
        if kind not in kinds:
            kinds.add(kind)
            stackable.append(trial)
    return stackable


class Share(NamedTuple):
    """A method's share in a stack."""

    member: int
    """index of the member"""
    weight: float
    temperature: float
    """divisor of its logits before the mean"""


def combine(members: Sequence[TrialPredictions], labels: np.ndarray) -> tuple[list[Share], TrialPredictions]:
    """Shares of the mean, the heaviest first, with weights summing to 1; and the mean, (M, C) and (N, C).

    ``members`` are in the order of their losses; of equal ones the earlier wins. ``labels`` (M,), or (M, C) of several per text,
    are those of the texts that choose. A single one is left as it is, with temperature 1, so that a stack of one is no better than
    its only member.
    """
    temperatures = [fit_temperature(member.choosing, labels) for member in members]
    calibrated = [
        TrialPredictions(*(apply_temperature(part, temperature, labels.ndim == 2) for part in member))
        for member, temperature in zip(members, temperatures, strict=True)
    ]
    weights = _select_weights([member.choosing for member in calibrated], labels)
    kept = sorted(np.flatnonzero(weights).tolist(), key=lambda i: -weights[i])
    if len(kept) == 1:
        return [Share(kept[0], 1.0, 1.0)], members[kept[0]]
    shares = [Share(i, float(weights[i]), temperatures[i]) for i in kept]
    parts = zip(*(calibrated[i] for i in kept), strict=True)
    return shares, TrialPredictions(*(np.average(rows, axis=0, weights=weights[kept]) for rows in parts))


def _select_weights(calibrated: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """(K,) weights that sum to 1, from K arrays (M, C)."""
    if labels.ndim == 2:
        calibrated, labels = [each_label(probabilities) for probabilities in calibrated], labels.reshape(-1).astype(np.int64)
    right = np.exp([-log_losses(probabilities, labels) for probabilities in calibrated])  # (K, M) probability of the true label
    chance, weights = rng(0, "stack"), np.zeros(len(calibrated))
    for _ in range(BAGS):
        bag, picked = chance.random(len(calibrated)) < KEPT_IN_BAG, np.zeros(len(calibrated))
        bag[0] |= not bag.any()  # no bag is empty
        for _ in range(STEPS_PER_BAG):
            losses = np.where(bag, -np.log(picked @ right + right).mean(axis=1), np.inf)  # (K,) with one more of each
            picked[losses.argmin()] += 1
        weights += picked / STEPS_PER_BAG / BAGS
    kept = weights >= min(LEAST_WEIGHT, weights.max())
    return np.where(kept, weights, 0.0) / weights[kept].sum()
