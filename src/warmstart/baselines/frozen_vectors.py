"""Classifiers on vectors of a frozen backbone, from scikit-learn: what its features give without any fine-tuning.

Each dimension is standardised: otherwise the few dimensions that are large in most Transformers would hide all others.

Letters: N texts, D width.
"""

from __future__ import annotations

import numpy as np

from warmstart.baselines.baseline import Readable, Reading, Sample
from warmstart.baselines.one_label import ClassSample, for_labels
from warmstart.stack.readout import NeighbourReadout
from warmstart.stack.rows import VectorRows

VECTOR_STRENGTHS = (0.01, 0.001, 0.1, 1.0)
"""values of C of a logistic regression"""
VECTOR_PENALTIES = (100.0, 10.0, 1000.0, 10_000.0)
"""values of alpha of a ridge regression: dimensions of variance 1 need more than texts of length 1"""
NEIGHBOUR_COUNTS = (10.0, 1.0, 3.0, 30.0)


def standardised(readable: Readable) -> Reading:
    """Rows are (N, D) vectors, of which each dimension has mean 0 and variance 1 over the texts that learn."""
    from sklearn.preprocessing import StandardScaler

    vectors = readable.vectors
    assert vectors is not None, "a baseline that needs vectors is run with a function that gives them"
    readable.words_of()
    scaler = StandardScaler().fit(np.asarray(vectors(readable.inputs), dtype=np.float64))
    rows = VectorRows(vectors, scaler.mean_, scaler.scale_)
    return Reading(rows, saved=rows)


@for_labels
def nearest_texts(sample: ClassSample, count: float) -> NeighbourReadout:
    """The classes of the ``count`` texts with the largest cosine, the nearer ones counting more."""
    targets = np.eye(sample.labels.max() + 1)[sample.labels]
    return NeighbourReadout(sample.rows, targets, np.zeros(targets.shape[1]), min(int(count), len(targets)), "cosine")


def nearest_numbers(sample: Sample, count: float) -> NeighbourReadout:
    """The mean number of the ``count`` texts with the largest cosine, the nearer ones counting more."""
    targets = np.asarray(sample.labels, dtype=np.float64)[:, None]
    return NeighbourReadout(sample.rows, targets, np.zeros(1), min(int(count), len(targets)), "cosine", numbers=True)
