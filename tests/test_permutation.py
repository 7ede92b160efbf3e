"""The permutation test of whether anything can be learned from labels, on texts of random topics."""

from __future__ import annotations

import numpy as np
import pytest

from warmstart.stats.permutation import p_of_no_signal

DRAWS = 600
EVEN, RARE, FIVE = (0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.15, 0.1, 0.05)


def kernels_of(chance: np.random.Generator, texts: int, leaning: np.ndarray, strength: float) -> list[np.ndarray]:
    """Inner products of words and of topic vectors: a ``strength`` of the texts has the topic ``leaning`` (N,), of eight."""
    words = chance.dirichlet(np.full(120, 0.1), 8)
    topics = np.where(chance.random(texts) < strength, leaning, chance.integers(0, 8, texts))
    counts = np.stack([chance.multinomial(20, words[topic]) for topic in topics]).astype(float)
    shares = np.eye(8)[topics] + chance.normal(0, 0.3, (texts, 8))
    return [rows @ rows.T for rows in (counts / np.linalg.norm(counts, axis=1, keepdims=True), shares)]


@pytest.mark.proofs
@pytest.mark.parametrize(("texts", "shares"), [(50, EVEN), (100, RARE), (50, FIVE), (100, FIVE)])
def test_labels_at_random_are_seldom_called_learnable(texts: int, shares: tuple[float, ...]) -> None:
    """p is at most 0.05 in 5% of draws without signal, the best of two representations counted; with signal in most."""
    chance = np.random.default_rng(texts + len(shares))
    labels = np.repeat(np.arange(len(shares)), np.round(texts * np.array(shares)).astype(int))
    learnable = [
        np.mean([p_of_no_signal(kernels_of(chance, texts, labels, strength), labels, chance, 99) <= 0.05 for _ in range(draws)])
        for strength, draws in ((0.0, DRAWS), (0.5, 100))
    ]
    print(f"{texts} texts, {shares}: learnable in {learnable[0]:.3f} of draws without signal, in {learnable[1]:.3f} with it")
    assert learnable[0] <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / DRAWS)
    assert learnable[1] > 0.5


def test_nothing_is_learned_from_texts_that_are_all_the_same() -> None:
    """Nor without any representation, or from a single class: p is 1."""
    chance, labels = np.random.default_rng(0), np.arange(20) % 2
    assert p_of_no_signal([np.ones((20, 20))], labels, chance) == 1
    assert p_of_no_signal([], labels, chance) == 1
    assert p_of_no_signal([np.eye(20)], np.zeros(20), chance) == 1
