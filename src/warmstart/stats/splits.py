"""Coverage of intervals for the chance of the split into training, validation and test texts, and its sentences."""

from __future__ import annotations

THIS_SPLIT = "These intervals hold for this one split into training and test texts; another split would give other scores."
ONE_SPLIT = f"{THIS_SPLIT[:-1]} (`warmstart race --resample` draws new ones)."
"""this sentence where a race is an answer to it"""
NEW_SPLITS = (
    "Every seed drew its own split of all labelled texts, so these scores are not comparable to published ones on the original "
    "test texts."
)


def share_training_texts(labels: int, available: int, seeds: int) -> bool:
    """True if the runs of S ``seeds`` train on too many of the same texts for their spread to cover other training texts.

    Every seed draws ``labels`` of the ``available`` texts, the fraction f. Of V, what other training texts would change in a run,
    the mean over seeds has f V + (1 - f) V / S, but its spread over seeds shows the second part only (the finite population
    correction; Cochran 1977, section 2.6). The first is the larger one if S f > 1 - f, that is (S + 1) labels > available.
    Simulation: tests/test_resample.py: ``test_intervals_cover_other_training_texts_if_seeds_share_few``.

    >>> share_training_texts(100, 500, 5), share_training_texts(100, 1000, 5)
    (True, False)
    """
    return (seeds + 1) * labels > available
