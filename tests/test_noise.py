"""Means over seeds and texts: parity with the normal and Student's t, and false claims, coverage and power in simulations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from helpers.figures import repeats, show
from helpers.simulation import accuracies, accuracy, answers, seed_effects
from warmstart.stats.differences import Difference, MethodScores, corrected_p_values, paired_difference
from warmstart.stats.intervals import t_quantile
from warmstart.stats.noise import Noise, moderated_noise


def test_one_source_alone_is_the_normal_or_students_t() -> None:
    """Without a seed variance p and width are the normal's, without a text variance they are Student's t."""
    gaps = np.array([0.001, 0.01, 0.03, 0.08])
    assert Noise(1e-4, 0.0, 5).p(gaps) == pytest.approx(2 * stats.norm.sf(gaps / 0.01))
    assert Noise(1e-4, 0.0, 1).half_width() == pytest.approx(0.01 * stats.norm.ppf(0.975))
    for seeds in (2, 3, 5, 30):
        assert Noise(0.0, 1e-4, seeds).p(gaps) == pytest.approx(2 * stats.t.sf(gaps / 0.01, seeds - 1), rel=1e-6)
        assert Noise(0.0, 1e-4, seeds).half_width(0.01) == pytest.approx(0.01 * stats.t.ppf(0.995, seeds - 1))


def test_the_sum_is_what_draws_of_it_give() -> None:
    """p and width of a normal plus a t with two degrees of freedom agree with two million draws."""
    chance = np.random.default_rng(0)
    drawn = np.abs(0.02 * chance.standard_normal(2_000_000) + 0.01 * chance.standard_t(2, 2_000_000))
    noise = Noise(0.02**2, 0.01**2, 3)
    assert noise.half_width() == pytest.approx(np.quantile(drawn, 0.95), rel=0.005)
    assert float(noise.p(0.06)) == pytest.approx((drawn > 0.06).mean(), rel=0.02)


def test_an_unknown_noise_shows_nothing() -> None:
    """A gap that is the same on all seeds, without resamples of texts, has p = 1, not 0."""
    gap = paired_difference(MethodScores("a", (0.85,) * 3, np.full((3, 4), 0.85)), MethodScores("b", (0.8,), np.full((1, 4), 0.8)))
    assert gap.error == 0
    assert gap.p == 1


def test_variances_are_those_of_the_model() -> None:
    """What a run does with each text otherwise than the next run is counted once, in the variance over seeds."""
    chance = np.random.default_rng(1)
    right = answers(chance, seed_effects(chance, (200, 1, 3), 0.02), 500)
    noise = Noise.of(*accuracies(chance, right))
    share = right.astype(float).mean(axis=-2)  # (200, 1, N)
    inner = right.var(axis=-2, ddof=1).mean(axis=-1)
    assert noise.of_texts.mean() == pytest.approx(((share.var(axis=-1) - inner / 3) / 500).mean(), rel=0.03)  # type: ignore[union-attr]
    assert noise.of_seeds.mean() == pytest.approx((0.02**2 + inner.mean() / 500) / 3, rel=0.2)  # type: ignore[union-attr]


def _differences(
    seeds: int, texts: int, rivals: int, spread: float, lead: float = 0.0, tables: int = 1500
) -> tuple[np.ndarray, Noise]:
    """Differences (n, M - 1) of the first method to its rivals in n ``tables``, and their noise."""
    chance, means, noises = np.random.default_rng([seeds, texts, rivals, int(1000 * spread)]), [], []
    size = max(1, 30_000_000 // ((rivals + 1) * seeds * texts))
    for start in range(0, tables, size):
        effects = seed_effects(chance, (min(size, tables - start), rivals + 1, seeds), spread)
        scores, resampled = accuracies(chance, answers(chance, effects, texts, lead))
        means.append((scores[:, :1] - scores[:, 1:]).mean(axis=-1))
        noises.append(Noise.of(scores[:, :1] - scores[:, 1:], resampled[:, :1] - resampled[:, 1:]))
    variances = [np.concatenate([getattr(one, name) for one in noises]) for name in ("of_texts", "of_seeds")]
    return np.concatenate(means), Noise(variances[0], variances[1], seeds)


def _claims(means: np.ndarray, noise: Noise) -> np.ndarray:
    """(n,) bool: whether any of a table's differences (n, M - 1) is claimed."""
    parts = np.broadcast_arrays(means, noise.error, noise.p(means), noise.of_texts, noise.of_seeds)
    tables = [
        [Difference(mean, mean, mean, error, p, Noise(texts, seeds, noise.seeds)) for mean, error, p, texts, seeds in table]
        for table in np.stack(parts, axis=-1).tolist()
    ]
    return np.array([min(corrected_p_values(table)) < 0.05 for table in tables])


SETTINGS = [(seeds, texts, rivals) for seeds in (3, 5, 10) for texts, rivals in ((500, 4), (500, 8), (2000, 4), (2000, 8))]


@pytest.mark.proofs
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_few_tables_of_equal_methods_claim_a_difference(seeds: int) -> None:
    """At most 5% of tables of equal methods claim any difference after Holm's correction, whatever the spread of seeds.

    500 and 2,000 texts, 4 and 8 rivals, spread of seeds 0, 2 and 4 points, 1,500 tables each for the documents, here 150: at most
    5% and 2.5 Monte-Carlo errors in any. With 3 seeds, the effective degrees of freedom of Satterthwaite (1946) claim a difference
    in more than 10% of some tables.
    """
    rates, usual = [], []
    for _, texts, rivals in [one for one in SETTINGS if one[0] == seeds]:
        for spread in (0.0, 0.02, 0.04):
            means, noise = _differences(seeds, texts, rivals, spread, tables=repeats(1500, 150))
            rates.append(float(_claims(means, noise).mean()))
            degrees = (seeds - 1) * noise.error**4 / np.maximum(noise.of_seeds**2, 1e-30)
            effective = 2 * stats.t.sf(np.abs(means) / noise.error, degrees)
            usual.append(float((effective.min(axis=-1) * rivals < 0.05).mean()))
            show(
                f"{seeds} seeds, {texts} texts, {rivals} rivals, spread {spread}: false claims in {rates[-1]:.3f} of tables, "
                f"with effective degrees of freedom in {usual[-1]:.3f}",
                seeds=seeds, texts=texts, rivals=rivals, spread=spread, claimed=rates[-1], effective=usual[-1],
            )  # fmt: skip
            assert rates[-1] <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / len(means)), (texts, rivals, spread)
    assert np.mean(rates) <= 0.05
    assert seeds > 3 or max(usual) > 0.1


@pytest.mark.proofs
def test_intervals_over_seeds_and_texts_hold_the_truth() -> None:
    """Intervals of an accuracy and of a difference hold the truth in 94 to 98% of experiments with 3, 5 and 10 seeds.

    Intervals over seeds alone hold the accuracy far less often if seeds differ little: they leave out the test texts. Whether an
    interval holds the truth is seen from the p-value of the truth; the first 20 intervals of each kind are checked to agree.
    """
    chance = np.random.default_rng(2)
    for seeds in (3, 5, 10):
        for spread in (0.01, 0.02, 0.04):
            scores, resampled = accuracies(
                chance, answers(chance, seed_effects(chance, (repeats(1500, 500), 2, seeds), spread), 500)
            )
            own = Noise.of(scores[:, 0], resampled[:, 0]).p(scores[:, 0].mean(axis=-1) - accuracy(spread)) >= 0.05
            gap = scores[:, 0] - scores[:, 1]
            paired = Noise.of(gap, resampled[:, 0] - resampled[:, 1]).p(gap.mean(axis=-1)) >= 0.05
            for i in range(20):
                one, other = (MethodScores("", tuple(scores[i, m]), resampled[i, m]) for m in (0, 1))
                found = paired_difference(one, other)
                assert (found.low <= 0 <= found.high) == paired[i]
                width = Noise.of(scores[i, 0], resampled[i, 0]).half_width()
                assert (abs(scores[i, 0].mean() - accuracy(spread)) <= width) == own[i]
            half = t_quantile(0.95, seeds - 1) * scores[:, 0].std(axis=-1, ddof=1) / np.sqrt(seeds)
            alone = np.abs(scores[:, 0].mean(axis=-1) - accuracy(spread)) <= half
            show(
                f"{seeds} seeds, spread {spread}: {own.mean():.3f} of accuracies ({alone.mean():.3f} over seeds alone), "
                f"{paired.mean():.3f} of differences covered",
                seeds=seeds, spread=spread, own=float(own.mean()), alone=float(alone.mean()), paired=float(paired.mean()),
            )  # fmt: skip
            assert alone.mean() < own.mean()
            assert 0.935 <= own.mean() <= 0.99
            assert 0.935 <= paired.mean() <= 0.99


@pytest.mark.proofs
def test_what_a_single_user_gets_is_covered() -> None:
    """The accuracy of the next user on endless texts lies in the prediction interval of at least 94% of experiments.

    Of at least 90% if draws are skewed as an exponential distribution. The interval of the mean holds it far less often, the less
    the more draws there are. Texts of logistic difficulty with heavy tails, 300 experiments each for the documents, here 80. With
    few draws, and with texts that vary more than draws, more than 95% are held.
    """
    chance, all_texts = np.random.default_rng(4), np.random.default_rng(5).standard_t(5, 20_000)
    for draws, texts, spread, skewed in ((3, 300, 0.1, False), (5, 300, 0.4, False), (5, 500, 0.4, True), (10, 500, 0.4, False)):
        held, of_mean, widths = [], [], []
        for _ in range(repeats(300, 80)):
            luck = 1 - chance.exponential(1.0, draws + 1) if skewed else chance.standard_normal(draws + 1)
            skill, hard = 1.0 + spread * luck, chance.standard_t(5, texts)
            right = chance.random((draws, texts)) < expit(skill[:draws, None] + hard)
            truth = float(expit(skill[-1] + all_texts).mean())
            found = MethodScores.from_texts("", right.astype(float))
            held.append(found.of_one_user.low <= truth <= found.of_one_user.high)
            of_mean.append(found.over_both.low <= truth <= found.over_both.high)
            widths.append(found.of_one_user.high - found.of_one_user.low)
        show(
            f"{draws} draws, spread {spread}{', skewed' * skewed}: the next user is held in {100 * np.mean(held):.1f}% (width "
            f"{100 * np.mean(widths):.0f} points), by the interval of the mean in {100 * np.mean(of_mean):.1f}%",
            draws=draws, texts=texts, spread=spread, skewed=skewed, held=float(np.mean(held)), of_mean=float(np.mean(of_mean)),
        )  # fmt: skip
        assert np.mean(held) >= (0.90 if skewed else 0.94) - np.sqrt(0.05 * 0.95 / len(held))
        assert np.mean(of_mean) < np.mean(held)


@pytest.mark.proofs
def test_a_clear_lead_is_found() -> None:
    """A lead of 6 points over one of four rivals is seen with five seeds and 500 texts: power is not thrown away."""
    power = {}
    for seeds in (3, 5, 10):
        for spread in (0.0, 0.01, 0.02, 0.04):
            means, noise = _differences(seeds, 500, 4, spread, 0.06, repeats(500, 250))
            power[seeds, spread] = float((noise.p(means)[:, 0] * 4 < 0.05).mean())
            found = power[seeds, spread]
            show(f"{seeds} seeds, spread {spread}: power {found:.2f}", seeds=seeds, spread=spread, power=found)
    assert power[3, 0.0] > 0.25
    assert power[5, 0.0] > 0.85
    assert power[5, 0.02] > 0.4
    assert power[10, 0.02] > 0.85


STABLE = tuple(np.full(9, 2.0))
KINDS: dict[str, tuple[float, ...]] = {
    "alike": STABLE,
    "unequal": tuple(np.geomspace(0.5, 4.0, 9)),
    "one rival unstable": (0.7,) * 8 + (6.0,),
    "in question unstable": (6.0,) + (1.0,) * 8,
    "heavy tails": STABLE,
    "skewed": STABLE,
    "four methods": STABLE[:4],
}
"""standard deviations of the seeds of the methods, in points; the first method is in question, of unequal ones any"""


def tables(chance: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """Scores (count, K, 3) of equal methods on draws that all share, in points.

    Every draw of labels moves all methods by 3 points; a score less than the one of endless texts is a normal error of 1 point.
    """
    spread = np.broadcast_to(KINDS[kind], (count, len(KINDS[kind])))[..., None]
    spread = chance.permuted(spread, axis=1) if kind == "unequal" else spread
    shape = (*spread.shape[:2], 3)
    if kind == "heavy tails":
        own = chance.standard_t(4, shape) / np.sqrt(2)
    else:
        own = 1 - chance.exponential(1.0, shape) if kind == "skewed" else chance.standard_normal(shape)
    texts = chance.standard_normal(shape[:2])
    return np.asarray(3 * chance.standard_normal((count, 1, 3)) + spread * own + texts[..., None])


def claims(scores: np.ndarray, *, moderated: bool) -> tuple[np.ndarray, float]:
    """p-values (K - 1,) of the first method against each other, and their mean half width."""
    p, widths = [], []
    for k in range(1, len(scores)):
        gap = scores[0] - scores[k]
        noise = Noise(2.0, gap.var(ddof=1) / len(gap), len(gap))  # the texts' variance is known: 1 for each method
        if moderated:
            noise = moderated_noise(noise, gap, np.delete(scores, [0, k], axis=0))
        p.append(float(noise.p(gap.mean())))
        widths.append(noise.half_width())
    return np.array(p), float(np.mean(widths))


@pytest.mark.proofs
def test_moderated_differences_keep_their_level() -> None:
    """Single differences of equal methods are claimed in at most 5%, any of a table (Holm) in at most 5%; intervals are narrower.

    Three seeds of nine methods with equal, unequal, heavy-tailed and skewed seeds, one rival with eight times the spread, and four
    methods only; 800 tables for the documents, here 150. Beside an unstable rival the stable pairs are wider. The limit is a method
    in question with six times the spread of all others: 10%.
    """
    chance, count, widths = np.random.default_rng(3), repeats(800, 150), dict[str, float]()
    for kind in KINDS:
        parts = [[claims(one, moderated=moderated) for one in tables(chance, kind, count)] for moderated in (False, True)]
        p = [np.array([one for one, _ in rows]) for rows in parts]
        missed = [float((one < 0.05).mean()) for one in p]
        claimed = [float((one.min(axis=1) * one.shape[1] < 0.05).mean()) for one in p]
        own, moderated = (float(np.mean([width for _, width in rows])) for rows in parts)
        show(
            f"{kind}: missed {100 * missed[0]:.1f} -> {100 * missed[1]:.1f}%, any false claim {100 * claimed[0]:.1f} -> "
            f"{100 * claimed[1]:.1f}%, half width {own:.1f} -> {moderated:.1f} points",
            kind=kind, missed=missed, claimed=claimed, own=own, moderated=moderated,
        )  # fmt: skip
        most = (0.10 if kind == "in question unstable" else 0.05) + 2 * np.sqrt(0.05 * 0.95 / count)
        assert missed[1] <= most, kind
        assert claimed[1] <= most, kind
        widths[kind] = moderated / own
    assert max(widths[kind] for kind in ("alike", "unequal", "heavy tails", "skewed", "four methods")) < 0.95, widths


def test_what_the_variance_of_other_methods_says() -> None:
    """The figures of limma's shrinkage by hand: m = 2, f = 2, so that e = 4/3; no variance falls below that of the pair itself."""
    others = np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])  # centred twice: -1, 0, 1 and 1, 0, -1
    for own in (1.0, 6.0):
        gap = np.array([-1.0, 0.0, 1.0]) * np.sqrt(own)
        found = moderated_noise(Noise(0.0, own / 3, 3), gap, others)
        assert found.prior == pytest.approx(4 / 3)
        assert 3 * found.of_seeds == pytest.approx(max(own, (4 / 3 * 4 + 2 * own) / (4 / 3 + 2)))


def test_what_is_no_support() -> None:
    """More seeds, fewer methods, methods that do not vary, and a pair less stable than all others keep their own variance."""
    chance = np.random.default_rng(0)
    for seeds, count, spread, own in ((4, 5, 1.0, 1.0), (3, 1, 1.0, 1.0), (3, 5, 0.0, 1.0), (3, 5, 1.0, 100.0)):
        gap = np.linspace(-1, 1, seeds) * own
        noise = Noise(0.0, gap.var(ddof=1) / seeds, seeds)
        assert moderated_noise(noise, gap, spread * chance.standard_normal((count, seeds))) is noise


def test_a_table_supports_its_pairs_unless_a_run_collapsed() -> None:
    """A collapsed run of one of the two, or of another method, takes no part; nor does a method that is the same for every seed."""
    chance = np.random.default_rng(1)
    rows = chance.normal(0.7, 0.02, (6, 3))
    one, *rest = [MethodScores(f"{i}", tuple(row), np.tile(row[:, None], 2)) for i, row in enumerate(rows)]
    fixed = MethodScores("fixed", (0.7,), np.full((1, 2), 0.7))
    assert paired_difference(one, rest[0], [one, *rest, fixed]).noise.degrees == pytest.approx(2 + 1 / (1 / 4 + 1 / 6))
    fewer = [replace(rest[1], collapsed=True), *rest[2:]]
    assert paired_difference(one, rest[0], fewer).noise.degrees == pytest.approx(2 + 1 / (1 / 4 + 1 / 4))
    assert paired_difference(replace(one, collapsed=True), rest[0], rest).noise.degrees == 2
    assert paired_difference(one, fixed, rest).noise.degrees == 2
