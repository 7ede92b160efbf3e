"""The score of a method that validation or its own labels chose: without the luck of what made the choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from helpers.figures import repeats, show
from helpers.races import ranked_method
from helpers.simulation import accuracies, accuracy, answers, seed_effects
from helpers.tasks import cats
from warmstart.commands.race.page import method_table
from warmstart.data.audit import audit
from warmstart.experiment.choose import doubt_of_best, transfer_gain
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.race_verdict import race_verdict
from warmstart.experiment.ranking import RankedMethod, Ranking
from warmstart.experiment.trial import Method
from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.differences import (
    Difference,
    MethodScores,
    difference_to_choice,
    paired_difference,
    picked,
    score_of_choice,
)
from warmstart.stats.formatting import of_100, percent_interval
from warmstart.stats.noise import MODERATED_SEEDS, Noise, moderated_noise
from warmstart.stats.proportions import wilson_interval
from warmstart.stats.selected import out_of_reach, selected_accuracy, selected_f1

Scores = tuple[np.ndarray, np.ndarray]
"""of M methods (M, S), and on resamples of the texts (M, S, R)"""


def test_each_seed_scores_the_choice_of_the_others() -> None:
    """Row s is that of the method chosen without seed s; a method without randomness has one row for all."""
    one = MethodScores("a", (0.1, 0.2, 0.3), np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    other = MethodScores("b", (0.9,), np.array([[9.0, 9.0]]))
    found = picked([one, other, one])
    assert found.scores == (0.1, 0.9, 0.3)
    assert found.resampled[:, 0].tolist() == [1, 9, 3]


@pytest.mark.proofs
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_score_of_the_choice_is_not_flattered(seeds: int) -> None:
    """The best of 3 or 8 equal methods on 300 validation texts, on 500 test texts: bias at most 0.2 points, coverage at least 94%.

    The test scores of the method chosen, on the seeds that chose it, are too high: the figures are printed.
    """
    chance = np.random.default_rng(seeds)
    for methods in (3, 8):
        for spread in (0.02, 0.04):
            bias, held, own = [], [], []
            for _ in range(repeats(12, 4)):
                effects = seed_effects(chance, (100, methods, seeds), spread)
                validation = answers(chance, effects, 300).mean(axis=-1)
                test, resampled = accuracies(chance, answers(chance, effects, 500), draws=150)
                truth = accuracy(spread)
                others = (validation.sum(axis=-1, keepdims=True) - validation).argmax(axis=1)  # (100, S)
                best = validation.mean(axis=-1).argmax(axis=-1)
                for race, choice in enumerate(others):
                    rows = [MethodScores("", tuple(test[race, m]), resampled[race, m]) for m in choice]
                    found = score_of_choice(rows)
                    bias.append(found.mean - truth)
                    held.append(found.low <= truth <= found.high)
                    own.append(test[race, best[race]].mean() - truth)
            show(
                f"{seeds} seeds, {methods} methods, spread {spread}: bias {100 * np.mean(bias):+.2f} points "
                f"(own scores {100 * np.mean(own):+.2f}), coverage {np.mean(held):.3f}",
                seeds=seeds, methods=methods, spread=spread,
                bias=float(np.mean(bias)), own=float(np.mean(own)), coverage=float(np.mean(held)),
            )  # fmt: skip
            error = float(np.std(bias)) / np.sqrt(len(bias))
            assert abs(np.mean(bias)) <= 0.002 + 2 * error
            assert np.mean(held) >= 0.94 - 2 * np.sqrt(0.05 * 0.95 / len(held))


def test_a_difference_to_the_choice_is_scored_on_seeds_that_did_not_choose() -> None:
    """The mean over folds, with the noise of the two methods: a fixed pair if the choice is certain, a wider one if not."""
    one = MethodScores("a", (0.1, 0.2, 0.3), np.tile(np.array([[0.1], [0.2], [0.3]]), 2))
    best = MethodScores("b", (0.5, 0.5, 0.5), np.full((3, 2), 0.5))
    fixed = difference_to_choice(one, best, [(one, best)] * 3, doubt=0.0)
    expected = paired_difference(one, best)
    assert (fixed.mean, fixed.low, fixed.high) == pytest.approx((expected.mean, expected.low, expected.high))
    swapped = difference_to_choice(one, best, [(one, best), (one, best), (best, one)], doubt=1.0)
    assert swapped.mean == pytest.approx((-0.4 - 0.3 + 0.2) / 3)
    assert swapped.noise.of_seeds == pytest.approx(0.1**2 / 3 * 2.5)


def test_what_seeds_and_splits_can_show_is_said() -> None:
    """One seed that chose scores higher than others would, and promises nothing; several score what the others choose."""
    for seeds, splits, head in ((1, (), "texts"), (3, (), "seeds and texts"), (3, (60, 20, 30), "splits and seeds")):
        scores = np.array([[0.70, 0.66, 0.70], [0.71, 0.71, 0.72]])[:, :seeds]
        found = race(*[(scores, scores[..., None] + np.zeros(5))] * 2)
        rows = [replace(one, runs=tuple(replace(run, split_sizes=splits) for run in one.runs)) for one in found.ranking.methods]
        found = replace(found, ranking=replace(found.ranking, methods=tuple(rows)))
        assert found.findings[0] == "Use 1, the best of 2 methods on validation."
        chose = "This one seed chose the method on validation; other seeds would score lower on average."
        others = "Each seed scores the method that is best on the other seeds, so that being chosen does not flatter it."
        assert found.findings[1].endswith(chose if seeds == 1 else others)
        assert ("One seed says nothing about other seeds." in found.findings) == (seeds == 1)
        assert seeds > 1 or [row.significant for row in found.differences] == [False]
        assert len(found.expected) == (seeds > 1)
        assert method_table(found).header[1] == f"score (95% over {head})"


TASK = cats()
AUDIT = audit(TASK)


def race(validation: Scores, test: Scores) -> Comparison:
    """A race of methods in the order of their costs, from scores (M, S) and resamples (M, S, R)."""
    ranked = []
    for m, scores in enumerate(zip(*test, *validation, strict=True)):
        method = Method(name=f"{m}", family="adapted", backbone_digest=f"{m}", scheme="full")
        ranked.append(ranked_method(method, *scores, seconds=(3.0**m, 0.0)))
    return Comparison(TASK, 60, 20, Ranking(tuple(ranked), (), (), test[0].shape[1]), AUDIT, 0.5)


def scored(
    chance: np.random.Generator, shape: tuple[int, int], spread: float, count: int, fixed: int = 0
) -> Iterator[tuple[Scores, Scores]]:
    """Scores on 300 validation and 500 test texts in races of M methods with S seeds, (50, M, S) and (50, M, S, R) at a time.

    No seed changes the skill of the first ``fixed`` methods.
    """
    for _ in range(count // 50):
        effects = seed_effects(chance, (50, *shape), spread)
        effects[:, shape[0] - fixed :] = 0
        one, other = (accuracies(chance, answers(chance, effects, n)[:, ::-1], draws=100) for n in (300, 500))
        yield one, other


def race_of(parts: tuple[Scores, Scores], i: int) -> Comparison:
    """The race number ``i`` of ``scored``."""
    return race(*((scores[i], resampled[i]) for scores, resampled in parts))


def races(chance: np.random.Generator, shape: tuple[int, int], spread: float, count: int, fixed: int = 0) -> Iterator[Comparison]:
    """The same as results."""
    for parts in scored(chance, shape, spread, count, fixed=fixed):
        yield from (race_of(parts, i) for i in range(50))


def to_choice(result: Comparison, one: RankedMethod) -> Difference:
    """The difference of a method to the choice, from the methods that each seed's race chooses."""
    scores = {ranked.method: ranked.test_scores for ranked in result.ranking.methods}
    best, own = scores[result.recommended.method], scores[one.method]
    chosen = [scores[fold.method] for fold in result.choice.scored]
    pairs = [(best if it is own else own, it) for it in chosen]
    return difference_to_choice(own, best, pairs, doubt_of_best(result.ranking.methods), [*scores.values()])


def against_choice(validation: Scores, test: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As ``Comparison.differences``, of n races at once: differences (n, M), their p-values, and the best method (n,), left out."""
    scores, seeds = test[0], test[0].shape[-1]
    rows, best = np.arange(len(scores)), validation[0].mean(axis=-1).argmax(axis=1)

    def to_best(part: np.ndarray) -> np.ndarray:
        return np.asarray(part - part[rows, best][:, None])

    behind = to_best(validation[0])
    others = Noise.of(behind, to_best(validation[1])).p(behind.mean(axis=-1))
    others[rows, best] = 0
    doubt = others.max(axis=1)[:, None]  # about which method is the best
    gaps = np.empty(scores.shape)
    for s in range(seeds):
        choice = np.delete(validation[0], s, axis=2).mean(axis=-1).argmax(axis=1)
        gaps[..., s] = scores[..., s] - scores[rows, choice, s][:, None]
        gaps[rows, choice, s] = scores[rows, best, s] - scores[rows, choice, s]  # the best takes the place of the choice
    own = Noise.of(to_best(scores), to_best(test[1]))
    p = own.of_choice(doubt).p(gaps.mean(axis=-1))  # type: ignore[arg-type]
    for i, k in np.ndindex(p.shape) if seeds == MODERATED_SEEDS else ():
        noise = Noise(own.of_texts[i, k], own.of_seeds[i, k], seeds)  # type: ignore[index]
        noise = moderated_noise(noise, scores[i, k] - scores[i, best[i]], np.delete(scores[i], [k, best[i]], axis=0))
        p[i, k] = noise.of_choice(float(doubt[i, 0])).p(gaps[i, k].mean())
    gaps[rows, best] = np.nan
    return gaps.mean(axis=-1), p, best


@pytest.mark.proofs
@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("methods", [2, 4, 8])
def test_differences_to_the_choice_are_not_flattered(methods: int, seeds: int) -> None:
    """Equal methods, spread of seeds 0 to 4 points: bias at most 0.2 points, coverage at least 94%, false claims at most 5%.

    Own scores against those of the best would be 1.1 to 3.2 points too low where seeds spread by 4 points, with a false claim in 4
    to 8% of tables. 2,000 races for the documents, so that the bias has a Monte-Carlo error below 0.1 points, here 400, give or
    take two of these errors; the first 5 as the command computes them.
    """
    chance, count = np.random.default_rng(seeds), repeats(2000, 400)
    error = 2 * np.sqrt(0.05 * 0.95 / count)
    for spread in (0.0, 0.02, 0.04):
        means, held, false, own = [], [], [], []
        for number, parts in enumerate(scored(chance, (methods, seeds), spread, count)):
            gaps, p, best = against_choice(*parts)
            for result, i in [(race_of(parts, i), i) for i in range(5)] if not number else []:
                assert result.differences[0].difference == to_choice(result, result.differences[0].ranked)
                of_race = {int(row.ranked.name): row.difference for row in result.differences}
                assert result.recommended.name == f"{best[i]}"
                assert gaps[i][[*of_race]] == pytest.approx([one.mean for one in of_race.values()])
                assert p[i][[*of_race]] == pytest.approx([one.p for one in of_race.values()])
            others = np.isfinite(gaps)
            means += np.nanmean(gaps, axis=1).tolist()
            held += (p[others] >= 0.05).tolist()
            false += (np.where(others, p, 1).min(axis=1) * (methods - 1) < SIGNIFICANT).tolist()
            rows, (scores, resampled) = np.arange(50), parts[1]
            fixed = scores - scores[rows, best][:, None]
            of_fixed = Noise.of(fixed, resampled - resampled[rows, best][:, None]).p(fixed.mean(axis=-1))
            claims = np.where(others, of_fixed, 1).min(axis=1) * (methods - 1) < SIGNIFICANT
            own += zip(np.nanmean(np.where(others, fixed.mean(axis=-1), np.nan), axis=1), claims, strict=True)
        of_own, claimed = np.mean(own, axis=0).tolist()
        show(
            f"{seeds} seeds, {methods} methods, spread {spread}: bias {100 * np.mean(means):+.2f} points (own scores "
            f"{100 * of_own:+.2f}), coverage {np.mean(held):.3f}, false claims {np.mean(false):.3f} (own scores {claimed:.3f})",
            seeds=seeds, methods=methods, spread=spread, bias=float(np.mean(means)), own=of_own,
            coverage=float(np.mean(held)), claimed=float(np.mean(false)), claimed_by_own=claimed,
        )  # fmt: skip
        assert abs(np.mean(means)) <= 0.002 + 2 * np.std(means) / np.sqrt(len(means))
        assert np.mean(held) >= 0.94 - error / 2
        assert np.mean(false) <= 0.05 + error


def of_families(ranked: RankedMethod, family: str, *, deterministic: bool) -> RankedMethod:
    """The same method in another family; a deterministic one has a single trial."""
    one = replace(ranked, method=ranked.method.model_copy(update={"family": family}))
    return replace(one, runs=one.runs[:1], seeds=one.seeds[:1], deterministic=True) if deterministic else one


def test_two_methods_without_randomness_are_compared_over_the_test_texts() -> None:
    """With any number of seeds, one too; a single trial of a method that depends on its seed claims nothing."""
    chance = np.random.default_rng(0)
    scores = np.array([[0.9, 0.9, 0.9], [0.5, 0.5, 0.5], [0.4, 0.5, 0.3]])
    parts = [(scores, scores[..., None] + chance.normal(0, 0.02, (3, 1, 400))) for _ in range(2)]
    methods = race(*parts).ranking.methods
    families = ("frozen", "baseline", "scratch")
    rows = [of_families(one, family, deterministic=i < 2) for i, (one, family) in enumerate(zip(methods, families, strict=True))]
    for seeds in ({0, 1, 2}, {0}):
        gain = transfer_gain([*rows[:2], rows[2].with_seeds(seeds)], drawn=False)
        assert gain.p < 0.001
        sentence = gain.sentence(bounded=True)
        assert sentence.startswith("0 is better than 1 (the strongest rival without pretraining) by 40.0 points (95% interval 3")
        assert "over the test texts). Both" in sentence
    one = transfer_gain([rows[0], replace(rows[1], deterministic=False)], drawn=False)
    assert one.p == 1
    assert "on one seed, which shows nothing about other seeds" in one.sentence(bounded=True)


@pytest.mark.proofs
@pytest.mark.parametrize(("deterministic", "seeds"), [(0, 3), (4, 3), (8, 5), (0, 10)])
def test_few_races_of_equal_methods_claim_that_transfer_helps(deterministic: int, seeds: int) -> None:
    """Two pretrained methods against six others, all equal: bias at most 0.2 points, coverage 94%, false claims at most 5%.

    All give or take two Monte-Carlo errors. By their own scores the best of six would seem 0.2 to 1.8 points better. Of the eight,
    none, half or all have no randomness.
    """
    chance = np.random.default_rng(seeds)
    for spread in (0.02, 0.04):
        found, own = [], []
        for result in races(chance, (8, seeds), spread, repeats(150, 50), fixed=deterministic):
            rows = [*zip(result.ranking.methods, ["adapted", "baseline", "baseline", "baseline"] * 2, strict=True)]
            methods = [of_families(*row, deterministic=i < deterministic) for i, row in enumerate(rows)]
            gain = transfer_gain(methods, drawn=False)
            found.append(gain)
            own.append(gain.transfer[0].test_scores.over_seeds.mean - gain.rivals[0].test_scores.over_seeds.mean)
        means, claims = [one.difference.mean for one in found], np.mean([one.p < SIGNIFICANT for one in found])
        held = np.mean([one.difference.low <= 0 <= one.difference.high for one in found])
        print(
            f"{seeds} seeds, {deterministic} fixed, spread {spread}: bias {100 * np.mean(means):+.2f} points "
            f"(own scores {100 * np.mean(own):+.2f}), coverage {held:.3f}, false claims {claims:.3f}"
        )
        assert abs(np.mean(means)) <= 0.002 + 2 * np.std(means) / np.sqrt(len(means))
        assert held >= 0.94 - 2 * np.sqrt(0.05 * 0.95 / len(found))
        assert claims <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / len(found))


def test_the_recommended_method_is_scored_on_seeds_that_did_not_recommend_it() -> None:
    """The figure of the sentence and of the first row: seed s scores what the others recommend, with an interval."""
    validation = np.array([[0.70, 0.70, 0.74], [0.72, 0.74, 0.71], [0.40, 0.40, 0.41]])
    test = np.array([[0.70, 0.72, 0.80], [0.74, 0.75, 0.73], [0.40, 0.41, 0.42]])
    found = race(*((scores, np.repeat(scores[..., None], 5, axis=2)) for scores in (validation, test)))
    assert found.recommended.name == "1"
    assert [one.name for one in found.choice.scored] == ["1", "0", "1"]
    score = found.score_of_recommended
    assert score.mean == pytest.approx((0.74 + 0.72 + 0.73) / 3)
    written = percent_interval(score.mean, score.low, score.high)
    assert found.findings[1].startswith(f"On the test texts, 1 reaches {written}, over ")
    assert race_verdict(found).rows[0][:2] == ("1", f"{of_100(score.mean)} of 100")
    gap = next(row.difference.mean for row in found.differences if row.ranked.name == "0")
    assert gap == pytest.approx((0.70 - 0.74 + 0.75 - 0.72 + 0.80 - 0.73) / 3), "where others choose it, the best takes its place"


SELECTED_FROM = 10


def out_of_fold(chance: np.random.Generator, texts: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """(M, N) whether each method is right out of fold, and its (M,) true accuracies.

    A text is right if a method's skill exceeds the text's difficulty, with a text's own taste for each method, and noise of the
    fold. Skills belong to the fit to these labels.
    """
    skill = chance.normal(0.8, spread, SELECTED_FROM)
    difficulty, taste = chance.standard_t(5, texts), chance.normal(0, 0.8, (SELECTED_FROM, texts))
    right = skill[:, None] + taste + chance.laplace(0, 0.4, (SELECTED_FROM, texts)) > difficulty
    many = (SELECTED_FROM, repeats(20_000, 4000))
    other = chance.standard_t(5, many[1])[None] - chance.normal(0, 0.8, many) - chance.laplace(0, 0.4, many)
    return right, (skill[:, None] > other).mean(axis=1)


@pytest.mark.proofs
@pytest.mark.parametrize("texts", [50, 100, 300])
@pytest.mark.parametrize("spread", [0.0, 0.3])
@pytest.mark.parametrize("favourite", [None, 0])
def test_the_accuracy_of_what_was_selected_is_covered(texts: int, spread: float, favourite: int | None) -> None:
    """The interval holds the true accuracy of the selected method in 95% of cases, also where all methods are equal.

    With a favourite as without: it is rarely another where all are equal, and often the best where they are not.
    """
    chance, missed, bias, naive = np.random.default_rng(texts), 0, [], []
    count = repeats(400, 80)
    for _ in range(count):
        right, truth = out_of_fold(chance, texts, spread)
        found = selected_accuracy(right.astype(float), favourite=favourite)
        true = truth[found.index]
        missed += not found.expected.low <= true <= found.expected.high
        bias.append(found.expected.value - true)
        naive.append(found.out_of_fold - true)
    print(
        f"{texts} labels, spread {spread}: held in {1 - missed / count:.1%}, bias {100 * np.mean(bias):+.1f} points, "
        f"of the winner's own score {100 * np.mean(naive):+.1f}"
    )
    assert missed <= count * 0.05 + 3 * np.sqrt(count * 0.05 * 0.95)
    assert abs(np.mean(bias)) < abs(np.mean(naive)) or favourite is not None, "the luck of having been chosen is taken off"
    assert abs(np.mean(bias)) < 0.03


@pytest.mark.proofs
@pytest.mark.parametrize("texts", [100, 300])
def test_the_accuracy_of_unequal_networks_is_covered(texts: int) -> None:
    """The same for a dozen networks, fitted once in each fold, some of which differ by two points from fit to fit."""
    chance, missed, bias, count = np.random.default_rng(texts), 0, [], repeats(400, 100)
    steadiness = np.repeat([0.02, 0.05, 0.1], 4)
    for _ in range(count):
        skill = chance.normal(0.8, 0.2, len(steadiness))
        luck = chance.normal(0, steadiness, (5, len(steadiness)))[np.arange(texts) % 5].T
        difficulty, taste = chance.standard_t(5, texts), chance.normal(0, 0.8, (len(steadiness), texts))
        found = selected_accuracy((skill[:, None] + luck + taste > difficulty).astype(float))
        again = skill[found.index] + chance.normal(0, steadiness[found.index])
        true = np.mean(again + chance.normal(0, 0.8, 5000) > chance.standard_t(5, 5000))
        missed += not found.expected.low <= true <= found.expected.high
        bias.append(found.expected.value - true)
    print(f"a dozen networks, {texts} labels: held in {1 - missed / count:.1%}, bias {100 * np.mean(bias):+.1f} points")
    assert missed <= count * 0.05 + 3 * np.sqrt(count * 0.05 * 0.95)


SHARES = np.array([0.6, 0.2, 0.15, 0.05])
"""of four classes"""


def ridge(inputs: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """(D, C) weights of ridge regression."""
    return np.linalg.solve(inputs.T @ inputs + strength * np.eye(inputs.shape[1]), inputs.T @ targets)


def labelled(chance: np.random.Generator, means: np.ndarray, texts: int, several: bool) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) inputs, of which the last is 1, and (N, C) labels: one of four unequal classes, or any number of them."""
    if several:
        labels = (chance.random((texts, len(SHARES))) < SHARES / 2 + 0.05).astype(float)
    else:
        labels = np.eye(len(SHARES))[chance.choice(len(SHARES), texts, p=SHARES)]
    noise = chance.standard_t(4, (texts, means.shape[1]))
    return np.hstack([labels @ means + noise, np.ones((texts, 1))]), labels


def said(outputs: np.ndarray, several: bool) -> np.ndarray:
    """(N, C) 1 where a label is predicted."""
    return (outputs > 0.35).astype(float) if several else np.eye(outputs.shape[1])[outputs.argmax(axis=1)]


@pytest.mark.proofs
@pytest.mark.parametrize(("several", "average"), [(False, "macro"), (True, "micro"), (True, "macro")])
@pytest.mark.parametrize("texts", [100, 300])
def test_f1_of_what_was_selected_is_covered(texts: int, several: bool, average: str) -> None:
    """F1 of regressions that really learn, where classes are rare or texts have several, is seldom below its interval.

    With few texts of a class it may be above: what learns from all texts does better than what learned from nearly all of them.
    """
    chance, above, below, bias, width, count = np.random.default_rng(texts), 0, 0, [], [], repeats(300, 60)
    features = [slice(0, size) for size in (4, 8, 16)]
    methods = [(columns, strength) for columns in features for strength in (0.3, 10.0, 100.0)]
    for _ in range(count):
        means = chance.normal(0, 0.7, (len(SHARES), 15))
        (inputs, labels), (others, true_labels) = (labelled(chance, means, n, several) for n in (texts, 4000))
        predicted = np.zeros((len(methods), *labels.shape))
        for held in np.array_split(chance.permutation(texts), 20):
            rest = np.setdiff1d(np.arange(texts), held)
            for number, (columns, strength) in enumerate(methods):
                weights = ridge(inputs[rest][:, columns], labels[rest], strength)
                predicted[number, held] = said(inputs[held][:, columns] @ weights, several)
        found = selected_f1(predicted, labels, average)
        columns, strength = methods[found.index]
        answers = said(others[:, columns] @ ridge(inputs[:, columns], labels, strength), several)
        hits, total = (answers * true_labels).sum(axis=0), answers.sum(axis=0) + true_labels.sum(axis=0)
        true = float((2 * hits / total).mean() if average == "macro" else 2 * hits.sum() / total.sum())
        above += true > found.expected.high
        below += true < found.expected.low
        bias.append(found.expected.value - true)
        width.append(found.expected.high - found.expected.low)
    kind = "several labels" if several else "unequal classes"
    print(
        f"{average} F1, {kind}, {texts} texts: held in {1 - (above + below) / count:.1%}, below in {below / count:.1%}, "
        f"bias {100 * np.mean(bias):+.1f} points, width {100 * np.mean(width):.0f}"
    )
    assert below <= count * 0.025 + 3 * np.sqrt(count * 0.025 * 0.975)
    assert above + below <= count * 0.15
    assert -0.05 < np.mean(bias) < 0.02


def test_f1_is_that_of_scikit_learn() -> None:
    """Of one method."""
    from sklearn.metrics import f1_score

    chance = np.random.default_rng(0)
    labels, predicted = chance.random((50, 3)) < 0.4, chance.random((50, 3)) < 0.4
    for average in ("macro", "micro"):
        found = selected_f1(predicted[None].astype(float), labels.astype(float), average)
        assert found.out_of_fold == pytest.approx(f1_score(labels, predicted, average=average))


def test_copies_are_one_text() -> None:
    """Texts that depend on each other widen the interval as if there were fewer."""
    right = np.random.default_rng(0).random((3, 100)) < 0.8
    doubled = np.repeat(right, 2, axis=1)
    apart, same = (selected_accuracy(doubled.astype(float), units) for units in (None, np.repeat(np.arange(100), 2)))
    plain = selected_accuracy(right.astype(float))
    assert same.expected == pytest.approx(plain.expected)
    assert apart.expected.high - apart.expected.low < same.expected.high - same.expected.low


def test_a_favourite_is_selected_unless_another_is_ahead_beyond_chance() -> None:
    """Of a hundred texts two more are chance, twenty are not; a method alone is its own favourite."""
    base = np.array([1.0] * 60 + [0.0] * 40)
    for more, place in ((2, 0), (20, 1)):
        better = np.array([1.0] * (60 + more) + [0.0] * (40 - more))
        assert selected_accuracy(np.stack([base, better]), favourite=0).index == place
        assert selected_accuracy(np.stack([base, better])).index == 1
    assert selected_accuracy(base[None], favourite=0).expected == selected_accuracy(base[None]).expected


@pytest.mark.proofs
def test_few_methods_that_would_win_are_dropped() -> None:
    """After one fold of twenty texts of a hundred: of those that are better than the rival in truth, fewer than one in a hundred.

    Of those that are twenty points worse, one in ten, about.
    """
    chance, dropped = np.random.default_rng(0), dict[float, float]()
    for lead in (0.0, 0.05, -0.2):
        draws = ((chance.random(20) < 0.7 + lead, chance.random(20) < 0.7) for _ in range(repeats(1000, 500)))
        dropped[lead] = float(np.mean([out_of_reach(one, other, np.arange(20)) for one, other in draws]))
    print(f"dropped after a fold, by the true lead: {dropped}")
    assert dropped[0.0] < 0.03
    assert dropped[0.05] < 0.01
    assert dropped[-0.2] > 0.07


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_method_that_is_always_right_or_never_is_as_certain_as_its_texts_allow(value: float) -> None:
    """Its resamples do not differ, which is no sign of few texts."""
    found = selected_accuracy(np.full((1, 120), value)).expected
    assert found == pytest.approx(wilson_interval(value, 75))
