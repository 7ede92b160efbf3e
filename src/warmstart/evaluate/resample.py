"""Scores on resamples of the test split: the same draws for every method, so that methods can be compared resample by resample.

Letters: N texts, C classes, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warmstart.seeding import rng

DRAWS = 1000
"""resamples; the bounds of an interval are then good to a twentieth of its width"""


def draw(count: int, draws: int = DRAWS) -> Iterator[np.ndarray]:
    """Places (N,) of the texts of each resample; they depend on ``count``, the number N of texts, alone."""
    for number in range(draws):
        yield rng(count, "resample", number).integers(0, count, count)


def resampled(metric: str, labels: np.ndarray, answers: np.ndarray, classes: int, draws: int = DRAWS) -> np.ndarray:
    """(R,) the ``metric`` of ``answers`` (N,) against ``labels`` (N,) on resamples of the texts.

    The draws depend on N alone. A resample is told by its confusion: how often each pair of true and given class was drawn.
    """
    count, cells = len(labels), labels * classes + answers
    kinds, places = np.unique(cells, return_inverse=True)
    absent = np.bincount(np.concatenate([labels, answers]), minlength=classes) == 0
    out = np.empty(draws)
    for number, chosen in enumerate(draw(count, draws)):
        counts = np.zeros(classes * classes)
        counts[kinds] = np.bincount(places[chosen], minlength=len(kinds))
        confusion = counts.reshape(classes, classes)
        right = np.diag(confusion)
        both = confusion.sum(axis=0) + confusion.sum(axis=1)
        out[number] = right.sum() / count if metric == "accuracy" else drawn_f1(right, both, absent)
    return out


def drawn_f1(right: np.ndarray, both: np.ndarray, absent: np.ndarray) -> float:
    """Macro F1 of a resample: the mean over the classes that were drawn; ``absent`` (C,) classes stand nowhere in all texts.

    ``right`` (C,) counts right answers, ``both`` (C,) texts with that label and answers that give it. A class that only this
    resample has nothing of says nothing; absent ones count 0, and weigh as much as they do in the score of all texts.
    """
    drawn = both > 0
    return float((2 * right[drawn] / both[drawn]).mean() * (1 - absent.mean())) if drawn.any() else 0.0
