"""The pool: text without labels, never a test or validation text, nor one of the budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from warmstart.data.budget import label_budget
from warmstart.data.pool import task_pool
from warmstart.data.read import LINES, by_lines
from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.data.text_key import text_key
from warmstart.errors import DataError

LONG = "the quick brown fox jumps over the lazy dog near the river bank"


def split(*texts: str) -> Split:
    return Split(texts, np.arange(len(texts)) % 2)


def task_of(*train: str) -> Task:
    return Task("t", ("a", "b"), split(*train), split("to choose", "B?"), split("Exactly this", LONG))


def keys(texts: tuple[str, ...]) -> set[str]:
    return {*map(text_key, texts)}


TEXTS = st.lists(st.sampled_from(["red", "Red!", "blue cat", "BLUE  cat", "", "a b c", "dog", "d", "e", "f", "g"]), min_size=2)


@settings(deadline=None, max_examples=150)
@given(train=TEXTS, validation=TEXTS, test=TEXTS, seed=st.integers(0, 5), labels=st.none() | st.just(4))
def test_the_pool_has_no_text_that_is_scored_or_labelled(
    train: list[str], validation: list[str], test: list[str], seed: int, labels: int | None
) -> None:
    task = Task("t", ("a", "b"), split("x", "y", *train, "z"), split(*validation), split(*test))
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
    pool = task_pool(task_of("new", "exactly  THIS!", LONG.replace("lazy", "sleepy"), "to choose", "newer"))
    assert (pool.texts, pool.left_out) == (("new", "newer"), 3)
    task = replace(task_of("new"), test=split(LONG, QUOTED, "a few words"))
    parts = [LONG, QUOTED, " ".join(QUOTED.split()[:15]), LONG[:40], "a few words"]
    texts = ["he wrote that " * 20 + part + " and so on and on" * 20 for part in parts]
    found = task_pool(task.with_train(split(*texts)))
    assert found.texts == (*texts[3:],)
    assert found.left_out == 3


def test_lines_of_an_unbroken_file_are_texts(tmp_path: Path) -> None:
    """So that test texts among them are found; a file that is said to be one text is one, and leaves with what it contains."""
    file = tmp_path / "unlabelled.txt"
    file.write_text(f"first\n{LONG}\nExactly this\nsecond\n\n")
    source = Source(path=str(file))
    task = replace(task_of("new"), unlabelled=(source,))
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
    task = replace(task_of("new", "old"), unlabelled=unlabelled)
    assert task_pool(task).texts == ("more", "new", "old")
    assert len(task_pool(task, "none")) == len(task_pool(task_of("to choose"))) == 0
    pairs = Split((("one", "two"), ("three", "four")), np.array([0, 1]))
    assert task_pool(replace(task_of("x"), train=pairs)).texts == ("one two", "three four")
    file.write_text("first\nsecond\nto choose\n")
    pool = task_pool(task_of("new"), str(file))
    assert (pool.texts, pool.left_out) == (("first", "second"), 1)
    file.write_text("first\nExactly this\n")
    said = r"the test split of 't' has 1 of the texts in .*pool.txt, such as 'Exactly this'"
    refused(DataError, said, task_pool, task_of("new"), str(file))
    file.write_text("to choose\n\n")
    said = "pool.txt must have texts that are not in test or validation, but has none"
    refused(DataError, said, task_pool, task_of("new"), str(file))
    refused(DataError, "the 'unlabelled' text of 't' must have texts", task_pool, replace(task_of("new"), unlabelled=unlabelled))
