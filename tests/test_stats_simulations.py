"""What ``warmstart.stats`` says holds in simulation: coverage of intervals, false claims of tests. Each test prints its figures."""

from __future__ import annotations

import numpy as np
import pytest

from warmstart.stats.abstention import area_under_risk_coverage, risk_coverage
from warmstart.stats.coding import frequency_code_bits
from warmstart.stats.correlation import correlation_q_values
from warmstart.stats.differences import MethodScores, cheapest_within_noise
from warmstart.stats.goodness_of_fit import distance_from_normal
from warmstart.stats.multiple_testing import benjamini_hochberg, holm, max_statistic_threshold
from warmstart.stats.proportions import binomial_test, clopper_pearson_bound, paired_proportions, sign_test, wilson_interval
from warmstart.stats.ratios import ClusteredRatio
from warmstart.stats.resampling import cluster_bootstrap, jackknife
from warmstart.stats.splits import share_training_texts

pytestmark = pytest.mark.proofs


def draws(name: int) -> np.random.Generator:
    """A generator of its own for each simulation."""
    return np.random.default_rng([20261122, name])


def report(what: str, rate: float) -> float:
    """Print a figure of docs/reference/statistics.md, and return it."""
    print(f"{what}: {rate:.3f}")
    return rate


def test_wilson_intervals_hold_the_truth() -> None:
    """Averaged over proportions from 5 to 95%, 94 to 97% of Wilson's intervals hold the proportion."""
    for count in (20, 100, 500):
        held = []
        for proportion in np.linspace(0.05, 0.95, 19):
            drawn = draws(count).binomial(count, proportion, 1000)
            ends = {right: wilson_interval(right / count, count) for right in set(drawn.tolist())}
            held += [ends[right].low <= proportion <= ends[right].high for right in drawn.tolist()]
        assert 0.94 <= report(f"Wilson, {count} cases, coverage", float(np.mean(held))) <= 0.97


def test_the_exact_bound_is_kept() -> None:
    """The bound of Clopper and Pearson lies below the true error rate in at most 5% of samples."""
    bounds = np.array([clopper_pearson_bound(wrong, 100, 0.95) for wrong in range(101)])
    for rate in (0.02, 0.1, 0.3):
        drawn = draws(1).binomial(100, rate, 20_000)
        missed = report(f"Clopper-Pearson, error rate {rate}, bound too low", float((bounds[drawn] < rate).mean()))
        assert missed <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 20_000)


def test_sign_tests_of_equal_sides_are_seldom_significant() -> None:
    """At most 5% of experiments in which better and worse are equally likely."""
    for count in (20, 200):
        better = draws(2).binomial(count, 0.5, 20_000)
        p = np.array([sign_test(k, count - k) for k in range(count + 1)])
        assert p.tolist() == [binomial_test(k, count) for k in range(count + 1)]
        assert report(f"sign test, {count} pairs, false claims", float((p[better] < 0.05).mean())) <= 0.05


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


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_holm_keeps_the_family_wise_error_rate(correlation: float) -> None:
    """Of families of 8 tests, 4 of them of true effects, at most 5% claim any effect that does not exist, dependent or not."""
    from scipy.stats import norm

    chance = draws(4)
    shared = np.sqrt(correlation) * chance.normal(size=(10_000, 1))
    z = shared + np.sqrt(1 - correlation) * chance.normal(size=(10_000, 8)) + np.array([3.0] * 4 + [0.0] * 4)
    corrected = np.array([holm(row.tolist()) for row in 2 * norm.sf(np.abs(z))])
    wrong = report(f"Holm, correlation {correlation}, any false claim", float((corrected[:, 4:] < 0.05).any(axis=1).mean()))
    assert wrong <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 10_000)


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


@pytest.mark.parametrize("behind", [0.0, 1.0, 2.0])
def test_a_cheaper_method_is_kept_if_it_is_hardly_worse(behind: float) -> None:
    """A cheaper method that is truly so many standard errors worse is chosen with probability Phi(1 - behind): 84, 50 and 16%.

    Ten seeds and the texts as the only noise, so that the standard error is nearly known; within 4 points, of 3,000 pairs.
    """
    from scipy.stats import norm

    chance, kept = draws(14), []
    for _ in range(3000):
        seeds, texts = chance.normal(0, 0.02, (2, 10)), chance.normal(0, 0.01)
        error = np.hypot(0.02 * np.sqrt(2 / 10), 0.01)
        scores = 0.8 + seeds - np.array([[0.0], [behind * error]]) + np.array([[0.0], [texts]])
        around = np.stack([np.zeros(60), chance.normal(0, 0.01, 60)])[:, None]  # the two differ so on other texts
        best, cheap = (MethodScores("", tuple(row), row[:, None] + other) for row, other in zip(scores, around, strict=True))
        kept.append(cheapest_within_noise([best, cheap], best, [10.0, 1.0]) is cheap)
    rate = report(f"cheaper method {behind:g} standard errors behind, chosen", float(np.mean(kept)))
    assert rate == pytest.approx(norm.cdf(1 - behind), abs=0.04)


def test_benjamini_hochberg_keeps_the_false_discovery_rate() -> None:
    """Of 200 independent tests, 50 of them of true effects, on average at most 5% of the discoveries are false."""
    from scipy.stats import norm

    z = draws(5).normal(size=(2000, 200)) + np.repeat([3.0, 0.0], [50, 150])
    found = np.array([benjamini_hochberg(row) for row in 2 * norm.sf(np.abs(z))]) < 0.05
    false = found[:, 50:].sum(axis=1) / np.maximum(found.sum(axis=1), 1)
    assert 0.03 <= report("Benjamini-Hochberg, false discovery rate", float(false.mean())) <= 0.05


def test_correlations_of_nothing_are_seldom_discovered() -> None:
    """200 independent columns against one: in at most 5% of experiments any correlation has q < 0.05."""
    chance, claimed = draws(6), []
    for _ in range(1000):
        x, y = chance.normal(size=(50, 200)), chance.normal(size=50)
        x, y = x - x.mean(axis=0), y - y.mean()
        r = (x * y[:, None]).sum(axis=0) / np.sqrt((x**2).sum(axis=0) * (y**2).sum())
        claimed.append((correlation_q_values(r, 50) < 0.05).any())
    assert report("correlations, any false discovery", float(np.mean(claimed))) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 1000)


def _grouped(chance: np.random.Generator, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Values with mean 0 in groups of 1 to 9, half of whose variance is the group's, and the group of each."""
    owners = np.repeat(np.arange(groups), chance.integers(1, 10, groups))
    return chance.normal(size=groups)[owners] + chance.normal(size=len(owners)), owners


def test_cluster_bootstraps_hold_the_truth() -> None:
    """60 groups of unequal size: 92 to 96% of intervals hold the mean; as if the values were independent, fewer than 85% would."""
    chance, held, alone = draws(7), [], []
    for _ in range(800):
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


def test_jackknife_intervals_hold_the_truth() -> None:
    """The ratio of two means over 30 clusters: 93 to 97% of intervals hold the ratio of the true means."""
    chance, held = draws(9), []
    for _ in range(3000):
        x = chance.gamma(4, 0.5, 30)
        y = x + chance.normal(1, 0.5, 30)
        left = (y.sum() - y) / (x.sum() - x)
        found = jackknife(np.append(y.sum() / x.sum(), left))
        held.append(found.low <= 1.5 <= found.high)
    assert 0.93 <= report("jackknife, coverage", float(np.mean(held))) <= 0.97


def test_the_distance_of_normal_values_has_its_known_distribution() -> None:
    """Of samples of 200 normal values, 5% are further than 1.358 / sqrt(200) from the normal one (Kolmogorov's quantile)."""
    chance = draws(10)
    far = [distance_from_normal(chance.normal(size=200)) > 1.358 / np.sqrt(200) for _ in range(4000)]
    assert report("Kolmogorov-Smirnov, above the 5% quantile", float(np.mean(far))) == pytest.approx(0.05, abs=0.012)


def test_the_code_costs_half_a_logarithm_per_free_probability() -> None:
    """Bits beyond those of the code that knows the probabilities (Clarke and Barron 1990), to a tenth of a bit.

    (C - 1) / 2 log2(n / (2 pi e)) + log2(Gamma(1/2)^C / Gamma(C/2)), of 2,000 labels from C = 4 classes.
    """
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    counts = draws(11).multinomial(2000, probabilities, 4000)
    known = -counts @ np.log2(probabilities)
    excess = np.mean([frequency_code_bits(row) for row in counts] - known)
    expected = 1.5 * np.log2(2000 / (2 * np.pi * np.e)) + np.log2(np.pi**2)
    assert report("Krichevsky-Trofimov, bits beyond known probabilities", float(excess)) == pytest.approx(expected, abs=0.1)


def test_the_area_under_risk_and_coverage_of_a_random_order_is_the_error_rate() -> None:
    """If confidence says nothing, the area is the error rate; if it is the probability of being right, it is its closed form."""
    chance = draws(12)
    right = chance.random((300, 400)) < 0.7
    random = [area_under_risk_coverage(*risk_coverage(chance.random(400), row)) for row in right]
    assert report("area of a random order, error rate 0.3", float(np.mean(random))) == pytest.approx(0.3, abs=0.005)
    perfect = []
    for _ in range(300):
        confidence = chance.random(2000)
        perfect.append(area_under_risk_coverage(*risk_coverage(confidence, chance.random(2000) < confidence)))
    # at coverage c the mean risk is c / 2, whose mean over c is 1/4
    assert report("area of a perfect order, uniform confidence", float(np.mean(perfect))) == pytest.approx(0.25, abs=0.005)


def test_seeds_that_share_texts_spread_less() -> None:
    """Of the variance V over training texts, 5 seeds that draw a fraction f show (1 - f) V; their mean has (f + (1 - f) / 5) V."""
    chance = np.random.default_rng(0)
    for labels in (20, 50, 100, 150):
        texts = chance.normal(0, 1, (2000, 200))
        means = np.stack([chance.permuted(texts, axis=1)[:, :labels].mean(axis=1) for _ in range(5)], axis=1)
        shown = float(means.var(axis=1, ddof=1).mean()) * labels
        print(f"seeds that draw {labels} of 200 texts show {shown:.2f} of the variance")
        assert shown == pytest.approx(1 - labels / 200, abs=0.03)
        mean, fraction = float(means.mean(axis=1).var() * labels), labels / 200
        assert mean == pytest.approx(fraction + (1 - fraction) / 5, rel=0.12)
        assert share_training_texts(labels, 200, 5) == (fraction > (1 - fraction) / 5)
