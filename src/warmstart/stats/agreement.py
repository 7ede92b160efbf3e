"""Agreement between people who label the same texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.intervals import Estimate, percentiles
from warmstart.stats.resampling import resample_counts


def krippendorff_alpha(answers: Iterable[Sequence[Hashable]]) -> float:
    """Krippendorff's alpha for names: 1 is full agreement, 0 what chance gives, below 0 systematic disagreement.

    Each of ``answers`` holds the labels that people gave one text, in any order; texts with fewer than two do not count. alpha =
    1 - observed / expected disagreement, where a text of m answers weighs 1 / (m - 1) (Krippendorff 2004, chapter 11). nan if
    there is nothing to compare, or only one label. Simulation: tests/test_stats_simulations.py:
    ``test_alpha_is_what_two_people_know_together``; a published example is reproduced, too.

    >>> krippendorff_alpha([["a", "a"], ["b", "b"], ["a", "b"]])
    0.4444444444444444
    """
    texts = [text for text in answers if len(text) > 1]
    totals, observed = Counter[Hashable](), 0.0
    for text in texts:
        counts = Counter(text)
        totals.update(counts)
        observed += sum(count * (len(text) - count) for count in counts.values()) / (len(text) - 1)
    number = sum(totals.values())
    expected = (number**2 - sum(count**2 for count in totals.values())) / (number - 1) if number > 1 else 0.0
    return 1 - observed / expected if expected else float(np.nan)


def krippendorff_interval(texts: Sequence[Sequence[Sequence[Hashable]]]) -> Estimate:
    """Krippendorff's alpha with its 95% interval for other texts; nan where ``krippendorff_alpha`` is.

    Each of ``texts`` holds the units of one text, such as its words, and each unit the labels that people gave it. The interval is
    a percentile bootstrap over texts (Efron and Tibshirani 1993, chapter 13). For its low end two different labels for one more
    text are added, because few texts without any disagreement do not prove that there is none. Simulation:
    tests/test_stats_simulations.py: ``test_intervals_of_alpha_hold_the_truth``.

    >>> alpha, low, high = krippendorff_interval([[["a", "a"]], [["b", "b"]]] * 10)
    >>> alpha, round(low, 1), high
    (1.0, 0.7, 1.0)
    """
    units = [(number, Counter(unit)) for number, text in enumerate(texts) for unit in text if len(unit) > 1]
    place = {label: column for column, label in enumerate(dict.fromkeys(label for _, unit in units for label in unit))}
    alpha = krippendorff_alpha(unit for text in texts for unit in text)
    if np.isnan(alpha):
        return Estimate(alpha, alpha, alpha)
    counts, observed = np.zeros((len(texts), len(place))), np.zeros(len(texts))
    for number, unit in units:
        for label, count in unit.items():
            counts[number, place[label]] += count
            observed[number] += count * (unit.total() - count) / (unit.total() - 1)
    kept = counts.any(axis=1)
    counts, observed = counts[kept], observed[kept]
    apart = np.isin(np.arange(len(place)), np.argsort(-counts.sum(axis=0), kind="stable")[:2]).astype(float)
    _, high = percentiles(_resampled_alpha(counts, observed))
    low, _ = percentiles(_resampled_alpha(np.vstack([counts, apart]), np.append(observed, 2.0)))
    return Estimate(alpha, float(low), float(high))


def _resampled_alpha(counts: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Alpha of each resample of texts with these counts of labels (N, C) and disagreements (N,); without those of one label."""
    weights = resample_counts(len(counts), rng(len(counts), "alpha"))
    totals = weights @ counts
    number = totals.sum(axis=1)
    expected = (number**2 - (totals**2).sum(axis=1)) / (number - 1)
    known = expected > 0
    return np.asarray(1 - (weights @ observed)[known] / expected[known])
