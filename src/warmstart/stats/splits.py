"""Whether intervals cover the chance of the split into training, validation and test texts, and how a report says so."""

from __future__ import annotations

ONE_SPLIT = (
    "These intervals hold for this one split into training and test texts; another split would give other scores "
    "(`warmstart race --resample` draws new ones)."
)
NEW_SPLITS = (
    "Every seed drew its own split of all labelled texts, so these scores are not comparable to published ones on the original "
    "test texts."
)


def share_training_texts(labels: int, available: int) -> bool:
    """Whether the runs of all seeds train on much the same texts, so that their spread says little about other training texts.

    Every seed draws ``labels`` of the ``available`` texts. Two such samples share the fraction labels / available, and the variance
    over seeds leaves out that part of the variance over training texts (the finite population correction; Cochran 1977, section
    2.6): here, more than half. Half is held by tests/test_stats_simulations.py: ``test_seeds_that_share_texts_spread_less``.

    >>> share_training_texts(100, 150), share_training_texts(50, 150)
    (True, False)
    """
    return 2 * labels > available
