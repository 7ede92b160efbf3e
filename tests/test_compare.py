"""Comparisons in memory: ``ws.compare`` and tasks from lists and tables."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import polars
import pytest

import warmstart as ws
from helpers.bundles import language_bundle
from helpers.tasks import cats
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("few_baselines")


def lists() -> tuple[list[str], list[str]]:
    """Sixty texts with their labels."""
    task = cats()
    return [*task.train.texts], [task.labels[number] for number in task.train.labels]


def test_models_and_tasks_in_memory_are_compared_and_leave_no_file(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recommended method is fitted and predicts; what was written for that is gone with the comparison."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = Task.from_lists(*lists(), test=0.3, unlabelled=["He holds a dog."], name="pets")
    found = ws.compare(language_bundle(tokenizer), task, labels=20, seeds=2)
    assert {"majority", "naive Bayes + EM", "probe"} <= {*found.table["method"]}
    assert not {"full", "from scratch"} & {*found.table["method"]}, "nothing is fine-tuned unless it is named"
    predicted = ws.predict(found.fit("NBSVM"), ["She holds the cat."])
    assert predicted.probabilities is not None
    assert predicted.probabilities.shape == (1, 2)
    assert [*tmp_path.glob("warmstart-*")]
    del found
    gc.collect()
    assert not [*tmp_path.glob("warmstart-*")]


def test_only_the_methods_that_are_named_run(tokenizer: Tokenizer) -> None:
    """By their names in the table, of schemes, or ``scratch``; one that no method has is an error."""
    task = Task.from_lists(*lists())
    found = ws.compare(language_bundle(tokenizer), task, methods=("NBSVM", "full", "scratch"), labels=(8, 16), seeds=1)
    assert {*found.table["method"]} == {"NBSVM", "full", "from scratch"}
    assert found.curve
    assert [*found.curve.rankings] == [8, 16]
    with pytest.raises(ConfigError, match="no method of this race is called bayes"):
        ws.compare(language_bundle(tokenizer), task, methods=("bayes",))
    alone = ws.compare((), task, methods=("majority", "NBSVM"), labels=20, seeds=1)
    assert {*alone.table["method"]} == {"NBSVM", "majority"}, "which need no pretrained model"


def test_a_folder_keeps_what_has_run(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison finds its trials, and runs none."""
    given = {"methods": ("NBSVM",), "labels": 20, "seeds": 2, "out": tmp_path / "kept"}
    first = ws.compare((), Task.from_lists(*lists()), **given)  # type: ignore[arg-type]
    monkeypatch.setattr("warmstart.experiment.execution.run_trial", lambda *_: pytest.fail("ran"))
    again = ws.compare((), Task.from_lists(*lists()), **given)  # type: ignore[arg-type]
    assert again.to_dict() == first.to_dict()


def test_tasks_are_made_of_lists_and_tables() -> None:
    """Strings, lists and numbers make the three types; a frame is read by the names of its columns."""
    texts = [f"text {number}" for number in range(10)]
    assert (one := Task.from_lists(texts, ["a", "b"] * 5)).labels == ("a", "b")
    assert (one.type, len(one.train), len(one.test)) == ("classification", 8, 2)
    several = Task.from_lists(texts, [{"a"}, ["a", "b"]] * 5, test=(["another"], [[]]))
    assert (several.type, several.train.labels.tolist()[:2]) == ("multilabel", [[1, 0], [1, 1]])
    assert several.test.labels.tolist() == [[0, 0]]
    assert Task.from_lists(texts, np.linspace(0, 1, 10)).type == "regression"  # type: ignore[arg-type]
    frame = polars.DataFrame({"body": texts, "topic": [1, 2] * 5})
    table = Task.from_table(frame, text="body", label="topic", test=frame)
    assert (table.labels, table.train.texts, table.test.texts) == (("1", "2"), tuple(texts), tuple(texts))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", None], "some labels are missing; give such texts as 'unlabelled'"),
        (["a"], "there must be as many labels as texts, but there are 1 and 2"),
        (["a", 1.5], "labels must be of one kind, but there are classification and regression"),
    ],
)
def test_labels_that_make_no_task_are_refused(labels: list[object], message: str) -> None:
    """With what must hold and what came."""
    with pytest.raises(DataError, match=message):
        Task.from_lists(["one", "two"], labels)


def test_texts_without_labels_in_memory_are_saved_with_the_task(tmp_path: Path) -> None:
    """The task that is read back has them in a file."""
    file = save_task(Task.from_lists(*lists(), unlabelled=["a dog", "a river"]), tmp_path / "task")
    assert load_task(file).unlabelled[0].path.endswith("unlabelled.ndjson")
