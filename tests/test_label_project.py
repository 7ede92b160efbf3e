"""A labelling project loses no answer, whatever happens to its process or its file."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.labelling import news
from warmstart.app.project import Project
from warmstart.app.tables import BACKUP, COPY_AFTER, DATABASE, DISAGREEMENT, MOST_TEXT_BYTES, Value
from warmstart.errors import ConfigError, DataError, StorageError
from warmstart.system.locks import LOCK
from warmstart.system.processes import isolated_children

TEXTS = ("one two", 'a\tb\n"c", d\r\n', "three \u2028 \U0001f600 four", "five", "six")
ANSWERING = """
import sys
from warmstart.app.project import Project
project = Project.open(sys.argv[1])
for number in range(1000000):
    draw = project.draw(text=number % 5, person="anna", queue="new", component="random", probability=0.2, remaining=5)
    print(project.answer(draw.id, "anna", 1 + number % 2, 1.0).id, flush=True)
"""


def new(folder: Path, kind: Literal["classification", "tagging"] = "classification", **settings_: Any) -> Project:
    """A project with five texts and three labels."""
    return news(folder, TEXTS, ["A", "B", "C"], name="test", type=kind, **settings_)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project with five texts and three labels."""
    with new(tmp_path / "project") as made:
        yield made


def say(project: Project, text: int, person: str, value: Value | None, queue: str = "new") -> int:
    """A person's answer; its draw."""
    draw = project.draw(text=text, person=person, queue=queue)
    project.answer(draw.id, person, value, 1.0)
    return draw.id


def damage(file: Path, start: int = 0) -> None:
    """Overwrite bytes in the middle of each page of a file."""
    data = bytearray(file.read_bytes())
    data[start : start + 3000] = b"\xa5" * len(data[start : start + 3000])
    file.write_bytes(data)


def test_it_opens_as_it_was_closed(tmp_path: Path) -> None:
    """Texts, names, draws and answers, whatever characters they have."""
    with new(tmp_path, guidelines="Read it\n twice.", price=0.25) as project:
        draw = project.draw(
            text=1, person="Zoë", queue="new", component="uncertain", probability=0.125, remaining=5, predicted=2, confidence=0.5,
            mean_confidence=0.75, version=3,
        )  # fmt: skip
        answer = project.answer(draw.id, "Zoë", 2, 1.5, "not\nsure")
    with Project.open(tmp_path) as again:
        assert (again.texts, again.draws(), again.answers()) == (TEXTS, [draw], [answer])
        assert (again.name, again.type, again.guidelines, again.price) == ("test", "classification", "Read it\n twice.", 0.25)
        assert [(label.id, label.name, label.key) for label in again.labels()] == [(1, "A", "1"), (2, "B", "2"), (3, "C", "3")]


@pytest.mark.journeys
def test_a_killed_process_loses_no_answer(tmp_path: Path) -> None:
    """Each answer whose method has returned is there, in its order."""
    new(tmp_path / "p").close()
    with isolated_children(), subprocess.Popen(
        [sys.executable, "-c", ANSWERING, str(tmp_path / "p")], stdout=subprocess.PIPE, text=True
    ) as child:  # fmt: skip
        assert child.stdout is not None
        seen = [int(child.stdout.readline()) for _ in range(COPY_AFTER + 7)]
        child.send_signal(signal.SIGKILL)
        seen += [int(line) for line in child.stdout if line.endswith("\n")]
    with Project.open(tmp_path / "p") as project:
        assert [answer.id for answer in project.answers()][: len(seen)] == seen
        assert len(project.draws()) - len(project.answers()) in (0, 1)


def test_undo_takes_back_the_last_answer_of_a_person(project: Project) -> None:
    """Its draw is open again; what came from files stays."""
    imported, last = say(project, 3, "anna", 1, "imported"), say(project, 0, "anna", 2)
    taken = project.undo("anna")
    assert taken is not None
    assert (taken.id, [draw.id for draw in project.open_draws()]) == (last, [last])
    assert project.undo("anna") is None
    assert [one.draw for one in project.answers()] == [imported]


def test_an_answer_that_names_a_merged_label_counts_as_the_other(project: Project) -> None:
    """And a disagreement between both ends; ids are never used again."""
    project.draw(text=1, person="anna", queue="new", predicted=2)
    say(project, 0, "anna", 2)
    say(project, 0, "bo", 1, "overlap")
    assert (project.disagreements(), project.labelled(), project.votes(0)) == ([0], {}, {"anna": 2, "bo": 1})
    project.merge_labels(2, 1, "anna")
    assert (project.disagreements(), project.labelled(), project.draws()[0].predicted) == ([], {0: 1}, 1)
    project.merge_labels(2, 3, "bo")  # 2 stands for 1 now
    assert project.add_label("B", "bo").id == 4
    assert [change.words for change in project.history()[3:]] == ["'B' merged into 'A'", "'A' merged into 'C'", "'B' added"]


def test_the_majority_counts_and_a_decision_overrules_it(project: Project) -> None:
    """Undo takes a decision back."""
    for person, value in (("anna", 1), ("bo", 2), ("di", 2)):
        say(project, 0, person, value)
    assert (project.labelled(), project.disagreements()) == ({0: 2}, [0])
    say(project, 0, "cy", 3, DISAGREEMENT)
    assert (project.labelled(), project.disagreements()) == ({0: 3}, [])
    project.undo("cy")
    assert (project.labelled(), project.disagreements()) == ({0: 2}, [0])
    say(project, 0, "bo", 1, DISAGREEMENT)
    assert (project.labelled(), project.disagreements()) == ({0: 1}, [])


def test_tags_are_one_label_for_each_word(tmp_path: Path) -> None:
    """The label O always exists, and stays."""
    with new(tmp_path, "tagging") as project:
        draw = project.draw(text=0, person="anna", queue="new")
        assert project.answer(draw.id, "anna", [0, 2], 1.0).value == (0, 2)
        project.merge_labels(2, 0, "anna")
        assert project.labelled() == {0: (0, 0)}
        assert [label.name for label in project.labels()] == ["O", "A", "C"]
        with pytest.raises(DataError, match=r"a label for each of the 2 words of the text, but has 1"):
            project.answer(draw.id, "anna", [1], 1.0)
        with pytest.raises(DataError, match=r"the label O of words that have no other must stay as it is"):
            project.rename_label(0, "X", "anna")


def test_a_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Whatever part is damaged, also one that SQLite does not see; the message says how to go on from the copy, and that works."""
    with new(tmp_path) as project:
        say(project, 0, "anna", 1)
        project.rename_label(1, "other", "anna")
    good = (tmp_path / DATABASE).read_bytes()
    for place in (20, 4096, 4096 * 3, 4096 * 5):
        damage(tmp_path / DATABASE, place)
        before = (tmp_path / DATABASE).read_bytes()
        with pytest.raises(DataError, match=r"is damaged \(.+\), and is left as it is; to go on from the copy of .+ UTC, move"):
            Project.open(tmp_path)
        assert (tmp_path / DATABASE).read_bytes() == before
        assert not (tmp_path / LOCK).exists()
        (tmp_path / DATABASE).write_bytes(good)
    edit(tmp_path, "update answer set draw = 7")
    with pytest.raises(DataError, match="a row names one that is not there"):
        Project.open(tmp_path)
    edit(tmp_path, "update answer set draw = 1, value = '[1'")
    with pytest.raises(DataError, match="it cannot be read"):
        Project.open(tmp_path)
    for name in (DATABASE, f"{DATABASE}-wal"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(DataError, match="it is missing"):
        Project.open(tmp_path)
    (tmp_path / BACKUP).rename(tmp_path / DATABASE)
    with Project.open(tmp_path) as project:
        assert (project.labelled(), project.texts, project.labels()[0].name) == ({0: 1}, TEXTS, "other")
    damage(tmp_path / DATABASE)
    (tmp_path / BACKUP).unlink(missing_ok=True)
    with pytest.raises(DataError, match="put a copy of your own in its place"):
        Project.open(tmp_path)


def edit(folder: Path, sql: str) -> None:
    """Behind the back of the project."""
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute(sql)
    connection.close()


def test_a_newer_version_and_another_program_are_refused(tmp_path: Path) -> None:
    """Nothing is read from a file that this version does not know."""
    new(tmp_path).close()
    for pragma, message in (("user_version=9", r"has format 9, but"), ("application_id=7", r"but is another SQLite file")):
        edit(tmp_path, f"pragma {pragma}")
        with pytest.raises(DataError, match=message):
            Project.open(tmp_path)


def test_a_project_of_events_is_refused_with_the_way_to_its_labels(tmp_path: Path) -> None:
    """It stays byte for byte as it is, also where a killed process left rows in the log."""
    new(tmp_path / "p").close()
    connection = sqlite3.connect(tmp_path / "p" / DATABASE, isolation_level=None)
    connection.executescript("pragma journal_mode=wal; pragma user_version=1; insert into person values ('Anna', '');")
    shutil.copytree(tmp_path / "p", old := tmp_path / "killed")
    connection.close()
    files = [old / DATABASE, old / f"{DATABASE}-wal"]
    before = [file.read_bytes() for file in files]
    assert before[1]
    with pytest.raises(DataError, match=r"is left as it is; the last commit that opens it is 5cb677ad: .* --export .* --import"):
        Project.open(old)
    assert [file.read_bytes() for file in files] == before


def test_a_copy_is_made_every_fifty_answers(tmp_path: Path) -> None:
    """While the project is open, of all that was answered until then."""
    with new(tmp_path) as project:
        for _ in range(COPY_AFTER + 3):
            say(project, 0, "anna", 1)
        with sqlite3.connect(tmp_path / BACKUP) as copy:
            assert copy.execute("select count(*) from answer").fetchone() == (COPY_AFTER,)
        copy.close()


@pytest.mark.journeys
def test_a_folder_is_open_once(project: Project) -> None:
    """In this process, and in another."""
    with pytest.raises(StorageError, match="is open elsewhere"):
        Project.open(project.folder)
    code = f"from warmstart.app.project import Project; Project.open({str(project.folder)!r})"
    with isolated_children():
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is in use by process" in child.stderr
    say(project, 0, "anna", 1)


def test_a_batch_is_written_as_a_whole_or_not_at_all(project: Project) -> None:
    """What it wrote before an error is forgotten."""

    def several() -> None:
        with project.at_once():
            say(project, 0, "anna", 1)
            project.add_label("D", "anna")
            project.add_texts(["new"])
            say(project, 1, "anna", 9)

    with pytest.raises(DataError, match="there is no label 9"):
        several()
    assert (project.answers(), project.draws(), project.people(), project.texts) == ([], [], [], TEXTS)
    assert say(project, 0, "anna", 1) > 0


def test_bad_pools_and_names_are_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    whole: dict[str, Any] = {"name": "x", "type": "classification", "labels": ["A", "B"], "texts": ["a"]}
    for wrong, error, message in (
        ({"texts": []}, DataError, "the pool must have at least one text"),
        ({"texts": ["a", "x" * (MOST_TEXT_BYTES + 1)]}, DataError, "text 2 must have at most 1,048,576 bytes, but has 1,048,577"),
        ({"texts": ["\ud800"]}, DataError, "text 1 must be Unicode"),
        ({"texts": [" "]}, DataError, "text 1 must have words"),
        ({"labels": ["A", " A "]}, ConfigError, "there is a label 'A' already"),
        ({"labels": [""]}, ConfigError, "the name of a label must have 1 to 100 characters"),
        ({"price": -1.0}, ConfigError, "must be a number above 0, but is -1"),
        ({"type": "regression"}, ConfigError, "must be classification or tagging, but is 'regression'"),
    ):
        with pytest.raises(error, match=message):
            Project.create(tmp_path / "p", **{**whole, **wrong})
        assert not (tmp_path / "p").exists()
    with Project.create(tmp_path / "p", **{**whole, "texts": ["x" * MOST_TEXT_BYTES]}) as made:
        assert len(made.texts[0]) == MOST_TEXT_BYTES
    with pytest.raises(ConfigError, match="a new project needs a folder without one"):
        Project.create(tmp_path / "p", **whole)


def test_bad_answers_are_refused(project: Project) -> None:
    """With what was wrong."""
    draw = project.draw(text=0, person="anna", queue="new").id
    for arguments, message in (
        ((99, "anna", 1, 1.0), "there is no draw 99"),
        ((draw, "bo", 1, 1.0), "was shown to 'anna', so 'bo' cannot answer it"),
        ((draw, "anna", 9, 1.0), "there is no label 9"),
        ((draw, "anna", True, 1.0), "there is no label True"),
        ((draw, "anna", (1,), 1.0), "must be the id of one label"),
        ((draw, "anna", 1, float("nan")), "must be a number from 0"),
        ((draw, "anna", 1, 1.0, "x" * 10_001), "a comment must be Unicode of at most 10,000 characters"),
    ):
        with pytest.raises(DataError, match=message):
            project.answer(*arguments)
    for name in ("", "  ", "x" * 101, "a\nb"):
        with pytest.raises(ConfigError, match="the name of a person must have"):
            project.join(name)
    with pytest.raises(DataError, match="both are the same"):
        project.merge_labels(1, 1, "anna")
    with pytest.raises(DataError, match="a text must be one of 0 to 4, but is 5"):
        project.draw(text=5, person="anna", queue="new")
    assert project.answers() == []


PEOPLE = ("anna", "bo", "cy")
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.integers(0, 4), st.sampled_from(PEOPLE), st.one_of(st.none(), st.integers(1, 3))),
        st.tuples(st.just("undo"), st.sampled_from(PEOPLE)),
        st.tuples(st.just("again"), st.integers(0, 30), st.integers(1, 3)),
        st.tuples(st.just("merge"), st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.just("decide"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("open")),
    ),
    max_size=25,
)


class Plain:
    """The same in plain lists: answers as [number, draw, text, person, label], and the label that each label stands for."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int, int, str, int | None]] = []
        self.names = {1: 1, 2: 2, 3: 3}
        self.decisions = set[int]()
        self.number = 0

    def answer(self, draw: int, text: int, person: str, value: int | None, *, decides: bool = False) -> None:
        """Replace what was said of the draw."""
        self.number += 1
        self.decisions |= {draw} if decides else set()
        self.given = [*(one for one in self.given if one[1] != draw), (self.number, draw, text, person, value)]

    def labelled(self) -> dict[int, int]:
        """Text -> the label that counts."""
        found = {}
        for text in range(5):
            last = {person: self.names[value] for _, _, of, person, value in self.given if of == text and value is not None}
            votes = Counter(last.values()).most_common()
            decided = [value for _, draw, of, _, value in self.given if of == text and draw in self.decisions and value is not None]
            if decided:
                found[text] = self.names[decided[-1]]
            elif votes and votes[0][1] > max((count for _, count in votes[1:]), default=0):
                found[text] = votes[0][0]
        return found


@settings(max_examples=30, deadline=None)
@given(ACTIONS)
def test_any_sequence_of_events_agrees_with_plain_lists(actions: list[tuple[Any, ...]]) -> None:
    """Answers, undo, merges and decisions in any order, with the project closed and opened in between."""
    with tempfile.TemporaryDirectory() as folder:
        project, plain, draws = new(Path(folder)), Plain(), list[tuple[int, int, str]]()
        for kind, *rest in [*actions, ("open",)]:
            if kind == "answer":
                text, person, value = rest
                draws.append((say(project, text, person, value), text, person))
                plain.answer(*draws[-1], value)
            elif kind == "again" and draws:
                draw, text, person = draws[rest[0] % len(draws)]
                project.answer(draw, person, rest[1], 1.0)
                plain.answer(draw, text, person, rest[1])
            elif kind == "undo":
                mine = [one for one in plain.given if one[3] == rest[0]]
                found = project.undo(rest[0])
                assert (found.id if found else None) == (mine[-1][1] if mine else None)
                plain.given = [one for one in plain.given if one not in mine[-1:]]
            elif kind == "merge" and plain.names[rest[0]] != plain.names[rest[1]]:
                project.merge_labels(rest[0], rest[1], "bo")
                old, into = (plain.names[one] for one in rest)
                plain.names = {name: into if stands == old else stands for name, stands in plain.names.items()}
            elif kind == "decide":
                draws.append((say(project, rest[0], "cy", rest[1], DISAGREEMENT), rest[0], "cy"))
                plain.answer(*draws[-1], rest[1], decides=True)
            elif kind == "open":
                project.close()
                project = Project.open(folder)
            assert project.labelled() == plain.labelled()
        answers = [(one.draw, one.text, one.person) for one in project.answers()]
        assert answers == [(draw, text, person) for _, draw, text, person, _ in plain.given]
        project.close()
