"""What learns, chooses and is scored: stratified choices, the label budget, and the pool of texts that have no labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from warmstart.data.budget import label_budget, labels_sentence
from warmstart.data.pool import task_pool
from warmstart.data.read import LINES, by_lines
from warmstart.data.source import Source
from warmstart.data.splits import cross_validation_folds, stratified_sample, stratified_split
from warmstart.data.task import Split, Task
from warmstart.data.text_key import text_key
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


def test_folds_depend_on_their_seed() -> None:
    """The same seed gives the same folds, another one others, also where all labels of a task are in the budget."""
    labels = np.arange(40) % 2
    first, again, other = ([*map(list, cross_validation_folds(labels, np.arange(40), 5, seed))] for seed in (0, 0, 1))
    assert first == again != other
    budgets = [label_budget(task_of(), None, "cross-validation", seed) for seed in (0, 0, 1)]
    first, again, other = ([fold.choose.tolist() for fold in budget.folds] for budget in budgets)
    assert first == again != other


def test_impossible_parts() -> None:
    """Empty, everything, a fraction of an example, fewer than classes or more than there are: refused with what came."""
    labels = np.arange(10) % 2
    for wanted in (0, 0.001, 10, 11, -0.1, -3, 2.5, float("nan"), float("inf"), 10**400):
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


LONG = "the quick brown fox jumps over the lazy dog near the river bank"


def some(*texts: str) -> Split:
    return Split(texts, np.arange(len(texts)) % 2)


def pool_task(*train: str) -> Task:
    return Task("t", ("a", "b"), some(*train), some("to choose", "B?"), some("Exactly this", LONG))


def keys(texts: tuple[str, ...]) -> set[str]:
    return {*map(text_key, texts)}


TEXTS = st.lists(st.sampled_from(["red", "Red!", "blue cat", "BLUE  cat", "", "a b c", "dog", "d", "e", "f", "g"]), min_size=2)


@settings(deadline=None, max_examples=150)
@given(train=TEXTS, validation=TEXTS, test=TEXTS, seed=st.integers(0, 5), labels=st.none() | st.just(4))
def test_the_pool_has_no_text_that_is_scored_or_labelled(
    train: list[str], validation: list[str], test: list[str], seed: int, labels: int | None
) -> None:
    task = Task("t", ("a", "b"), some("x", "y", *train, "z"), some(*validation), some(*test))
    budget = label_budget(task, labels, "holdout", seed)
    pool = task_pool(task).without(budget)
    for part in (task.test, task.validation, budget.task.train):
        assert not keys(pool.texts) & keys(part.texts)
    assert len({*pool.texts}) == len(pool)
    expected = {
        text
        for text in task.train.texts
        if text.strip() and text_key(text) not in keys((*test, *validation, *budget.task.train.texts))
    }
    assert {*pool.texts} == expected, "and nothing else is left out"


QUOTED = "no river in this country is as wide or as slow as the one that we crossed in spring last year"


def test_a_text_that_contains_a_scored_one_is_left_out() -> None:
    """Word for word, nearly, or half of a long one; half of a short one, or a few of its words, are no copy. All are counted."""
    pool = task_pool(pool_task("new", "exactly  THIS!", LONG.replace("lazy", "sleepy"), "to choose", "newer"))
    assert (pool.texts, pool.left_out) == (("new", "newer"), 3)
    task = replace(pool_task("new"), test=some(LONG, QUOTED, "a few words"))
    parts = [LONG, QUOTED, " ".join(QUOTED.split()[:15]), LONG[:40], "a few words"]
    own = (" ".join(f"{first}{second}" for second in "abcdefghijklmnopqrst") for first in "abcdefghij")
    texts = [f"{next(own)} {part} {next(own)}" for part in parts]
    found = task_pool(task.with_train(some(*texts)))
    assert found.texts == (*texts[3:],)
    assert found.left_out == 3


def test_lines_of_an_unbroken_file_are_texts(tmp_path: Path) -> None:
    """So that test texts among them are found; a file that is said to be one text is one, and leaves with what it contains."""
    file = tmp_path / "unlabelled.txt"
    file.write_text(f"first\n{LONG}\nExactly this\nsecond\n\n")
    source = Source(path=str(file))
    task = replace(pool_task("new"), unlabelled=(source,))
    assert task_pool(task).texts == ("first", "second", "new")
    whole = replace(task, unlabelled=(source.model_copy(update={"document": "file"}),))
    refused(DataError, "must have texts that are not in test or validation", task_pool, whole)


def test_paragraphs_short_files_of_a_folder_and_single_lines_stay_as_they_are(tmp_path: Path) -> None:
    """A folder of short files has a text in each, unless all have many lines."""
    (tmp_path / "one.txt").write_text("a\nb\n\nc\n")
    (tmp_path / "line.txt").write_text("only\n\n")
    mails, lists = tmp_path / "mails", tmp_path / "lists"
    for folder, lines in ((mails, 3), (lists, LINES)):
        folder.mkdir()
        for name in ("a", "b"):
            (folder / name).write_text("".join(f"{name} {number}\n" for number in range(lines)))
    sources = tuple(Source(path=str(tmp_path / name)) for name in ("one.txt", "line.txt", "mails", "lists"))
    assert [one.document for one in by_lines(sources)] == ["paragraph", "paragraph", "paragraph", "line"]


def test_unlabelled_sources_come_first_and_a_file_takes_the_place_of_the_rest(tmp_path: Path) -> None:
    """Pairs are read as one string; a file with test texts, or with none that may be read, is refused."""
    file = tmp_path / "pool.txt"
    unlabelled = (Source(path=str(file)),)
    file.write_text("more\n\nExactly this\n\nnew\n")
    task = replace(pool_task("new", "old"), unlabelled=unlabelled)
    assert task_pool(task).texts == ("more", "new", "old")
    assert len(task_pool(task, "none")) == len(task_pool(pool_task("to choose"))) == 0
    pairs = Split((("one", "two"), ("three", "four")), np.array([0, 1]))
    assert task_pool(replace(pool_task("x"), train=pairs)).texts == ("one two", "three four")
    file.write_text("first\nsecond\nto choose\n")
    pool = task_pool(pool_task("new"), str(file))
    assert (pool.texts, pool.left_out) == (("first", "second"), 1)
    file.write_text("first\nExactly this\n")
    said = r"the test split of 't' has 1 of the texts in .*pool.txt, such as 'Exactly this'"
    refused(DataError, said, task_pool, pool_task("new"), str(file))
    file.write_text("to choose\n\n")
    said = "pool.txt must have texts that are not in test or validation, but has none"
    refused(DataError, said, task_pool, pool_task("new"), str(file))
    refused(DataError, "the 'unlabelled' text of 't' must have texts", task_pool, replace(pool_task("new"), unlabelled=unlabelled))
