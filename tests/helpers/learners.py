"""Two small learners and a population of texts, whose learning curves are what they are: nobody chose their form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

VOCABULARY, LENGTH = 300, 15
Learner = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]]
"""counts of words (N, V) and classes (N,) of 0 and 1 -> weights (V,) and bias; class 1 above 0"""


def naive_bayes(counts: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """Multinomial, with one count added to every word."""
    logs = [np.log((counts[labels == k].sum(axis=0) + 1) / (counts[labels == k].sum() + VOCABULARY)) for k in (0, 1)]
    return logs[1] - logs[0], math.log((labels == 1).mean() / (labels == 0).mean())


def nearest_mean(counts: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """The class with the nearer mean."""
    means = [counts[labels == k].mean(axis=0) for k in (0, 1)]
    return means[1] - means[0], float(means[0] @ means[0] - means[1] @ means[1]) / 2


@dataclass(frozen=True)
class Population:
    """All texts there are: counts of words (N, V) and classes (N,)."""

    counts: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, size: int, seed: int, tilt: float) -> Population:
        """Words are as frequent as Zipf says, each e^tilt times or so more frequent in one class; one label in 20 is wrong."""
        chance = np.random.default_rng(seed)
        words = np.exp(np.outer([-0.5, 0.5], chance.normal(0, tilt, VOCABULARY))) / np.arange(1, VOCABULARY + 1)
        labels = np.arange(size) % 2
        counts = np.zeros((size, VOCABULARY), dtype=np.float32)
        for k in (0, 1):
            rows = np.flatnonzero(labels == k)
            counts[rows] = chance.multinomial(chance.poisson(LENGTH, len(rows)) + 1, words[k] / words[k].sum())
        return cls(counts, np.where(chance.random(size) < 0.05, 1 - labels, labels))

    def right(self, learner: Learner, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """(N,) which texts at ``test`` are classified right after learning from those at ``train``."""
        weights, bias = learner(self.counts[train], self.labels[train])
        return np.asarray((self.counts[test] @ weights + bias > 0) == self.labels[test])

    def nested(self, pool: np.ndarray, sizes: Sequence[int], chance: np.random.Generator) -> list[np.ndarray]:
        """Stratified subsets of a pool, each part of the next."""
        one, zero = (chance.permutation(pool[self.labels[pool] == k]) for k in (1, 0))
        share = len(one) / len(pool)
        return [np.concatenate([one[: round(n * share)], zero[: n - round(n * share)]]) for n in sizes]

    def accuracies(self, learner: Learner, sizes: Sequence[int], draws: int, texts: int) -> list[float]:
        """The mean accuracy at each size, over training and test texts drawn from the population."""
        chance, found = np.random.default_rng(99), np.zeros(len(sizes))
        for _ in range(draws):
            drawn = chance.choice(len(self.labels), max(sizes) * 2 + texts, replace=False)
            subsets = self.nested(drawn[texts:], sizes, chance)
            found += [self.right(learner, one, drawn[:texts]).mean() for one in subsets]
        return [float(value) for value in found / draws]
