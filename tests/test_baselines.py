"""Baselines: each one lives through every budget, chooses within it, and TF-IDF is no straw man."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from warmstart.baselines import BASELINES, baselines_for
from warmstart.baselines.baseline import Sample, as_objects
from warmstart.baselines.choice import BaselineRun, run_baseline
from warmstart.baselines.classifiers import STRENGTHS, logistic_regression
from warmstart.baselines.tagging import tag_chain
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, DataError
from warmstart.seeding import rng
from warmstart.tasks import TASK_TYPES, task_type_of
from warmstart.tasks.load import load_task
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


def unlabelled(*texts: str) -> Split:
    return Split(texts, np.zeros(len(texts), dtype=np.int64))


def task_of(train: Split, validation: Split, test: Split) -> Task:
    """A task with three labels, whose names say nothing."""
    return Task("t", ("1", "2", "3"), train, validation, test)


def run(name: str, train: Split, validation: Split, test: Split) -> BaselineRun:
    """A baseline with all labels and a holdout."""
    return run_with(name, label_budget(task_of(train, validation, test), None, "holdout", 0))


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


def pairs(split: Split) -> Split:
    return Split(tuple((text, f"{text} ?") for text in split.texts), split.labels)


LIVES: dict[str, tuple[Task, int | None, SelectionName]] = {
    "few labels": (task_of(made_up(60, 0), made_up(20, 1), made_up(30, 2)), 12, "cross-validation"),
    "few labels, holdout": (task_of(made_up(60, 0), made_up(20, 1), made_up(30, 2)), 12, "holdout"),
    "two texts of a class": (task_of(made_up(60, 0), made_up(20, 1), made_up(30, 2)), 3, "cross-validation"),
    "all labels": (task_of(made_up(60, 0), made_up(20, 1), made_up(30, 2)), None, "holdout"),
    "a class with one text": (task_of(rare(30, 0), made_up(20, 1), rare(30, 2)), 20, "cross-validation"),
    "pairs of texts": (task_of(*(pairs(made_up(40, seed)) for seed in range(3))), 20, "cross-validation"),
    "some texts without words": (
        task_of(replace(made_up(30, 0), texts=("", " ", *made_up(30, 0).texts[2:])), made_up(9, 1), unlabelled("", "qqq", "日本")),
        20,
        "cross-validation",
    ),
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
            assert baseline.needs_names or (predictions[:, unseen] == 0).all(), name
        assert np.array_equal(result.test, again.test), name
        assert np.array_equal(result.choosing, again.choosing), name
        assert result.note == again.note != "", name
        assert {*result.tried} == {*baseline.candidates}, name
        assert baseline.reads_pool == (f"read {len(pool)} texts without labels" in result.note), name
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
    fitted = [LogisticRegression(C=c, max_iter=2000).fit(rows, train.labels) for c in STRENGTHS]
    scores = [model.score(vectorizer.transform(validation.texts), validation.labels) for model in fitted]
    expected = fitted[int(np.argmax(scores))].predict(vectorizer.transform(test.texts))
    result = run(TFIDF, train, validation, test)
    assert (result.test.argmax(axis=1) == expected).all()
    assert [*result.tried.values()] == pytest.approx(scores)


def test_by_macro_f1_every_class_counts_equally() -> None:
    """The logistic regression is scikit-learn's with balanced weights; by accuracy it has none."""
    rows, labels = rng(0, "unequal").normal(size=(40, 3)), np.repeat([0, 1], [34, 6])
    split = Split(tuple(f"text {i}" for i in range(40)), labels.astype(np.int64))
    for metric, weights in (("macro_f1", "balanced"), ("accuracy", None)):
        task = Task("unequal", ("many", "few"), split, split, split, metric=metric)
        found = logistic_regression(Sample(rows, split.labels, None, task, 0), 1.0)(rows)
        wanted = LogisticRegression(C=1.0, max_iter=10_000, class_weight=weights).fit(rows, labels).predict_proba(rows)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


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


def test_without_two_texts_of_a_class_there_is_no_choice() -> None:
    with pytest.raises(DataError, match="use more labels"):
        run_with(TFIDF, label_budget(task_of(made_up(9, 0), made_up(9, 1), made_up(9, 2)), 2, "cross-validation", 0))


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
    first, second = (run(TFIDF, train, part, test) for part in parts)
    assert first.note == second.note == f"C = {STRENGTHS[0]:g}, chosen on validation"
    assert (first.test == second.test).all()
    assert (first.test[:, 1] == 0).all()


def test_texts_without_words_leave_the_majority() -> None:
    """If no training text has a word, the frequencies of the labels are predicted, and the note says why."""
    train = Split(("", " ", "\n", ""), np.array([2, 2, 2, 0]))
    for name in CLASSIFIERS:
        result = run(name, train, train, unlabelled("x", ""))
        assert result.test.tolist() == [[0.25, 0.0, 0.75]] * 2, name
        assert name == "majority" or result.note == "the training texts have no words; always the most frequent label", name


def test_unknown_baseline_is_suggested() -> None:
    """A misspelt name is answered with the nearest one."""
    with pytest.raises(ConfigError, match="unknown baseline 'majorty'; did you mean 'majority'"):
        BASELINES["majorty"]


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
