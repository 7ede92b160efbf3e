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
NOTHING_LEFT = 1e-9
"""a sum of vectors of length 1 that is as short is a rounding error"""
PRIOR_TEXTS = 3.0
"""added to the texts of each class, so that few of them do not rule a class out; set on the development sets"""


@for_labels
def class_means(sample: ClassSample, _: float) -> LinearReadout:
    """The class whose mean is nearest, with the scale that suits texts left out; a frequent class wins where two are as near."""
    sums = class_sums(sample.rows, sample.labels, sample.labels.max() + 1)
    return with_frequencies(nearest_prototype(sums, held_out_scale(sample.rows, sample.labels, sums)), sample.labels)


def with_frequencies(nearest: LinearReadout, labels: np.ndarray) -> LinearReadout:
    """The same with ln(n_c + 3) added, n_c being how many of the ``labels`` (N,) are c."""
    counts = np.bincount(labels, minlength=nearest.columns) + PRIOR_TEXTS
    return replace(nearest, bias=nearest.bias + np.log(counts / counts.sum()))


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


def held_out_scale(rows: np.ndarray, labels: np.ndarray, sums: np.ndarray) -> float:
    """The scale of lowest log loss for texts left out of the (C, D) ``sums``, which may hold more than texts, such as names.

    It is ``SCALE`` if all are right, or if nothing else is known of their classes.
    """
    from sklearn.preprocessing import normalize

    unit, known = normalize(rows), sums.any(axis=1)
    others = sums[labels] - unit
    among = np.linalg.norm(others, axis=1) > NOTHING_LEFT
    if not among.any():
        return SCALE
    cosines = unit @ normalize(sums).T
    cosines[np.arange(len(labels)), labels] = (unit * normalize(others)).sum(axis=1)
    dense = np.cumsum(known)[labels[among]] - 1
    return SCALE / fit_temperature(softmax(SCALE * cosines[among][:, known], axis=1), dense)
