"""The result of a learning curve without running one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from helpers.races import race_result, ranked_method
from helpers.tasks import cats
from warmstart.data.audit import audit
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.curve import CurveResult
from warmstart.experiment.ranking import RankedMethod
from warmstart.experiment.trial import Method

SHAPE = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
OTHER = np.array([0.5, -1.0, 0.0, 1.0, -0.5])


def ranked(name: str, family: str, mean: float, spread: np.ndarray) -> RankedMethod:
    """Five seeds around a mean; the uncertainty over test texts is small."""
    chance = np.random.default_rng(0).normal(0, 0.002 if family == "adapted" else 0.001, 100)
    scores = mean + spread
    return ranked_method(Method(name=name, family=family), *[scores.tolist(), scores[:, None] + chance] * 2)  # type: ignore[arg-type]


def curve_of(*rows: tuple[int, float, float], names: tuple[str, ...] = ("",)) -> CurveResult:
    """A curve of (labels, lead in score, spread of seeds) of ``lp-ft`` over ``from scratch``, for each backbone named."""
    rankings = {}
    for labels, lead, spread in rows:
        found = [ranked(f"lp-ft{name}", "adapted", 0.9, spread * SHAPE) for name in names]
        found += [ranked(f"from scratch{name}", "scratch", 0.9 - lead, spread * OTHER) for name in names]
        rankings[labels] = tuple(found)
    return CurveResult(cats(), rankings, (), {}, None, audit(cats()))


def race_with(curve: CurveResult) -> Comparison:
    """The comparison at the largest number of labels of a curve."""
    found = race_result({"lp-ft": 0.9, "TF-IDF": 0.8}, curve.seeds)
    return replace(found, labels=curve.largest, curve=curve)
