"""Labels go to a task that every command reads, and come from the files of other programs."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.labelling import news
from warmstart.app.exchange import LEAST_TEST, as_bytes, export, formula_texts, import_files, random_texts, take_rows
from warmstart.app.project import Project
from warmstart.app.training import Training, after_labelling
from warmstart.commands.fit.command import read_labelled
from warmstart.data.annotations import Annotation
from warmstart.data.pool import task_pool
from warmstart.data.source import Source
from warmstart.data.tables import read_table
from warmstart.data.text_key import key_hash, key_of
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.config import FitConfig
from warmstart.tasks.load import load_task

POOL = ("The goal came late.", "A vote was held.", "Rain in Oslo", "Ada, of London")


def new(
    folder: Path, texts: Sequence[str] = POOL, kind: Any = "classification", labels: Sequence[str] = ("sport", "news")
) -> Project:
    """A project."""
    return news(folder, texts, labels, name="topics", type=kind)


def say(project: Project, text: int, value: Any, component: str = "random") -> None:
    """An answer to a draw."""
    draw = project.draw(text=text, person="anna", queue="new", component=component, probability=0.1, remaining=9)
    project.answer(draw.id, "anna", value, 1.0)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project of four texts and the labels sport and news."""
    with new(tmp_path / "project") as made:
        yield made


@pytest.fixture
def tags(tmp_path: Path) -> Iterator[Project]:
    """The same for tagging, with the labels O, PER and LOC."""
    with new(tmp_path / "tags", kind="tagging", labels=("PER", "LOC")) as made:
        yield made


def lines(folder: Path, name: str, *rows: Any) -> Path:
    """A file with a row of JSON a line; json: with all rows as one list."""
    file = folder / name
    file.write_text(json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows))
    return file


def named(project: Project) -> dict[str, Any]:
    """Text -> the names of the labels that count."""
    names = {label.id: label.name for label in project.labels()}
    return {
        project.texts[text]: names[value] if isinstance(value, int) else [names[one] for one in value]
        for text, value in project.labelled().items()
    }


# ------------------------------------------------------------------------------------------------ export


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_an_export_is_a_task(form: Any, tmp_path: Path) -> None:
    """With labels, of so few a fifth held out for test alone, a pool of texts without labels, and comments with names."""
    with new(tmp_path / "p", [f"text {number}" for number in range(30)]) as project:
        for text in range(20):
            say(project, text, 1 + text % 2)
        for person in ("anna", "bo"):
            draw = project.draw(text=0, person=person, queue="overlap")
            project.answer(draw.id, person, 1, 1.0, comment=" half of it ")
        project.add_label("never used", "anna")
        assert export(project, tmp_path / "out", form) == {"task": str(tmp_path / "out" / "task.yaml"), "train": 20}
        ledger = tmp_path / "out" / "task.ledger.jsonl"
        ledger.touch()
        export(project, tmp_path / "out", form)
        assert ledger.exists(), "who exports again has seen the scores of before"
    task, file = load_task(tmp_path / "out"), tmp_path / "out" / f"train.{form}"
    assert (task.name, task.labels, len(task.train), len(task.test)) == ("topics", ("sport", "news"), 16, round(0.2 * 20))
    assert len(task.validation) == 0
    for split in (task.train, task.test):
        assert all(int(text.split()[1]) % 2 == label for text, label in zip(split.texts, split.labels, strict=True))
    assert [source.path for source in task.unlabelled] == [str(tmp_path / "out" / "unlabelled.ndjson")]
    assert (tmp_path / "out" / "unlabelled.ndjson").read_text().count("\n") == 10
    comments = read_table(Source(path=str(file)), file, form).frame["comment"].fill_null("").to_list()
    assert comments == ["anna: half of it\nbo: half of it", *[""] * 19]


def test_fit_learns_from_all_that_is_exported(tmp_path: Path) -> None:
    """Every label, also those that a race would hold out, and every text without one."""
    with new(tmp_path / "p", [f"text {number}" for number in range(40)]) as project:
        for text in range(30):
            say(project, text, 1 + text % 2)
        training = Training(project)
        written = training.export()
        assert training.status() is None
        again = after_labelling(project)
    assert written["command"] == f"warmstart fit {written['task']}"
    write, go_on = f"warmstart label --out {tmp_path}/p --export {tmp_path}/p/task", f"warmstart label --out {tmp_path}/p"
    assert again == ["Next", f"  {write}", f"  {written['command']}", f"  {go_on}"]
    task = read_labelled(FitConfig(data=written["task"]))
    assert (len(task.train), len(task.validation), len(task.test)) == (30, 0, 0)
    assert {*task_pool(task).texts} - {*map(str, task.train.texts)} == {f"text {number}" for number in range(30, 40)}


class Process:
    """Of a training: it runs until it has a code."""

    begun: ClassVar = list[list[str]]()
    code: int | None = None

    def __init__(self, command: list[str], **_: Any) -> None:
        time.sleep(0.1)
        self.begun.append(command)

    def poll(self) -> int | None:
        return self.code


def test_two_who_train_at_once_start_one_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a task of its own: that of an export, which people may edit, stays. Without a model nothing is said of it."""
    monkeypatch.setattr("subprocess.Popen", Process)
    with new(tmp_path / "p", [f"text {number}" for number in range(40)]) as project:
        for text in range(30):
            say(project, text, 1 + text % 2)
        training = Training(project)
        edited = Path(training.export()["task"]).with_name("notes.txt")
        edited.touch()
        with ThreadPoolExecutor(2) as people:
            [*people.map(lambda _: training.start(), range(2))]
        assert edited.exists()
        assert (training.status() or {})["state"] == "running"
        assert [str(tmp_path.resolve() / "p" / "model-task" / "task.yaml") in command for command in Process.begun] == [True]
        monkeypatch.setattr(Process, "code", 0)
        assert training.status() is None


def test_a_random_test_split_has_only_what_was_drawn_at_random(tmp_path: Path) -> None:
    """Texts that were chosen for their uncertainty, imported, or skipped are not in it."""
    with new(tmp_path / "p", [f"text {number}" for number in range(100)]) as project:
        for text in range(LEAST_TEST - 1):
            say(project, text, 1 + text % 2)
        for text in range(60, 80):
            say(project, text, 1 + text % 2, "uncertain")
        say(project, 90, None)
        message = r"a test split needs at least 50 labelled texts that were drawn at random, but there are 49; label more"
        with pytest.raises(DataError, match=message):
            export(project, tmp_path / "out", test="random")
        assert not (tmp_path / "out").exists()
        say(project, 95, 1)
        assert random_texts(project) == [*range(LEAST_TEST - 1), 95]
        assert export(project, tmp_path / "out", test="random")["test"] == LEAST_TEST
        with pytest.raises(ConfigError, match="into a new folder, or over an earlier one that nobody has changed"):
            export(project, project.folder)
    task = load_task(tmp_path / "out")
    assert {*task.test.texts} == {f"text {number}" for number in (*range(LEAST_TEST - 1), 95)}
    assert {*task.train.texts, *task.validation.texts} == {f"text {number}" for number in range(60, 80)}
    assert task.random_texts == frozenset()
    with Project.open(tmp_path / "p") as project:
        export(project, tmp_path / "all")
    drawn = {f"text {number}" for number in (*range(LEAST_TEST - 1), 95)}
    assert load_task(tmp_path / "all").random_texts == {key_hash(key_of(text)).hex() for text in drawn}


def test_tags_are_exported_as_a_tagging_task(tags: Project, tmp_path: Path) -> None:
    """As lists of words and tags; csv has no lists."""
    tags.add_texts([f"Bo in Rome {number}" for number in range(8)])
    for text in range(4, 12):
        say(tags, text, (1, 0, 2, 0))
    with pytest.raises(ConfigError, match="tags are lists, which csv cannot hold; give --form ndjson"):
        export(tags, tmp_path / "out", "csv")
    export(tags, tmp_path / "out", "ndjson")
    task = load_task(tmp_path / "out")
    assert (task.type, task.labels, len(task.test)) == ("tagging", ("O", "PER", "LOC"), 2)
    assert task.train.texts[0][:3] == ("Bo", "in", "Rome")
    assert task.train.labels[0].tolist() == [1, 0, 2, 0]
    assert as_bytes(tags).decode().splitlines()[:2] == ['"text","label"', '"Bo in Rome 0","PER O LOC O"']


def test_formulas_are_no_formulas_in_a_safe_csv(tmp_path: Path) -> None:
    """Texts and labels that a spreadsheet would run have a sign before them, and are a task all the same."""
    texts = ["=1+1", "+1", "-1", "@a", "\ttab", "plain"]
    with new(tmp_path / "p", texts, labels=("=a", "b")) as project:
        for number in range(6):
            say(project, number, 1 + number % 2)
        assert formula_texts(project) == 6
        export(project, tmp_path / "out", safe_csv=True)
    rows = (tmp_path / "out" / "train.csv").read_text().splitlines()
    assert rows[1:3] == ['"\'=1+1","\'=a"', '"\'+1","b"']
    assert load_task(tmp_path / "out").labels == ("'=a", "b")


def test_a_project_of_a_task_is_exported_with_its_test_split(tmp_path: Path) -> None:
    """Which nobody labelled here, and which nothing here has read."""
    lines(tmp_path, "train.ndjson", *({"text": f"old {number}", "label": "ab"[number % 2]} for number in range(6)))
    lines(tmp_path, "test.ndjson", {"text": "tested", "label": "a"}, {"text": "tested, too", "label": "b"})
    (tmp_path / "task.yaml").write_text("name: given\ntrain: train.ndjson\ntest: test.ndjson\n")
    given_task = str(tmp_path / "task.yaml")
    with Project.create(tmp_path / "p", name="given", type="classification", labels="ab", texts=POOL, task=given_task) as project:
        say(project, 0, 1)
        say(project, 1, 2)
        assert export(project, tmp_path / "out")["test"] == 2
        project.rename_label(1, "other", "anna")
        with pytest.raises(DataError, match="every label of the test texts needs a text to learn from, but 'a' has none"):
            export(project, tmp_path / "out")
    assert {*load_task(tmp_path / "out").test.texts} == {"tested", "tested, too"}


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(str.strip)


@settings(max_examples=15, deadline=None)
@given(st.lists(TEXT, min_size=4, max_size=8, unique=True), st.sampled_from(["csv", "ndjson"]))
def test_every_text_survives_an_export(texts: list[str], form: Any) -> None:
    """Line ends, quotes, tabs, commas and any Unicode; in tables, and in the task that is read from them."""
    with tempfile.TemporaryDirectory() as folder, new(Path(folder, "p"), texts) as project:
        for text in range(len(texts)):
            say(project, text, 1 + text % 2)
        export(project, Path(folder, "out"), form)
        manifest = Path(folder, "out", "task.yaml")
        manifest.write_text(manifest.read_text().replace("test: 0.2", f"test: train.{form}"))
        task = load_task(manifest)
        assert list(task.train.texts) == texts
        assert task.train.labels.tolist() == [number % 2 for number in range(len(texts))]
        (other := Path(folder, f"bytes.{form}")).write_bytes(as_bytes(project, form))
        with new(Path(folder, "again"), texts) as again:
            assert import_files(again, [other]).new_texts == 0
            assert again.labelled() == project.labelled()


# ------------------------------------------------------------------------------------------------ import


def test_tables_are_imported(project: Project, tmp_path: Path) -> None:
    """Texts are matched exactly, then by their letters; others are added at the end; new labels, too; people are kept."""
    (tmp_path / "first.csv").write_text(
        'text,label,person\n"The goal came late.",sport,bo\na VOTE was held,news,\nNew text,art,bo\n'
    )
    lines(tmp_path, "second.ndjson", {"text": "A vote was held.", "label": "sport"}, {"text": "Rain in Oslo", "label": None})
    found = import_files(project, [tmp_path / "first.csv", tmp_path / "second.ndjson"])
    assert (found.answers, found.new_texts, found.new_labels, found.unlabelled) == (4, 1, ["art"], 1)
    assert found.people == ["bo", "first", "second"]
    assert project.texts == (*POOL, "New text")
    assert named(project) == {"The goal came late.": "sport", "New text": "art"}
    assert project.disagreements() == [1]
    assert {draw.queue for draw in project.draws()} == {"imported"}
    again = import_files(project, [tmp_path / "first.csv", tmp_path / "second.ndjson"])
    assert (again.answers, again.known, len(project.answers())) == (0, 4, 4)


def test_parquet_and_lists_of_words_are_imported(project: Project, tags: Project, tmp_path: Path) -> None:
    """As this package writes them."""
    pl.DataFrame({"text": [POOL[0]], "label": ["sport"]}).write_parquet(tmp_path / "a.parquet")
    import_files(project, [tmp_path / "a.parquet"])
    assert named(project) == {POOL[0]: "sport"}
    import_files(tags, [lines(tmp_path, "a.ndjson", {"text": ["Rain", "in", "Oslo"], "label": ["O", "O", "LOC"]})])
    assert named(tags) == {"Rain in Oslo": ["O", "O", "LOC"]}


ROWS: list[tuple[Any, str]] = [
    ({"text": POOL[0], "label": ["a", "b"]}, r"must have one label, but has 2: \['a', 'b'\]"),
    ({"text": 7, "label": ["a"]}, "must have a text, but has 7"),
    ({"text": POOL[0], "label": 1.5}, "must have the name of a label, but has 1.5"),
    ({"text": " ", "label": "a"}, "must have words, but is blank"),
    ({"text": "\ud800", "label": "a"}, "must be Unicode"),
    ({"text": "a" * (1 << 20) + "a", "label": "a"}, "must have at most 1,048,576 bytes"),
    ({"words": "a"}, "must have text and label, but has neither"),
    (["a"], r"must hold values by name, but holds \['a'\]"),
    ({"text": POOL[1], "label": ["x" * 10_000]}, ".*label"),
    ({"text": POOL[1], "label": ["a\x00b"]}, ".*label"),
]
TAGGED: list[tuple[Any, str]] = [
    ({"text": ["a b"], "label": ["O"]}, "must have words without white space"),
    ({"text": ["a"], "label": ["O", "O"]}, "must have one label for each word, in two lists"),
    (  # a text of the same letters as one of the pool, in other words
        {"text": ["Rain", "in", "Os", "lo"], "label": ["O", "O", "O", "LOC"]},
        "must have a label for each word, but has 4 for the 3 words of 'Rain in Oslo'",
    ),
]


def test_rows_that_are_no_labels_are_named(project: Project, tags: Project, tmp_path: Path) -> None:
    """With file and line; then nothing is imported."""
    known = {"text": POOL[0], "label": ["sport"]}, {"text": ["Bo"], "label": ["PER"]}
    for where, first, rows in ((project, known[0], ROWS), (tags, known[1], TAGGED)):
        for row, message in rows:
            file = lines(tmp_path, "bo.jsonl", first, row)
            with pytest.raises(DataError, match=rf"{file}, line 2:? {message}"):
                import_files(where, [file])
            assert (where.answers(), where.texts) == ([], POOL), message


def test_files_that_cannot_be_read_are_refused(project: Project, tmp_path: Path) -> None:
    """With what they must be."""
    for name, content, message in (
        ("a.json", "[{", "must be JSON, but is not"),
        ("a.json", '[{"text": "a", "mood": "b"}]', "must have the columns text and label, but has text, mood"),
        ("a.json", '[{"data": {"text": "a"}, "annotations": [3]}]', "is an export of Label Studio; export it as CSV"),
        ("a.jsonl", '{"text": "a", "label": "b", "answer": "reject"}', "is an export of Prodigy; write the accepted rows alone"),
        ("a.jsonl", "{\n", "a.jsonl, line 1 must be JSON, but is not"),
        ("a.jsonl", "[" * 100_000 + "\n", "a.jsonl, line 1 must be JSON, but is not"),
        ("a.csv", "words,mood\na,b\n", "must have the columns words and label, but has words, mood"),
        ("a.txt", "a", "labels are read from .csv, .tsv, .parquet, .ndjson, .jsonl and .json files, but got"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=message):
            import_files(project, [tmp_path / name])


def test_former_names_of_labels_are_known(tmp_path: Path) -> None:
    """The same rows again, after a label was renamed and another one merged, change nothing."""
    with new(tmp_path / "p", ["t1", "t2", "t3"], labels="abc") as project:
        rows = [Annotation(f"row {text}", text, "old", label) for text, label in (("t1", "a"), ("t2", "b"), ("t3", "c"))]
        take_rows(project, rows)
        project.rename_label(1, "A1", "Ada")
        project.merge_labels(2, 3, "Ada")
        before = project.labelled()
        assert take_rows(project, rows).known == 3
        assert project.labelled() == before == {0: 1, 1: 3, 2: 3}
        assert [label.name for label in project.labels()] == ["A1", "c"]
        assert project.draw(text=0, person="Ada", queue="new", predicted=2).predicted == 3


def test_texts_that_score_models_are_not_imported(tmp_path: Path) -> None:
    """Nor what is nearly the same; the rest is."""
    (tmp_path / "old.csv").write_text("text,label\nthe film was a great pleasure to watch today,a\nsomething else,b\n")
    with new(tmp_path / "p", ["one"], labels="ab") as project:
        summary = import_files(project, [tmp_path / "old.csv"], ["The film was a great pleasure to watch today!"])
        assert (summary.left_out, summary.answers) == (1, 1)
        assert project.texts == ("one", "something else")
