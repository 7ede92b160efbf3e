"""Baselines: every one predicts for every task type that it serves, and TF-IDF is no straw man."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warmstart.baselines import BASELINES, baselines_for
from warmstart.baselines.baseline import BaselineResult
from warmstart.baselines.tfidf import STRENGTHS
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError
from warmstart.seeding import rng
from warmstart.tasks import TASK_TYPES, task_type_of
from warmstart.tasks.load import load_task

RECIPES = Path(__file__).parents[1] / "recipes" / "tasks"
TFIDF = "TF-IDF + logistic regression"


CLASSIFIERS = [name for name, baseline in BASELINES.items() if not baseline.types or "classification" in baseline.types]


def made_up(count: int, seed: int, classes: tuple[int, ...] = (0, 2)) -> Split:
    """Texts of words that lean towards their class; class 1 of three is never seen."""
    chance = rng(seed, "made up")
    labels = chance.choice(classes, count)
    words = [["cat", "dog", "cow"], ["red", "blue", "green"], ["sun", "rain", "snow"]]
    texts = [" ".join(chance.choice([*words[label] * 2, "the", "a"], 6)) for label in labels]
    return Split(tuple(texts), labels.astype(np.int64))


def unlabelled(*texts: str) -> Split:
    return Split(texts, np.zeros(len(texts), dtype=np.int64))


def run(name: str, train: Split, validation: Split, test: Split) -> BaselineResult:
    """A baseline on a task with three labels."""
    return BASELINES[name].predict(Task("t", ("a", "b", "c"), train, validation, test))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_contract(name: str) -> None:
    """Probabilities of all classes sum to one, unseen classes get nothing, the note says what was chosen, and a repeat is equal."""
    splits = made_up(60, 0), made_up(20, 1), made_up(30, 2)
    result, again = run(name, *splits), run(name, *splits)
    assert result.predictions.shape == (30, 3)
    assert result.predictions.sum(axis=1) == pytest.approx(np.ones(30))
    assert (result.predictions[:, 1] == 0).all()
    assert result.note
    assert (again.predictions == result.predictions).all()
    assert again.note == result.note


@pytest.mark.parametrize("type_name", TASK_TYPES)
def test_every_task_type_has_a_constant_baseline(type_name: str) -> None:
    """The first baseline of every type is the one that ignores the texts; every other one names known types."""
    served = baselines_for(Task("t", (), made_up(2, 0), made_up(2, 0), made_up(2, 0), type=type_name))
    assert next(iter(served)) == "majority"
    assert all(set(baseline.types or ()) <= set(TASK_TYPES) for baseline in BASELINES.values())


def test_majority_predicts_the_frequencies() -> None:
    """The most frequent training label, with the training frequencies as probabilities."""
    train = Split(("a", "b", "c", "d"), np.array([2, 2, 2, 0]))
    assert run("majority", train, train, unlabelled("x", "")).predictions.tolist() == [[0.25, 0.0, 0.75]] * 2


def test_tfidf_learns() -> None:
    """Words that give a class away are found."""
    test = made_up(60, 5)
    result = run(TFIDF, made_up(80, 3), made_up(20, 4), test)
    assert (result.predictions.argmax(axis=1) == test.labels).mean() > 0.95


def test_validation_texts_are_not_trained_on() -> None:
    """Validation chooses the strength and nothing else: a label that only it has is never learned, and its words change nothing."""
    train, test = made_up(60, 0), made_up(30, 2)
    # label 1 is never predicted, so every strength scores 0, and the first one is taken
    parts = [Split((word,) * 4, np.full(4, 1)) for word in ("cat", "zzz")]
    first, second = (run(TFIDF, train, part, test) for part in parts)
    assert first.note == second.note == f"C = {STRENGTHS[0]:g}, chosen on validation"
    assert (first.predictions == second.predictions).all()
    assert (first.predictions[:, 1] == 0).all()


def test_unknown_texts_get_a_prediction() -> None:
    """An empty text and one of unknown words get probabilities like any other."""
    assert np.isfinite(run(TFIDF, made_up(60, 0), made_up(20, 1), unlabelled("", "qqq", "日本")).predictions).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_texts_without_words_leave_the_majority(name: str) -> None:
    """If no training text has a word, the frequencies of the labels are predicted, and the note says why."""
    train = Split(("", " ", "\n", ""), np.array([2, 2, 2, 0]))
    result = run(name, train, train, unlabelled("x", ""))
    assert result.predictions.tolist() == [[0.25, 0.0, 0.75]] * 2
    assert name == "majority" or result.note == "the training texts have no words; always the most frequent label"


def test_unknown_baseline_is_suggested() -> None:
    """A misspelt name is answered with the nearest one."""
    with pytest.raises(ConfigError, match="unknown baseline 'majorty'; did you mean 'majority'"):
        BASELINES["majorty"]


@pytest.mark.data
def test_trec(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all its labels, TF-IDF errs on at most 12 % of TREC's test questions, without a warning."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    task = load_task(RECIPES / "trec.yaml")
    assert task_type_of(task).scores(task.test, BASELINES[TFIDF].predict(task).predictions, task).score("accuracy") >= 0.88
