"""Methods that read what labels are called, and the descriptions of labels in a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize

from warmstart.baselines import baselines_for
from warmstart.baselines.baseline import Sample
from warmstart.baselines.choice import run_baseline
from warmstart.baselines.vectors import SCALE, logistic_with_names, nearest_mean, nearest_mean_em, nearest_prototype
from warmstart.cli import main
from warmstart.data.budget import label_budget
from warmstart.data.task import Split, Task
from warmstart.tasks.load import load_task, save_task

WORDS = ("grain", "wheat", "oil", "crude")


def vectors(inputs: Sequence[Any]) -> np.ndarray:
    """How often each word occurs, and a dimension that all texts and names have in common."""
    return np.array([[text.count(word) for word in WORDS] + [1.0] for text in inputs])


def task_of(labels: tuple[str, ...] = ("grain", "oil"), **described: str) -> Task:
    """Texts about wheat and crude oil; half of them have the name of their label."""
    texts = ("wheat", "crude", "wheat grain", "crude oil") * 5
    split = Split(texts, np.array([0, 1, 0, 1] * 5))
    return Task("t", labels, split, split, split, label_descriptions=described)


def by_names(task: Task) -> np.ndarray:
    """(N, C) what names alone predict for the test texts."""
    return nearest_prototype(normalize(vectors(task.label_meanings)))(vectors(task.test.texts))


def test_names_alone_tell_classes_apart_where_texts_have_their_words() -> None:
    """A text without a name is as likely of either class."""
    task = task_of()
    found = by_names(task)
    right = found.argmax(axis=1) == task.test.labels
    assert right[2:4].all()
    np.testing.assert_allclose(found[0], 0.5)  # "wheat" alone is no name


def test_a_description_takes_the_place_of_a_name() -> None:
    """And then the texts that have its words are told apart too."""
    task = task_of(("a1", "b2"), a1="wheat and grain", b2="crude oil")
    assert (by_names(task).argmax(axis=1) == task.test.labels).all()


def test_class_means_without_names_are_nearest_centroids_by_cosine() -> None:
    """scikit-learn's on vectors of length 1, whose centroids are scaled to length 1 too."""
    chance = np.random.default_rng(0)
    rows, new = chance.normal(size=(60, 5)) + 1, chance.normal(size=(200, 5)) + 1
    labels = np.arange(60) % 3
    sample = Sample(rows, labels, None, task_of(), 0, np.zeros((3, 5)))
    model = NearestCentroid().fit(normalize(rows), labels)
    model.centroids_ = normalize(model.centroids_)
    np.testing.assert_array_equal(nearest_mean(sample, 3.0)(new).argmax(axis=1), model.predict(normalize(new)))


def test_a_name_counts_as_many_texts() -> None:
    """The prototype is the mean of the texts and of copies of the name; a class without texts has its name alone."""
    chance = np.random.default_rng(1)
    rows, names, new = (normalize(chance.normal(size=(count, 4))) for count in (6, 3, 50))
    labels = np.array([0, 0, 0, 1, 1, 1])
    copies = np.concatenate([rows, np.repeat(names, 2, axis=0)])
    means = np.stack([copies[np.concatenate([labels, np.repeat(np.arange(3), 2)]) == one].mean(axis=0) for one in range(3)])
    sample = Sample(rows, labels, None, task_of(), 0, names)
    found = nearest_mean(sample, 2.0)
    scale = np.linalg.norm(found.weights[:, 0])  # of lowest loss for texts left out: test_baseline_ladder.py
    np.testing.assert_allclose(found(new), softmax(scale * new @ normalize(means).T, axis=1))


def test_the_words_of_a_name_are_what_a_label_means() -> None:
    """A number says nothing about a class."""
    names = {"talk.politics_misc": "talk politics misc", "Sci/Tech": "Sci Tech", "été-2": "été 2", "0": "", "_1.5": ""}
    assert [task_of((name, "oil")).label_meanings for name in names] == [(meaning, "oil") for meaning in names.values()]


def test_numbers_need_descriptions() -> None:
    """Without them no regression reads names, and class means do without."""
    numbered, described = task_of(("0", "1")), task_of(("0", "1"), **{"0": "grain", "1": "oil"})
    assert "label names + logistic regression" not in baselines_for(numbered, vectors=True)
    assert "label names + logistic regression" in baselines_for(described, vectors=True)
    run = run_baseline(
        baselines_for(numbered, vectors=True)["class means + label names"], label_budget(numbered, 8, "none", 0), (), vectors
    )
    assert (run.test.argmax(axis=1) == numbered.test.labels).all()


def test_descriptions_are_part_of_a_task(tmp_path: Path) -> None:
    """Saved and read back; they change what methods read, so they change the digest."""
    task = task_of(grain="wheat, maize and barley")
    read = load_task(save_task(task, tmp_path / "t"))
    assert read.label_descriptions == {"grain": "wheat, maize and barley"}
    assert read.digest == task.digest != task_of().digest


def test_descriptions_of_no_label_or_without_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save_task(task_of(), tmp_path / "t")
    for name, words, why in (("gold", "a metal", "'gold' is not one of grain, oil"), ("oil", " ", "that of 'oil' is empty")):
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "label_descriptions": {name: words}}))
        assert main(["audit", str(file)]) == 2
        assert why in " ".join(capsys.readouterr().err.split())


NAMES = np.array([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]])
"""of the labels grain and oil"""


def sample_of(texts: Sequence[str], labels: Sequence[int], pool: Sequence[str] = (), names: np.ndarray = NAMES) -> Sample:
    """What a method on label names learns from."""
    return Sample(vectors(texts), np.array(labels), vectors(pool) if pool else None, task_of(), 0, names)


def test_a_regression_counts_a_name_as_ten_texts_of_its_class() -> None:
    """As scikit-learn's does with ten copies of it, whose classes weigh the same; a class without a text is known by its name."""
    texts, labels = ["wheat", "wheat grain", "crude"], [0, 0, 1]
    found = logistic_with_names(sample_of(texts, labels), 3.0)
    rows = normalize(np.concatenate([vectors(texts), *[NAMES] * 10]))
    balanced = {0: 23 / 2 / 12, 1: 23 / 2 / 11}
    wanted = LogisticRegression(C=3.0, max_iter=10_000, class_weight=balanced).fit(rows, [*labels, *[0, 1] * 10])
    np.testing.assert_allclose(found(vectors(WORDS)), wanted.predict_proba(normalize(vectors(WORDS))), atol=1e-3)
    alone = logistic_with_names(sample_of(["wheat"], [0]), 3.0)(vectors(["oil"]))
    assert alone.argmax() == 1
    without = logistic_with_names(sample_of(["wheat"], [0], names=0 * NAMES), 3.0)(vectors(["oil"]))
    np.testing.assert_array_equal(without, [[1.0, 0.0]])


def test_the_pool_moves_class_means_towards_texts_like_theirs() -> None:
    """No labelled text and no name has "crude"; the pool says that it goes with "oil". Without a pool nothing changes."""
    named = sample_of(["wheat", "oil"], [0, 1])
    np.testing.assert_array_equal(nearest_mean_em(named, 0.3)(vectors(WORDS)), nearest_mean(named, 3.0)(vectors(WORDS)))
    plain = nearest_mean(named, 3.0)(vectors(["crude"]))[0]
    moved = nearest_mean_em(sample_of(["wheat", "oil"], [0, 1], ["crude oil"] * 20), 0.3)(vectors(["crude"]))[0]
    assert moved[1] > plain[1] + 0.1


def test_class_means_with_a_pool_are_soft_k_means_with_frequencies() -> None:
    """Ten rounds of equations 3 and 4 of Ren et al. 2018 by cosine, where ln(n_c + 3) of a class's labels counts too."""
    chance = np.random.default_rng(3)
    rows, pool, names = (normalize(chance.normal(size=(count, 4))) for count in (12, 40, 2))
    labels, frequencies = np.repeat([0, 1], (9, 3)), np.log([12 / 18, 6 / 18])
    known = means = 3 * names + np.stack([rows[labels == one].sum(axis=0) for one in range(2)])
    for _ in range(10):
        means = known + 0.1 * softmax(SCALE * pool @ normalize(means).T + frequencies, axis=1).T @ pool
    found = nearest_mean_em(Sample(rows, labels, pool, task_of(), 0, names), 0.1)
    np.testing.assert_allclose(normalize(found.weights.T), normalize(means))
    np.testing.assert_allclose(found.bias, frequencies)
