"""What more labels would give: a power law through the scores measured so far, and how far it can be trusted.

    error(n) = c + a n^-b          a, c >= 0, b > 0

Learning curves of many models and tasks have this form (Hestness et al. 2017; Rosenfeld et al. 2020). Its uncertainty comes from
refits to scores drawn around it, with the residuals that seeds have around their means (the bootstrap of residuals: Efron 1979,
section 7). Hiding the largest size and predicting it checks whether the law holds here at all.

Letters: S seeds, n labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.formatting import percent, sentence_case
from warmstart.stats.intervals import Estimate, percentiles

EXPONENTS = np.geomspace(0.05, 2.0, 40)
"""values of b tried: below, more labels hardly help; above, the curve is a step"""
REFITS = 200
CENTRAL_90 = (0.05, 0.95)
"""the quantiles between which 9 of 10 refits lie"""
HORIZON = 10
"""times the largest size measured: beyond, nothing is claimed"""
LEAST_SIZES = 3
"""numbers of labels that a fit needs: the law has three unknowns"""


@dataclass(frozen=True)
class PowerLaw:
    """One fitted curve."""

    irreducible_error: float
    """c: the error that no number of labels removes"""
    scale: float
    """a"""
    exponent: float
    """b"""

    def score(self, labels: float) -> float:
        """The score expected with this number of labels."""
        return 1 - self.irreducible_error - self.scale * labels**-self.exponent

    def labels(self, score: float) -> float:
        """How many labels give this score; infinite if no number does."""
        left = 1 - score - self.irreducible_error
        if left <= 0:
            return math.inf
        return float((self.scale / left) ** (1 / self.exponent))


@dataclass(frozen=True)
class Extrapolation:
    """A method's learning curve with its uncertainty. Intervals are 90%."""

    law: PowerLaw
    """fitted to the means over seeds"""
    refits: tuple[PowerLaw, ...]
    """fitted to scores drawn around it"""
    residuals: tuple[float, ...]
    """of the scores around the mean of their size, over all sizes"""
    largest: int
    """labels of the largest size measured"""

    def score(self, labels: float) -> Estimate:
        """The expected score with this number of labels."""
        low, high = percentiles(np.array([law.score(labels) for law in self.refits]), CENTRAL_90)
        return Estimate(self.law.score(labels), float(low), float(high))

    def mean_score(self, labels: float, seeds: int) -> Estimate:
        """The mean score of this many runs, which varies with the seeds too."""
        noise = [float(rng(draw, "mean").choice(self.residuals, seeds).mean()) for draw in range(len(self.refits))]
        drawn = np.array([law.score(labels) + by for law, by in zip(self.refits, noise, strict=True)])
        low, high = percentiles(drawn, CENTRAL_90)
        return Estimate(self.law.score(labels), float(low), float(high))

    def labels(self, score: float) -> Estimate:
        """Labels that give this score; infinite if no number does."""
        needed = sorted(law.labels(score) for law in self.refits)
        low, high = (needed[round(quantile * (len(needed) - 1))] for quantile in CENTRAL_90)
        return Estimate(self.law.labels(score), low, high)

    def sentence(self, name: str, score: float) -> str:
        """How many more labels the method ``name`` needs for a score, as a complete sentence.

        -> ``"Full needs about 300 more labels for 90.0% (120 to 900 more in 9 of 10 refits)."``
        """
        expected, low, high = self.labels(score)
        goal, first = percent(score), sentence_case(name)
        if expected <= self.largest:
            ends = f"{round_labels(low)} to {_up_to(high, self.largest)}"
            return f"{first} reaches {goal} with about {round_labels(expected)} labels ({ends} in 9 of 10 refits)."
        if expected > HORIZON * self.largest:
            lowest = f", though {round_labels(low)} may be enough" if low <= HORIZON * self.largest else ""
            return (
                f"{first} is not expected to reach {goal} with less than {HORIZON} times the {self.largest:,} labels at "
                f"hand{lowest}."
            )
        about, least = (round_labels(max(0.0, value - self.largest)) for value in (expected, low))
        most = _up_to(high - self.largest, HORIZON * self.largest)
        return f"{first} needs about {about} more labels for {goal} ({least} to {most} more in 9 of 10 refits)."


def fit_power_law(scores: Mapping[int, Sequence[float]]) -> PowerLaw:
    """The power law nearest to the mean scores by number of labels; each size is weighted by the precision of its mean.

    For each exponent tried, scale and irreducible error are a least-squares problem with two unknowns that must not be negative.
    """
    from scipy.optimize import nnls

    sizes = np.array(sorted(scores), dtype=float)
    means = np.array([np.mean(scores[int(size)]) for size in sizes])
    weights = 1 / _standard_errors([scores[int(size)] for size in sizes])
    best: tuple[float, PowerLaw] | None = None
    for exponent in EXPONENTS:
        design = np.stack([np.ones(len(sizes)), (sizes / sizes[0]) ** -exponent], axis=1)
        (constant, scale), distance = nnls(design * weights[:, None], (1 - means) * weights)
        if best is None or distance < best[0]:
            best = distance, PowerLaw(float(constant), float(scale * sizes[0] ** exponent), float(exponent))
    assert best is not None
    return best[1]


def extrapolate(scores: Mapping[int, Sequence[float]], seed: int = 0) -> Extrapolation | None:
    """The curve through the scores of S seeds by number of labels; None for fewer than three sizes, or for one seed."""
    if len(scores) < LEAST_SIZES or any(len(values) < 2 for values in scores.values()):
        return None
    law, residuals, refits = fit_power_law(scores), _residuals(list(scores.values())), []
    degrees = sum(len(values) - 1 for values in scores.values())
    for draw in range(REFITS):
        generator = rng(seed, "refit", draw)
        wider = math.sqrt(degrees / generator.chisquare(degrees))  # few runs do not know their own spread: Student's t
        drawn = {n: (law.score(n) + wider * generator.choice(residuals, len(values))).tolist() for n, values in scores.items()}
        refits.append(fit_power_law(drawn))
    return Extrapolation(law, tuple(refits), tuple(residuals), max(scores))


class Backtest(NamedTuple):
    """The largest size beside its prediction from the smaller ones."""

    labels: int
    score: float
    """mean over seeds"""
    predicted: Estimate


def backtest(scores: Mapping[int, Sequence[float]]) -> Backtest | None:
    """Leave out the largest size and predict its mean score from the smaller ones; None if they are too few."""
    largest = max(scores)
    curve = extrapolate({size: values for size, values in scores.items() if size < largest})
    if curve is None:
        return None
    return Backtest(largest, float(np.mean(scores[largest])), curve.mean_score(largest, len(scores[largest])))


def round_labels(labels: float) -> str:
    """A number of labels with two digits: ``round_labels(1234)`` -> ``"1,200"``."""
    if not math.isfinite(labels):
        return "no number"
    digits = max(0, math.floor(math.log10(labels)) - 1) if labels >= 1 else 0
    return f"{round(labels, -digits):,.0f}"


def _up_to(labels: float, most: float) -> str:
    return round_labels(labels) if labels <= most else f"more than {round_labels(most)}"


def _residuals(rows: Sequence[Sequence[float]]) -> list[float]:
    """Each score less the mean of its size, scaled up: S scores vary less around their own mean than around the true one."""
    return [float((value - np.mean(values)) * math.sqrt(len(values) / (len(values) - 1))) for values in rows for value in values]


def _standard_errors(rows: Sequence[Sequence[float]]) -> np.ndarray:
    """Standard errors of the means; the spread is pooled over sizes, as a few seeds say little about it."""
    spread = math.sqrt(float(np.mean([np.var(values, ddof=1) if len(values) > 1 else 0.0 for values in rows]))) or 1.0
    return np.array([spread / math.sqrt(len(values)) for values in rows])
