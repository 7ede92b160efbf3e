"""Tasks: a manifest becomes the same splits every time, and says plainly what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from warmstart.data.source import Source
from warmstart.data.task import Split, Task, subsample
from warmstart.errors import ConfigError, DataError
from warmstart.tasks.answers import load_answer_task
from warmstart.tasks.load import load_task, save_task

RECIPES = Path(__file__).parents[1] / "recipes" / "tasks"


def tsv(folder: Path, name: str, labels: str) -> None:
    """A table with one text per letter of ``labels``."""
    rows = "".join(f"{label}\t{name} text {number}\n" for number, label in enumerate(labels))
    (folder / f"{name}.tsv").write_text("label\ttext\n" + rows)


def manifest(folder: Path, **changes: object) -> Path:
    """A manifest over 30 training and 6 test examples, with changes (None leaves a key out)."""
    tsv(folder, "train", "aab" * 10)
    tsv(folder, "test", "ababab")
    values = {"name": "toy", "train": "train.tsv", "validation": 0.2, "test": "test.tsv"} | changes
    file = folder / "toy.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
    return file


def same(one: Task, other: Task) -> bool:
    pairs = zip(one.splits().values(), other.splits().values(), strict=True)
    named = (one.name, one.labels, one.metric, one.unlabelled) == (other.name, other.labels, other.metric, other.unlabelled)
    return named and all(a.texts == b.texts and (a.labels == b.labels).all() for a, b in pairs)


def test_a_manifest_becomes_a_task(tmp_path: Path) -> None:
    """A share is cut from the training examples, stratified; paths start at the manifest's folder."""
    task = load_task(manifest(tmp_path, unlabelled=["more.txt", {"path": "/else/where.txt", "document": "line"}]))
    assert task.summary() == {
        "name": "toy", "type": "classification", "metric": "accuracy", "labels": ["a", "b"],
        "train": 24, "validation": 6, "test": 6,
    }  # fmt: skip
    assert np.bincount(task.validation.labels).tolist() == [4, 2]
    assert task.test.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert task.test.texts[1] == "test text 1"
    assert not set(task.train.texts) & set(task.validation.texts)
    assert [source.path for source in task.unlabelled] == [str(tmp_path / "more.txt"), "/else/where.txt"]
    assert task.unlabelled[1].document == "line"


def test_the_same_seed_gives_the_same_task(tmp_path: Path) -> None:
    """Splits depend on content and seed alone."""
    file = manifest(tmp_path, validation=5, test=0.2, limit=10)
    task = load_task(file, seed=3)
    assert [len(split) for split in task.splits().values()] == [10, 5, 6]
    assert same(task, load_task(file, seed=3))
    assert not same(task, load_task(file, seed=4))


def test_every_form_of_source(tmp_path: Path) -> None:
    """A path, a mapping and a list of both say the same; common settings hold where a source says nothing else."""
    tsv(tmp_path, "b", "xyxy")
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    task = load_task(
        manifest(
            tmp_path,
            source={"document": "line", "text": "nothing"},
            train=[{"path": "b.tsv", "text": "text"}, {"path": "x.txt", "as_label": "x"}],
            validation={"path": "b.tsv", "text": "text"},
            test=[{"path": "x.txt", "as_label": "y"}],
        )
    )
    assert task.train.texts == ("b text 0", "b text 1", "b text 2", "b text 3", "one", "two")
    assert task.train.labels.tolist() == [0, 1, 0, 1, 0, 0]
    assert task.test.labels.tolist() == [1, 1]


def test_paths_take_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """${NAME:-default} in a manifest is replaced from the environment."""
    file = manifest(tmp_path, test="${TOY_TEST:-test.tsv}")
    assert len(load_task(file).test) == 6
    tsv(tmp_path, "other", "ab")
    monkeypatch.setenv("TOY_TEST", str(tmp_path / "other.tsv"))
    assert len(load_task(file).test) == 2


def test_order_of_labels(tmp_path: Path) -> None:
    """Labels are sorted, as numbers where they are numbers, unless the manifest orders them."""
    file = manifest(tmp_path, labels=["b", "a"])
    assert load_task(file).labels == ("b", "a")
    assert load_task(file).test.labels.tolist() == [1, 0, 1, 0, 1, 0]
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "".join(f"10\tx{i}\n2\ty{i}\n-1\tz{i}\n" for i in range(3)))
    (tmp_path / "numbers.yaml").write_text("{name: numbers, train: train.tsv, validation: 3, test: 3}")
    assert load_task(tmp_path / "numbers.yaml").labels == ("-1", "2", "10")


def test_subsample(tmp_path: Path) -> None:
    """A subsample is part of the training examples, with some of every label; other splits stay as they are."""
    task = load_task(manifest(tmp_path))
    small = subsample(task, 3, seed=1)
    assert len(small.train) == 3
    assert set(small.train.labels.tolist()) == {0, 1}
    assert set(small.train.texts) < set(task.train.texts)
    assert small.test is task.test
    refused(DataError, "at least one example of each of the 2 classes", subsample, task, 1, seed=1)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(deadline=None, max_examples=25)
@given(st.lists(TEXT, min_size=2, max_size=6), st.sets(st.text("ab0:é-", min_size=1, max_size=4), min_size=2, max_size=4))
def test_saved_tasks_come_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str], names: set[str]) -> None:
    """save_task and load_task are inverse for any text and any label, even for names that YAML would read as numbers."""
    folder = tmp_path_factory.mktemp("saved")
    texts = texts * 2  # at least one example of every label
    split = Split(tuple(texts), np.arange(len(texts)) % len(names))
    source = Source(path="/some/text.txt", document="line")
    task = Task("2024", tuple(sorted(names, reverse=True)), split, split.take(np.array([1, 0])), split, "macro_f1", (source,))
    assert same(load_task(save_task(task, folder / "task").parent), task)
    lines = (folder / "task" / "validation.ndjson").read_text("utf-8").split("\n")
    assert json.loads(lines[0]) == {"text": texts[1], "label": task.labels[1]}
    assert sorted(path.name for path in folder.iterdir()) == ["task"]


WRONG = {
    "no test": ({"test": None}, ConfigError, r"toy\.yaml: key 'test' is required; .* give a fraction, such as test: 0\.2"),
    "no train": ({"train": None}, ConfigError, r"toy\.yaml: key 'train' is required"),
    "unknown key": ({"validate": 1}, ConfigError, r"toy\.yaml: unknown key 'validate'; did you mean 'validation'\?"),
    "unknown source key": (
        {"train": {"path": "train.tsv", "lable": "x"}},
        ConfigError,
        r"toy\.yaml: source of 'train': unknown key 'lable'; did you mean 'label'\?",
    ),
    "unknown common key": ({"source": {"lable": "x"}}, ConfigError, "source of 'train': unknown key 'lable'"),
    "source is no mapping": (
        {"source": "latin-1"},
        ConfigError,
        "'source' must hold settings common to all sources, .* got 'latin-1'",
    ),
    "split of no kind": ({"validation": True}, ConfigError, "'validation' must be a path, .* a fraction .*; got True"),
    "empty list": ({"train": []}, ConfigError, r"'train' must be a path, a source with a path, a list of these; got \[\]"),
    "metric": ({"metric": "f1"}, ConfigError, "a classification task is scored by accuracy, macro_f1, but 'metric' is f1"),
    "unknown type": ({"type": "regresion"}, ConfigError, "unknown task type 'regresion'; did you mean 'regression'"),
    "limit": ({"limit": 1}, ConfigError, "'limit' must be greater than 1"),
    "repeated label": ({"labels": ["a", "b", "a"]}, ConfigError, "must name each label once, but repeats 'a'"),
    "share": ({"validation": 1.5}, DataError, r"toy\.yaml: a held-out part must be a fraction .* got 1\.5 of 30 examples"),
    "nothing left": ({"validation": 15, "test": 15}, DataError, r"leave some on both sides; got 15 of 15 examples"),
    "one label": ({"train": "one.tsv"}, DataError, r"toy\.yaml: a task needs at least two labels, but all 4 .* have 'a'"),
    "new label": (
        {"test": "new.tsv"},
        DataError,
        r"every label of the test split must be one of a, b, but it has 'c' \(2×\), 'd' \(1×\); correct",
    ),
    "label left out": ({"labels": ["a", "c"]}, DataError, r"every label of the train split must be .* has 'b' \(10×\)"),
    "label never seen": (
        {"labels": ["a", "b", "c"]},
        DataError,
        r"every label needs a training example, but 'c' has none \(examples elsewhere: test 0, validation 0\)",
    ),
    "no such file": ({"test": "absent.tsv"}, DataError, r"toy\.yaml: no such file or folder: .*absent\.tsv"),
    "empty": ({"test": "empty.tsv"}, DataError, r"empty\.tsv must hold at least one labelled text, but it is empty"),
}


def test_wrong_manifests(tmp_path: Path) -> None:
    """A mistake in a manifest or in its files is reported with the manifest, the position and the remedy."""
    for name, labels in (("one", "aaaa"), ("new", "abccd"), ("empty", "")):
        tsv(tmp_path, name, labels)
    for changes, kind, message in WRONG.values():
        refused(kind, message, load_task, manifest(tmp_path, **changes))


RECIPE_SIZES = {
    "trec": (6, 5452, 545, 500, True),
    "sst2": (2, 6920, 872, 1821, False),
    "ag_news": (4, 4999, 500, 7600, True),
    "cls_books": (2, 1600, 400, 2000, False),
    "cls_books_text": (2, 1600, 400, 2000, False),
    "mr": (2, 10662, 1066, 1066, True),
    "sst2_first": (2, 1200, 95, 240, True),  # 8% are 96, but copies stay together
}


@pytest.mark.data
def test_recipes(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shipped task loads, with the published number of labels and examples; a new one must be added to the table above."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    assert {file.stem for file in RECIPES.glob("*.yaml")} == {*RECIPE_SIZES, "birthplace", "ewt"}
    for name, (classes, read, validation, test, cut) in RECIPE_SIZES.items():
        task = load_task(RECIPES / f"{name}.yaml")
        held_out = (validation if cut else 0) + (test if name in ("mr", "sst2_first") else 0)
        assert (task.name, len(task.labels)) == (name, classes)
        assert [len(split) for split in task.splits().values()] == [read - held_out, validation, test], name
        assert all(text and text == text.strip("\r\n") for split in task.splits().values() for text in split.texts), name
    tagging = load_task(RECIPES / "ewt.yaml")  # the first 2,000 sentences, the official development and test sentences
    assert [len(tagging.labels), *map(len, tagging.splits().values())] == [17, 2000, 2001, 2077]
    asked = load_answer_task(RECIPES / "birthplace.yaml")  # a tenth of the questions for training is held out
    assert [len(split) for split in (asked.train, asked.validation, asked.test)] == [1800, 200, 500]
    assert (asked.train.questions[0], asked.train.answers[0]) == ("Where was Khatchig Mouradian born?", "Lebanon")


def test_only_what_reads_back_is_written(tmp_path: Path) -> None:
    """Tasks of other kinds than one label for a single text are refused, not mangled."""
    labels = np.array([0, 1])
    pairs = Split((("a", "b"), ("c", "d")), labels)
    refused(DataError, "one label per single text", save_task, Task("t", ("x", "y"), pairs, pairs, pairs), tmp_path / "t")
