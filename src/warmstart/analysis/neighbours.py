"""What lies near what: nearest words, how near random words are, how alike a word is to itself, and analogies.

Nearness is the cosine. In many models all states point one way, and random words have a high cosine too: every cosine is to be read
beside theirs (anisotropy; Ethayarajh 2019, "How contextual are contextualized word representations?").

Letters: W words, N occurrences, L depth, D width, Q questions, K neighbours, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.analysis.lexicon import Lexicon
from warmstart.data.analogies import Analogy
from warmstart.seeding import rng

RESAMPLES = 1000
PAIRED = 1000
"""words of which all pairs are compared"""
AT_ONCE = 256
"""questions answered at once"""


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., D) of length 1; a vector of length 0 stays."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))


def nearest(vectors: np.ndarray, places: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """For each of the words at ``places`` the K nearest others of ``vectors`` (W, D), nearest first: places and cosines."""
    made = unit(vectors)
    cosines = made[places] @ made.T
    cosines[np.arange(len(places)), places] = -np.inf
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(most, len(vectors) - 1)]
    return order, np.take_along_axis(cosines, order, axis=1)


def random_pairs(vectors: np.ndarray, seed: int) -> np.ndarray:
    """Cosines of all pairs among at most ``PAIRED`` random words of (W, D): what any two words have."""
    chosen = rng(seed, "pairs").permutation(len(vectors))[:PAIRED]
    made = unit(vectors[chosen])
    return np.asarray((made @ made.T)[np.triu_indices(len(made), 1)])


def shared_neighbours(one: np.ndarray, other: np.ndarray, most: int) -> np.ndarray:
    """(W,) which share of each word's K nearest is the same in two spaces (W, D)."""
    everyone = np.arange(len(one))
    return overlap(*(nearest(vectors, everyone, most)[0] for vectors in (one, other)))


def overlap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(W,) which share of each row of places (W, K) stands in the same row of the other."""
    return np.array([len(np.intersect1d(a, b)) / len(a) for a, b in zip(one, other, strict=True)])


def mean_cosines(states: np.ndarray, seed: int, name: str) -> np.ndarray:
    """(1 + R, L + 1) mean cosine of all pairs of different occurrences (N, L + 1, D), N >= 2, at each layer.

    The first row is as measured, the others have the occurrences resampled (bootstrap); an occurrence is never paired with itself.
    """
    count = len(states)
    weights = rng(seed, "bootstrap", name).multinomial(count, [1 / count] * count, size=RESAMPLES)
    weights = np.concatenate([np.ones((1, count)), weights])  # (1 + R, N)
    own = (weights**2).sum(axis=1)
    made = unit(states.astype(np.float64))
    sums = [((weights @ made[:, layer]) ** 2).sum(axis=1) for layer in range(states.shape[1])]
    return (np.stack(sums, axis=1) - own[:, None]) / np.maximum(count**2 - own, 1)[:, None]


@dataclass(frozen=True)
class Answered:
    """Q questions and what the offset of two words says, beside what the third word alone says."""

    questions: Sequence[Analogy]
    answers: np.ndarray
    """(Q,) the word nearest to b - a + c, the three given words left out"""
    right: np.ndarray
    """(Q,) whether it is the fourth"""
    floor: np.ndarray
    """(Q,) whether the word nearest to c alone is, the three left out likewise (ONLY-B; Linzen 2016)"""
    given: np.ndarray
    """(Q,) whether a given word would be the answer, were they not left out"""

    def gain(self, seed: int) -> tuple[float, float, float]:
        """How many more are right than on the floor, as a share, with a 95 % interval.

        Questions share their words, so the pairs of words are resampled, not the questions: a question is drawn as often as its
        first pair times its second. Resamples without any question are left out.
        """
        from scipy.sparse import coo_array

        sides = [(one.section, *pair) for one in self.questions for pair in (one.words[:2], one.words[2:])]
        names = {name: place for place, name in enumerate(dict.fromkeys(sides))}
        owners, size = np.array([names[side] for side in sides]).reshape(-1, 2).T, (len(names), len(names))
        gains = self.right.astype(float) - self.floor
        more, counts = (coo_array((values, owners), size).tocsr() for values in (gains, np.ones_like(gains)))
        weights = rng(seed, "bootstrap", "analogies").multinomial(len(names), [1 / len(names)] * len(names), size=RESAMPLES)
        won, drawn = (((weights @ table) * weights).sum(axis=1) for table in (more, counts))  # (R,)
        low, high = np.quantile(won[drawn > 0] / drawn[drawn > 0], [0.025, 0.975])
        return float(gains.mean()), float(low), float(high)


def covered(lexicon: Lexicon, questions: Sequence[Analogy]) -> list[Analogy]:
    """The questions whose four words are all in the lexicon, as they are spelled or in lower case."""
    return [one for one in questions if all(lexicon.find(word) is not None for word in one.words)]


def answer(vectors: np.ndarray, lexicon: Lexicon, questions: Sequence[Analogy]) -> Answered:
    """Answer covered questions by 3CosAdd (Mikolov et al. 2013) among the W words of ``vectors`` (W, D), whatever their case.

    Vectors lose their mean and are brought to length 1; the answer is the word of the highest cosine with b - a + c.
    """
    made = unit(vectors - vectors.mean(axis=0))
    folds = _folds([word.lower() for word in lexicon.words])
    members = np.split(np.argsort(folds, kind="stable"), np.cumsum(np.bincount(folds))[:-1])
    places = np.array([[lexicon.find(word) for word in one.words] for one in questions], dtype=np.int64)  # (Q, 4)
    used, where = np.unique(places[:, :3], return_inverse=True)
    near, where = made[used] @ made.T, where.reshape(-1, 3)  # cosines of the words given with all: the sum needs no more
    answers, alone, free = (np.empty(len(places), dtype=np.int64) for _ in range(3))
    for first in range(0, len(places), AT_ONCE):
        rows = slice(first, first + AT_ONCE)
        a, b, c = near[where[rows].T]
        said, nearest_to_c = b - a + c, c.copy()
        free[rows] = said.argmax(axis=1)
        for row, three in enumerate(places[rows, :3]):
            left_out = np.concatenate([members[fold] for fold in folds[three]])
            said[row, left_out] = nearest_to_c[row, left_out] = -np.inf
        answers[rows], alone[rows] = said.argmax(axis=1), nearest_to_c.argmax(axis=1)
    wanted = folds[places[:, 3]]
    given = (folds[free][:, None] == folds[places[:, :3]]).any(axis=1)
    return Answered(questions, answers, folds[answers] == wanted, folds[alone] == wanted, given)


def _folds(names: Sequence[str]) -> np.ndarray:
    """(W,) one number for all names that are alike."""
    return np.unique(np.array(names), return_inverse=True)[1]
