"""The label budget: everything labelled that a run looks at is among the labels that were asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmstart.data.budget import SelectionName, label_budget, labels_sentence
from warmstart.data.folds import cross_validation_folds
from warmstart.data.task import Split, Task
from warmstart.errors import DataError

LABELS = st.lists(st.integers(0, 3), min_size=4, max_size=60).map(np.array)


@settings(deadline=None, max_examples=150)
@given(labels=LABELS, folds=st.integers(2, 5), seed=st.integers(0, 9), copies=st.integers(1, 3))
def test_each_text_chooses_once_in_a_fold_whose_training_has_its_class(
    labels: np.ndarray, folds: int, seed: int, copies: int
) -> None:
    units = np.arange(len(labels)) // copies
    try:
        parts = cross_validation_folds(labels, units, folds, seed)
    except DataError:
        assert len(np.unique(units)) - 1 <= len(np.unique(labels))
        return
    assert 2 <= len(parts) <= folds
    assert len(np.concatenate(parts)) == len(np.unique(np.concatenate(parts)))
    for part in parts:
        learn = np.delete(np.arange(len(labels)), part)
        assert copies > 1 or {*labels[learn]} == {*labels}
        assert not {*units[learn]} & {*units[part]}


@settings(deadline=None, max_examples=100)
@given(labels=LABELS, seed=st.integers(0, 9))
def test_folds_have_their_share_of_every_class(labels: np.ndarray, seed: int) -> None:
    labels = np.concatenate([labels, np.arange(4), np.arange(4)])
    counts = np.array(
        [np.bincount(labels[part], minlength=4) for part in cross_validation_folds(labels, np.arange(len(labels)), 5, seed)]
    )
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


def test_a_class_with_one_text_always_learns() -> None:
    labels = np.array([0] * 5 + [1] * 5 + [2])
    assert 10 not in np.concatenate(cross_validation_folds(labels, np.arange(11), 5, 0))
    split = Split(tuple(map(str, range(11))), labels)
    sentence = label_budget(Task("t", ("a", "b", "c"), split, split, split), None, "cross-validation", 0).sentence
    assert sentence.endswith("Of these, 1 learns in every fold: no other text has the same class.")
    fixed = labels_sentence(label_budget(Task("t", ("a", "b", "c"), split, split, split), None, "none", 0), "none", "the method")
    assert "cross-validation on them chooses the method; a network's settings are fixed. Of these, 1 learns in every fold" in fixed
    with pytest.raises(DataError, match="use more labels"):
        cross_validation_folds(np.arange(4), np.arange(4), 5, 0)


def task_of(train: int = 100, validation: int = 50) -> Task:
    first, second, third = (
        Split(tuple(f"{name} {i}" for i in range(size)), np.arange(size) % 3)
        for name, size in (("train", train), ("validation", validation), ("test", 40))
    )
    return Task("numbers", ("a", "b", "c"), first, second, third)


@pytest.mark.parametrize("selection", ["cross-validation", "holdout", "none"])
def test_nothing_outside_the_budget_is_looked_at(selection: SelectionName) -> None:
    budget = label_budget(task_of(), 30, selection, 1)
    looked_at = {*budget.task.train.texts, *budget.task.validation.texts}
    for fold in budget.folds:
        part = fold.task(budget.whole)
        looked_at |= {*part.train.texts, *part.validation.texts}
        assert not len(part.test)
        assert not {*part.train.texts} & {*part.validation.texts}
    assert len(looked_at) == len(budget) == 30


def test_a_holdout_is_a_fifth_of_the_labels_and_its_texts_are_of_the_validation_split() -> None:
    budget = label_budget(task_of(), 100, "holdout", 0)
    assert budget.sentence == "100 labels: 80 to learn, 20 to choose."
    assert all(text.startswith("validation") for text in budget.choosing.texts)
    assert label_budget(task_of(validation=10), 90, "holdout", 0).sentence == "90 labels: 80 to learn, 10 to choose."


def test_all_labels_with_a_holdout_are_the_splits_themselves() -> None:
    budget = label_budget(task_of(), None, "holdout", 0)
    assert budget.task.train.texts == task_of().train.texts
    assert budget.choosing.texts == task_of().validation.texts


def test_out_of_fold_predictions_stand_beside_their_texts() -> None:
    budget = label_budget(task_of(), 31, "cross-validation", 2)
    numbers = [np.array([int(text.split()[1]) for text in fold.task(budget.whole).validation.texts]) for fold in budget.folds]
    assert [f"train {number}" for number in budget.joined(numbers)] == [*budget.choosing.texts]
    assert budget.joined([[*map(int, part)] for part in numbers]) == budget.joined(numbers).tolist()
    assert budget.sentence == "31 labels: all of them learn, and 5-fold cross-validation on them chooses."


def test_copies_of_a_text_are_in_one_fold() -> None:
    task = task_of()
    twice = replace(task.train, texts=tuple(f"train {i // 2}" for i in range(100)))
    for fold in label_budget(task.with_train(twice), 60, "cross-validation", 0).folds:
        part = fold.task(task.with_train(twice))
        assert not {*part.train.texts} & {*part.validation.texts}


@pytest.mark.parametrize(
    ("labels", "selection", "said"),
    [
        (2, "cross-validation", "each of the 3 classes must learn, but of 2 labels only 2 would; use more labels"),
        (3, "holdout", "each of the 3 classes must learn, but of 3 labels only 2 would; use more labels"),
        (101, "none", "there are 100 training texts, but 101 labels should learn; use fewer labels"),
    ],
)
def test_fewer_labels_than_classes_and_more_than_texts_are_refused(labels: int, selection: SelectionName, said: str) -> None:
    with pytest.raises(DataError, match=said):
        label_budget(task_of(), labels, selection, 0)
