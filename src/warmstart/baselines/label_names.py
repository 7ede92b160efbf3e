"""Classification by what labels are called: the nearest label name, or the nearest mean of a class and its name.

The prototype of a class is w n + the sum of its texts' vectors, all of length 1, where n is the vector of the label's name or
description (class means as prototypes: Snell et al. 2017, equation 1; names in place of texts: Chang et al. 2008, Yin et al. 2019).
So w is the number of texts that a name is worth. Probabilities are the softmax of ``SCALE`` times the cosine with each prototype.
The vectors are as the backbone gives them: standardised, they would lose the mean that texts and names have in common.

Letters: N texts, D width, C classes.
"""

from __future__ import annotations

import numpy as np

from warmstart.baselines.baseline import Readable, Reading, Sample
from warmstart.stack.readout import LinearReadout
from warmstart.stack.rows import VectorRows

NAME_WEIGHTS = (3.0, 1.0, 10.0, 100.0)
"""texts that a name is worth"""
SCALE = 20.0
"""of cosines in the softmax: near the lowest loss on every development set, with 0, 50 and 100 labels"""


def with_label_names(readable: Readable) -> Reading:
    """Rows are (N, D) vectors, and there is one for what each label means; zeros where the task does not say that in words."""
    from sklearn.preprocessing import normalize

    vectors, meanings = readable.vectors, readable.task.label_meanings
    assert vectors is not None, "a baseline that needs vectors is run with a function that gives them"
    readable.words_of()
    width = np.asarray(vectors(readable.inputs[:1])).shape[1]
    names, known = np.zeros((len(meanings), width)), [i for i, meaning in enumerate(meanings) if meaning]
    if known:
        names[known] = normalize(vectors([meanings[i] for i in known]))
    rows = VectorRows(vectors, np.zeros(width), np.ones(width))
    return Reading(rows, saved=rows, names=names)


def nearest_name(sample: Sample, _: float) -> LinearReadout:
    """The label whose name is nearest; no label is learned from."""
    return _nearest(sample.names)


def nearest_mean(sample: Sample, weight: float) -> LinearReadout:
    """The class whose mean is nearest, to which its name counts as ``weight`` texts."""
    from sklearn.preprocessing import normalize

    return _nearest(weight * sample.names + np.eye(len(sample.names))[sample.labels].T @ normalize(sample.rows))


def _nearest(prototypes: np.ndarray) -> LinearReadout:
    """From (C, D) of any length; a class of which neither a text nor a name is known has zeros, and is never predicted."""
    from sklearn.preprocessing import normalize

    known = prototypes.any(axis=1)
    bias = np.where(known | ~known.any(), 0.0, -np.inf)
    return LinearReadout(SCALE * normalize(prototypes).T, bias, unit_length=True)
