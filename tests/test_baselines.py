"""Baselines: each lives through every budget and chooses within it, equals its reference, and may read what labels are called.

Learning in the span of the rows gives the model that learning on all columns gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import sparse
from scipy.special import log_softmax, softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from warmstart.baselines import BASELINES, baselines_for, classifiers
from warmstart.baselines.baseline import NO_WORDS, Baseline, NoWordsError, Readable, Reading, Sample, as_objects
from warmstart.baselines.choice import BaselineRun, run_baseline
from warmstart.baselines.classifiers import fitted_logistic
from warmstart.baselines.span import Span, span_of
from warmstart.baselines.tagging import tag_chain
from warmstart.baselines.vectors import (
    NAME_TEXTS,
    PRIOR_TEXTS,
    REGRESSION_STRENGTH,
    SCALE,
    class_sums,
    held_out_scale,
    means_and_regression,
    means_and_regression_em,
    nearest_prototype,
    with_names,
)
from warmstart.baselines.words import latent_semantic_analysis, present_word_pairs, tfidf, tfidf_characters
from warmstart.cli import main
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.seeding import rng
from warmstart.tasks import TASK_TYPES, task_type_of
from warmstart.tasks.load import load_task, save_task
from warmstart.types import SelectionName

RECIPES = Path(__file__).parents[1] / "recipes" / "tasks"
TFIDF = "TF-IDF + logistic regression"
CLASSIFIERS = [name for name, baseline in BASELINES.items() if not baseline.types or "classification" in baseline.types]
WORDS = [["cat", "dog", "cow"], ["red", "blue", "green"], ["sun", "rain", "snow"]]


def made_up(count: int, seed: int, classes: tuple[int, ...] = (0, 2)) -> Split:
    """Texts of words that lean towards their class; class 1 of three is never seen."""
    chance = rng(seed, "made up")
    labels = chance.choice(classes, count)
    texts = [" ".join(chance.choice([*WORDS[label] * 2, "the", "a"], 6)) for label in labels]
    return Split(tuple(texts), labels.astype(np.int64))


def task_of(train: Split, validation: Split, test: Split) -> Task:
    """A task with three labels, whose names say nothing."""
    return Task("t", ("1", "2", "3"), train, validation, test)


POOL = (*made_up(40, 9).texts, "", "zzz", "the snow")


def run_with(name: str, budget: LabelBudget, pool: tuple[str, ...] = POOL) -> BaselineRun:
    return run_baseline(BASELINES[name], budget, pool, vectors)


def vectors(inputs: tuple[object, ...]) -> np.ndarray:
    """(N, 13) counts of words, their squares and a constant: what a backbone might make of texts."""
    words = [word for row in WORDS for word in row][:6]
    counts = np.array([[str(text).count(word) for word in words] for text in inputs], dtype=float).reshape(-1, len(words))
    return np.concatenate([counts, counts**2, np.ones((len(counts), 1))], axis=1)


def rare(count: int, seed: int) -> Split:
    """Texts of three classes, of which one has a single text."""
    common = made_up(count - 1, seed)
    return Split((*common.texts, "red blue"), np.append(common.labels, 1))


BLANK = replace(made_up(30, 0), texts=("", " ", *made_up(30, 0).texts[2:]))
UNKNOWN = Split(("", "qqq", "日本"), np.zeros(3, dtype=np.int64))
FEW = task_of(made_up(60, 0), made_up(20, 1), made_up(30, 2))
LIVES: dict[str, tuple[Task, int | None, SelectionName]] = {
    "few labels": (FEW, 12, "cross-validation"),
    "few labels, holdout": (FEW, 12, "holdout"),
    "two texts of a class": (FEW, 3, "cross-validation"),
    "all labels": (FEW, None, "holdout"),
    "a class with one text": (task_of(rare(30, 0), made_up(20, 1), rare(30, 2)), 20, "cross-validation"),
    "some texts without words": (task_of(BLANK, made_up(9, 1), UNKNOWN), 20, "cross-validation"),
    "one text, again and again": (task_of(*[Split(("a red cat",) * 20, np.arange(20) % 2)] * 3), None, "holdout"),
    "one class": (task_of(made_up(20, 0, (2,)), made_up(9, 1), made_up(9, 2)), 12, "cross-validation"),
}


@pytest.mark.parametrize("life", LIVES)
def test_contract(life: str) -> None:
    """Probabilities sum to one, unseen classes without a name get nothing, the note says what was chosen, and a repeat is equal.

    Every baseline lives a third of the lives, with and without a pool; two live all of them.
    """
    number, (task, labels, selection) = [*LIVES].index(life), LIVES[life]
    budget = label_budget(task, labels, selection, 1)
    unseen = [label for label in range(3) if label not in budget.task.train.labels]
    for place, name in enumerate(CLASSIFIERS):
        if (place + number) % 3 < 2 and name not in (TFIDF, "naive Bayes + EM"):
            continue
        baseline, pool = BASELINES[name], POOL if (place + number // 3) % 2 else ()
        result, again = run_with(name, budget, pool), run_with(name, budget, pool)
        for predictions, split in ((result.test, task.test), (result.choosing, budget.choosing)):
            assert predictions.shape == (len(split), 3), name
            assert predictions.sum(axis=1) == pytest.approx(np.ones(len(split))), name
            assert predictions.min() >= 0, name
            assert baseline.read is with_names or (predictions[:, unseen] == 0).all(), name
        assert np.array_equal(result.test, again.test), name
        assert np.array_equal(result.choosing, again.choosing), name
        assert result.note == again.note != "", name
        if NO_WORDS in result.note:
            continue
        assert {*result.tried} == {*baseline.candidates}, name
        read = f"read {0 if baseline.reads_votes else len(pool)} texts without labels"
        assert baseline.reads_pool == (read in result.note), name
        score = task_type_of(task).scores(budget.choosing, result.choosing, task).score("accuracy")
        best = next((setting for setting, found in result.tried.items() if found == max(result.tried.values())), None)
        assert not result.tried or (result.setting, result.tried[result.setting]) == (best, score), name


def test_words_that_give_a_class_away_are_found() -> None:
    budget = label_budget(task_of(made_up(80, 3), made_up(20, 4), made_up(60, 5)), 40, "cross-validation", 0)
    for name in CLASSIFIERS:
        result = run_with(name, budget)
        for predictions, split in ((result.test, budget.whole.test), (result.choosing, budget.choosing)):
            right = (predictions.argmax(axis=1) == split.labels).mean()
            assert name == "majority" or right > 0.9, name


def test_no_text_is_predicted_by_what_learned_its_label() -> None:
    """Out-of-fold predictions of a text do not change with its label, at the same setting."""
    task = task_of(made_up(20, 0), made_up(5, 1), made_up(5, 2))
    budget = label_budget(task, None, "cross-validation", 0)
    for number, name in enumerate(CLASSIFIERS):
        fixed = replace(BASELINES[name], candidates=BASELINES[name].candidates[:1])
        first, fold = run_baseline(fixed, budget, POOL, vectors).choosing, budget.folds[number % len(budget.folds)]
        labels = task.train.labels.copy()
        labels[fold.choose] = 2 - labels[fold.choose]
        changed = replace(budget, whole=replace(task, train=replace(task.train, labels=labels)))
        vars(changed)["folds"] = budget.folds
        assert np.allclose(run_baseline(fixed, changed, POOL, vectors).choosing[fold.choose], first[fold.choose]), name


def test_all_labels_with_a_holdout_are_tfidf_as_it_was() -> None:
    """A plain loop over scikit-learn's models, scored on validation, chooses and predicts the same."""
    train, validation, test = made_up(60, 0), made_up(20, 1), made_up(30, 2)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    rows = vectorizer.fit_transform(train.texts)
    fitted = [LogisticRegression(C=c, max_iter=2000).fit(rows, train.labels) for c in classifiers.STRENGTHS]
    scores = [model.score(vectorizer.transform(validation.texts), validation.labels) for model in fitted]
    expected = fitted[int(np.argmax(scores))].predict(vectorizer.transform(test.texts))
    result = run_with(TFIDF, label_budget(task_of(train, validation, test), None, "holdout", 0))
    assert (result.test.argmax(axis=1) == expected).all()
    assert [*result.tried.values()] == pytest.approx(scores)


def test_by_macro_f1_every_class_is_as_likely() -> None:
    """The margins of scikit-learn's regression are less the logarithms of the frequencies; by accuracy they are its own."""
    rows, labels = rng(0, "unequal").normal(size=(40, 3)), np.repeat([0, 1], [34, 6]).astype(np.int64)
    split = Split(tuple(f"text {i}" for i in range(40)), labels)
    own = LogisticRegression(C=1.0, max_iter=10_000, tol=1e-8).fit(rows, labels).predict_proba(rows)
    wanted = {"accuracy": own, "macro_f1": normalize(own / [34, 6], norm="l1")}
    regression = Baseline(lambda _: Reading(lambda inputs: rows[: len(inputs)]), classifiers.logistic_regression, candidates=(1.0,))
    for metric, probabilities in wanted.items():
        task = Task("unequal", ("many", "few"), split, split, split, metric=metric)
        found = run_baseline(regression, label_budget(task, None, "none", 0), setting=1.0)
        np.testing.assert_allclose(found.test, probabilities, atol=1e-3)


def test_characters_are_those_of_scikit_learn_and_find_new_forms_of_known_words() -> None:
    """TF-IDF of its n-grams inside words, for the chosen C; words that no text had, with the stems of those that were learned."""
    stems = {0: ("walk", "climb", "jump"), 2: ("paint", "draw", "print")}

    def split(endings: tuple[str, ...]) -> Split:
        rows = [(f"the {one}{ending} {two}{ending}", label) for ending in endings for label in stems for one in stems[label]
                for two in stems[label]]  # fmt: skip
        return Split(tuple(text for text, _ in rows), np.array([label for _, label in rows]))

    train, test = split(("er", "ed")), split(("ing", "s"))
    budget = label_budget(task_of(train, train, test), None, "cross-validation", 0)
    found = run_with("TF-IDF of characters + logistic regression", budget)
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)
    model = LogisticRegression(C=found.setting, max_iter=10_000, tol=1e-10).fit(vectorizer.fit_transform(train.texts), train.labels)
    np.testing.assert_allclose(found.test[:, [0, 2]], model.predict_proba(vectorizer.transform(test.texts)), atol=1e-6)
    assert (found.test.argmax(axis=1) == test.labels).all()
    assert (run_with(TFIDF, budget).test.argmax(axis=1) == test.labels).mean() == 0.5, "words see nothing that they know"


def test_every_task_type_has_a_constant_baseline() -> None:
    """The first baseline of every type is the one that ignores the texts; every other one names known types."""
    for name in TASK_TYPES:
        served = baselines_for(Task("t", (), made_up(2, 0), made_up(2, 0), made_up(2, 0), type=name))
        assert next(iter(served)) == "majority", name
    assert all(set(baseline.types or ()) <= set(TASK_TYPES) for baseline in BASELINES.values())


def test_validation_texts_are_not_trained_on() -> None:
    """Validation chooses the strength and nothing else: a label that only it has is never learned, and its words change nothing."""
    train, test = made_up(60, 0), made_up(30, 2)
    # label 1 is never predicted, so every strength scores 0, and the first one is taken
    parts = [Split((word,) * 4, np.full(4, 1)) for word in ("cat", "zzz")]
    first, second = (run_with(TFIDF, label_budget(task_of(train, part, test), None, "holdout", 0)) for part in parts)
    assert first.note == second.note == f"C = {classifiers.STRENGTHS[0]:g}, chosen on validation"
    assert (first.test == second.test).all()
    assert (first.test[:, 1] == 0).all()


@pytest.mark.data
@pytest.mark.journeys
def test_trec(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all its labels, TF-IDF errs on at most 12 % of TREC's test questions, without a warning."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    task = load_task(RECIPES / "trec.yaml")
    result = run_with(TFIDF, label_budget(task, None, "holdout", 0))
    assert task_type_of(task).scores(task.test, result.test, task).score("accuracy") >= 0.88


def test_words_around_tell_tags_that_a_word_alone_does_not() -> None:
    """``can`` is a noun after ``the``, and a word that nobody tagged is known by its end; each word has probabilities."""
    nouns = ["the can", "the dog", "the talking", "a can", "the walking"]
    verbs = ["we can", "they can", "we go", "they talked", "we walked"]
    inputs = as_objects([tuple(text.split()) for text in (*nouns, *verbs)])
    labels = as_objects([np.array([0, 1])] * 5 + [np.array([2, 3])] * 5)
    nothing = Split(inputs[:0], labels[:0])
    task = Task("tags", ("DET", "NOUN", "PRON", "VERB"), Split(tuple(inputs), labels), nothing, nothing, type="tagging")
    predict = tag_chain(Sample(inputs, labels, None, task, 0), 0.0)
    found = predict([("the", "can"), ("we", "can"), ("they", "jumped")])
    assert [one.argmax(axis=1).tolist() for one in found] == [[0, 1], [2, 3], [2, 3]]
    np.testing.assert_allclose(found[2].sum(axis=1), 1)


def texts_of_30_words(texts: int, pool: int, classes: int) -> Sample:
    """Texts of 30 words, of which each class uses some more often."""
    chance = rng(0, "ladder", texts, pool, classes)
    labels = np.arange(texts + pool) % classes
    rates = 0.1 + 0.5 * (np.arange(30) % classes == labels[:, None])
    rows = sparse.csr_array((chance.random((texts + pool, 30)) < rates).astype(np.int64))
    split = Split(("x",) * texts, labels[:texts])
    task = Task("t", tuple("abcd")[:classes], split, split, split)
    return Sample(rows[:texts], labels[:texts], rows[texts:] if pool else None, task, 0)


def test_em_is_naive_bayes_fitted_again_and_again() -> None:
    """scikit-learn's naive Bayes with weighted copies of every pool text, one for each class, gives the same probabilities."""
    for alpha, pool, classes in product(classifiers.EM_SMOOTHING, (0, 50), (2, 4)):
        sample = texts_of_30_words(12, pool, classes)
        model = MultinomialNB(alpha=alpha).fit(sample.rows, sample.labels)
        for _ in range(classifiers.EM_STEPS if pool else 0):
            rows: Any = sparse.vstack([sample.rows] + [sample.pool] * classes)
            labels = np.concatenate([sample.labels, np.repeat(np.arange(classes), pool)])
            weights = np.concatenate([np.ones(12), classifiers.POOL_WEIGHT * model.predict_proba(sample.pool).T.ravel()])
            model = MultinomialNB(alpha=alpha).fit(rows, labels, sample_weight=weights)
        new = texts_of_30_words(40, 0, classes).rows
        assert classifiers.naive_bayes_em(sample, alpha)(new) == pytest.approx(model.predict_proba(new)), (alpha, pool, classes)


def test_the_pool_teaches_words_that_no_label_has() -> None:
    """'sun' stands beside 'good', and 'rain' beside 'bad', in texts without labels only."""
    train = Split(tuple(f"{feeling} film {i}" for i in range(4) for feeling in ("good", "bad")), np.array([1, 0] * 4))
    test = Split(("sun", "rain") * 5, np.array([1, 0] * 5))
    budget = label_budget(Task("t", ("bad", "good"), train, train, test), None, "cross-validation", 0)
    pool = tuple(f"{feeling} {weather} {i % 7}" for i in range(70) for feeling, weather in (("good", "sun"), ("bad", "rain")))
    for texts, right in ((pool, 1.0), ((), 0.5)):
        found = run_baseline(BASELINES["naive Bayes + EM"], budget, texts)
        assert (found.test.argmax(axis=1) == test.labels).mean() == right
        assert {*found.tried} == {*classifiers.EM_SMOOTHING}, "chosen by the labels of the budget"


def test_nbsvm_without_naive_bayes_is_an_svm_on_weighted_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with naive Bayes alone, words count by their log-count ratio."""
    sample, new = texts_of_30_words(60, 0, 2), texts_of_30_words(40, 0, 2).rows
    of_class, others = (1 + np.asarray(sample.rows[sample.labels == one].sum(axis=0)) for one in (1, 0))
    ratios = np.log(of_class / of_class.sum()) - np.log(others / others.sum())
    svm, new = (
        LinearSVC(C=1.0, tol=classifiers.SVM_GRADIENT, random_state=0).fit(normalize(sample.rows) * ratios[None], sample.labels),
        normalize(new),
    )
    monkeypatch.setattr(classifiers, "INTERPOLATION", 1.0)
    found = classifiers.nbsvm(sample, 1.0)(new)
    assert np.log(found[:, 1] / found[:, 0]) == pytest.approx(2 * svm.decision_function(new * ratios[None]))
    monkeypatch.setattr(classifiers, "INTERPOLATION", 0.0)
    found = classifiers.nbsvm(sample, 1.0)(new)
    expected = np.abs(svm.coef_).mean() * (new @ ratios) + svm.intercept_[0]
    assert np.log(found[:, 1] / found[:, 0]) == pytest.approx(2 * expected)


def test_a_word_of_all_texts_says_nothing_to_nbsvm() -> None:
    """However unequal the classes are: a text with this word alone is judged like one without any."""
    labels = np.repeat(np.arange(3), [3, 5, 30])
    rows = sparse.csr_array(np.concatenate([np.ones((38, 1)), np.eye(3)[labels]], axis=1))
    split = Split(("x",) * 38, labels)
    predict = classifiers.nbsvm(Sample(rows, labels, None, Task("t", tuple("abc"), split, split, split), 0), 1.0)
    assert predict(sparse.csr_array(np.eye(4)[:1])) == pytest.approx(predict(sparse.csr_array(np.zeros((1, 4)))))
    assert (predict(rows).argmax(axis=1) == labels).all()


def test_a_scale_suits_texts_left_out() -> None:
    """Each text is left out of the mean of its class in turn, written out with numpy; the log loss is lowest there."""
    labels = np.append(np.arange(23) % 2, 3)
    rows = rng(0, "means").normal(size=(24, 4)) + np.eye(4)[labels]
    unit, present = rows / np.linalg.norm(rows, axis=1)[:, None], np.array([0, 1, 3])

    def cosines(learn: np.ndarray, new: np.ndarray) -> np.ndarray:
        means = np.stack([unit[learn & (labels == one)].mean(axis=0) for one in present])
        return np.asarray(new @ (means / np.linalg.norm(means, axis=1)[:, None]).T)

    def loss(scale: float) -> float:
        return -float(sum(log_softmax(scale * left, axis=-1)[labels[i]] for i, left in enumerate(left_out)))

    left_out = [cosines(np.arange(24) != i, unit[i]) for i in range(23)]  # the last text is alone in its class
    scale = held_out_scale(rows, labels, class_sums(rows, labels, 4))
    assert loss(scale) < min(loss(0.98 * scale), loss(1.02 * scale)), "lowest there"
    alone = held_out_scale(rows[:2], labels[:2], class_sums(rows[:2], labels[:2], 4))
    assert alone == pytest.approx(SCALE), "no text can be left out"


def test_a_large_pool_is_sampled_by_the_seed() -> None:
    train = Split(tuple(f"film {i}" for i in range(8)), np.array([1, 0] * 4))
    budget = label_budget(Task("t", ("bad", "good"), train, train, train), None, "cross-validation", 0)
    limited = replace(BASELINES["naive Bayes + EM"], pool_limit=1_000, limited_because="each is read by a network")
    note = run_baseline(limited, budget, [f"good {i}" for i in range(1_500)]).note
    assert note.endswith("read 1,000 of 1,500 texts without labels, no more because each is read by a network")


def test_what_reads_a_pool_or_vectors_needs_them() -> None:
    split = Split(("a", "b"), np.array([0, 1]))
    task = Task("t", ("a", "b"), split, split, split)
    plain, full = baselines_for(task), baselines_for(task, pool=True, vectors=True)
    assert not any(one.reads_pool or one.needs_vectors for one in plain.values())
    assert {name for name, one in full.items() if one.reads_pool or one.needs_vectors} == {*full} - {*plain}
    assert len(full) - len(plain) >= 4


CROPS = ("grain", "wheat", "oil", "crude")


def word_counts(inputs: Sequence[Any]) -> np.ndarray:
    """How often each word occurs, and a dimension that all texts and names have in common."""
    return np.array([[text.count(word) for word in CROPS] + [1.0] for text in inputs])


def grain_or_oil(labels: tuple[str, ...] = ("grain", "oil"), **described: str) -> Task:
    """Texts about wheat and crude oil; half of them have the name of their label."""
    texts = ("wheat", "crude", "wheat grain", "crude oil") * 5
    split = Split(texts, np.array([0, 1, 0, 1] * 5))
    return Task("t", labels, split, split, split, label_descriptions=described)


def by_names(task: Task) -> np.ndarray:
    """(N, C) what names alone predict for the test texts."""
    return nearest_prototype(normalize(word_counts(task.label_meanings)))(word_counts(task.test.texts))


def test_names_alone_tell_classes_apart_where_texts_have_their_words() -> None:
    """A text without a name is as likely of either class; a description takes the place of a name."""
    task = grain_or_oil()
    found = by_names(task)
    right = found.argmax(axis=1) == task.test.labels
    assert right[2:4].all()
    np.testing.assert_allclose(found[0], 0.5)  # "wheat" alone is no name
    described = grain_or_oil(("a1", "b2"), a1="wheat and grain", b2="crude oil")
    assert (by_names(described).argmax(axis=1) == task.test.labels).all()


def probabilities(sample: Sample, new: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The geometric mean, written out: of a softmax of cosines with ``means``, and of a regression on copies of names."""
    named = np.flatnonzero(sample.names.any(axis=1))
    rows = normalize(np.concatenate([sample.rows, *[sample.names[named]] * round(NAME_TEXTS)]))
    labels = np.append(sample.labels, [*named] * round(NAME_TEXTS))
    model = LogisticRegression(C=REGRESSION_STRENGTH, max_iter=10_000, tol=1e-9).fit(rows, labels)
    margins = np.log(model.predict_proba(normalize(new))) - (np.log(np.bincount(labels)) if sample.equal else 0.0)
    counts = np.bincount(sample.labels, minlength=len(means)) + PRIOR_TEXTS
    frequencies = 0.0 if sample.equal else np.log(counts / counts.sum())
    return np.asarray(softmax((SCALE * normalize(new) @ normalize(means).T + frequencies + margins) / 2, axis=1))


@pytest.mark.parametrize("equal", [True, False])
def test_frozen_vectors_are_read_by_class_means_and_a_regression_with_names(equal: bool) -> None:
    """A name counts as three texts of its class in both; a class without a text is known by its name alone."""
    chance = np.random.default_rng(1)
    rows, names, new = (normalize(chance.normal(size=(count, 4))) for count in (7, 3, 50))
    labels = np.array([0, 0, 0, 0, 0, 1, 1])
    means = NAME_TEXTS * names + np.stack([rows[labels == one].sum(axis=0) for one in range(3)])
    sample = Sample(rows, labels, None, grain_or_oil(("grain", "oil", "gold")), 0, names, equal=equal)
    np.testing.assert_allclose(means_and_regression(sample)(new), probabilities(sample, new, means), atol=1e-3)


def test_few_texts_of_many_classes_are_no_warning() -> None:
    """scikit-learn takes the labels for numbers that were meant to be regressed on, and warns; here a warning is an error."""
    labels = np.arange(30) // 2 + np.arange(30) % 2
    assert fitted_logistic(np.eye(30), labels, 1.0, equal=False).weights.shape == (30, 16)


def test_a_class_of_which_nothing_is_known_is_never_predicted() -> None:
    """Neither text nor name; if only one is known, it is predicted for all."""
    rows, names = np.eye(4)[[0, 0, 1]], np.zeros((3, 4))
    task = grain_or_oil(("0", "1", "2"))
    found = means_and_regression(Sample(rows, np.array([0, 0, 1]), None, task, 0, names))(np.eye(4))
    assert (found[:, 2] == 0).all()
    one = means_and_regression(Sample(rows[:2], np.array([1, 1]), None, task, 0, names))(np.eye(4))
    np.testing.assert_array_equal(one, np.eye(3)[[1] * 4])


def test_classes_that_are_told_nothing_of_their_frequencies_are_as_likely() -> None:
    """For a text that says nothing, whichever method reads words or vectors; otherwise the frequent class is likelier."""
    labels = np.repeat([0, 1], [12, 4])
    rows, nothing = np.eye(5)[labels + 1], np.eye(5)[:1]
    for fit in (classifiers.logistic_regression, classifiers.naive_bayes_em, means_and_regression):
        for equal in (True, False):
            matrix: Any = rows if fit is means_and_regression else sparse.csr_array(rows)
            sample = Sample(matrix, labels, None, grain_or_oil(), 0, np.zeros((2, 5)), equal=equal)
            found = fit(sample, 1.0)(nothing if fit is means_and_regression else sparse.csr_array(0 * nothing))[0]
            assert (abs(found[0] - 0.5) < 0.12) == equal, (fit, equal, found)


def test_the_words_of_a_name_are_what_a_label_means() -> None:
    """A number says nothing about a class."""
    names = {"talk.politics_misc": "talk politics misc", "Sci/Tech": "Sci Tech", "été-2": "été 2", "0": "", "_1.5": ""}
    assert [grain_or_oil((name, "oil")).label_meanings for name in names] == [(meaning, "oil") for meaning in names.values()]


def test_names_without_words_say_nothing() -> None:
    """Of numbers, and of a single name, which has nothing to be compared with; names are centred among themselves."""
    names = {
        count: with_names(Readable(grain_or_oil(count), ("wheat", "crude"), vectors=word_counts)).names
        for count in (("0", "1"), ("0", "oil"))
    }
    assert not any(one.any() for one in names.values())
    two = with_names(Readable(grain_or_oil(), ("wheat", "crude"), vectors=word_counts)).names
    np.testing.assert_allclose(two[0], -two[1], atol=1e-12)
    run = run_baseline(BASELINES["frozen vectors"], label_budget(grain_or_oil(("0", "1")), 8, "none", 0), (), word_counts)
    assert (run.test.argmax(axis=1) == grain_or_oil().test.labels).all()


def test_descriptions_are_part_of_a_task(tmp_path: Path) -> None:
    """Saved and read back; they change what methods read, so they change the digest."""
    task = grain_or_oil(grain="wheat, maize and barley")
    read = load_task(save_task(task, tmp_path / "t"))
    assert read.label_descriptions == {"grain": "wheat, maize and barley"}
    assert read.digest == task.digest != grain_or_oil().digest


def test_descriptions_of_no_label_or_without_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save_task(grain_or_oil(), tmp_path / "t")
    for name, words, why in (("gold", "a metal", "'gold' is not one of grain, oil"), ("oil", " ", "that of 'oil' is empty")):
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "label_descriptions": {name: words}}))
        assert main(["audit", str(file)]) == 2
        assert why in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("equal", [True, False])
def test_class_means_with_a_pool_are_soft_k_means(equal: bool) -> None:
    """Ten rounds of equations 3 and 4 of Ren et al. 2018 by cosine; ln(n_c + 3) of a class's labels counts unless all are equal.

    Without a pool they are plain.
    """
    chance = np.random.default_rng(3)
    rows, pool, names = (normalize(chance.normal(size=(count, 4))) for count in (12, 40, 2))
    labels, frequencies = np.repeat([0, 1], (9, 3)), 0.0 if equal else np.log([12 / 18, 6 / 18])
    known = means = NAME_TEXTS * names + np.stack([rows[labels == one].sum(axis=0) for one in range(2)])
    for _ in range(10):
        means = known + 0.1 * softmax(SCALE * pool @ normalize(means).T + frequencies, axis=1).T @ pool
    sample = Sample(rows, labels, pool, grain_or_oil(), 0, names, equal=equal)
    np.testing.assert_allclose(means_and_regression_em(sample, 0.1)(pool), probabilities(sample, pool, means), atol=1e-3)
    alone = replace(sample, pool=None)
    np.testing.assert_array_equal(means_and_regression_em(alone, 0.3)(pool), means_and_regression(alone)(pool))


def texts_and_span(made: Callable[[int], Any], texts: int) -> tuple[Any, Span]:
    """Rows of so many texts, and their span."""
    rows = made(texts)
    return rows, span_of(rows) or pytest.fail("there are fewer rows than columns")


def sparse_rows(texts: int, columns: int = 400) -> Any:
    """(texts, columns) sparse rows of length 1, of which two are copies and one is empty."""
    rows = sparse.random(texts, columns, 0.05, "csr", random_state=texts)
    rows = sparse.vstack([rows[:-2], rows[:1], sparse.csr_matrix((1, columns))]).tocsr()
    return rows.multiply(1 / np.maximum(sparse.linalg.norm(rows, axis=1), 1e-9)[:, None]).tocsr()


def dense_rows(texts: int) -> np.ndarray:
    return rng(texts, "dense").normal(size=(texts, 400)) / 20


def learned(rows: Any, labels: np.ndarray, in_span: bool, strength: float, metric: str = "accuracy") -> Any:
    """The logistic regression of labels (N,) or (N, C) as baselines have it."""
    split = Split(tuple(f"text {i}" for i in range(len(labels))), labels)
    type_name = "multilabel" if labels.ndim == 2 else "classification"
    task = Task("t", ("a", "b", "c"), split, split, split, type=type_name, metric=metric)
    return classifiers.logistic_regression(Sample(rows, labels, None, task, 0, in_span=in_span), strength)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strength", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("made", [sparse_rows, dense_rows])
def test_margins_in_the_span_are_those_of_all_columns(made: Callable[[int], Any], strength: float, classes: int) -> None:
    """Of a fold, for texts left out and for new ones; scikit-learn's, converged on the columns, is the reference."""
    (rows, span), labels, learn = texts_and_span(made, 30), np.arange(30) // 2 % classes, np.arange(22)
    found = learned(span.rows[learn], labels[learn], in_span=True, strength=strength)
    exact = LogisticRegression(C=strength, max_iter=100_000, tol=1e-10).fit(rows[learn], labels[learn])
    new = made(31)
    np.testing.assert_allclose(found(span.rows)[:, :classes], exact.predict_proba(rows), atol=1e-4)
    np.testing.assert_allclose(span.on_columns(found)(new)[:, :classes], exact.predict_proba(new), atol=1e-4)


def test_the_gradient_on_the_columns_vanishes() -> None:
    """The mean loss with its penalty cannot fall any more at the weights that are saved: |gradient| / N is at most 1e-7."""
    (rows, span), labels = texts_and_span(sparse_rows, 40), np.arange(40) // 2 % 3
    model = span.on_columns(learned(span.rows, labels, in_span=True, strength=10.0))
    chances = softmax(rows @ model.weights + model.bias, axis=1)
    gradient = rows.T @ (chances - np.eye(3)[labels]) + model.weights / 10.0
    assert np.abs(gradient).max() / 40 < 1e-7


def test_classes_and_labels_that_weigh_otherwise_are_learned_in_the_span() -> None:
    """Balanced classes, and one model for each of several labels, of which one never occurs."""
    (rows, span), unequal = texts_and_span(sparse_rows, 40), np.repeat([0, 1, 2], [30, 6, 4])
    several = np.stack([unequal == 0, unequal == 1, np.zeros(40, bool)], axis=1).astype(np.float64)
    for labels, metric in ((unequal, "macro_f1"), (several, "micro_f1")):
        within = span.on_columns(learned(span.rows, labels, in_span=True, strength=1.0, metric=metric))
        np.testing.assert_allclose(within(rows), learned(rows, labels, in_span=False, strength=1.0, metric=metric)(rows), atol=1e-3)


def test_ridge_regression_in_the_span_is_that_on_all_columns() -> None:
    (rows, span), labels = texts_and_span(sparse_rows, 30), rng(0, "numbers").normal(size=30)
    split = Split(tuple(f"text {i}" for i in range(30)), labels)
    sample = Sample(span.rows, labels, None, Task("t", (), split, split, split, type="regression", metric="mae"), 0, in_span=True)
    found, exact = span.on_columns(classifiers.ridge_regression(sample, 0.1)), Ridge(alpha=0.1, tol=1e-10).fit(rows, labels)
    np.testing.assert_allclose(found(sparse_rows(31))[:, 0], exact.predict(sparse_rows(31)), atol=1e-5)


def test_rows_that_are_not_fewer_than_the_columns_have_no_span() -> None:
    assert span_of(rng(0, "tall").normal(size=(30, 30))) is None


def zipf_texts(count: int, chance: np.random.Generator) -> Split:
    """Texts of 25 words of two topics; as in prose, most words of the language are in few texts or in one alone."""
    labels = chance.integers(0, 2, count)
    words = chance.zipf(1.3, (count, 25))
    topical = (words > 5) & (chance.random(words.shape) < 0.3)
    texts = [
        " ".join(f"w{2 * word + label if topic else 2 * word}" for word, topic in zip(*row, strict=True))
        for *row, label in zip(words, topical, labels, strict=True)
    ]
    return Split(tuple(texts), labels.astype(np.int64))


@pytest.mark.parametrize("name", [TFIDF, "NBSVM", "TF-IDF of characters + logistic regression"])
def test_texts_left_out_are_predicted_with_the_confidence_of_new_ones(name: str) -> None:
    """So a threshold that is found on them is one of the model that has learned from all."""
    gaps = []
    for draw in range(8):
        chance = np.random.default_rng(draw)
        task = Task("zipf", ("0", "1"), zipf_texts(100, chance), zipf_texts(0, chance), zipf_texts(400, chance))
        budget = replace(label_budget(task, 100, "cross-validation", 0), parts=20)
        run = run_baseline(BASELINES[name], budget)
        gaps.append(run.test.max(axis=1).mean() - run.choosing.max(axis=1).mean())
    assert abs(np.mean(gaps)) < 0.02


def test_words_of_one_hand_alone_are_not_kept() -> None:
    """Nor pairs or parts of them: neither of a text and its near copies, nor of texts of one group; words of two units are."""
    texts = ("my lamp is broken says Zorbax", "Ticket 4711: my lamp is broken says Zorbax", "a chair of mine", "my chair of oak")
    groups = np.array(["ann", "ben", "cem", "cem"])
    split = Split(texts, np.array([0, 0, 1, 1]), groups)
    task = Task("mails", ("lamp", "chair"), split, split.take(NO_TEXTS), split.take(NO_TEXTS))
    readable = Readable(task, texts, units=tuple(split.units.tolist()))
    for reads in (tfidf, tfidf_characters, present_word_pairs):
        words = " ".join(reads(readable).saved.vocabulary)
        assert "my" in words
        assert not any(part in words for part in ("rbax", "lamp", "chair")), words


def test_texts_without_common_words_leave_nothing_to_read() -> None:
    """What only one text has, or near copies of one, or texts of one group, is not kept; nothing else is there to read."""
    own, copies = (
        ("my lamp broke", "a chair creaks"),
        ("my lamp broke again", "Ticket 471138: my lamp broke again", "a chair creaks"),
    )
    for texts, groups in ((own, None), (copies, None), (("my lamp", "my lamps", "a chair"), np.array(["ann", "ann", "ben"]))):
        labels = np.array([0] * (len(texts) - 1) + [1])
        split = Split(texts, labels, groups)
        task = Task("mails", ("lamp", "chair"), split, split.take(NO_TEXTS), split.take(NO_TEXTS))
        readable = Readable(task, texts, units=tuple(split.units.tolist()))
        for reads in (tfidf, present_word_pairs, latent_semantic_analysis):
            with pytest.raises(NoWordsError):
                reads(readable)
