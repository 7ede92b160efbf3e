"""When not to answer: a bar for the confidence above which errors stay below a target, with a stated certainty.

A model that ranks its own answers well can keep a promise that it could not keep on all of them: answer only where it is confident.
The bar is found on examples that were not trained on and holds for new ones drawn alike, with probability ``certainty``; it says
nothing of texts of another kind.

Letters: N examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warmstart.errors import ConfigError


@dataclass(frozen=True)
class Bar:
    """Answer where the confidence is at least ``threshold``."""

    threshold: float
    """infinite where no bar keeps the promise: then nothing is answered"""
    target: float
    """the share of wrong answers, among those given, that is promised not to be passed"""
    certainty: float
    """probability that the promise holds, over the draw of the examples it was found on"""
    answered: int
    """of those examples, how many lie above the bar"""
    wrong: int
    """and how many of these were wrong"""
    examples: int
    """how many examples it was found on"""

    def sentence(self) -> str:
        """What the bar promises, or why it cannot promise anything."""
        promise = f"at most {100 * self.target:g} % wrong answers with {100 * self.certainty:g} % certainty"
        if math.isinf(self.threshold):
            return (
                f"no bar can promise {promise} from these {self.examples} held-out examples, so nothing is answered; "
                "allow more errors, or hold out more examples"
            )
        share = 100 * self.answered / self.examples
        return (
            f"answering where the confidence is at least {self.threshold:.3g} gives {promise}; of {self.examples} held-out "
            f"examples that answers {self.answered} ({share:.0f} %), {self.wrong} of them wrongly"
        )


def error_bound(wrong: int, answered: int, certainty: float) -> float:
    """The largest error rate that ``wrong`` of ``answered`` still allows: Clopper and Pearson's one-sided upper bound.

    ``error_bound(0, 59, 0.95)`` -> ``0.0495``: 59 right answers in a row are needed to promise 5 %.
    """
    from scipy import stats

    return 1.0 if wrong >= answered else float(stats.beta.ppf(certainty, wrong + 1, answered - wrong))


def find_bar(confidence: np.ndarray, right: np.ndarray, target: float, certainty: float = 0.95) -> Bar:
    """The bar that answers most and keeps its promise (Geifman and El-Yaniv 2017, algorithm 1).

    A binary search over the ranked examples, each of whose questions is asked with its share of the allowed doubt. ``confidence``
    (N,) and ``right`` (N,) bool are of examples that were not trained on.
    """
    if not (0 < target < 1 and 0 < certainty < 1):
        raise ConfigError(f"the target error and the certainty must lie between 0 and 1, but are {target} and {certainty}")
    count = len(confidence)
    ranked = np.sort(confidence)
    each = 1 - (1 - certainty) / max(1, math.ceil(math.log2(count + 1)))
    low, high, best = -1, count, Bar(math.inf, target, certainty, 0, 0, count)  # the bar lies above low, and high keeps the promise
    while high - low > 1:
        middle = (low + high) // 2
        given = confidence >= ranked[middle]
        wrong = int((~right[given]).sum())
        if error_bound(wrong, int(given.sum()), each) <= target:
            best, high = Bar(float(ranked[middle]), target, certainty, int(given.sum()), wrong, count), middle
        else:
            low = middle
    return best


def risk_coverage(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The share answered and the share of those answered wrongly, at every bar from the highest down: two (M,) arrays.

    Equal confidences are answered together. ``confidence [.9 .8 .8]``, ``right [1 1 0]`` -> coverage ``[1/3 1]``, risk ``[0 1/3]``.
    """
    order = np.argsort(-confidence, kind="stable")
    wrong = np.cumsum(~right[order])
    last = np.append(np.diff(confidence[order]) != 0, True)  # of equals only the last stands for all
    answered = np.arange(1, len(order) + 1)
    return answered[last] / len(order), (wrong / answered)[last]


def area(coverage: np.ndarray, risk: np.ndarray) -> float:
    """The mean risk over all coverages (AURC): 0 for a model that is never wrong; small where wrong answers are unsure ones."""
    return float((np.diff(coverage, prepend=0.0) * risk).sum())
