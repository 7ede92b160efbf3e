"""``warmstart label``: makes a project or goes on with it, reads and writes labels, and says what is wrong."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from warmstart.app.exchange import LEAST_TEST
from warmstart.app.project import Project
from warmstart.app.tables import MOST_TEXT_BYTES, ProjectSettings
from warmstart.cli import main
from warmstart.commands.label import labelling
from warmstart.errors import ConfigError
from warmstart.system.locks import LOCK
from warmstart.tasks.load import load_task


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A file with twelve texts, one of them twice, and a file of labels for all of them."""
    texts = [f"text number {number}" for number in range(12)]
    (tmp_path / "pool.txt").write_text("\n".join([*texts, texts[0], "", ""]))
    rows = [json.dumps({"text": text, "label": "ab"[number % 2]}) for number, text in enumerate(texts)]
    (tmp_path / "labels.ndjson").write_text("\n".join(rows))
    return tmp_path / "pool.txt"


def run(tmp_path: Path, *words: object) -> int:
    """The command on the folder ``p``, with an export instead of a server."""
    return main(["label", *map(str, words), "--out", str(tmp_path / "p"), "--export", str(tmp_path / "out")])


def test_labels_are_imported_and_exported_without_a_server(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the extra that one needs; the folder is free afterwards, and a second run needs no pool."""
    for name in ("fastapi", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run(tmp_path, pool, "--labels", "a", "b", "--import", pool.with_name("labels.ndjson")) == 0
    said = capsys.readouterr().err
    assert "1 texts are repeated, and are taken once." in said
    assert "12 answers of 1 person are imported." in said
    assert "12 of 12 texts are labelled, with 2 labels; 0 disagreements." in said
    assert "fit learns from all labelled texts" in said
    assert "--export-test random" not in said  # nothing was chosen by a model
    assert len(load_task(tmp_path / "out").train) == 10
    assert not (tmp_path / "p" / LOCK).exists()
    assert run(tmp_path, "--price", "0.5", "--guidelines", "Look twice.", "--labels", "a", "c", "--form", "ndjson") == 0
    with Project.open(tmp_path / "p") as project:
        assert (project.name, project.price, project.guidelines, len(project.texts)) == ("p", 0.5, "Look twice.", 12)
        assert [label.name for label in project.labels()] == ["a", "b", "c"]


def test_a_project_goes_on_with_its_settings(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors, target, mixture and judge are the project's; one that a start changes is said, and nothing else is touched."""
    monkeypatch.setattr("warmstart.model.files.load_bundle", lambda _: None)
    labels = pool.with_name("labels.ndjson")
    first = ("--vectors", tmp_path, "--target", "0.8", "--mixture", "random=1", "--judge", "Ann ")
    assert run(tmp_path, pool, "--labels", "a", "b", "--import", labels, *first) == 0
    kept = ProjectSettings(str(tmp_path.resolve()), 0.8, {"random": 1.0}, judge="Ann")
    assert "Changed" not in capsys.readouterr().err
    assert run(tmp_path) == 0
    said = capsys.readouterr().err
    assert f"Settings: vectors {tmp_path.resolve()}, target 0.8, mixture random=1, judge Ann." in said
    assert "Changed" not in said
    with Project.open(tmp_path / "p") as project:
        assert project.settings == kept
    assert run(tmp_path, "--vectors", "words", "--target", "0.9", "--mixture", "random=0.5", "uncertain=0.5", "--judge", "Ann") == 0
    said = capsys.readouterr().err
    assert f"Changed for this project: vectors was {tmp_path.resolve()} and is the default from now on." in said
    assert "target was 0.8 and is 0.9 from now on." in said
    assert "mixture was random=1 and is random=0.5 uncertain=0.5 from now on." in said
    with Project.open(tmp_path / "p") as project:
        assert project.settings == replace(kept, vectors="", target=0.9, mixture={"random": 0.5, "uncertain": 0.5})


def test_an_import_alone_ends_without_a_server(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how many answers came and what to do next; what a spreadsheet would run as a formula is said at the export."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    (tmp_path / "more.csv").write_text("text,label\n=1+1,a\n")
    words = [str(pool), "--out", str(tmp_path / "p"), "--import", str(pool.with_name("labels.ndjson")), str(tmp_path / "more.csv")]
    assert main(["label", *words]) == 0
    said = capsys.readouterr().err
    assert "13 answers of 2 people are imported; 1 texts are new; new labels: a, b." in said
    assert said.splitlines()[-1] == f"  warmstart label --out {tmp_path / 'p'}"
    assert f"  warmstart label --out {tmp_path / 'p'} --export {tmp_path / 'p' / 'task'}" in said.splitlines()
    assert run(tmp_path) == 0
    assert "1 texts or labels begin with =, +, -, @ or a tab" in capsys.readouterr().err
    assert run(tmp_path, "--safe-csv") == 0
    assert "begin with" not in capsys.readouterr().err


def test_a_random_test_split_says_what_it_is(pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And how much of the pool was labelled otherwise."""
    texts = [f"text {number}" for number in range(100)]
    with Project.create(tmp_path / "p", name="p", type="classification", labels="ab", texts=texts) as project:
        for text in range(LEAST_TEST + 10):
            component = "random" if text < LEAST_TEST else "diverse"
            draw = project.draw(text=text, person="anna", queue="new", component=component)
            project.answer(draw.id, "anna", 1 + text % 2, 1.0)
    assert run(tmp_path) == 0
    assert "--export-test random writes a test split" in " ".join(capsys.readouterr().err.split())
    assert run(tmp_path, "--export-test", "random") == 0
    assert "task.yaml: 10 train and 50 test texts." in (said := capsys.readouterr().err)
    assert "10.0% of the pool were labelled otherwise" in said


def test_a_changed_pool_is_refused_or_added(pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is gone stays; what is new comes last; texts that only an import brought are not missing."""
    texts = [f"text number {number}" for number in range(12)]
    Project.create(tmp_path / "p", name="p", type="classification", labels="ab", texts=["gone", *texts[:2]]).close()
    pool.write_text("\n".join(texts[:4]))
    assert run(tmp_path, pool, "--import", pool.with_name("labels.ndjson")) == 2
    assert "but 2 of them are new and 1 are missing; --add takes the new ones in" in capsys.readouterr().err
    assert run(tmp_path, pool, "--add", "--import", pool.with_name("labels.ndjson")) == 0
    with Project.open(tmp_path / "p") as project:
        assert project.texts == ("gone", *texts)
    pool.write_text("\n".join(["gone", *texts[:4]]))
    assert run(tmp_path, pool) == 0


def test_a_task_gives_labels_and_its_test_texts_are_never_shown(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its training texts are labelled already; the export has its test split."""
    rows = [{"text": f"known {number} of this kind", "label": "xy"[number % 2]} for number in range(6)]
    (tmp_path / "train.ndjson").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "test.ndjson").write_text('{"text": "Text, number 3!", "label": "x"}\n{"text": "else", "label": "y"}\n')
    (tmp_path / "task.yaml").write_text("name: kinds\ntrain: train.ndjson\ntest: test.ndjson\n")
    assert run(tmp_path, pool, "--task", tmp_path / "task.yaml", "--labels", "z") == 0
    assert "1 texts are left out: they are like test or validation texts of the task." in capsys.readouterr().err
    with Project.open(tmp_path / "p") as project:
        assert (project.name, [label.name for label in project.labels()]) == ("kinds", ["x", "y", "z"])
        assert "text number 3" not in project.texts
        assert len(project.labelled()) == 6
    assert {*load_task(tmp_path / "out").test.texts} == {"Text, number 3!", "else"}
    assert run(tmp_path, pool) == 0  # the pool is compared without what the task left out
    assert run(tmp_path, "--task", tmp_path / "task.yaml") == 0
    with Project.open(tmp_path / "p") as project:
        assert len(project.answers()) == 6


def test_rows_of_a_table_without_a_label_are_still_to_be_labelled(tmp_path: Path) -> None:
    """The others are labelled, but those that score, which nobody is shown; the project goes on and is exported as any other."""
    rows = [f"known {number} of this kind,{'xy'[number % 2]}\n" for number in range(10)] + [f"new {i} to all,\n" for i in range(4)]
    (tmp_path / "mails.csv").write_text("text,label\n" + "".join(rows))
    assert run(tmp_path, "--task", tmp_path / "mails.csv") == 0
    with Project.open(tmp_path / "p") as project:
        assert (project.name, len(project.texts), len(project.labelled())) == ("mails", 12, 8)
        assert [label.name for label in project.labels()] == ["x", "y"]
        tested = {*load_task(tmp_path / "out").test.texts}
        assert len(tested) == 2
        assert not tested & {*project.texts}
    assert run(tmp_path, "--task", tmp_path / "mails.csv") == 0


def test_a_tagging_task_gives_words(tmp_path: Path) -> None:
    """Their tags are the labels; words that hold white space cannot be shown."""
    rows = [{"text": ["Bo", f"sat{number}"], "label": ["PER", "O"]} for number in range(6)] + [{"text": ["a b"], "label": ["O"]}]
    (tmp_path / "train.ndjson").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "task.yaml").write_text("name: names\ntype: tagging\ntrain: train.ndjson\ntest: train.ndjson\n")
    (tmp_path / "pool.txt").write_text("Ada met Bo\n")
    assert run(tmp_path, tmp_path / "pool.txt", "--task", tmp_path / "task.yaml") == 0
    with Project.open(tmp_path / "p") as project:
        assert [label.name for label in project.labels()] == ["O", "PER"]
        assert project.labelled() == dict.fromkeys(range(1, 7), (1, 0))
    assert load_task(tmp_path / "out").type == "tagging"


def test_guidelines_come_from_a_file(pool: Path, tmp_path: Path) -> None:
    """If there is one of that name, whatever its ending."""
    words = [pool, "--import", pool.with_name("labels.ndjson")]
    for name in ("rules.md", "our rules.md", "rules"):
        (tmp_path / name).write_text(f"Be {name}.\n")
        assert run(tmp_path, *words, "--guidelines", tmp_path / name) == 0
        with Project.open(tmp_path / "p") as project:
            assert project.guidelines == f"Be {name}.\n"


MISTAKES = {
    "--labels a": "holds no project yet; name files with texts to make one",
    "--import POOL": "name files with texts to make one, which may be those of --import",
    "POOL": "there must be labels to choose from; name them with --labels, --task or --import",
    "POOL --labels a a": "each label needs its own name, but --labels repeats one",
    "POOL --labels a --type regression": "--type must be 'classification' or 'tagging', but is regression",
    "POOL --labels a --price 0": "--price must be greater than 0, but is 0",
    "POOL --labels a --target 1": "--target must be less than 1, but is 1",
    "POOL --labels a --mixture random": "a mixture must be written as random=0.5 uncertain=0.5, but one part is",
    "POOL --labels a --mixture uncertain=1": "at least 10% of the texts must be drawn at random",
    "POOL --labels a --host 0.0.0.0": "with --host 0.0.0.0 others can reach the server, so it needs a token",
    "POOL --labels a --guidelines none.md": "no such file: none.md",
    "POOL --labels a --guidelines LATIN": "LATIN must be text in utf-8",
    "POOL --labels a --vectors nope": "there is no bundle at nope: a folder with bundle.json was expected",
    "--labels a --add": "--add takes the new texts of files into a project; name the files",
    "missing.txt --labels a": "no such file or folder: missing.txt",
    "LONG --labels a": "line 2 of LONG must have at most 1,048,576 bytes",
    "EMPTY --labels a": "the pool must have at least one text, but has none",
}


def test_mistakes_end_with_one_message(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And make no project; a missing extra is named, too."""
    names = {"POOL": pool, "LONG": tmp_path / "long.txt", "EMPTY": tmp_path / "empty.txt", "LATIN": tmp_path / "latin.md"}
    names["LATIN"].write_bytes("Träume\n".encode("latin-1"))
    names["LONG"].write_text("short\n" + "x" * (MOST_TEXT_BYTES + 1) + "\nshort\n")
    names["EMPTY"].write_text("\n \n")
    for words, message in MISTAKES.items():
        assert run(tmp_path, *(names.get(word, word) for word in words.split())) == 2, words
        for name in ("LONG", "LATIN"):
            message = message.replace(name, str(names[name]))
        assert " ".join(message.split()) in (said := " ".join(capsys.readouterr().err.split())), words
        assert "Traceback" not in said, words
        assert not (tmp_path / "p" / "project.sqlite").exists(), words
    monkeypatch.setitem(sys.modules, "warmstart.app.label_routes", None)
    assert main(["label", str(pool), "--labels", "a", "b", "--out", str(tmp_path / "p")]) == 2
    assert 'is not installed; pip install "warmstart[app]"' in capsys.readouterr().err
    assert not (tmp_path / "p" / "project.sqlite").exists()


def test_what_a_project_cannot_change_is_refused(pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder is free afterwards."""
    assert run(tmp_path, pool, "--import", pool.with_name("labels.ndjson")) == 0
    for words, message in {
        "--type tagging": "the type of a project stays, and this one is classification",
        "--vectors nope": "there is no bundle at nope: a folder with bundle.json was expected",
        "--task task.yaml": "no such file: task.yaml",
        "--import labels.txt": "labels are read from .csv, .tsv, .parquet, .ndjson, .jsonl and .json files",
        "--export-test random": "a test split needs at least 50 labelled texts that were drawn at random, but there are 0",
    }.items():
        assert run(tmp_path, *words.split()) == 2, words
        assert message in capsys.readouterr().err, words
        assert not (tmp_path / "p" / LOCK).exists(), words
    with Project.open(tmp_path / "p") as project:
        assert project.settings.vectors == ""


@pytest.mark.usefixtures("socket_enabled")
def test_a_taken_port_is_said_before_the_vectors_are_made(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may take minutes; the project is free afterwards."""
    session = pytest.importorskip("warmstart.app.session", reason="the server needs the extra 'app'")
    monkeypatch.setattr(session, "pool_vectors", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["label", str(pool), "--labels", "a", "b", "--out", str(tmp_path / "p"), "--port", port]) == 2
    assert f"cannot listen at 127.0.0.1, port {port}" in capsys.readouterr().err
    assert not (tmp_path / "p" / LOCK).exists()


@pytest.mark.usefixtures("socket_enabled")
def test_a_session_is_closed_even_if_nothing_can_be_said_of_it(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a training would outlive the server."""
    session = pytest.importorskip("warmstart.app.session", reason="the server needs the extra 'app'")
    closed = list[object]()
    monkeypatch.setattr("warmstart.app.running.run", lambda *_: None)
    monkeypatch.setattr(session.Training, "close", lambda training: closed.append(training))
    monkeypatch.setattr(session.LabelSession, "status", lambda _: {})
    with pytest.raises(KeyError):
        main(["label", str(pool), "--labels", "a", "b", "--out", str(tmp_path / "p"), "--port", "0"])
    assert len(closed) == 1


def test_serving_a_model_opens_the_project_of_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one has the texts and labels of which the run learned, without the test texts; without a table the way is said."""
    monkeypatch.chdir(tmp_path)
    rows = [f"text number {number},{'no' if number % 2 else 'yes'}" for number in range(40)]
    Path("table.csv").write_text("\n".join(["body,said", *rows]))
    for name, data in (("run", "table.csv"), ("gone", "moved.csv")):
        Path(name).mkdir()
        (Path(name) / "config.yaml").write_text(f"data: {data}\ntext_column: body\nlabel_column: said\nout: run\n")
    for _ in range(2):  # made, and opened again
        with labelling("labels", "run/bundle") as session:
            labelled = session.project.labelled()
            assert len(labelled) == len(session.project.texts) == 32
            assert {one.name for one in session.project.labels()} == {"no", "yes"}
    with pytest.raises(ConfigError, match=r"`warmstart label --task moved.csv --out other`"), labelling("other", "gone"):
        pass
