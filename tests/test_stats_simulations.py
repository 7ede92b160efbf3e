"""What ``warmstart.stats`` says holds in simulation: coverage of intervals, false claims of tests. Each test prints its figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.figures import repeats
from warmstart.stats.multiple_testing import above_zero, max_statistic_threshold
from warmstart.stats.permutation import p_of_no_signal
from warmstart.stats.proportions import paired_proportions, unseen_label_share
from warmstart.stats.ratios import ClusteredRatio
from warmstart.stats.resampling import cluster_bootstrap
from warmstart.stats.scores import krippendorff_alpha, krippendorff_interval

pytestmark = pytest.mark.proofs


def draws(name: int) -> np.random.Generator:
    """A generator of its own for each simulation."""
    return np.random.default_rng([20261122, name])


def report(what: str, rate: float) -> float:
    """Print a figure of docs/reference/statistics.md, and return it."""
    print(f"{what}: {rate:.3f}")
    return rate


def test_differences_of_paired_proportions_hold_the_truth() -> None:
    """Two sides that are right together, in three groups of cases: 95% of intervals hold the difference.

    Of equal sides at most 5% are claimed to differ.
    """
    chance, held, claimed = draws(3), [], []
    for _ in range(2000):
        shared = chance.random((3, 60))
        one, other = ((shared + 0.5 * chance.random((3, 60)) < level).astype(float) for level in (1.0, 0.9))
        alike = (shared + 0.5 * chance.random((3, 60)) < 1.0).astype(float)
        found = paired_proportions(list(one), list(other))
        held.append(found.low <= 0.1 <= found.high)  # P(U + V/2 < 1) less P(U + V/2 < 0.9) = 0.75 - 0.65
        claimed.append(paired_proportions(list(one), list(alike)).sign != 0)
    assert 0.94 <= report("paired proportions, coverage", float(np.mean(held))) <= 0.97
    assert report("paired proportions, false claims", float(np.mean(claimed))) <= 0.05


def test_of_ten_equal_figures_few_are_above_zero() -> None:
    """Ten means of noise with intervals by resampling: in at most 5% of 500 experiments any is said to be above zero."""
    chance, claimed = draws(14), []
    for _ in range(500):
        found = [cluster_bootstrap(chance.normal(size=100), np.arange(100), 500) for _ in range(10)]
        claimed.append(any(above_zero(found)))
    assert report("any of ten equal figures above zero", float(np.mean(claimed))) < 0.05


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_largest_of_many_is_seldom_significant_by_chance(correlation: float) -> None:
    """Means of 30 columns of 25 values around 0: the largest exceeds the threshold of 199 sign flips in 5% of 2,000 experiments.

    So it does whether or not columns are correlated; Bonferroni's threshold is passed less often where they are.
    """
    from scipy.stats import t

    chance, passed, by_number = draws(13), [], []
    for _ in range(2000):
        values = np.sqrt(1 - correlation) * chance.normal(size=(25, 30)) + np.sqrt(correlation) * chance.normal(size=(25, 1))
        means = np.vstack([np.ones((1, 25)), chance.choice([-1.0, 1.0], (199, 25))]) @ values / 25
        found = np.abs(means) / np.sqrt(((values**2).mean(axis=0) - means**2) / 24)
        passed.append(found[0].max() > max_statistic_threshold(found.max(axis=1, keepdims=True))[0])
        by_number.append(found[0].max() > t.isf(0.025 / 30, 24))
    rate = report(f"largest of 30, correlation {correlation}, above the threshold", float(np.mean(passed)))
    alone = report(f"largest of 30, correlation {correlation}, above Bonferroni's", float(np.mean(by_number)))
    assert rate == pytest.approx(0.05, abs=2.5 * np.sqrt(0.05 * 0.95 / 2000))
    assert correlation == 0 or alone < rate


def _grouped(chance: np.random.Generator, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Values with mean 0 in groups of 1 to 9, half of whose variance is the group's, and the group of each."""
    owners = np.repeat(np.arange(groups), chance.integers(1, 10, groups))
    return chance.normal(size=groups)[owners] + chance.normal(size=len(owners)), owners


def test_cluster_bootstraps_hold_the_truth() -> None:
    """60 groups of unequal size: 92 to 96% of intervals hold the mean; as if the values were independent, fewer than 85% would."""
    chance, held, alone = draws(7), [], []
    for _ in range(repeats(800, 400)):
        values, owners = _grouped(chance, 60)
        found = cluster_bootstrap(values, owners, draws=400)
        held.append(found.low <= 0 <= found.high)
        alone.append(abs(values.mean()) <= 1.96 * values.std(ddof=1) / np.sqrt(len(values)))
    assert report("values taken as independent, coverage", float(np.mean(alone))) < 0.85
    assert 0.92 <= report("cluster bootstrap, coverage", float(np.mean(held))) <= 0.96


@pytest.mark.parametrize("clusters", [6, 40])
def test_ratios_over_clusters_hold_the_truth(clusters: int) -> None:
    """90 to 97% of intervals of a mean over tokens of few or many passages hold it; at most 8% of ratios of 0 are significant."""
    chance, held, claimed = draws(8), [], []
    for _ in range(800):
        values, owners = _grouped(chance, clusters)
        sums, counts = np.bincount(owners, values), np.bincount(owners)
        found = ClusteredRatio(np.asarray(sums.sum() / counts.sum()), sums, counts)
        low, high = found.interval(chance)
        held.append(bool(low <= 0 <= high))
        claimed.append(float(found.p_values()) < 0.05)
    assert 0.90 <= report(f"ratio over {clusters} clusters, coverage", float(np.mean(held))) <= 0.97
    assert report(f"ratio over {clusters} clusters, false claims", float(np.mean(claimed))) <= 0.08


def test_alpha_is_what_two_people_know_together() -> None:
    """People who know a text's label with this probability, and guess it otherwise: alpha is its square, within 0.01.

    Two answers then agree beyond chance exactly if both know (Krippendorff 2004). 40,000 texts with one to five answers each.
    """
    for knows in (0.0, 0.5, 0.8, 1.0):
        chance = np.random.default_rng(int(10 * knows))
        labels, asked = chance.integers(0, 3, 40_000), chance.integers(1, 6, 40_000)
        given = np.where(chance.random((40_000, 5)) < knows, labels[:, None], chance.integers(0, 3, (40_000, 5))).tolist()
        alpha = krippendorff_alpha([row[:count] for row, count in zip(given, asked, strict=True)])
        print(f"people know {knows} of the labels: alpha {alpha:.3f}, expected {knows**2:.3f}")
        assert alpha == pytest.approx(knows**2, abs=0.01)


def test_intervals_of_alpha_hold_the_truth() -> None:
    """Two people who know 80, 90 or 95% of labels, three equal ones or two of 80 and 20%: 95% intervals hold in 94 to 100%.

    Without the added disagreement 25 to 95% hold, few where 20 texts show no disagreement.
    """
    chance, draws = np.random.default_rng(4), repeats(1000, 100)
    for shares in ((1 / 3,) * 3, (0.8, 0.2)):
        for knows in (0.8, 0.9, 0.95):
            for texts in (20, 50):
                held = known = 0
                for _ in range(draws):
                    labels, guesses = (chance.choice(len(shares), size, p=shares) for size in ((texts, 1), (texts, 2)))
                    given = np.where(chance.random((texts, 2)) < knows, labels, guesses).tolist()
                    alpha, low, high = krippendorff_interval([[one] for one in given])
                    known += not math.isnan(alpha)
                    held += low <= knows**2 <= high
                print(f"{texts} texts, labels {shares}, people know {knows}: {held / known:.3f} of intervals hold the truth")
                assert held / known >= 0.85


DRAWS = repeats(600, 300)
EVEN, RARE, FIVE = (0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.15, 0.1, 0.05)


def kernels_of(chance: np.random.Generator, texts: int, leaning: np.ndarray, strength: float) -> list[np.ndarray]:
    """Inner products of words and of topic vectors: a ``strength`` of the texts has the topic ``leaning`` (N,), of eight."""
    words = chance.dirichlet(np.full(120, 0.1), 8)
    topics = np.where(chance.random(texts) < strength, leaning, chance.integers(0, 8, texts))
    counts = np.stack([chance.multinomial(20, words[topic]) for topic in topics]).astype(float)
    shares = np.eye(8)[topics] + chance.normal(0, 0.3, (texts, 8))
    return [rows @ rows.T for rows in (counts / np.linalg.norm(counts, axis=1, keepdims=True), shares)]


@pytest.mark.parametrize(("texts", "shares"), [(50, EVEN), (100, RARE), (50, FIVE), (100, FIVE)])
def test_labels_at_random_are_seldom_called_learnable(texts: int, shares: tuple[float, ...]) -> None:
    """p is at most 0.05 in 5% of draws without signal, the best of two representations counted; with signal in most."""
    chance = np.random.default_rng(texts + len(shares))
    labels = np.repeat(np.arange(len(shares)), np.round(texts * np.array(shares)).astype(int))
    learnable = [
        np.mean([p_of_no_signal(kernels_of(chance, texts, labels, strength), labels, chance, 99) <= 0.05 for _ in range(draws)])
        for strength, draws in ((0.0, DRAWS), (0.5, 50))
    ]
    print(f"{texts} texts, {shares}: learnable in {learnable[0]:.3f} of draws without signal, in {learnable[1]:.3f} with it")
    assert learnable[0] <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / DRAWS)
    assert learnable[1] > 0.5


def test_the_share_of_unseen_labels_is_estimated() -> None:
    """Hardly any bias over users of few and many labels; a user's own estimate is off by a few points."""
    chance = np.random.default_rng(0)
    for labels, texts, skew in ((80, 100, 0.3), (150, 50, 1.0), (20, 200, 1.5), (5, 100, 0.0)):
        shares = 1 / np.arange(1, labels + 1) ** skew
        shares /= shares.sum()
        drawn = [chance.choice(labels, texts, p=shares) for _ in range(1000)]
        off = np.array([unseen_label_share(one) - np.delete(shares, np.unique(one)).sum() for one in drawn])
        print(f"{labels} labels, {texts} texts: bias {100 * off.mean():+.2f} points, off by {100 * off.std():.1f}")
        assert abs(off.mean()) < 1 / texts + 4 * off.std() / np.sqrt(len(off))
        assert off.std() < 1 / np.sqrt(texts)
