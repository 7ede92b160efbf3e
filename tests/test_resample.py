"""A race with a new split for every seed: the splits, and intervals and false claims over real small learners."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from helpers.figures import repeats, show
from helpers.tasks import cats, race_config, write_race_inputs
from warmstart.commands.race.command import race_task
from warmstart.data.task import Split, Task, resplit
from warmstart.stats.differences import MethodScores, paired_difference, score_of_choice
from warmstart.stats.noise import Noise
from warmstart.stats.splits import NEW_SPLITS, ONE_SPLIT, share_training_texts
from warmstart.tokenizer.tokenizer import Tokenizer

# ---------------------------------------------------------------------------------------------------- splits


def texts_of(task: Task) -> list[str]:
    return sorted(text for split in task.splits().values() for text in split.texts)


def test_a_new_split_has_the_same_texts_sizes_and_classes() -> None:
    """All texts once; each split as large as before, each class in its proportion; another seed gives another split."""
    task = cats()
    one, again, other = resplit(task, 1), resplit(task, 1), resplit(task, 2)
    assert texts_of(one) == texts_of(task)
    assert [*map(len, one.splits().values())] == [*map(len, task.splits().values())]
    for split in one.splits().values():
        assert split.labels.mean() == pytest.approx(0.5, abs=0.03)
        assert [("cat" in text) for text in split.texts] == split.labels.astype(bool).tolist()
    assert one.digest == again.digest
    assert one.digest != other.digest


def test_copies_and_groups_stay_on_one_side() -> None:
    """A text that occurs in train and in test is in one split afterwards, and so are the texts of an author."""
    task = cats()
    doubled = Task("cats", task.labels, task.train, task.validation, Split(task.train.texts[:30], task.train.labels[:30]))
    for seed in range(5):
        splits = resplit(doubled, seed).splits().values()
        assert sum(len(set(split.texts)) for split in splits) == 80
    authors = {name: np.array([f"author {i % 12}" for i in range(len(split))]) for name, split in task.splits().items()}
    grouped = [Split(split.texts, split.labels, authors[name]) for name, split in task.splits().items()]
    train, validation, test = grouped
    parts = resplit(Task("cats", task.labels, train, validation, test), 0).splits().values()
    assert sum(len(set(split.groups.tolist())) for split in parts) == 12


# ---------------------------------------------------------------------------------------------------- statistics


def test_the_corrected_resampled_t_test() -> None:
    """p and interval are those of Student's t with the variance of Nadeau and Bengio's equation 10."""
    gaps = np.array([0.02, 0.05, 0.01, 0.04])
    one = MethodScores("a", tuple(0.7 + gaps), np.zeros((4, 2)), overlap=0.25)
    found = paired_difference(one, MethodScores("b", (0.7,) * 4, np.zeros((4, 2)), overlap=0.25))
    error = np.sqrt((1 / 4 + 0.25) * gaps.var(ddof=1))
    assert found.error == pytest.approx(error)
    assert found.p == pytest.approx(2 * stats.t.sf(gaps.mean() / error, 3), rel=1e-6)
    assert one.over_both.high - one.over_both.mean == pytest.approx(stats.t.ppf(0.975, 3) * error, rel=1e-6)
    assert np.isnan([one.over_seeds.low, one.over_texts.high]).all()
    wider = np.sqrt((1 / 4 + 1 / 3 + 0.25) * gaps.var(ddof=1))
    assert score_of_choice([one] * 4).high - one.over_both.mean == pytest.approx(stats.t.ppf(0.975, 3) * wider, rel=1e-6)


WORDS = 20
"""words whose presence tells the classes apart; every method reads as many, and no two the same"""
PRESENT = (0.45, 0.62)
"""how often a word is in a text of either class"""
METHODS = 2
"""compared in each experiment"""
Learner = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def draw_texts(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(M, N, W) which of its words each of M methods finds in N texts, and (N,) their classes."""
    labels = chance.integers(0, 2, count).astype(np.float32)
    present = np.array(PRESENT)[labels.astype(int), None]
    return (chance.random((METHODS, count, WORDS)) < present).astype(np.float32), labels


def naive_bayes(words: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes (M, S, W) and constants (M, S) of Bernoulli naive Bayes, trained on each of the ``chosen`` (S, N) texts."""
    ones, zeros = chosen * labels, chosen * (1 - labels)
    one, zero = ((part @ words + 1) / (part.sum(axis=1)[:, None] + 2) for part in (ones, zeros))
    prior = np.log(ones.sum(axis=1) + 1) - np.log(zeros.sum(axis=1) + 1)
    return np.log(one / (1 - one)) - np.log(zero / (1 - zero)), np.log((1 - one) / (1 - zero)).sum(axis=-1) + prior


def logistic_regression(words: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for logistic regression with an L2 penalty of 1, by six steps of Newton's method."""
    inputs = np.concatenate([words, np.ones((*words.shape[:-1], 1), np.float32)], axis=-1)
    products = (inputs[..., None] * inputs[..., None, :]).reshape(*inputs.shape[:-1], -1)
    size, penalty = WORDS + 1, np.diag([1.0] * WORDS + [1e-3])
    weights = np.zeros((len(words), len(chosen), size))
    for _ in range(6):
        p = 1 / (1 + np.exp(-(weights @ inputs.swapaxes(1, 2))))
        slope = (chosen * (labels - p)) @ inputs - weights @ penalty
        curvature = ((chosen * p * (1 - p)) @ products).reshape(*weights.shape, size) + penalty
        weights += np.linalg.solve(curvature, slope[..., None])[..., 0]
    return weights[..., :-1], weights[..., -1]


def right(words: np.ndarray, labels: np.ndarray, learned: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """(M, S, N) whether each prediction is right."""
    slopes, constants = learned
    found: np.ndarray = ((slopes @ words.swapaxes(1, 2) + constants[..., None]) > 0) == (labels > 0.5)
    return found


def true_accuracy(learner: Learner, train: int, chance: np.random.Generator) -> float:
    """The expected accuracy after training on ``train`` texts, from 400 new training sets and 20,000 new texts."""
    words, labels = draw_texts(chance, 20_000)
    found = []
    for _ in range(200):
        learned = learner(*draw_texts(chance, train), np.ones((1, train), np.float32))
        found.append(right(words, labels, learned).mean())
    return float(np.mean(found))


class Simulated(NamedTuple):
    """Shares of the experiments."""

    covered: float
    claimed: float
    plain: float
    """covered, by Student's t without the correction"""
    plain_claimed: float


def scores_on_splits(chance: np.random.Generator, learner: Learner, sizes: tuple[int, int], splits: int) -> np.ndarray:
    """(M, S) accuracies on random splits of one pool of new texts; sizes of the pool and of the test part."""
    pool, test = sizes
    words, targets = draw_texts(chance, pool)
    order = np.argsort(chance.random((splits, pool)), axis=1)
    tested, trained = np.zeros((2, splits, pool), np.float32)
    np.put_along_axis(tested, order[:, :test], 1, axis=1)
    np.put_along_axis(trained, order[:, test:], 1, axis=1)
    return np.asarray((right(words, targets, learner(words, targets, trained)) * tested).sum(axis=-1) / test)


def simulate(learner: Learner, pool: int, test: int, splits: int, experiments: int) -> Simulated:
    """Two equal methods on random splits of one pool of texts."""
    chance = np.random.default_rng([pool, test, splits, 0])
    truth, overlap = true_accuracy(learner, pool - test, chance), test / (pool - test)
    scores = np.stack([scores_on_splits(chance, learner, (pool, test), splits) for _ in range(experiments)])
    gaps, errors = scores[:, 0] - scores[:, 1], scores.mean(axis=-1) - truth
    nothing = np.zeros((experiments, splits, 2))
    own, paired = (Noise.of(values, nothing, overlap) for values in (scores[:, 0], gaps))
    plain, plain_paired = (Noise.of(values, nothing, 0.0) for values in (scores[:, 0], gaps))
    return Simulated(
        float((own.p(errors[:, 0]) >= 0.05).mean()),
        float((paired.p(gaps.mean(axis=-1)) < 0.05).mean()),
        float((plain.p(errors[:, 0]) >= 0.05).mean()),
        float((plain_paired.p(gaps.mean(axis=-1)) < 0.05).mean()),
    )


@pytest.mark.proofs
@pytest.mark.parametrize("splits", [5, 10, 30])
def test_intervals_over_splits_hold_the_truth(splits: int) -> None:
    """The 95% interval of an accuracy holds the expected accuracy in 93 to 98% of experiments; 3 to 6% of equal methods differ.

    Naive Bayes and logistic regression on 200 to 1,000 texts, of which 10 or 20% are the test texts. Without the correction the
    interval holds the truth in 83 to 93% with 5 splits and in 50 to 73% with 30; equal methods differ in 7 to 15 and 28 to 53%.
    """
    found, counts = [], []
    for learner, pools in ((naive_bayes, (200, 1000)), (logistic_regression, (200, 400))):
        for pool, test in [(pool, pool // part) for pool in pools for part in (10, 5)]:
            experiments = repeats({5: 800, 10: 600, 30: 400}[splits], 200) // (1 if learner is naive_bayes else 2)
            one = simulate(learner, pool, test, splits, experiments)
            show(
                f"{splits} splits, {learner.__name__}, {test} of {pool} texts, {experiments} experiments: {one}",
                splits=splits, learner=learner.__name__, texts=pool, test=test, **one._asdict(),
            )  # fmt: skip
            error = np.sqrt(0.05 * 0.95 / experiments)
            assert 0.95 - 3 * error <= one.covered
            assert one.claimed <= 0.05 + 3 * error
            found.append(one)
            counts.append(experiments)
    covered, claimed, plain, plain_claimed = np.mean(found, axis=0)
    print(f"{splits} splits, mean: covered {covered:.3f}, claimed {claimed:.3f}")
    error = np.sqrt(0.05 * 0.95 / sum(counts))
    assert covered >= 0.94 - error
    assert claimed <= 0.0525 + error
    assert plain < 0.9
    assert plain_claimed > 0.09 - error


def share_false(labels: int, available: int, seeds: int, experiments: int) -> tuple[float, float]:
    """Shares of experiments whose interval misses the expected accuracy, and in which two equal methods differ.

    The texts are split once: each of the seeds draws ``labels`` of ``available`` training texts; 1,000 test texts.
    """
    chance = np.random.default_rng([labels, available, seeds])
    truth, missed, claimed = true_accuracy(naive_bayes, labels, chance), 0, 0
    for _ in range(experiments):
        words, targets = draw_texts(chance, available)
        trained = np.zeros((seeds, available), np.float32)
        np.put_along_axis(trained, np.argsort(chance.random(trained.shape), axis=1)[:, :labels], 1, axis=1)
        tested, answers = draw_texts(chance, 1000)
        correct = right(tested, answers, naive_bayes(words, targets, trained)).astype(float)
        resampled = correct @ chance.multinomial(1000, np.full(1000, 1 / 1000), 200).T / 1000
        one, other = (MethodScores("", tuple(row.mean(axis=1)), drawn) for row, drawn in zip(correct, resampled, strict=True))
        missed += not one.over_both.low <= truth <= one.over_both.high
        claimed += paired_difference(one, other).p < 0.05
    return missed / experiments, claimed / experiments


@pytest.mark.proofs
@pytest.mark.parametrize(("seeds", "enough", "half"), [(5, 300, 100), (10, 550, 100)])
def test_intervals_cover_other_training_texts_if_seeds_share_few(seeds: int, enough: int, half: int) -> None:
    """Where ``share_training_texts`` is false, intervals of 50 labels miss the truth in about 5%; of half of the texts, in more."""
    experiments = repeats(400, 200)
    for available in (enough, half):
        missed, claimed = share_false(50, available, seeds, experiments)
        show(
            f"{seeds} seeds, 50 of {available} texts: missed {missed:.3f}, claimed {claimed:.3f}",
            seeds=seeds, available=available, missed=missed, claimed=claimed,
        )  # fmt: skip
        error = 3 * np.sqrt(0.05 * 0.95 / experiments)
        assert share_training_texts(50, available, seeds) == (available == half)
        assert (max(missed, claimed) <= 0.06 + error) == (available == enough)


# ---------------------------------------------------------------------------------------------------- races


@pytest.mark.usefixtures("few_baselines")
def test_a_race_over_splits(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """Every seed has its own split, baselines too; trials on the task's split keep their results."""
    write_race_inputs(tmp_path, tokenizer)
    common = {"learning_rates": [5e-3], "scratch": False, "schemes": ["probe"]}
    fixed = race_task(race_config(tmp_path, **common))
    files = {file.name for file in (tmp_path / "race" / "trials").glob("*.json")}
    found = race_task(race_config(tmp_path, resample=True, **common))
    assert NEW_SPLITS in found.findings
    assert ONE_SPLIT in fixed.findings
    assert all(len(one.runs) == 2 for one in found.ranking.methods)
    assert all(run.split_sizes == (60, 20, 30) for one in found.ranking.methods for run in one.runs)
    assert found.recommended.test_scores.overlap == 0.5
    assert found.recommended.validation_scores.overlap == pytest.approx(1 / 3)
    assert "over splits and seeds" in found.findings[1]
    assert ", over splits and seeds)" in found.transfer.sentence(bounded=True)
    report = (tmp_path / "race" / "report.html").read_text()
    assert "score (95% over splits and seeds)" in report
    assert json.loads((tmp_path / "race" / "race.json").read_text())["resampled"]
    capsys.readouterr()
    again = race_task(race_config(tmp_path, **common))
    assert "trials are done already" in capsys.readouterr().err
    assert again.ranking.methods[0].test_scores.scores == fixed.ranking.methods[0].test_scores.scores
    assert files < {file.name for file in (tmp_path / "race" / "trials").glob("*.json")}


@pytest.mark.usefixtures("no_pages", "few_baselines")
def test_a_race_over_splits_with_few_labels(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """``--labels`` draws from each seed's own training texts."""
    write_race_inputs(tmp_path, tokenizer)
    config = race_config(
        tmp_path, resample=True, labels=20, learning_rates=[5e-3], scratch=False, schemes=["probe"], drop_leaks=True
    )
    found = race_task(config)
    assert found.labels == 20
    assert found.recommended.runs[0].split_sizes == (60, 20, 30)
