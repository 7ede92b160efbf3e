"""Learning from vectors of a frozen backbone, and from what labels are called, without any fine-tuning.

Letters: N texts, M texts of the pool, D width, C classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import softmax

from warmstart.baselines.baseline import Readable, Reading, Sample
from warmstart.baselines.classifiers import ClassSample, for_labels, logistic
from warmstart.stack.readout import ConstantReadout, LinearReadout, Readout
from warmstart.stack.rows import VectorRows
from warmstart.stats.calibration import fit_temperature

# Nearest class mean by cosine: a classifier with nothing to fit but one scale, for which few labels are enough.
#
#     m_c = mean of x_i / |x_i| over the n_c texts i of class c,    p(c | x) = softmax over c of scale cos(x, m_c) + ln(n_c + 3)
#
# The class whose mean is nearest: nearest centroids without shrinkage, with frequencies of classes (Tibshirani et al. 2002,
# equation 6), here smoothed; the means are the prototypes of Snell et al. (2017, equations 1 and 2). The scale is the one of lowest
# leave-one-out log loss. That needs no second fit: without text i, the sum of its class is less x_i / |x_i|, and no other changes.

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


# Classifiers on vectors of a frozen backbone, from scikit-learn: what its features give without any fine-tuning.
#
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
    return Reading(rows, saved=rows)


# Classification by what labels are called, with an encoder's vectors of texts and of names, all of length 1.
#
# The prototype of a class is w n + the sum of its texts' vectors, where n is the vector of the label's name or description (class
# means as prototypes: Snell et al. 2017, equation 1; names in place of texts: Chang et al. 2008, Yin et al. 2019). So w is the
# number of texts that a name is worth. Probabilities are the softmax of a scale, as above, times the cosine with each prototype.
# Texts without labels refine the prototypes, each with its probabilities (soft k-means, Ren et al. 2018, equations 3 and 4). With
# more labels a logistic regression is better, for which names are texts, too.
# The vectors are as the backbone gives them: standardised, they would lose the mean that texts and names have in common.

NAME_WEIGHTS = (3.0, 1.0, 10.0, 100.0)
"""texts that a name is worth"""
POOL_WEIGHTS = (0.1, 0.03, 0.3)
"""of a text without label; a labelled one has 1"""
POOL_STEPS = 10
VECTOR_POOL_LIMIT = 3000
"""texts of the pool that are read at most: each is read by a network"""
REGRESSION_STRENGTHS = (3.0, 1.0, 10.0, 30.0)
"""values of C"""
NAME_TEXTS = 10.0
"""texts that a name is worth in a regression"""


def with_label_names(readable: Readable) -> Reading:
    """Rows are (N, D) vectors, and there is one for what each label means; zeros where the task does not say that in words."""
    from sklearn.preprocessing import normalize

    assert readable.vectors is not None, "a baseline that needs vectors is run with a function that gives them"
    readable.words_of()
    meanings = readable.task.label_meanings
    names = normalize(readable.vectors(meanings)) * np.array([[meaning != ""] for meaning in meanings])
    rows = VectorRows(readable.vectors, np.zeros(names.shape[1]), np.ones(names.shape[1]))
    return Reading(rows, rows(readable.pool) if readable.pool else None, rows, names)


def nearest_mean(sample: Sample, weight: float) -> LinearReadout:
    """The class whose mean is nearest, to which its name counts as ``weight`` texts."""
    return _with_held_out_scale(sample, _prototypes(sample, weight))


def nearest_mean_em(sample: Sample, pool_weight: float) -> LinearReadout:
    """The same, of means to which texts of the pool count, too, as ``pool_weight`` texts: as much in a class as they seem to be.

    A frequent class wins where two are as near: a pool would draw the means of rare classes into frequent ones, and does where
    classes count alike (69.6% on average over the rows of ``python -m benchmarks label-names``, and 68.3% then).
    """
    from sklearn.preprocessing import normalize

    if sample.pool is None:
        return nearest_mean(sample, NAME_WEIGHTS[0])
    known = prototypes = _prototypes(sample, NAME_WEIGHTS[0])
    for _ in range(POOL_STEPS):
        nearest = with_frequencies(nearest_prototype(prototypes), sample.labels)
        prototypes = known + pool_weight * nearest(sample.pool).T @ normalize(sample.pool)
    return with_frequencies(_with_held_out_scale(sample, prototypes), sample.labels)


def logistic_with_names(sample: Sample, strength: float) -> Readout:
    """Logistic regression for which a name is ``NAME_TEXTS`` texts of its class; all classes together weigh the same."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import normalize

    named = np.flatnonzero(sample.names.any(axis=1))
    rows, labels = np.concatenate([normalize(sample.rows), sample.names[named]]), np.append(sample.labels, named)
    present, dense = np.unique(labels, return_inverse=True)
    if len(present) == 1:
        return ConstantReadout(np.eye(len(sample.names))[present[0]])
    weights = np.append(np.ones(len(sample.labels)), np.full(len(named), NAME_TEXTS))
    weights *= weights.sum() / len(present) / np.bincount(dense, weights)[dense]
    model = LogisticRegression(C=strength, max_iter=10_000).fit(rows, dense, weights)
    return replace(logistic(model).spread(present, len(sample.names)), unit_length=True)


def _prototypes(sample: Sample, weight: float) -> np.ndarray:
    """(C, D) the sum of the texts of each class and, as ``weight`` texts, its name."""
    return np.asarray(weight * sample.names + class_sums(sample.rows, sample.labels, len(sample.names)))


def _with_held_out_scale(sample: Sample, prototypes: np.ndarray) -> LinearReadout:
    return nearest_prototype(prototypes, held_out_scale(sample.rows, sample.labels, prototypes))
