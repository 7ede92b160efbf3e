"""Accuracy while labels come in: a lower end that holds at every moment, and an interval for a single look at the newest model.

An ordinary 95% interval holds at one moment that was fixed before. Who looks after every text and stops once it pleases is misled
more often than in 5% of cases. A confidence sequence holds at all moments together with 95% confidence, so that looking, and
stopping for any reason, is allowed.

Each value X_s has a mean m_s given all before it, which may change from value to value (a model that is being improved), and is at
least f_s, which is known before. What is covered is the running mean (m_1 + … + m_n) / n. For every stake b > 0

    product of (1 + b (X_s - f_s)) / (1 + b (m_s - f_s))

is a martingale: the winnings of one who bets that values are larger than their means (Waudby-Smith and Ramdas 2024). By Jensen's
inequality the product of the 1 + b (m_s - f_s) is at most (1 + b mean(m - f))^n. So with the true running mean in it, the mean over
some stakes of

    product of (1 + b (X_s - f_s)) / (1 + b (mean(m) - mean(f)))^n

is never above a martingale that begins at 1, and by Ville's inequality it ever exceeds 1/α with probability α at most. Nothing is
assumed of the values but their floors, and nothing is asymptotic.

The newest model is usually better than that mean says. Its own accuracy is estimated from predictions for texts that were left out
(``weighted_accuracy``), whose interval holds for one look.

Letters: n values or texts, b stakes.
"""

from __future__ import annotations

import math

import numpy as np

from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import wilson_interval

_STAKES = 2.0 ** np.arange(-2, 6)
"""all of them are tried at once: large ones are best for tens of values, small ones for thousands"""
_FAR = 20
"""times the values so far: what would need more of them is not predicted"""
_OVERLAP = 1.4
"""so many texts count as one, because the folds are fitted to overlapping texts"""


def proven_mean(values: np.ndarray, floors: np.ndarray, error: float = 0.05) -> float:
    """The lower end for the running mean of the means of ``values`` (n,), valid at all n together except with ``error``.

    Each value is at least its floor (``floors``, (n,)), which must be known before it. By betting (Waudby-Smith and Ramdas 2024),
    with stakes that stay, so that means may change. Simulation: tests/test_anytime.py:
    ``test_what_is_proven_holds_at_every_moment``.

    >>> values = np.array([1.0] * 80 + [0.0] * 20)
    >>> round(proven_mean(values, np.zeros(100)), 3), round(0.8 - 1.645 * 0.04, 3)  # the second holds at one moment only
    (0.666, 0.734)
    """
    from scipy.optimize import brentq

    floor, won = float(floors.mean()), np.log1p(np.outer(_STAKES, values - floors)).sum(axis=1)

    def beyond(mean: float) -> float:  # what is won, beyond what proves that the running mean is above this one
        return float(_log_mean_exp(won - len(values) * np.log1p(_STAKES * (mean - floor)))) + math.log(error)

    return float(brentq(beyond, floor, float(values.mean()))) if beyond(floor) > 0 else floor


def values_to_prove(values: np.ndarray, floors: np.ndarray, goal: float, error: float = 0.05) -> float:
    """Further values after which ``proven_mean`` reaches ``goal`` if they are as those so far; infinite if none would soon.

    By the same stakes (Waudby-Smith and Ramdas 2024). Parity: tests/test_anytime.py:
    ``test_the_values_that_a_proof_needs_are_enough``.

    >>> values_to_prove(np.array([1.0] * 80 + [0.0] * 20), np.zeros(100), 0.7)
    76
    """
    count = len(values)
    growth = np.log1p(np.outer(_STAKES, values - floors)).mean(axis=1) - np.log1p(_STAKES * max(goal - floors.mean(), 0))
    totals = np.arange(count, _FAR * count)
    proves = _log_mean_exp(np.outer(growth, totals)) >= -math.log(error)
    return int(totals[proves.argmax()]) - count if proves.any() else math.inf


def _log_mean_exp(logarithms: np.ndarray) -> np.ndarray:
    """Over the stakes, the first axis."""
    return np.asarray(np.logaddexp.reduce(logarithms, axis=0)) - math.log(len(_STAKES))


def weighted_accuracy(right: np.ndarray, remaining: np.ndarray, probabilities: np.ndarray) -> Estimate:
    """The accuracy of a model on the texts of a pool that have no label yet, from n labelled texts that were drawn by chance.

    ``right`` (n,), in the order of the draws, is the share of repetitions of a cross-validation in which a text was predicted
    correctly out of fold; text m was drawn among R_m ``remaining`` (n,) with probability q_m (``probabilities``, (n,)). It weighs
    u_m = 1 + (R_m + m - 1) / (R_m - 1) (1 / (R_m q_m) - 1), which is 1 at random, and the mean of the u right is then that of the
    texts that are left (Farquhar, Gal and Rainforth 2021, less the labelled ones). The 95% interval of sum(u right) / sum(u) is
    that of Wilson 1927 for (sum u)^2 / sum u^2 / 1.4 texts (Kish 1965; 1.4, because the folds share texts). It holds for one look,
    not for all. Simulation: tests/test_anytime.py: ``test_the_newest_model_is_covered_at_one_look``.

    >>> right, remaining = np.array([1.0] * 60 + [0.0] * 40), 500 - np.arange(100)
    >>> probabilities = np.array([0.8] * 60 + [1.4] * 40) / remaining  # those that turned out wrong had been preferred
    >>> [round(float(one), 2) for one in weighted_accuracy(right, remaining, probabilities)]
    [0.74, 0.63, 0.83]
    """
    number, others = np.arange(1, len(right) + 1), np.maximum(remaining - 1, 1)
    weights = 1 + (remaining + number - 1) / others * (1 / (remaining * probabilities) - 1)
    if (total := float(weights.sum())) <= 0:
        return Estimate(math.nan, 0.0, 1.0)
    mean = float(np.clip((weights * right).sum() / total, 0, 1))
    return wilson_interval(mean, total**2 / float((weights**2).sum()) / _OVERLAP)
