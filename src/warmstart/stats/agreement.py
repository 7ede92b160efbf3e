"""Agreement between people who label the same texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np


def krippendorff_alpha(answers: Iterable[Sequence[Hashable]]) -> float:
    """Krippendorff's alpha for names: 1 is full agreement, 0 what chance gives, below 0 systematic disagreement.

    Each of ``answers`` holds the labels that people gave one text, in any order; texts with fewer than two do not count. alpha =
    1 - observed / expected disagreement, where a text of m answers weighs 1 / (m - 1) (Krippendorff 2004, chapter 11). nan if
    there is nothing to compare, or only one label. Simulation: tests/test_agreement.py:
    ``test_alpha_is_what_two_people_know_together``; the published example: ``test_alpha_of_the_books_example``.

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
