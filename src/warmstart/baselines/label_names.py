"""Classification by what labels are called, with an encoder's vectors of texts and of names, all of length 1.

The prototype of a class is w n + the sum of its texts' vectors, where n is the vector of the label's name or description (class
means as prototypes: Snell et al. 2017, equation 1; names in place of texts: Chang et al. 2008, Yin et al. 2019). So w is the number
of texts that a name is worth. Probabilities are the softmax of a scale (``class_means.py``) times the cosine with each prototype.
Texts without labels refine the prototypes, each with its probabilities (soft k-means, Ren et al. 2018, equations 3 and 4). With
more labels a logistic regression is better, for which names are texts, too.
The vectors are as the backbone gives them: standardised, they would lose the mean that texts and names have in common.

Letters: N texts, M texts of the pool, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from warmstart.baselines.baseline import Readable, Reading, Sample, Vectors
from warmstart.baselines.class_means import class_sums, held_out_scale, nearest_prototype, with_frequencies
from warmstart.baselines.linear import logistic
from warmstart.stack.fitted import FittedBaseline
from warmstart.stack.readout import ConstantReadout, LinearReadout, Readout
from warmstart.stack.rows import VectorRows

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
    assert readable.vectors is not None, "a baseline that needs vectors is run with a function that gives them"
    readable.words_of()
    rows, names = _rows_and_names(readable.vectors, readable.task.label_meanings)
    return Reading(rows, rows(readable.pool) if readable.pool else None, rows, names)


def zero_shot(vectors: Vectors, meanings: Sequence[str]) -> FittedBaseline:
    """The label whose name is nearest, for (C,) ``meanings`` in words; it has read no text and no label."""
    rows, names = _rows_and_names(vectors, meanings)
    return FittedBaseline(rows, nearest_prototype(names))


def _rows_and_names(vectors: Vectors, meanings: Sequence[str]) -> tuple[VectorRows, np.ndarray]:
    """How texts become rows, and the (C, D) rows of what labels mean, of length 1; zeros for an empty meaning."""
    from sklearn.preprocessing import normalize

    names = normalize(vectors(meanings)) * np.array([[meaning != ""] for meaning in meanings])
    return VectorRows(vectors, np.zeros(names.shape[1]), np.ones(names.shape[1])), names


def nearest_name(sample: Sample, _: float) -> LinearReadout:
    """The label whose name is nearest; no label is learned from."""
    return nearest_prototype(sample.names)


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
