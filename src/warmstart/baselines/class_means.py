"""Nearest class mean by cosine: a classifier with nothing to fit but one scale, for which few labels are enough.

    m_c = mean of x_i / |x_i| over the n_c texts i of class c,    p(c | x) = softmax over c of scale cos(x, m_c) + ln(n_c + 3)

The class whose mean is nearest: nearest centroids without shrinkage, with frequencies of classes (Tibshirani et al. 2002, equation
6), here smoothed; the means are the prototypes of Snell et al. (2017, equations 1 and 2). The scale is the one of lowest
leave-one-out log loss. That needs no second fit: without text i, the sum of its class is less x_i / |x_i|, and no other changes.

Letters: N texts, D width, C classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import softmax

from warmstart.baselines.one_label import ClassSample, for_labels
from warmstart.stack.readout import LinearReadout
from warmstart.stats.calibration import fit_temperature

SCALE = 20.0
"""of cosines in the softmax: near the lowest loss on every development set, with 0, 50 and 100 labels"""
PRIOR_TEXTS = 3.0
"""added to the texts of each class, so that few of them do not rule a class out; set on the development sets"""


@for_labels
def class_means(sample: ClassSample, _: float) -> LinearReadout:
    """The class whose mean is nearest, with the scale that suits texts left out; a frequent class wins where two are as near."""
    counts = np.bincount(sample.labels) + PRIOR_TEXTS
    sums = class_sums(sample.rows, sample.labels, len(counts))
    nearest = nearest_prototype(sums, _held_out_scale(sample.rows, sample.labels, sums))
    return replace(nearest, bias=np.log(counts / counts.sum()))


def class_sums(rows: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """(C, D) the sum of the ``rows`` (N, D) of each class, each of length 1; zeros for a class without a text."""
    from sklearn.preprocessing import normalize

    return np.asarray(np.eye(classes)[labels].T @ normalize(rows))


def nearest_prototype(prototypes: np.ndarray, scale: float = SCALE) -> LinearReadout:
    """From (C, D) of any length; a class of which nothing is known has zeros, and is never predicted."""
    from sklearn.preprocessing import normalize

    known = prototypes.any(axis=1)
    bias = np.where(known | ~known.any(), 0.0, -np.inf)
    return LinearReadout(scale * normalize(prototypes).T, bias, unit_length=True)


def _held_out_scale(rows: np.ndarray, labels: np.ndarray, sums: np.ndarray) -> float:
    """The scale of lowest log loss for texts left out of their class's sum; ``SCALE`` if all are right, or alone in their class."""
    from sklearn.preprocessing import normalize

    unit, texts = normalize(rows), np.arange(len(labels))
    cosines = unit @ normalize(sums).T
    cosines[texts, labels] = (unit * normalize(sums[labels] - unit)).sum(axis=1)
    among = np.bincount(labels)[labels] > 1
    if not among.any():
        return SCALE
    return SCALE / fit_temperature(softmax(SCALE * cosines[among], axis=1), labels[among])
