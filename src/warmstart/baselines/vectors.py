"""Learning from vectors of a frozen backbone, and from what labels are called, without any fine-tuning.

Letters: N texts, M texts of the pool, D width, C classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import softmax

from warmstart.baselines.baseline import Readable, Reading, Sample
from warmstart.baselines.classifiers import fitted_logistic
from warmstart.baselines.span import span_of
from warmstart.model.readout import ConstantReadout, LinearReadout, Readout, of_unit_length
from warmstart.model.rows import VectorRows
from warmstart.stats.calibration import fit_temperature

# One classifier for each backbone: the geometric mean of two that err on other texts, ahead of either in the mean over the sets of
# development. Rows x are standardised, and of length 1.
#
#     p(c | x) = softmax over c of (scale cos(x, m_c) + w_c x + b_c) / 2
#
# m_c is the sum of the texts of class c and of its name, which counts as ``NAME_TEXTS`` (class means as prototypes: Snell et al.
# 2017, equations 1 and 2; names in place of texts: Chang et al. 2008, Yin et al. 2019). Names are centred among themselves: what
# they have in common sets them apart from texts, and no class from another. w and b are those of a logistic regression on the same
# texts and names. Texts without labels refine m, each with its probabilities (soft k-means, Ren et al. 2018, equations 3 and 4).

SCALE = 20.0
"""scale of cosines in the softmax: near the lowest loss on every development set, with 0, 50 and 100 labels"""
NOTHING_LEFT = 1e-9
"""a sum of vectors of length 1 that is as short is a rounding error"""
PRIOR_TEXTS = 3.0
"""texts added to those of each class, so that few of them do not rule a class out; set on the development sets"""
REGRESSION_STRENGTH = 10.0
"""C of the logistic regression, set on the development sets, where 3 and 30 are as good"""
NAME_TEXTS = 3.0
"""texts that a name is worth"""
POOL_WEIGHTS = (0.1, 0.03, 0.3)
"""candidate weights of a text without label; a labelled one has 1"""
POOL_STEPS = 10
VECTOR_POOL_LIMIT = 3000
"""texts of the pool that are read at most: each is read by a network"""


def with_names(readable: Readable) -> Reading:
    """Rows as ``standardised`` has them; and there is one for what each label means, of zeros if it does not say that in words."""
    reading = standardised(readable)
    rows, meanings = reading.rows, readable.task.label_meanings
    assert isinstance(rows, VectorRows), "what is standardised has the scale of each dimension"
    described, names = np.flatnonzero([*map(bool, meanings)]), np.zeros((len(meanings), len(rows.scale)))
    if len(described) > 1:
        vectors = of_unit_length(np.asarray(rows.vectors([meanings[i] for i in described]), dtype=np.float64))
        names[described] = of_unit_length((vectors - vectors.mean(axis=0)) / rows.scale)
    return replace(reading, names=names)


def means_and_regression(sample: Sample, _: float = 0.0) -> Readout:
    """The geometric mean of nearest class means and a logistic regression."""
    return _with_regression(sample, _prototypes(sample))


def means_and_regression_em(sample: Sample, pool_weight: float) -> Readout:
    """Class means, to which texts of the pool count as ``pool_weight`` texts by their probabilities, and logistic regression."""
    known = prototypes = _prototypes(sample)
    pool = of_unit_length(sample.rows[:0] if sample.pool is None else sample.pool)
    for _ in range(POOL_STEPS if len(pool) else 0):
        nearest = nearest_prototype(prototypes)
        guessed = replace(nearest, bias=nearest.bias + class_frequencies(sample))(pool)
        prototypes = known + pool_weight * guessed.T @ pool
    return _with_regression(sample, prototypes)


def _prototypes(sample: Sample) -> np.ndarray:
    """(C, D) the sum of the texts of each class and of its name."""
    assert sample.names is not None, "rows are read with names of labels"
    return np.asarray(NAME_TEXTS * sample.names + class_sums(sample.rows, sample.labels, len(sample.names)))


def _with_regression(sample: Sample, prototypes: np.ndarray) -> Readout:
    """The geometric mean of the class with the nearest of the ``prototypes`` (C, D) and a logistic regression."""
    classes, named = len(prototypes), np.flatnonzero(sample.names.any(axis=1))
    rows = np.concatenate([of_unit_length(sample.rows), sample.names[named]])
    present, dense = np.unique(np.append(sample.labels, named), return_inverse=True)
    if len(present) == 1:
        return ConstantReadout(np.eye(classes)[present[0]])
    nearest = nearest_prototype(prototypes)
    texts = np.append(np.ones(len(sample.labels)), np.full(len(named), NAME_TEXTS))
    span = span_of(rows)
    turned = fitted_logistic(span.rows if span else rows, dense, REGRESSION_STRENGTH, texts, equal=sample.equal)
    learned = (span.on_columns(turned) if span else turned).spread(present, classes)
    bias = nearest.bias + class_frequencies(sample) + learned.bias
    return LinearReadout((nearest.weights + learned.weights) / 2, bias / 2, unit_length=True)


def class_frequencies(sample: Sample) -> np.ndarray:
    """(C,) ln(n_c + 3) of the n_c texts of each class, less that of all; zeros where all classes count alike."""
    counts = np.bincount(sample.labels, minlength=len(sample.task.labels)) + PRIOR_TEXTS
    return np.zeros(len(counts)) if sample.equal else np.log(counts / counts.sum())


def class_sums(rows: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """(C, D) the sum of the ``rows`` (N, D) of each class, each of length 1; zeros for a class without a text."""
    return np.asarray(np.eye(classes)[labels].T @ of_unit_length(rows))


def nearest_prototype(prototypes: np.ndarray, scale: float = SCALE) -> LinearReadout:
    """A readout of (C, D) ``prototypes`` of any length; a class of which nothing is known has zeros, and is never predicted."""
    known = prototypes.any(axis=1)
    bias = np.where(known | ~known.any(), 0.0, -np.inf)
    return LinearReadout(scale * of_unit_length(prototypes).T, bias, unit_length=True)


def held_out_scale(rows: np.ndarray, labels: np.ndarray, sums: np.ndarray) -> float:
    """The scale of lowest log loss for texts left out of the (C, D) ``sums``, which may hold more than texts, such as names.

    It is ``SCALE`` if all are right, or if nothing else is known of their classes.
    """
    unit, known = of_unit_length(rows), sums.any(axis=1)
    others = sums[labels] - unit
    among = np.linalg.norm(others, axis=1) > NOTHING_LEFT
    if not among.any():
        return SCALE
    cosines = unit @ of_unit_length(sums).T
    cosines[np.arange(len(labels)), labels] = (unit * of_unit_length(others)).sum(axis=1)
    dense = np.cumsum(known)[labels[among]] - 1
    return SCALE / fit_temperature(softmax(SCALE * cosines[among][:, known], axis=1), dense)


# Each dimension is standardised: otherwise the few dimensions that are large in most Transformers would hide all others.

VECTOR_STRENGTHS = (0.01, 0.001, 0.1, 1.0)
"""values of C of a logistic regression"""
VECTOR_PENALTIES = (100.0, 10.0, 1000.0, 10_000.0)
"""values of alpha of a ridge regression: dimensions of variance 1 need more than texts of length 1"""


def standardised(readable: Readable) -> Reading:
    """Rows are (N, D) vectors, of which each dimension has mean 0 and variance 1 over the texts that learn."""
    from sklearn.preprocessing import StandardScaler

    vectors = readable.vectors
    assert vectors is not None, "a baseline that needs vectors is run with a function that gives them"
    readable.words_of()
    scaler = StandardScaler().fit(np.asarray(vectors(readable.inputs), dtype=np.float64))
    rows = VectorRows(vectors, scaler.mean_, scaler.scale_)
    return Reading(rows, rows(readable.pool) if readable.pool else None, rows)
