"""Statistics equal scipy, scikit-learn or the definition by brute force; each public name has a source, an example, a proof."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

import warmstart.stats
from warmstart.seeding import rng
from warmstart.stats.calibration import expected_calibration_error, log_loss, reliability_bins
from warmstart.stats.correlation import PearsonSums, bootstrap_correlation, correlation_q_values, pearson, spearman
from warmstart.stats.differences import MethodScores, paired_difference
from warmstart.stats.goodness_of_fit import distance_from_normal
from warmstart.stats.intervals import bootstrap_interval, t_interval
from warmstart.stats.multiple_testing import benjamini_hochberg, holm
from warmstart.stats.permutation import p_of_no_signal
from warmstart.stats.proportions import (
    binomial_test,
    clopper_pearson_bound,
    mean_proportion,
    paired_proportions,
    sign_test,
    unseen_label_share,
    wilson_interval,
)
from warmstart.stats.resampling import cluster_bootstrap, jackknife
from warmstart.stats.scores import classification_scores, krippendorff_alpha, krippendorff_interval


def test_intervals_of_proportions_are_those_of_scipy() -> None:
    """Wilson's to four digits (1.96 for the normal quantile), Clopper and Pearson's bound and the exact tests to all."""
    for right, count in ((0, 7), (3, 10), (8, 10), (45, 50), (120, 400), (9, 9)):
        found, exact = wilson_interval(right / count, count), stats.binomtest(right, count)
        expected = exact.proportion_ci(0.95, "wilson")
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-4)
        for level in (0.8, 0.95):
            bound = stats.binomtest(right, count, alternative="less").proportion_ci(level, "exact").high
            assert clopper_pearson_bound(right, count, level) == pytest.approx(bound)
        assert sign_test(right, count - right) == binomial_test(right, count) == pytest.approx(exact.pvalue)
    assert binomial_test(2.5, 3) == binomial_test(2, 3), "half a success is rounded towards chance"


def test_the_bootstrap_is_that_of_scipy() -> None:
    """Percentile intervals of 10,000 resamples differ by less than their Monte-Carlo error."""
    values = np.random.default_rng(0).gamma(2.0, size=80)
    expected = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="percentile", rng=1).confidence_interval
    found = bootstrap_interval(values, draws=10_000)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    clusters = cluster_bootstrap(values, np.arange(80), draws=10_000)
    assert (clusters.low, clusters.high) == pytest.approx((expected.low, expected.high), abs=0.02)


def test_holm_is_the_closure_of_bonferroni() -> None:
    """A corrected p-value is the largest Bonferroni p-value of all sets of hypotheses that contain its own (Marcus et al. 1976)."""
    sets = [one for size in range(1, 7) for one in combinations(range(6), size)]
    for p in np.random.default_rng(0).beta(0.4, 2, (5, 6)):
        expected = [max(min(1.0, len(one) * p[list(one)].min()) for one in sets if i in one) for i in range(6)]
        assert holm(p.tolist()) == pytest.approx(expected)


def test_benjamini_hochberg_is_the_step_up_procedure() -> None:
    """q-values below a level are the hypotheses that the procedure of 1995 rejects at it, in any shape."""
    p = np.random.default_rng(1).beta(0.3, 1, (5, 8))
    for level in (0.01, 0.05, 0.2):
        ranked = np.sort(p.ravel())
        passing = np.flatnonzero(ranked <= level * np.arange(1, 41) / 40)
        rejected = p <= ranked[passing[-1]] if len(passing) else np.zeros_like(p, dtype=bool)
        np.testing.assert_array_equal(benjamini_hochberg(p) <= level, rejected)


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    """For a mean, leaving one out gives the interval of the t test."""
    values = np.random.default_rng(2).normal(size=12)
    found = jackknife(np.array([values.mean(), *((values.sum() - values) / 11)]))
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_distance_from_normal_is_the_largest_gap() -> None:
    """Between the share of values up to a point and the normal distribution there, on either side of each value."""
    for values in np.random.default_rng(4).normal(0.1, 1.2, (5, 30)):
        up_to, normal = np.arange(31) / 30, stats.norm.cdf(np.sort(values))
        assert distance_from_normal(values) == pytest.approx(max((up_to[1:] - normal).max(), (normal - up_to[:-1]).max()))


def test_calibration_figures_are_those_of_scikit_learn() -> None:
    """The log loss; the calibration error, from the bins of ``calibration_curve``."""
    from sklearn.calibration import calibration_curve

    chance = np.random.default_rng(3)
    probabilities = chance.dirichlet(np.ones(3), 600)
    labels = np.array([chance.choice(3, p=row) for row in probabilities])
    assert log_loss(probabilities, labels) == pytest.approx(metrics.log_loss(labels, probabilities, labels=[0, 1, 2]))
    confidence = chance.random(600)
    right = chance.random(600) < confidence**2
    for equal_mass, strategy in ((True, "quantile"), (False, "uniform")):
        accuracy, mean = calibration_curve(right, confidence, n_bins=15, strategy=strategy)
        bins = reliability_bins(confidence, right, 15, equal_mass=equal_mass)
        assert np.array([one.accuracy for one in bins]) == pytest.approx(accuracy)
        assert np.array([one.confidence for one in bins]) == pytest.approx(mean)
        found = expected_calibration_error(confidence, right, equal_mass=equal_mass)
        counts = np.histogram(confidence, np.linspace(0, 1, 16))[0] if strategy == "uniform" else np.full(15, 40)
        assert found == pytest.approx((counts * np.abs(accuracy - mean)).sum() / 600)


NAMES = ("ABBR", "DESC", "ENTY", "HUM")


def labels_and_probabilities(
    seed: int, texts: int = 40, classes: int = 4, absent: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities; no text has the label ``absent``."""
    chance = rng(seed, "test metrics")
    labels = chance.choice([c for c in range(classes) if c != absent], texts)
    return labels, chance.dirichlet(np.ones(classes), texts)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([None, 0, 3]))
def test_equal_to_scikit_learn(seed: int, absent: int | None) -> None:
    """Every figure is scikit-learn's, with and without a class that no test text has; as JSON too, without nan."""
    labels, probabilities = labels_and_probabilities(seed, absent=absent)
    scores, answers, every = classification_scores(labels, probabilities, NAMES), probabilities.argmax(axis=1), list(range(4))
    assert scores.accuracy == metrics.accuracy_score(labels, answers)
    assert scores.macro_f1 == pytest.approx(metrics.f1_score(labels, answers, labels=every, average="macro", zero_division=0))
    assert scores.log_loss == pytest.approx(metrics.log_loss(labels, probabilities, labels=every))
    assert (scores.confusion == metrics.confusion_matrix(labels, answers, labels=every)).all()
    for reference, field in ((metrics.precision_score, "precision"), (metrics.recall_score, "recall"), (metrics.f1_score, "f1")):
        expected = reference(labels, answers, labels=every, average=None, zero_division=0)
        assert [getattr(row, field) for row in scores.per_class] == pytest.approx(list(expected))
    assert [row.support for row in scores.per_class] == np.bincount(labels, minlength=4).tolist()
    plain = scores.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["per_class"][2]["name"] == "ENTY"


def test_scores_by_hand() -> None:
    """Rows of the confusion are true labels; an absent class counts 0 in macro F1; the first of equals is the answer.

    A probability of zero for the truth costs much, but not infinitely much.
    """
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])
    scores = classification_scores(np.array([0, 1, 1]), probabilities, ("a", "b", "c"))
    assert scores.accuracy == pytest.approx(2 / 3)
    assert scores.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert scores.log_loss == pytest.approx(-np.log([0.7, 0.8, 0.3]).mean())
    assert scores.confusion.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert classification_scores(np.array([0, 1]), np.full((2, 2), 0.5), ("a", "b")).confusion.tolist() == [[1, 0], [1, 0]]
    certain = classification_scores(np.array([0, 1]), np.array([[0.0, 1.0], [0.0, 1.0]]), ("a", "b"))
    assert certain.log_loss == pytest.approx(-np.log(1e-12) / 2)


SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=12)


@settings(deadline=None, max_examples=80)
@given(SCORES, st.sampled_from([0.8, 0.95, 0.99]))
def test_students_interval_is_that_of_scipy(values: list[float], confidence: float) -> None:
    """The interval is that of scipy's one-sample t test."""
    found = t_interval(values, confidence)
    if np.ptp(values) < 1e-9:
        assert found.high - found.low == pytest.approx(0, abs=1e-7)
        return
    expected = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.low <= found.mean <= found.high
    assert found.count == len(values)


def test_one_seed_has_no_interval() -> None:
    """One seed says so instead of looking exact."""
    found = t_interval([0.9])
    assert found.mean == 0.9
    assert all(map(math.isnan, (found.low, found.high, found.spread)))
    assert str(found) == "90.0% (one run)"


def test_bootstrap_is_repeatable() -> None:
    """The same seed gives the same interval, another seed another one."""
    right = np.arange(100) % 3 == 0
    assert bootstrap_interval(right, seed=1) == bootstrap_interval(right, seed=1) != bootstrap_interval(right, seed=2)


@given(st.integers(0, 100), st.floats(-1e4, 1e4), st.integers(1, 5))
def test_sums_over_a_stream_give_pearsons_r(seed: int, offset: float, batches: int) -> None:
    """Rows in any batches, far from zero or not, give what numpy gives on all of them at once; a constant column has 0."""
    draw = np.random.default_rng(seed)
    one, other = draw.normal(offset, 1, (60, 4)).astype(np.float32), draw.normal(size=(60, 3)).astype(np.float32)
    one[:, 1], other[:, 2] = other[:, 0] + 0.3 * draw.normal(size=60), 7
    sums = PearsonSums()
    for rows in np.array_split(np.arange(60), batches):
        sums.add(one[rows], other[rows])
    expected = np.corrcoef(one.T.astype(float), other[:, :2].T.astype(float))[:4, 4:]
    np.testing.assert_allclose(sums.correlations()[:, :2], expected, atol=1e-5)
    assert (sums.correlations()[:, 2] == 0).all()


def test_q_values_are_those_of_scipy() -> None:
    """The p-values of Pearson's r, corrected by Benjamini and Hochberg over all pairs of columns."""
    draw = np.random.default_rng(0)
    one, other = draw.normal(size=(50, 6)), draw.normal(size=(50, 4))
    one[:, 0] += other[:, 0]
    sums = PearsonSums()
    sums.add(one, other)
    p = [stats.pearsonr(one[:, i], other[:, j]).pvalue for i in range(6) for j in range(4)]
    expected = stats.false_discovery_control(p).reshape(6, 4)
    np.testing.assert_allclose(correlation_q_values(sums.correlations(), 50), expected, rtol=1e-3)


def test_the_bootstrap_interval_holds_the_truth() -> None:
    """About 95 of 100 intervals over passages hold the true correlation; a constant gives 0."""
    draw, inside = np.random.default_rng(0), 0
    for seed in range(100):
        pairs = []
        for _ in range(40):
            x = draw.normal(size=(8,))
            pairs.append((x, 0.6 * x + 0.8 * draw.normal(size=8)))
        low, high = bootstrap_correlation(pairs, rng(seed, "bootstrap"))
        inside += low < 0.6 < high
    assert 88 <= inside <= 99
    assert bootstrap_correlation([(np.ones(3), np.arange(3.0))] * 4, rng(0, "bootstrap")) == (0, 0)


def test_two_columns_by_hand() -> None:
    """Ranks alone count for Spearman's, distances for Pearson's."""
    one, other = np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 100.0])
    assert spearman(one, other) == 1
    assert abs(pearson(one, other) - np.corrcoef(one, other)[0, 1]) < 1e-12


def test_alpha_of_the_books_example() -> None:
    """Four observers, twelve units with missing values (Krippendorff 2011, "Computing Krippendorff's alpha-reliability": 0.743)."""
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
    answers = [[row[unit] for row in observers if row[unit]] for unit in range(12)]
    assert krippendorff_alpha(answers) == pytest.approx(0.743, abs=5e-4)


def test_alpha_is_0_by_chance_and_1_in_agreement() -> None:
    """Two people who guess, 20,000 texts; order and single answers do not matter."""
    guesses = np.random.default_rng(0).integers(0, 3, (20_000, 2)).tolist()
    assert abs(krippendorff_alpha(guesses)) < 0.02
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1
    assert all(math.isnan(krippendorff_alpha(answers)) for answers in ([], [["a"]], [["a", "a"], ["a", "a"]])), "nothing to compare"
    assert krippendorff_alpha([[*reversed(one)] for one in guesses] + [[7]]) == pytest.approx(krippendorff_alpha(guesses))


def test_words_of_a_text_are_drawn_together() -> None:
    """Ten words that agree as one are no more certain than one word; texts with a single answer do not count."""
    texts = [[["a", "a"]], [["b", "b"]], [["a", "b"]]] * 10
    alpha, low, high = krippendorff_interval(texts)
    assert alpha == pytest.approx(krippendorff_alpha([unit for (unit,) in texts]))
    assert low < alpha < high
    long = krippendorff_interval([text * 10 for text in texts])
    assert long.low == pytest.approx(low, abs=0.06)
    assert long.high == pytest.approx(high, abs=0.02)
    assert krippendorff_interval([*texts, [["a"]]]) == (alpha, low, high)
    assert all(map(math.isnan, krippendorff_interval([])))
    assert all(map(math.isnan, krippendorff_interval([[["a", "a"]]])))


def groups(*rights: object) -> list[np.ndarray]:
    return [np.array(right, dtype=float) for right in rights]


def test_a_few_cases_that_agree_are_not_certain() -> None:
    """By hand: p = 3/5 for one success; a single group has Wilson's interval; no end lies beyond 0 or 1."""
    half = 1.96 * math.sqrt(3 * 0.24) / 3
    assert mean_proportion(groups([1], [1], [1])) == pytest.approx((1, 1 - half, 1))
    assert mean_proportion(groups([0] * 3, [0] * 3))[1:] == pytest.approx((0, 1.96 * math.sqrt(2 * (2 / 7) * (5 / 7) / 3) / 2))
    assert mean_proportion(groups([1] * 9 + [0]))[1:] == wilson_interval(0.9, 10)[1:]
    assert mean_proportion(groups(*[[1]] * 9, [0]))[2] == 1


def test_the_interval_of_the_mean_holds_the_truth() -> None:
    """In at least 95 of 100 studies, give or take 2, however few cases each group has."""
    for count, pairs, proportion in ((3, 3, 0.9), (40, 1, 0.7), (67, 200, 0.6)):
        draw = rng(0, "studies")
        found = [mean_proportion(groups(*(draw.random((count, pairs)) < proportion))) for _ in range(400)]
        assert sum(low <= proportion <= high for _, low, high in found) > 0.93 * 400, count


def test_copies_are_one_text_with_a_label() -> None:
    """A label seen on copies alone has been seen once."""
    assert unseen_label_share(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2])) == pytest.approx(1 / 3)


def test_a_difference_is_claimed_if_interval_and_sign_test_agree() -> None:
    """One case claims nothing, nor do five; ten that all agree do, and leave some uncertainty."""
    assert paired_proportions(groups([1]), groups([0])).sign == 0
    assert paired_proportions(groups([1] * 5), groups([0] * 5)).sign == 0
    apart = paired_proportions(groups(*[[1]] * 20, [0] * 90), groups(*[[0]] * 20, [1] * 90))
    assert (apart.low > 0, apart.p < 0.05, apart.sign) == (True, True, 0), "groups say better, pairs say worse"
    better = paired_proportions(groups([1] * 10), groups([0] * 10))
    assert (better.mean, better.low < 0.8, better.sign, better.p) == (1, True, 1, pytest.approx(2 / 2**10))
    assert paired_proportions(groups([0] * 10), groups([1] * 10)).sign == -1
    alike = paired_proportions(groups([1] * 10), groups([1] * 10))
    assert (alike.sign, alike.p, alike.low < 0 < alike.high) == (0, 1, True)
    draw = rng(0)
    one, other = (draw.random((3, 400)) < share for share in (0.7, 0.6))
    found = paired_proportions(groups(*one), groups(*other))
    assert found.high - found.mean == pytest.approx(1.96 * (one.astype(float) - other).std() / math.sqrt(1200), rel=0.01)


def test_nothing_is_learned_from_texts_that_are_all_the_same() -> None:
    """Nor without any representation, or from a single class: p is 1."""
    chance, labels = np.random.default_rng(0), np.arange(20) % 2
    assert p_of_no_signal([np.ones((20, 20))], labels, chance) == 1
    assert p_of_no_signal([], labels, chance) == 1
    assert p_of_no_signal([np.eye(20)], np.zeros(20), chance) == 1


TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reference" / "statistics.md"
MODULES = sorted(path.stem for path in Path(warmstart.stats.__file__).parent.glob("[a-z]*.py"))
CELLS = " ".join(re.findall(r"^- (`.+?`): ", PAGE.read_text(), flags=re.MULTILINE))
PUBLIC = {
    name: getattr(importlib.import_module(f"warmstart.stats.{module}"), name)
    for module, name in re.findall(r"`(\w+)\.(\w+)`", CELLS)
}
"""each name on the page, from the module that stands before it"""
FUNCTIONS = [name for name, found in PUBLIC.items() if inspect.isfunction(found)]


def test_importing_the_package_costs_nothing() -> None:
    """Neither numpy nor scipy is loaded before a module is imported."""
    code = "import sys, warmstart.stats; print(sorted({'numpy', 'scipy', 'torch'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_name_is_defined_in_the_module_before_it() -> None:
    """Under that name; those of methods exist, too."""
    for module, name, method in re.findall(r"`(\w+)\.(\w+)(?:\.(\w+))?", CELLS):
        assert (PUBLIC[name].__name__, PUBLIC[name].__module__) == (name, f"warmstart.stats.{module}")
        assert not method or hasattr(PUBLIC[name], method), f"{name}.{method}"


def test_the_examples_of_docstrings_run() -> None:
    """Every ``>>>`` in the package gives what stands under it."""
    for module in MODULES:
        assert doctest.testmod(importlib.import_module(f"warmstart.stats.{module}"), extraglobs={"np": np}).failed == 0, module


def test_a_public_function_has_an_example_a_source_and_a_proof() -> None:
    """An example that runs, a year of publication, and a test, which ``test_a_proof_uses_what_it_proves`` looks up."""
    for name in FUNCTIONS:
        text = " ".join((PUBLIC[name].__doc__ or "").split())
        assert ">>>" in text, f"{name}: no example"
        assert re.search(r"\b(1[89]|20)\d\d\b", text), f"{name}: no source"
        assert re.search(r"tests/test_\w+\.py\W+.*?test_\w+", text), f"{name}: no test is named"


@functools.cache
def named(file: Path) -> dict[str, Any]:
    """The functions and constants of a file."""
    body = ast.parse(file.read_text()).body
    constants = {ast.unparse(one.targets[0]): one for one in body if isinstance(one, ast.Assign)}
    return constants | {one.name: one for one in body if isinstance(one, ast.FunctionDef)}


def definitions(file: Path) -> dict[str, Any]:
    """Those of a test file, and of the helpers that all tests share."""
    return {name: one for path in (*sorted((TESTS / "helpers").glob("*.py")), file) for name, one in named(path).items()}


def names_used(file: Path, test: str) -> set[str]:
    """The names that a test uses, by itself or in what it uses of its file and of ``helpers``."""
    known, used, todo = definitions(file), set[str](), [test]
    while todo:
        found = {getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(known[todo.pop()])} - used
        used |= found
        todo += [name for name in found if name in known]
    return used


def proofs() -> Iterator[tuple[str, Path, str]]:
    """(function or method, file, test) of every test that a docstring of ``warmstart.stats`` names."""
    for module in MODULES:
        for one in ast.walk(ast.parse((Path(warmstart.stats.__file__).parent / f"{module}.py").read_text())):
            if isinstance(one, ast.FunctionDef):
                text = " ".join((ast.get_docstring(one) or "").split())
                for file, tests in re.findall(r"tests/(test_\w+\.py)(.*?)(?=tests/|$)", text):
                    yield from ((one.name, TESTS / file, test) for test in re.findall(r"\b(test_\w+)", tests))


def test_a_proof_uses_what_it_proves() -> None:
    """The test that a docstring names calls the function; a slow one prints its figures, and the page says how to run it."""
    commands = " ".join(re.findall(r"python -m pytest (.*) -m proofs -s$", PAGE.read_text(), flags=re.MULTILINE)).split()
    for name, file, test in proofs():
        used = names_used(file, test)
        assert name in used, (name, test)
        decorators = ast.unparse(ast.Module([*definitions(file)[test].decorator_list], []))
        if "mark.proofs" in decorators or re.search("^pytestmark = pytest.mark.proofs", file.read_text(), flags=re.MULTILINE):
            assert "print" in used, test
            assert f"tests/{file.name}" in commands, test


def test_the_worked_example_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """It needs nothing but numpy and ``warmstart.stats``."""
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[:2]
    assert set(re.findall(r"^(?:import|from) (\S+)", code, flags=re.MULTILINE)) == {"numpy", "warmstart.stats.differences"}
    exec(compile(code, "docs/reference/statistics.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_scores_from_texts_are_resampled_alike() -> None:
    """Two methods that are right on the same texts do not differ on any resample; groups are drawn together."""
    right = np.random.default_rng(0).random((3, 40)) < 0.7
    one = MethodScores.from_texts("a", right, groups=np.repeat(np.arange(10), 4))
    found = paired_difference(one, MethodScores.from_texts("b", right, groups=np.repeat(np.arange(10), 4)))
    assert (found.mean, found.error, found.p) == (0, 0, 1)
    alone = MethodScores.from_texts("a", right)
    assert one.resampled.shape == alone.resampled.shape == (3, 1000)
    assert alone.resampled.mean(axis=1) == pytest.approx(np.array(alone.scores), abs=0.01)
