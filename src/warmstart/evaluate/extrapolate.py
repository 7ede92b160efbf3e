"""What more labels would give: a power law through the scores measured so far, and how far it can be trusted.

    error(n) = c + a n^-b          a, c >= 0, b > 0

the form that learning curves of many models and tasks follow (Hestness et al. 2017; Rosenfeld et al. 2020). Its doubt comes from
refits to scores drawn around it, with what seeds strayed from their means (the bootstrap of residuals: Efron 1979, section 7).
Whether it holds here at all is told by hiding the largest size and predicting it.

Letters: S seeds, n labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.seeding import rng

EXPONENTS = np.geomspace(0.05, 2.0, 40)
"""values of b tried: below, more labels hardly help; above, the curve is a step"""
DRAWS = 200
FAR = 10
"""times the largest size measured: beyond, nothing is said"""
SIZES = 3
"""of which a curve needs at least so many: it has three unknowns"""


@dataclass(frozen=True)
class PowerLaw:
    """One fitted curve."""

    floor: float
    """c: the error that labels alone will not mend"""
    scale: float
    """a"""
    exponent: float
    """b"""

    def score(self, labels: float) -> float:
        """The score expected with so many labels."""
        return 1 - self.floor - self.scale * labels**-self.exponent

    def labels(self, score: float) -> float:
        """How many labels give this score; infinite where none do."""
        left = 1 - score - self.floor
        if left <= 0:
            return math.inf
        return float((self.scale / left) ** (1 / self.exponent))


@dataclass(frozen=True)
class Extrapolation:
    """A method's curve with its doubt."""

    law: PowerLaw
    """fitted to the means over seeds"""
    drawn: tuple[PowerLaw, ...]
    """fitted to scores drawn around it"""
    strayed: tuple[float, ...]
    """what seeds stray from their mean, over all sizes"""
    largest: int
    """labels of the largest size measured"""

    def score(self, labels: float) -> tuple[float, float, float]:
        """Expected score with so many labels, and the ends of its 90 % interval."""
        low, high = np.quantile([law.score(labels) for law in self.drawn], [0.05, 0.95])
        return self.law.score(labels), float(low), float(high)

    def mean(self, labels: float, seeds: int) -> tuple[float, float, float]:
        """The same of the mean of so many runs, which chance moves too."""
        noise = [float(rng(draw, "mean").choice(self.strayed, seeds).mean()) for draw in range(len(self.drawn))]
        low, high = np.quantile([law.score(labels) + by for law, by in zip(self.drawn, noise, strict=True)], [0.05, 0.95])
        return self.law.score(labels), float(low), float(high)

    def labels(self, score: float) -> tuple[float, float, float]:
        """Labels that give this score, and the ends of the 90 % interval; infinite where no number does."""
        needed = sorted(law.labels(score) for law in self.drawn)
        low, high = (needed[round(share * (len(needed) - 1))] for share in (0.05, 0.95))
        return self.law.labels(score), low, high

    def sentence(self, score: float) -> str:
        """How many more labels it takes: ``"about 300 more labels for 90.0 % (120 to 900 more, in 9 of 10 refits)"``."""
        expected, low, high = self.labels(score)
        goal = f"{100 * score:.1f} %"
        if expected <= self.largest:
            return f"{goal} is reached with about {rounded(expected)} labels ({rounded(low)} to {_upto(high, self.largest)})"
        if expected > FAR * self.largest:
            lowest = f", though {rounded(low)} may do" if low <= FAR * self.largest else ""
            return f"{goal} is out of sight: more than {FAR} times the {self.largest:,} labels at hand{lowest}"
        more = (max(0.0, value - self.largest) for value in (expected, low))
        about, least = map(rounded, more)
        most = _upto(high - self.largest, FAR * self.largest)
        return f"about {about} more labels for {goal} ({least} to {most} more, in 9 of 10 refits)"


def fit(scores: Mapping[int, Sequence[float]]) -> PowerLaw:
    """The power law nearest to the mean scores by number of labels, each size weighted by how sure its mean is.

    For each exponent tried, scale and floor are a least-squares problem with two unknowns that must not be negative.
    """
    from scipy.optimize import nnls

    sizes = np.array(sorted(scores), dtype=float)
    means = np.array([np.mean(scores[int(size)]) for size in sizes])
    weights = 1 / _errors([scores[int(size)] for size in sizes])
    best: tuple[float, PowerLaw] | None = None
    for exponent in EXPONENTS:
        design = np.stack([np.ones(len(sizes)), (sizes / sizes[0]) ** -exponent], axis=1)
        (floor, scale), distance = nnls(design * weights[:, None], (1 - means) * weights)
        if best is None or distance < best[0]:
            best = distance, PowerLaw(float(floor), float(scale * sizes[0] ** exponent), float(exponent))
    assert best is not None
    return best[1]


def extrapolate(scores: Mapping[int, Sequence[float]], seed: int = 0) -> Extrapolation | None:
    """The curve through scores of S seeds by number of labels; None with fewer than three sizes, or with one seed."""
    if len(scores) < SIZES or any(len(values) < 2 for values in scores.values()):
        return None
    law, strayed, drawn = fit(scores), _strayed(list(scores.values())), []
    freedom = sum(len(values) - 1 for values in scores.values())
    for draw in range(DRAWS):
        chance = rng(seed, "refit", draw)
        wider = math.sqrt(freedom / chance.chisquare(freedom))  # few runs do not know their own spread: Student's t
        drawn.append(
            fit({n: (law.score(n) + wider * chance.choice(strayed, len(values))).tolist() for n, values in scores.items()})
        )
    return Extrapolation(law, tuple(drawn), tuple(strayed), max(scores))


def hindsight(scores: Mapping[int, Sequence[float]]) -> tuple[int, float, tuple[float, float, float]] | None:
    """The largest size, its mean score, and what the smaller ones would have foretold of this mean; None where they are too few."""
    largest = max(scores)
    told = extrapolate({size: values for size, values in scores.items() if size < largest})
    return None if told is None else (largest, float(np.mean(scores[largest])), told.mean(largest, len(scores[largest])))


def rounded(labels: float) -> str:
    """Two digits say enough: ``rounded(1234)`` -> ``"1,200"``."""
    if not math.isfinite(labels):
        return "no number"
    digits = max(0, math.floor(math.log10(labels)) - 1) if labels >= 1 else 0
    return f"{round(labels, -digits):,.0f}"


def _upto(labels: float, most: float) -> str:
    return rounded(labels) if labels <= most else f"more than {rounded(most)}"


def _strayed(rows: Sequence[Sequence[float]]) -> list[float]:
    """What each score strays from the mean of its size; S of them stray less from their own mean than from the true one."""
    return [float((value - np.mean(values)) * math.sqrt(len(values) / (len(values) - 1))) for values in rows for value in values]


def _errors(rows: Sequence[Sequence[float]]) -> np.ndarray:
    """Standard errors of the means; the spread is pooled over sizes, as a few seeds say little of it."""
    spread = math.sqrt(float(np.mean([np.var(values, ddof=1) if len(values) > 1 else 0.0 for values in rows]))) or 1.0
    return np.array([spread / math.sqrt(len(values)) for values in rows])
