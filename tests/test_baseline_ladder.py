"""The baselines that are ours, beside references; sampling of a large pool."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack
from scipy.special import log_softmax
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from warmstart.baselines import BASELINES, baselines_for, classifiers
from warmstart.baselines.baseline import Sample
from warmstart.baselines.choice import run_baseline
from warmstart.baselines.classifiers import EM_SMOOTHING, EM_STEPS, POOL_WEIGHT, naive_bayes_em
from warmstart.baselines.vectors import PRIOR_TEXTS, SCALE, class_means, nearest_mean
from warmstart.data.budget import label_budget
from warmstart.data.task import Split, Task
from warmstart.seeding import rng
from warmstart.stack.readout import LinearReadout


def sample_of(texts: int, pool: int, classes: int) -> Sample:
    """Texts of 30 words, of which each class uses some more often."""
    chance = rng(0, "ladder", texts, pool, classes)
    labels = np.arange(texts + pool) % classes
    rates = 0.1 + 0.5 * (np.arange(30) % classes == labels[:, None])
    rows = csr_array((chance.random((texts + pool, 30)) < rates).astype(np.int64))
    split = Split(("x",) * texts, labels[:texts])
    task = Task("t", tuple("abcd")[:classes], split, split, split)
    return Sample(rows[:texts], labels[:texts], rows[texts:] if pool else None, task, 0)


def test_em_is_naive_bayes_fitted_again_and_again() -> None:
    """scikit-learn's naive Bayes with weighted copies of every pool text, one for each class, gives the same probabilities."""
    for alpha, pool, classes in product(EM_SMOOTHING, (0, 50), (2, 4)):
        sample = sample_of(12, pool, classes)
        model = MultinomialNB(alpha=alpha).fit(sample.rows, sample.labels)
        for _ in range(EM_STEPS if pool else 0):
            rows: Any = vstack([sample.rows] + [sample.pool] * classes)
            labels = np.concatenate([sample.labels, np.repeat(np.arange(classes), pool)])
            weights = np.concatenate([np.ones(12), POOL_WEIGHT * model.predict_proba(sample.pool).T.ravel()])
            model = MultinomialNB(alpha=alpha).fit(rows, labels, sample_weight=weights)
        new = sample_of(40, 0, classes).rows
        assert naive_bayes_em(sample, alpha)(new) == pytest.approx(model.predict_proba(new)), (alpha, pool, classes)


def test_the_pool_teaches_words_that_no_label_has() -> None:
    """'sun' stands beside 'good', and 'rain' beside 'bad', in texts without labels only."""
    train = Split(tuple(f"{feeling} film {i}" for i in range(4) for feeling in ("good", "bad")), np.array([1, 0] * 4))
    test = Split(("sun", "rain") * 5, np.array([1, 0] * 5))
    budget = label_budget(Task("t", ("bad", "good"), train, train, test), None, "cross-validation", 0)
    pool = tuple(f"{feeling} {weather} {i % 7}" for i in range(70) for feeling, weather in (("good", "sun"), ("bad", "rain")))
    for texts, right in ((pool, 1.0), ((), 0.5)):
        found = run_baseline(BASELINES["naive Bayes + EM"], budget, texts)
        assert (found.test.argmax(axis=1) == test.labels).mean() == right
        assert {*found.tried} == {*EM_SMOOTHING}, "chosen by the labels of the budget"


def test_nbsvm_without_naive_bayes_is_an_svm_on_weighted_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with naive Bayes alone, words count by their log-count ratio."""
    sample, new = sample_of(60, 0, 2), sample_of(40, 0, 2).rows
    of_class, others = (1 + np.asarray(sample.rows[sample.labels == one].sum(axis=0)) for one in (1, 0))
    ratios = np.log(of_class / of_class.sum()) - np.log(others / others.sum())
    svm, new = LinearSVC(C=1.0, random_state=0).fit(normalize(sample.rows) * ratios[None], sample.labels), normalize(new)
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
    rows = csr_array(np.concatenate([np.ones((38, 1)), np.eye(3)[labels]], axis=1))
    split = Split(("x",) * 38, labels)
    predict = classifiers.nbsvm(Sample(rows, labels, None, Task("t", tuple("abc"), split, split, split), 0), 1.0)
    assert predict(csr_array(np.eye(4)[:1])) == pytest.approx(predict(csr_array(np.zeros((1, 4)))))
    assert (predict(rows).argmax(axis=1) == labels).all()


def test_class_means_are_nearest_in_angle_with_the_scale_that_suits_texts_left_out() -> None:
    """Probabilities are written out with numpy, each text left out in turn; a class without a text gets 0, a single class 1."""
    split = Split(("x",) * 24, np.append(np.arange(23) % 2, 3))
    task = Task("t", tuple("abcd"), split, split, split)
    rows = rng(0, "means").normal(size=(24, 4)) + np.eye(4)[split.labels]
    unit, present = rows / np.linalg.norm(rows, axis=1)[:, None], np.array([0, 1, 3])

    def cosines(learn: np.ndarray, new: np.ndarray) -> np.ndarray:
        means = np.stack([unit[learn & (split.labels == one)].mean(axis=0) for one in present])
        return np.asarray(new @ (means / np.linalg.norm(means, axis=1)[:, None]).T)

    def loss(scale: float) -> float:
        return -float(sum(log_softmax(scale * left, axis=-1)[split.labels[i]] for i, left in enumerate(left_out)))

    left_out = [cosines(np.arange(24) != i, unit[i]) for i in range(23)]  # the last text is alone in its class
    found = class_means(Sample(rows, split.labels, None, task, 0), 0.0)
    assert isinstance(found, LinearReadout)
    scale = np.linalg.norm(found.weights[:, 0])
    assert loss(scale) < min(loss(0.98 * scale), loss(1.02 * scale)), "lowest there"
    nameless = nearest_mean(Sample(rows, split.labels, None, task, 0, np.zeros((4, 4))), 1.0)
    assert np.linalg.norm(nameless.weights[:, 0]) == pytest.approx(scale), "whatever else a method knows of a class"
    expected = np.zeros((24, 4))
    prior = np.log(np.array([12, 11, 1]) + PRIOR_TEXTS)
    expected[:, present] = np.exp(log_softmax(scale * cosines(np.ones(24, dtype=bool), unit) + prior, axis=1))
    np.testing.assert_allclose(found(7 * rows), expected, atol=1e-12)
    assert (class_means(Sample(rows[:9], np.full(9, 2), None, task, 0), 0.0)(rows) == np.eye(4)[2]).all()
    alone = class_means(Sample(rows[:2], split.labels[:2], None, task, 0), 0.0)
    assert isinstance(alone, LinearReadout)
    assert np.linalg.norm(alone.weights[:, 0]) == pytest.approx(SCALE), "no text can be left out"


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
    assert len(full) - len(plain) >= 6
