"""Stratified choices, and the label budget: everything labelled that a run looks at is among the labels that were asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from warmstart.data.budget import label_budget, labels_sentence
from warmstart.data.splits import cross_validation_folds, stratified_sample, stratified_split
from warmstart.data.task import Split, Task
from warmstart.errors import DataError

# ------------------------------------------------------------------------------------------------ choices

LABELS = st.lists(st.integers(0, 5), min_size=2, max_size=80).map(np.array)


def counts(labels: np.ndarray) -> np.ndarray:
    return np.bincount(labels, minlength=6)


@settings(deadline=None, max_examples=150)
@given(LABELS, st.data(), st.integers(0, 3))
def test_stratified(labels: np.ndarray, data: st.DataObject, seed: int) -> None:
    """Every example is on exactly one side, every class within one of its share, and the choice is repeatable."""
    count = data.draw(st.integers(1, len(labels) - 1))
    kept, held_out = stratified_split(labels, count, seed)
    assert len(held_out) == count
    assert sorted([*kept, *held_out]) == list(range(len(labels)))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held_out) > 0).all()
    exact = counts(labels) * count / len(labels)
    assert (np.abs(counts(labels[held_out]) - exact) < 1).all()
    again = stratified_split(labels.copy(), count, seed)
    assert (again[0] == kept).all()
    assert (again[1] == held_out).all()


@settings(deadline=None, max_examples=150)
@given(LABELS, st.data())
def test_sample(labels: np.ndarray, data: st.DataObject) -> None:
    """A sample has the size asked for and some of every class; a class with a full share is not starved for a rare one."""
    classes = len(np.unique(labels))
    count = data.draw(st.integers(classes, len(labels)))
    chosen = stratified_sample(labels, count, 0)
    assert len(set(chosen.tolist())) == len(chosen) == count
    assert (np.unique(labels[chosen]) == np.unique(labels)).all()
    exact = counts(labels) * count / len(labels)
    assert (counts(labels[chosen]) < exact + 1 + 1e-9).all()


def test_both_sides_get_some() -> None:
    """A class of two is split one to one, a lone example stays where training sees it."""
    labels = np.array([0] * 40 + [1] * 2 + [2])
    kept, held_out = stratified_split(labels, 0.1, 0)
    assert counts(labels[held_out])[:3].tolist() == [3, 1, 0]
    assert counts(labels[kept])[:3].tolist() == [37, 1, 1]


def test_apportioned_by_largest_remainder() -> None:
    """21, 20 and 9 examples for 10 places are 4.2, 4.0 and 1.8, so 4, 4 and 2; a sample has one even of a rare class."""
    for sizes, count, expected in (([21, 20, 9], 10, [4, 4, 2]), ([6, 3], 3, [2, 1])):
        labels = np.repeat(np.arange(len(sizes)), sizes)
        assert counts(labels[stratified_split(labels, count, 0)[1]])[: len(sizes)].tolist() == expected
    for sizes, count, expected in (([1000, 500, 3, 3], 8, [4, 2, 1, 1]), ([1000, 1, 1], 3, [1, 1, 1])):
        labels = np.repeat(np.arange(len(sizes)), sizes)
        assert counts(labels[stratified_sample(labels, count, 0)])[: len(sizes)].tolist() == expected


def test_small_samples_lie_inside_larger_ones() -> None:
    """Adding labels adds to those that were there, so that a curve over the number of labels is one story."""
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    chosen = [set(stratified_sample(labels, count, 5).tolist()) for count in (10, 20, 40, 80)]
    assert chosen[0] < chosen[1] < chosen[2] < chosen[3]


def test_the_choice_never_changes() -> None:
    """The same seed chooses the same examples on every machine and in every version (literal values); another seed others."""
    labels = np.repeat([0, 1], 50)
    assert (stratified_split(labels, 20, 0)[1] != stratified_split(labels, 20, 1)[1]).any()
    assert (stratified_sample(labels, 20, 0) != stratified_sample(labels, 20, 1)).any()
    assert stratified_split(np.repeat([0, 1], 5), 4, 0)[1].tolist() == [1, 2, 7, 8]


def test_impossible_parts() -> None:
    """Empty, everything, a fraction of an example, fewer than classes or more than there are: refused with what came."""
    labels = np.arange(10) % 2
    for wanted in (0, 0.001, 10, 11, -0.1, -3, 2.5):
        said = f"fraction between 0 and 1 or a whole number .* got {wanted} of 10 examples"
        refused(DataError, said, stratified_split, labels, wanted, 0)
    for count in (1, 11):
        said = f"each of the 2 classes and at most all 10 examples; got {count}"
        refused(DataError, said, stratified_sample, labels, count, 0)


# ------------------------------------------------------------------------------------------------ the budget

FEW = st.lists(st.integers(0, 3), min_size=4, max_size=60).map(np.array)


@settings(deadline=None, max_examples=150)
@given(labels=FEW, folds=st.integers(2, 5), seed=st.integers(0, 9), copies=st.integers(1, 3))
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
@given(labels=FEW, seed=st.integers(0, 9))
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
    refused(DataError, "use more labels", cross_validation_folds, np.arange(4), np.arange(4), 5, 0)


def task_of(train: int = 100, validation: int = 50) -> Task:
    first, second, third = (
        Split(tuple(f"{name} {i}" for i in range(size)), np.arange(size) % 3)
        for name, size in (("train", train), ("validation", validation), ("test", 40))
    )
    return Task("numbers", ("a", "b", "c"), first, second, third)


def test_nothing_outside_the_budget_is_looked_at() -> None:
    for selection in ("cross-validation", "holdout", "none"):
        budget = label_budget(task_of(), 30, selection, 1)
        looked_at = {*budget.task.train.texts, *budget.task.validation.texts}
        for fold in budget.folds:
            part = fold.task(budget.whole)
            looked_at |= {*part.train.texts, *part.validation.texts}
            assert not len(part.test)
            assert not {*part.train.texts} & {*part.validation.texts}
        assert len(looked_at) == len(budget) == 30, selection


def test_a_holdout_is_a_fifth_of_the_labels_and_all_labels_are_the_splits_themselves() -> None:
    budget = label_budget(task_of(), 100, "holdout", 0)
    assert budget.sentence == "100 labels: 80 to learn, 20 to choose."
    assert all(text.startswith("validation") for text in budget.choosing.texts)
    assert label_budget(task_of(validation=10), 90, "holdout", 0).sentence == "90 labels: 80 to learn, 10 to choose."
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


def test_fewer_labels_than_classes_and_more_than_texts_are_refused() -> None:
    learn = "each of the 3 classes must learn, but of {} labels only 2 would; use more labels"
    more = "there are 100 training texts, but 101 labels should learn; use fewer labels"
    for labels, selection, said in ((2, "cross-validation", learn), (3, "holdout", learn), (101, "none", more)):
        refused(DataError, said.format(labels), label_budget, task_of(), labels, selection, 0)
