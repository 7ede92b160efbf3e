"""Stratified choices: disjoint, complete, proportional and the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmstart.data.splits import _apportion, _at_least_one, held_out_count, stratified_sample, stratified_split
from warmstart.errors import DataError

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
    """Hamilton's method on a textbook case: 21, 20 and 9 examples for 10 seats are 4.2, 4.0 and 1.8, so 4, 4 and 2."""
    assert _apportion(np.array([21, 20, 9]), 10).tolist() == [4, 4, 2]
    assert _apportion(np.array([6, 3]), 3).tolist() == [2, 1]


def test_rare_classes_get_one() -> None:
    """Classes whose share is below one get one seat, the others share what is left."""
    assert _at_least_one(np.array([1000, 500, 3, 3]), 8).tolist() == [4, 2, 1, 1]
    assert _at_least_one(np.array([1000, 1, 1]), 3).tolist() == [1, 1, 1]


def test_seeds_differ() -> None:
    """Another seed is another choice."""
    labels = np.repeat([0, 1], 50)
    assert (stratified_split(labels, 20, 0)[1] != stratified_split(labels, 20, 1)[1]).any()
    assert (stratified_sample(labels, 20, 0) != stratified_sample(labels, 20, 1)).any()


def test_small_samples_lie_inside_larger_ones() -> None:
    """Adding labels adds to those that were there, so that a curve over the number of labels is one story."""
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    chosen = [set(stratified_sample(labels, count, 5).tolist()) for count in (10, 20, 40, 80)]
    assert chosen[0] < chosen[1] < chosen[2] < chosen[3]


def test_the_choice_never_changes() -> None:
    """The same seed chooses the same examples on every machine and in every version (literal values)."""
    assert stratified_split(np.repeat([0, 1], 5), 4, 0)[1].tolist() == [1, 2, 7, 8]


@pytest.mark.parametrize("wanted", [0, 0.001, 10, 11, -0.1, -3, 2.5])
def test_impossible_parts(wanted: float) -> None:
    """A part that is empty, everything or a fraction of an example is refused with what came."""
    with pytest.raises(DataError, match=f"fraction between 0 and 1 or a whole number .* got {wanted} of 10 examples"):
        stratified_split(np.arange(10) % 2, wanted, 0)
    assert held_out_count(10, 0.25) == 2


@pytest.mark.parametrize("count", [1, 11])
def test_impossible_samples(count: int) -> None:
    """A sample smaller than the number of classes or larger than the data is refused."""
    with pytest.raises(DataError, match=f"each of the 2 classes and at most all 10 examples; got {count}"):
        stratified_sample(np.arange(10) % 2, count, 0)
