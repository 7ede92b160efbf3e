"""Which method one draw of labelled texts chooses by its own out-of-fold scores, as a user with these labels would.

Nothing else is looked at: neither other draws nor test texts. Letters: M methods, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.differences import MethodScores
from warmstart.stats.multiple_testing import max_statistic_threshold
from warmstart.stats.power import POWER

FOLD_VARIANCE = 2.0
"""the variance of an out-of-fold score over draws without signal, at most, in multiples of the bootstrap's over texts"""


@dataclass(frozen=True)
class LossGains:
    """What the methods of one draw gain over the label frequencies on the texts that choose (``loss_gain``)."""

    gains: Sequence[float]
    """M values, in nats per text"""
    combined: frozenset[int] = frozenset()
    """indices of methods that are made of others on these same texts, and so are no evidence of their own"""
    choose: bool = True
    """the largest gain is chosen; otherwise the best score, and the gains only say whether there is something to learn"""

    def learned(self, constant: int) -> bool:
        """Whether a method other than ``constant`` and the combined ones gains anything: what decides, and proves nothing."""
        return any(gain > 0 for i, gain in enumerate(self.gains) if i != constant and i not in self.combined)


def choose_within_draw(
    methods: Sequence[MethodScores],
    costs: Sequence[float],
    constant: int | None = None,
    least: float = -math.inf,
    gains: LossGains | None = None,
) -> int:
    """The index of the method with the best out-of-fold score, of equals the cheapest, if it is better than a constant prediction.

    With ``gains`` the largest gain takes the place of the best score, and some method must gain anything (``LossGains.learned``):
    the smaller expected loss, since a false choice costs a point or two and a false majority label many. All probabilities count,
    where accuracy sees the first places only. With gains that do not ``choose`` the best score does.

    Of ``methods``, the scores of one seed on the texts that choose, ``constant`` is the one that learns nothing from the texts; it
    is chosen if, by scores, the best is not significantly better. ``least`` is what a constant prediction scores at least, such as
    the share of the most frequent class. The test of scores is one-sided, at the 5% level, corrected for the number of methods by
    the largest of all standardised scores on the resamples (Westfall and Young 1993). It takes the score of the constant as known,
    because draws are stratified, and twice the larger of the two variances over resamples: in cross-validation each text is
    predicted from others that are predicted from it, so that without signal scores vary more than those of independent texts
    (Bengio and Grandvalet 2004): 2 is the factor if any two neighbours vote for each other.

    Mean regret against the best of 14 methods, half of them within 1.5 points of it and the others 2 to 15 points below, with 50,
    100 and 500 labels: -0.1, -0.1 and 0.1 points (a draw may choose the method that is lucky in it); the cheapest within one
    standard error 0.5, 0.4 and 0.2, within half of one 0.0, 0.0 and 0.1; a bonus of one point for every factor of ten in cost -0.1,
    0.0 and 0.2; scores shrunk half-way to the mean of their family -0.1, 0.0 and 0.1. The test of scores adds 10 points with 50
    labels where the best method is right for 65% of the texts and the majority label for 50%, 3 points where it is right for 75%,
    and nothing with 500 labels or where it is right for 85%. What is chosen without signal: tests/test_draws.py:
    ``test_few_draws_without_signal_choose_a_method``.

    >>> scores = np.array([0.5, 0.8, 0.6]), np.random.default_rng(0).normal(0, 0.05, (3, 200))
    >>> draw = [MethodScores("", (score,), score + noise[None]) for score, noise in zip(*scores)]
    >>> choose_within_draw(draw, [0.0, 1.0, 1.0], constant=0), choose_within_draw(draw[::2], [0.0, 1.0], constant=0)
    (1, 0)
    """
    order = [-gain for gain in gains.gains] if gains and gains.choose else [-one.scores[0] for one in methods]
    best = min(range(len(methods)), key=lambda i: (order[i], costs[i]))
    if constant is None or best == constant:
        return best
    if gains:
        return best if gains.learned(constant) else constant
    return best if _better_than_constant(methods, constant, least)[best] else constant


def worse_out_of_fold(one: MethodScores, other: MethodScores) -> bool:
    """Whether ``one`` is significantly worse than ``other`` on the texts that choose, of one seed and on the same resamples.

    One-sided at the 5% level, paired over texts, with twice the variance of the bootstrap, as in ``choose_within_draw`` (Bengio and
    Grandvalet 2004). Simulation: tests/test_draws.py: ``test_few_equal_pairs_are_called_worse_out_of_fold``.

    >>> noise = np.random.default_rng(0).normal(0, 0.05, 200)
    >>> one, other = (MethodScores("", (mean,), mean + noise[None] * size) for mean, size in ((0.5, 1), (0.7, 0.5)))
    >>> worse_out_of_fold(one, other), worse_out_of_fold(other, one)
    (True, False)
    """
    from scipy.stats import norm

    error = float(np.sqrt(FOLD_VARIANCE) * (one.resampled[0] - other.resampled[0]).std(ddof=1))
    return bool(one.scores[0] - other.scores[0] < norm.ppf(SIGNIFICANT) * error)


def detectable_lead(methods: Sequence[MethodScores], constant: int) -> float:
    """The smallest true lead over ``methods[constant]`` that ``choose_within_draw`` finds by scores with 80% probability, at least.

    (c + z_{0.8}) √2 max(e, e₀), with the largest standard error e of any method (Cohen 1988); 0 if no score varies. Simulation:
    tests/test_draws.py: ``test_the_detectable_lead_is_detected``.

    >>> scores = np.random.default_rng(0).normal(0.5, 0.05, (2, 1, 200))
    >>> round(detectable_lead([MethodScores("", (0.5,), one) for one in scores], constant=0), 2)
    0.17
    """
    from scipy.special import ndtri

    threshold, error = _threshold_and_errors(np.array([one.resampled[0] for one in methods]), constant)
    return float((threshold + ndtri(POWER)) * error.max())


def _better_than_constant(methods: Sequence[MethodScores], constant: int, least: float) -> np.ndarray:
    """(M,) whether each method is significantly better than ``methods[constant]``, and than ``least``."""
    scores = np.array([one.scores[0] for one in methods])
    threshold, error = _threshold_and_errors(np.array([one.resampled[0] for one in methods]), constant)
    return (scores - max(scores[constant], least) > threshold * error) & (error > 0)


def _threshold_and_errors(resampled: np.ndarray, constant: int) -> tuple[float, np.ndarray]:
    """What the largest standardised lead stays below by chance, and (M,) standard errors of leads, from scores (M, R)."""
    errors = resampled.std(axis=1, ddof=1)
    error = np.sqrt(FOLD_VARIANCE) * np.maximum(errors, errors[constant])
    varying = [i for i, one in enumerate(errors) if one > 0 and i != constant]
    if not varying:
        return 0.0, error
    unit = (resampled[varying] - resampled[varying].mean(axis=1, keepdims=True)) / errors[varying, None]
    largest = np.concatenate([unit.max(axis=0), (-unit).max(axis=0)])  # both signs, because few texts make the tails uneven
    return float(max_statistic_threshold(largest[:, None])[0]), error
