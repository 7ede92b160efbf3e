"""Nearest neighbours by cosine, the cosines of random pairs, self-similarity, and analogies.

In many models all hidden states point in similar directions, and random words have a high cosine too (anisotropy). So every cosine
should be compared with that of random pairs (Ethayarajh 2019, "How contextual are contextualized word representations?").

Letters: W words, M selected words, N occurrences, L depth, D width, Q questions, K neighbours, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.data.analogies import Analogy
from warmstart.inspection.lexicon import Lexicon
from warmstart.seeding import rng
from warmstart.stats.intervals import Estimate
from warmstart.stats.resampling import resample_counts, two_way_bootstrap

_PAIRED = 1000
"""words of which all pairs are compared"""
_CHUNK = 256
"""questions answered at a time"""


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """(..., D): ``vectors`` (..., D) scaled to length 1; a zero vector stays zero."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))


def nearest_neighbours(vectors: np.ndarray, selected: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest words to each of the words ``selected`` (M,) among ``vectors`` (W, D), nearest first, itself left out.

    Returns their indices and cosines, (M, K) each, where K is ``count``, or W - 1 if that is less.
    """
    units = unit_vectors(vectors)
    cosines = units[selected] @ units.T  # (M, W)
    cosines[np.arange(len(selected)), selected] = -np.inf
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(count, len(vectors) - 1)]
    return order, np.take_along_axis(cosines, order, axis=1)


def random_pair_cosines(vectors: np.ndarray, seed: int) -> np.ndarray:
    """(pairs,) the cosines of all pairs among at most 1,000 random words of ``vectors`` (W, D)."""
    chosen = rng(seed, "pairs").permutation(len(vectors))[:_PAIRED]
    units = unit_vectors(vectors[chosen])
    return np.asarray((units @ units.T)[np.triu_indices(len(units), 1)])


def neighbour_overlap(one: np.ndarray, other: np.ndarray, count: int) -> np.ndarray:
    """(W,) the fraction of each word's ``count`` nearest neighbours that the spaces ``one`` (W, D) and ``other`` (W, D) share."""
    everyone = np.arange(len(one))
    return row_overlap(*(nearest_neighbours(vectors, everyone, count)[0] for vectors in (one, other)))


def row_overlap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(W,) the fraction of each row of indices (W, K) that occurs in the same row of ``other`` (W, K)."""
    return np.array([len(np.intersect1d(a, b)) / len(a) for a, b in zip(one, other, strict=True)])


def mean_cosines(states: np.ndarray, seed: int, name: str) -> np.ndarray:
    """(1 + R, L + 1) the mean cosine over all pairs of different occurrences (N, L + 1, D), N >= 2, at each layer.

    The first row is the estimate, the others have the occurrences resampled (bootstrap); an occurrence is never paired with itself.
    """
    count = len(states)
    weights = resample_counts(count, rng(seed, "bootstrap", name), with_original=True)  # (1 + R, N)
    own = (weights**2).sum(axis=1)
    units = unit_vectors(states.astype(np.float64))
    sums = [((weights @ units[:, layer]) ** 2).sum(axis=1) for layer in range(states.shape[1])]
    return (np.stack(sums, axis=1) - own[:, None]) / np.maximum(count**2 - own, 1)[:, None]


@dataclass(frozen=True)
class AnalogyAnswers:
    """The answers to Q analogies by the offset of two words, and by the third word alone."""

    questions: Sequence[Analogy]
    answers: np.ndarray
    """(Q,) the index of the word nearest to b - a + c, the three given words left out"""
    correct: np.ndarray
    """(Q,) bool: whether it is the fourth word"""
    baseline_correct: np.ndarray
    """(Q,) bool: whether the word nearest to c alone is, the three left out likewise (ONLY-B; Linzen 2016)"""
    given_word_nearest: np.ndarray
    """(Q,) bool: whether the nearest word would be a given one, if they were not left out"""

    def gain(self, seed: int) -> Estimate:
        """The accuracy above the baseline's, with its 95% interval.

        Questions share their words, so pairs of words are resampled, not questions.
        """
        sides = [((one.section, *one.words[:2]), (one.section, *one.words[2:])) for one in self.questions]
        gains = self.correct.astype(float) - self.baseline_correct
        return two_way_bootstrap(gains, sides, rng(seed, "bootstrap", "analogies"))


def covered_analogies(lexicon: Lexicon, questions: Sequence[Analogy]) -> list[Analogy]:
    """The questions whose four words are all in the lexicon, as they are spelled or in lower case."""
    return [one for one in questions if all(lexicon.find(word) is not None for word in one.words)]


def answer_analogies(vectors: np.ndarray, lexicon: Lexicon, questions: Sequence[Analogy]) -> AnalogyAnswers:
    """Answer covered questions by 3CosAdd (Mikolov et al. 2013) among the words of ``vectors`` (W, D), ignoring case.

    Vectors are centred and scaled to length 1; the answer is the word with the highest cosine with b - a + c.
    """
    units = unit_vectors(vectors - vectors.mean(axis=0))
    folded = np.unique(np.array([word.lower() for word in lexicon.words]), return_inverse=True)[1]  # (W,) one number a form
    members = np.split(np.argsort(folded, kind="stable"), np.cumsum(np.bincount(folded))[:-1])
    indices = np.array([[lexicon.find(word) for word in one.words] for one in questions], dtype=np.int64)  # (Q, 4)
    given, rows_of = np.unique(indices[:, :3], return_inverse=True)
    cosines, rows_of = units[given] @ units.T, rows_of.reshape(-1, 3)  # of the given words with all: the sum needs no more
    answers, baseline, unrestricted = (np.empty(len(indices), dtype=np.int64) for _ in range(3))
    for first in range(0, len(indices), _CHUNK):
        rows = slice(first, first + _CHUNK)
        a, b, c = cosines[rows_of[rows].T]
        offset, alone = b - a + c, c.copy()
        unrestricted[rows] = offset.argmax(axis=1)
        for row, three in enumerate(indices[rows, :3]):
            left_out = np.concatenate([members[form] for form in folded[three]])
            offset[row, left_out] = alone[row, left_out] = -np.inf
        answers[rows], baseline[rows] = offset.argmax(axis=1), alone.argmax(axis=1)
    target = folded[indices[:, 3]]
    given_word_nearest = (folded[unrestricted][:, None] == folded[indices[:, :3]]).any(axis=1)
    return AnalogyAnswers(questions, answers, folded[answers] == target, folded[baseline] == target, given_word_nearest)
