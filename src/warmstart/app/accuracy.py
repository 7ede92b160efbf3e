"""The accuracy while labels are still being given: unbiased under any choice of texts, and valid at every moment.

Before a text is drawn, the model that stands then predicts all R texts that have no label yet, with confidences. One text i is
drawn with a known probability q_i, and a person labels it. Then (active statistical inference: Zrnic and Candès 2024)

    X = a + b mean confidence over the R texts + (right_i - a - b confidence_i) / (R q_i)

has exactly that model's accuracy on the R texts as its mean, whatever the confidences are worth and however texts are preferred.
Good confidences only make it vary less; a and b, from what was seen before, make them good (as the tuning of Angelopoulos, Duchi
and Zrnic 2023). The mean of the X is the mean accuracy of the models that stood in between, and its
lower end holds at every moment (``stats/proportions.py``): one may look after every label, and stop. It is exact for answers that
stay as they were given, and for merges of labels that were decided without looking at the figures.

Models improve, so the mean over all of them understates the last one. So the mean begins anew at 50, 100, 200, … labels, all of
them valid together, and the one with the highest lower end is shown. "Proven" means that this end has reached the target.

What people ask first is how good the newest model is. Predictions for labelled texts that were left out say it, weighted by how the
texts were drawn (``newest_accuracy``); that interval is for one look.

What more labels would bring: the X are averaged between 12 and 25 labels, 25 and 50, and so on; the power law through these means
(``stats/extrapolation.py``) says what twice the labels give.

Letters: n texts drawn while there was a model, R texts without a label at a draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from warmstart.app.tables import Draw, Value
from warmstart.stats.extrapolation import LEAST_SIZES, Extrapolation, extrapolate_means, round_labels
from warmstart.stats.formatting import percent, percent_range, percent_value
from warmstart.stats.intervals import Estimate, percentiles, t_quantile
from warmstart.stats.proportions import proven_mean, values_to_prove, weighted_accuracy
from warmstart.stats.shares import LabelledSample, estimate_shares, shares_sentence, with_known

_LEVEL = 0.95
"""confidence that all lower ends hold, at all moments together"""
_FIRST_WINDOW = 50
"""texts after which the mean begins anew for the first time; then after twice as many, and so on"""
_BELIEF = 5.0
"""texts that the confidences are worth, before any was compared"""

FEWEST_FOR_FIGURES = 30
"""labels; with fewer, nothing is said of the accuracy"""
NOTHING_COMPARED = f"Not proven yet: that takes {FEWEST_FOR_FIGURES} texts that a model predicted before they were labelled."


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of the draws since there was a model, in their order."""

    right: np.ndarray
    """(n,) bool: whether the prediction was the label. A text that nobody can label counts as wrong."""
    confidence: np.ndarray
    """(n,) of these predictions"""
    mean_confidence: np.ndarray
    """(n,) over all R texts"""
    ratio: np.ndarray
    """(n,) 1 / (R q): how much more rarely than at random the text is drawn"""
    random_share: np.ndarray | float
    """(n,), or one for all: of the draws, at least, as set before each; ``ratio`` is never above its inverse"""

    @cached_property
    def predictions(self) -> np.ndarray:
        """(n,) the accuracies expected before each text was labelled."""
        return self._constant + self._slope * self.mean_confidence

    @cached_property
    def values(self) -> np.ndarray:
        """(n,) the X, whose means are the models' accuracies."""
        return self.predictions + (self.right - self._constant - self._slope * self.confidence) * self.ratio

    @cached_property
    def floors(self) -> np.ndarray:
        """(n,) what is the least that each X could have become: the surest text, drawn as rarely as can be, is wrong."""
        return self.predictions - (self._constant + self._slope) / self.random_share

    @cached_property
    def _slope(self) -> np.ndarray:
        return self._line[1]

    @cached_property
    def _constant(self) -> np.ndarray:
        return self._line[0]

    @cached_property
    def _line(self) -> tuple[np.ndarray, np.ndarray]:
        """A and b (n,) of each text: least squares over the texts before it, where texts weigh by their ratio.

        With nothing seen the confidences are believed: a = 0, b = 1. What is expected stays between 0 and 1.
        """
        x, y, weight = self.confidence, self.right.astype(float), self.ratio
        ones, xs, ys, squares, products = (
            np.concatenate([[0.0], np.cumsum(weight * part)[:-1]]) for part in (np.ones_like(x), x, y, x * x, x * y)
        )
        ones, squares, products = ones + _BELIEF, squares + _BELIEF, products + _BELIEF
        slope = np.clip((ones * products - xs * ys) / (ones * squares - xs * xs), 0, 1)
        return np.clip((ys - slope * xs) / ones, 0, 1 - slope), slope


@dataclass(frozen=True)
class RunningAccuracy:
    """The mean accuracy of the models that stood while texts ``first`` to ``last`` were drawn, on the texts without a label."""

    value: float
    low: float
    """lower bound that holds at every moment, with 95% confidence"""
    first: int
    last: int
    compared: int
    """texts drawn since ``first``"""
    needed: dict[float, float]
    """target -> further texts that would prove it if the accuracy stays; infinite: none would"""

    def proves(self, target: float) -> bool:
        """True if the accuracy is at least the target, with 95% confidence."""
        return self.low >= target

    def target_sentence(self, target: float, left: float = math.inf) -> str:
        """A sentence: a target is proven, or takes about so many more texts, of which ``left`` have not been drawn."""
        goal = percent(target, trim=True)
        if self.proves(target):
            return (
                f"Proven: on average, the models since text {self.first:,} label at least {goal} of the remaining texts correctly."
            )
        more = self.needed.get(target, math.inf)
        if math.isinf(more):
            return f"Not proven: with today's accuracy, more checks would not prove {goal} soon; better models may."
        if more > left:
            return f"Not proven: if the accuracy stays as it is, the {left:,} texts that are left are too few to prove {goal}."
        return f"Not proven yet: if the accuracy stays as it is, about {round_labels(more)} more labels would prove {goal}."


def newest_accuracy(drawn: Sequence[tuple[Draw, Value | None]], left_out: np.ndarray | None) -> Estimate | None:
    """The accuracy of today's model on the texts without a label; None with few labels.

    ``drawn`` are the new texts with the answer to each (None: skipped, which counts as wrong), and ``left_out`` (K, N) is what
    models predict that did not learn from the text.
    """
    known = [(draw, answer) for draw, answer in drawn if draw.probability is not None]
    if left_out is None or len(known) < FEWEST_FOR_FIGURES:
        return None
    right = np.array([0.0 if answer is None else (left_out[:, draw.text] == answer).mean() for draw, answer in known])
    remaining, probabilities = np.array([(draw.remaining, draw.probability) for draw, _ in known]).T
    estimate = weighted_accuracy(right, remaining, probabilities)
    return None if math.isnan(estimate.value) else estimate


def newest_shares(
    drawn: Sequence[tuple[Draw, Value | None]], left_out: np.ndarray | None, labelled: Mapping[int, Value], names: Mapping[int, str]
) -> str:
    """The shares of the labels among all texts of the pool as a sentence; empty with few labels.

    As ``newest_accuracy``, but skipped texts are left out. ``labelled`` are all labels that count, ``names`` those of the labels.
    A text that was preferred counts for less: by the probability with which it was drawn.
    """
    known = [(draw, answer) for draw, answer in drawn if draw.probability and answer in names]
    if left_out is None or len(known) < FEWEST_FOR_FIGURES:
        return ""
    ids, others = np.array([*names]), np.setdiff1d(np.arange(left_out.shape[1]), [*labelled])
    predictions = (left_out[:, :, None] == ids).mean(axis=0)
    labels = np.array([answer for _, answer in known])[:, None] == ids
    weights = np.array([1 / (draw.remaining * (draw.probability or 1)) for draw, _ in known])
    sample = LabelledSample(labels.astype(float), predictions[[draw.text for draw, _ in known]], weights)
    counted = np.array([*labelled.values()])[:, None] == ids
    found = estimate_shares(sample, predictions[others]) if len(others) else [Estimate(0.0, 0.0, 0.0)] * len(ids)
    shares = [with_known(share, len(others), column) for share, column in zip(found, counted.T, strict=True)]
    return f"{shares_sentence([*names.values()], shares, f'{left_out.shape[1]:,} texts')}, if you look once."


def newest_sentence(estimate: Estimate | None, labels: int) -> str:
    """A sentence on the accuracy of the model that learns along, after some labels given on the page."""
    if estimate is None:
        few = labels < FEWEST_FOR_FIGURES
        when = f"with {FEWEST_FOR_FIGURES} labels given on" if few else "once the model has learned the labels of"
        return f"The first figure comes {when} this page."
    if not estimate.tells:
        return "Too few labels to say how good the model is that learns along."
    ends = percent_range(estimate.low, estimate.high, digits=0)
    about = f"about {percent(estimate.value, 0)} of the remaining texts correctly"
    return f"The model that learns along labels {about} ({ends}%, if you look once)."


def running_accuracy(outcomes: Outcomes, target: float | None = None) -> RunningAccuracy | None:
    """The best window of the outcomes; None while there are few.

    All windows' lower ends hold together, at every moment, with 95% confidence: window k may err with 1 / (k (k + 1)) of 5%.
    Simulation: tests/test_label_accuracy.py: ``test_the_accuracy_is_covered_at_every_moment_of_a_session``.
    """
    count = len(outcomes.right)
    if count < FEWEST_FOR_FIGURES:
        return None
    bounds, needed = list[RunningAccuracy](), list[float]()
    for number, start in enumerate(accuracy_starts(count), 1):
        values, floors, error = outcomes.values[start:], outcomes.floors[start:], (1 - _LEVEL) / (number * (number + 1))
        low = max(proven_mean(values, floors, error), 0.0)
        value = float(np.clip(values.mean(), low, 1))  # a mean of X may lie outside [0, 1]
        bounds.append(RunningAccuracy(value, min(low, 1.0), start + 1, count, count - start, {}))
        needed += [] if target is None else [values_to_prove(values, floors, target, error)]
    best = max(bounds, key=lambda bound: bound.low)
    return best if target is None else replace(best, needed={target: min(needed)})


def accuracy_starts(count: int) -> list[int]:
    """The texts at which the mean began anew: ``accuracy_starts(120)`` -> ``[0, 50, 100]``."""
    starts, next_ = [0], _FIRST_WINDOW
    while next_ < count:
        starts.append(next_)
        next_ *= 2
    return starts


SMALLEST_GAIN = 0.01
"""gain that is worth as many labels again: less is not worth the work"""
_CAUTION = 0.5
"""share of the smallest gain that refits must stay below: they know the noise, not whether the law is right"""
_ENOUGH = 400
"""labels after which it may be said that more of them hardly pay: with fewer, a lucky start looks like a flat curve"""
_FIRST = 12
_QUANTILES = (0.05, 0.95)


@dataclass(frozen=True)
class Outlook:
    """Accuracy by number of labels, and what further ones give."""

    points: tuple[tuple[float, float, float, float], ...]
    """labels, accuracy, and the ends of its 95% interval at that point alone"""
    labels: int
    more: int
    """labels that are looked at: as many again, or all texts that are left"""
    gain: float
    low: float
    high: float
    """in 9 of 10 refits the gain is between these"""

    @property
    def pays(self) -> bool:
        """True if more labels may still gain a point; with few labels nothing else is claimed."""
        return self.high >= SMALLEST_GAIN * _CAUTION or self.labels < _ENOUGH

    def sentence(self) -> str:
        """A sentence on the gain by more labels."""
        if not self.more:
            return "Every text has been shown."
        if not self.pays:
            most = percent_value(self.high)
            return f"More labels hardly pay: {self.more:,} more would bring at most {most} points in 9 of 10 refits."
        return (
            f"{self.more:,} more labels would bring about {percent_value(self.gain)} points ({percent_value(self.low)} to "
            f"{percent_value(self.high)} in 9 of 10 refits)."
        )

    def price_sentence(self, price: float | None, seconds: float | None) -> str:
        """Its cost, in money by the price of a label and in hours by the median time for one; empty if neither is known."""
        if not self.more or (price is None and seconds is None):
            return ""
        hours = self.more * seconds / 3600 if seconds is not None else None
        costs = [f"{self.more * price:,.2f}"] if price is not None else []
        costs += [f"{hours:.1f} hours"] if hours is not None else []
        points = 100 * self.gain
        if points < 0.1:
            return f"{self.more:,} more labels cost {' and '.join(costs)}, for next to nothing."
        each = [f"{self.more * price / points:,.2f}"] if price is not None else []
        each += [f"{hours / points:.1f} hours"] if hours is not None else []
        return f"{self.more:,} more labels cost {' and '.join(costs)}: {' and '.join(each)} for each point."


def outlook(outcomes: Outcomes, labels: np.ndarray, left: int, seed: int = 0, since: int = 0) -> Outlook | None:
    """The outlook after the outcomes from number ``since`` on, which are of one kind of model; None while there are too few.

    ``labels`` (n,) ascending is the number of labels with each outcome; ``left`` texts of the pool have not been drawn. Simulation:
    tests/test_extrapolation.py: ``test_labels_that_still_pay_are_seldom_called_useless``.
    """
    if not len(labels) or labels[-1] < _FIRST:
        return None
    values, means, errors = outcomes.values, dict[int, float](), dict[int, float]()
    edge = _FIRST
    while edge <= labels[-1]:
        inside = (labels >= edge) & (labels < 2 * edge) & (np.arange(len(labels)) >= since)
        if inside.sum() >= _FIRST:
            middle = round(float(np.exp(np.log(labels[inside]).mean())))
            means[middle] = float(values[inside].mean())
            errors[middle] = _standard_error(values[inside], outcomes.ratio[inside])
        edge *= 2
    if len(means) < LEAST_SIZES:
        return None
    curve = extrapolate_means(means, errors, seed)
    now, more = int(labels[-1]), min(int(labels[-1]), left)
    low, high = percentiles(_gains(curve, now, more), _QUANTILES)
    wide = t_quantile(0.95, math.inf)
    points = tuple(
        (float(size), *(float(np.clip(mean + sign * wide * errors[size], 0, 1)) for sign in (0, -1, 1)))
        for size, mean in means.items()
    )
    gain = curve.law.score(now + more) - curve.law.score(now)
    return Outlook(points, now, more, gain, float(low), float(high))  # type: ignore[arg-type]


def _standard_error(values: np.ndarray, ratios: np.ndarray) -> float:
    """The error of a mean; at least that of a rate with one right and one wrong answer more, for a few that agree say little."""
    count = len(values)
    rate = (float(np.clip(values.mean(), 0, 1)) * count + 1) / (count + 2)
    variance = max(float(values.var(ddof=1)), rate * (1 - rate) * float((ratios**2).mean()))
    return math.sqrt(variance / count)


def _gains(curve: Extrapolation, now: int, more: int) -> np.ndarray:
    return np.array([law.score(now + more) - law.score(now) for law in curve.refits])


_TIMES = 10.0
"""so many times as probable as the label another class must be; else too many right labels are doubted"""


def likely_wrong(labels: np.ndarray, classes: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Places of the labels (n,) that are likely wrong, the least credible first (Northcutt, Jiang and Chuang 2021).

    ``probabilities`` (n, C) are of ``classes`` (C,), by models that did not learn from that text. A label is doubted if another
    class is the most probable one, ten times as probable as the label, and at least as probable as that class is on average among
    the texts that have it.
    """
    numbers = np.searchsorted(classes, labels)
    own = probabilities[np.arange(len(labels)), numbers]
    usual = np.array([own[numbers == number].mean() if (numbers == number).any() else np.inf for number in range(len(classes))])
    best = probabilities.argmax(axis=1)
    most = probabilities.max(axis=1)
    doubted = np.flatnonzero((best != numbers) & (most >= usual[best]) & (most >= _TIMES * own))
    return np.asarray(doubted[np.argsort(own[doubted] / most[doubted], kind="stable")])
