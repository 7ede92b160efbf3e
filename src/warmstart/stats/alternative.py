"""May a model stand in for a person? Its answers beside those of several people to the same texts.

Letters: P people, N texts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FEWEST_PEOPLE, FEWEST_TEXTS = 3, 30
"""people whose answers are needed, and texts that each of them and two others must have answered"""
ADVANTAGE_OF_PEOPLE = 0.15
"""share of texts by which a person may be ahead and is still replaced: a model costs less (0.2 for experts, 0.1 for crowds)"""
_LEVEL, _MOST = 0.05, 0.5
"""rate of false discoveries, and share of people that the model must be able to replace"""


class AlternativeAnnotator(NamedTuple):
    """The outcome of the alternative annotator test."""

    replaced: int
    """people in whose place the model agrees with the others about as often"""
    people: int
    """people who were compared, P"""
    texts: int
    """texts that at least three people have answered"""
    advantage: float
    """share of texts on which the model agrees with the others as often as the person or more, in the mean over people"""

    @property
    def passes(self) -> bool:
        """True if the model can replace at least half of the people."""
        return self.replaced >= _MOST * self.people


def alternative_annotator_test(
    answers: np.ndarray, model: np.ndarray, margin: float = ADVANTAGE_OF_PEOPLE
) -> AlternativeAnnotator | None:
    """The people (P, N) in whose place a ``model`` (N,) could answer; numbers of labels, -1 for none. None if answers are too few.

    Each person in turn is left out: on a text the person is ahead if the others agree with the person more often than with the
    model. A one-sided t-test asks whether the person is ahead on fewer texts, by ``margin`` at most, than the model; p-values of
    the P tests are corrected for their dependence (Benjamini and Yekutieli 2001). The model passes if it can replace half of the
    people (Calderon, Reichart and Dror 2025). Simulation: tests/test_votes.py: ``test_worse_votes_rarely_replace_people``.

    >>> truth, noise = np.arange(200) % 3, np.random.default_rng(0)
    >>> people = np.where(noise.random((3, 200)) < 0.8, truth, (truth + 1) % 3)
    >>> alternative_annotator_test(people, truth).passes, alternative_annotator_test(people, (truth + 1) % 3).passes
    (True, False)
    """
    from scipy import stats

    known = (answers >= 0) & (model >= 0)
    known &= known.sum(axis=0) >= FEWEST_PEOPLE
    answers, known = answers[known.sum(axis=1) >= FEWEST_TEXTS], known[known.sum(axis=1) >= FEWEST_TEXTS]
    if len(answers) < FEWEST_PEOPLE:
        return None
    p_values, advantages = list[float](), list[float]()
    for person, (own, seen) in enumerate(zip(answers, known, strict=True)):
        others = np.delete(answers, person, axis=0)[:, seen]
        counted = np.delete(known, person, axis=0)[:, seen]
        by_model, by_person = ((counted & (others == side[seen])).sum(axis=0) for side in (model, own))
        lead = (by_person >= by_model).astype(float) - (by_model >= by_person)
        advantages.append(float(np.mean(by_model >= by_person)))
        certain = float(lead.mean() >= margin)
        p_values.append(certain if lead.std() == 0 else float(stats.ttest_1samp(lead, margin, alternative="less").pvalue))
    corrected = stats.false_discovery_control(p_values, method="by")
    texts = int((known.sum(axis=0) >= FEWEST_PEOPLE).sum())
    return AlternativeAnnotator(int((corrected < _LEVEL).sum()), len(answers), texts, float(np.mean(advantages)))
