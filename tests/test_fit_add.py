"""``fit MODEL --add FILE``: more labels for a model, which the new one replaces only if it is no worse."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars
import pytest

import warmstart as ws
from warmstart.app.alike import task_of_run
from warmstart.cli import main
from warmstart.commands.fit.command import fit_data, read_labelled
from warmstart.config import read_yaml
from warmstart.data.source import LabelledTableFlags
from warmstart.data.text_key import NO_HASHES
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.added import BEFORE, AddedLabels
from warmstart.experiment.config import FitConfig
from warmstart.experiment.fit_result import FitResult
from warmstart.runs.made_of import has_grown, input_hashes
from warmstart.system.locks import LOCK
from warmstart.system.storage import RUN_FILE, SETTINGS, file_sha256
from warmstart.tasks.added import with_added
from warmstart.tasks.load import labelled_task

RUN = "runs/tickets"
pytestmark = pytest.mark.usefixtures("few_baselines", "words_alone")


def write(file: str | Path, texts: Sequence[str], labels: Sequence[str], **columns: Sequence[str]) -> str:
    """A table with the columns of the first one."""
    polars.DataFrame({"body": texts, "topic": labels, **columns}).write_csv(file)
    return str(file)


def sentences(seed: int, count: int = 30) -> tuple[list[str], list[str]]:
    """Texts of four words that tell their label, and of four that do not, and these labels."""
    chance, sounds = (
        np.random.default_rng(seed),
        [first + last for first in "bdfgklmnprst" for last in ("ado", "ire", "une", "otta", "ek", "ul")],
    )
    words = {"bill": sounds[:12], "lost": sounds[12:24], "": sounds[24:]}
    labels = ["bill" if number % 2 else "lost" for number in range(count)]
    return [" ".join([*chance.choice(words[label], 4), *chance.choice(words[""], 4), str(seed)]) for label in labels], labels


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, words_alone: None, few_baselines: None) -> tuple[Path, FitResult]:
    """A folder with a table of forty labels, and the fit of it."""
    place = tmp_path_factory.mktemp("first")
    texts, labels = sentences(0, 40)
    here = Path.cwd()
    os.chdir(place)
    try:
        write("first.csv", texts, labels)
        return place, fit_data(FitConfig(data="first.csv", out=RUN, minutes=0.1))
    finally:
        os.chdir(here)


@pytest.fixture
def home(fitted: tuple[Path, FitResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, which is the current one."""
    shutil.copytree(fitted[0], tmp_path / "home", ignore=shutil.ignore_patterns(LOCK))
    record = tmp_path / "home" / RUN / RUN_FILE
    record.write_text(record.read_text().replace(str(fitted[0]), str(tmp_path / "home")))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def files(folder: str | Path) -> dict[str, str]:
    """The hash of each file in a folder."""
    return {
        str(file.relative_to(folder)): file_sha256(file) for file in Path(folder).rglob("*") if file.is_file() and file.name != LOCK
    }


def add(*paths: str, model: str = RUN, **settings: object) -> AddedLabels:
    """Add files of labels to a model."""
    found = fit_data(FitConfig.build({"data": model, "add": paths, **settings}))
    assert isinstance(found, AddedLabels)
    return found


def test_all_labels_are_learned_from_and_the_earlier_model_is_kept(
    home: Path, fitted: tuple[Path, FitResult], capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice; each text is compared, by answers that no model has learned; a file of the user's stays; of two earlier runs one."""
    texts, labels = sentences(1)
    write("more.csv", texts, labels)
    write("later.csv", *sentences(2))
    Path(RUN, "notes.txt").write_text("mine")
    earlier, first = files(f"{RUN}/bundle"), fitted[1]
    assert main(["fit", "--add", "more.csv", RUN, "--json"]) == 0, "the settings of the first fit hold"
    told = capsys.readouterr()
    document = json.loads(told.out)
    found = document["result"]["added"]
    assert document["out"] == RUN
    assert (found["labels"], found["texts"], found["replaced"]) == (30, 70, True)
    assert found["right"] >= found["right_before"]
    right_on_added = np.mean([one["label"] for one in ws.predict(ws.load(f"{RUN}/{BEFORE}"), texts)] == np.array(labels))
    assert found["right_before"] == pytest.approx((40 * first.best.right.mean() + 30 * right_on_added) / 70)
    kept = f"the model in {RUN} is replaced; the earlier one is kept in {Path(RUN, BEFORE)}."
    assert found["sentence"] in told.err
    assert found["sentence"].startswith("With 30 more labels it is right on ")
    assert found["sentence"].endswith(kept)
    assert files(f"{RUN}/{BEFORE}/bundle") == earlier
    assert Path(RUN, "notes.txt").read_text() == "mine"
    assert not Path(RUN, "adding").exists()
    assert str(Path(RUN, "adding")) not in Path(RUN, "report.html").read_text()
    settings = read_yaml(f"{RUN}/{SETTINGS}")
    assert (settings["data"], settings["add"], settings["minutes"], settings["out"]) == ("first.csv", ["more.csv"], 0.1, RUN)
    shown = task_of_run(RUN)
    assert shown is not None
    assert len(shown.train) == 70, "added texts stand beside predictions, too"
    second = files(f"{RUN}/bundle")
    again = add("later.csv", model=f"{RUN}/bundle")
    assert len(again.task.train) == 100
    assert read_yaml(f"{RUN}/{SETTINGS}")["add"] == ["more.csv", "later.csv"]
    assert files(f"{RUN}/{BEFORE}/bundle") == second
    assert not Path(RUN, BEFORE, BEFORE).exists()
    assert Path(RUN, "notes.txt").is_file()


def test_a_worse_model_replaces_none(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels by lot: the folder is what it was, byte for byte, and the figures are said."""
    texts, _ = sentences(2, 60)
    write("wrong.csv", texts, np.random.default_rng(0).choice(["bill", "lost"], 60).tolist())
    before = files(RUN)
    found = add("wrong.csv")
    assert found.right[0].mean() < found.right[1].mean()
    assert not found.to_dict()["added"]["replaced"]
    assert files(RUN) == before
    told = capsys.readouterr().err
    assert "With 60 more labels it is no better: right on " in told
    assert f"The earlier model in {RUN} stays; --out FOLDER keeps the new one." in told


def test_another_folder_leaves_the_model_alone(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From anywhere, also of a table to which rows were appended; without hashes of texts the added ones are compared alone."""
    texts, labels = sentences(1)
    write("more.csv", texts, [*labels[:24], *["late"] * 6])
    with Path("first.csv").open("a") as table:
        table.write("bado bire bune dado,lost\n")
    before = files(RUN)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    found = add("../more.csv", model=f"../{RUN}", out="new", seed=1)
    assert (len(found.task.train), found.added, found.task.labels) == (71, 30, ("bill", "lost", "late"))
    assert found.right.shape == (2, 70), "nothing is known of what the earlier model says of rows that were appended"
    assert files(f"../{RUN}") == before
    assert set(ws.load("new").labels) == {"bill", "lost", "late"}
    told = capsys.readouterr().err
    assert "first.csv has grown since the model learned from it; its new rows are read, too." in told
    assert f"the model in ../{RUN} stays beside the new one." in told
    assert read_yaml(f"new/{SETTINGS}")["seed"] == 1


def test_without_hashes_the_added_texts_are_compared_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells which of the earlier answers belongs to which text."""
    monkeypatch.setenv(NO_HASHES, "1")
    texts, labels = sentences(1)
    fit_data(FitConfig(data="first.csv", out="runs/bare", minutes=0.1))
    found = add(write("more.csv", texts, labels), model="runs/bare")
    assert found.right.shape == (2, 30)
    assert " of 100 added texts, before " in found.sentence


def test_a_text_counts_once_with_its_newer_label(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in other letters; and a fit of a table reads files that are added."""
    texts, labels = polars.read_csv("first.csv")["body"].to_list(), polars.read_csv("first.csv")["topic"].to_list()
    other = "lost"
    more = write("more.csv", [texts[0].upper(), texts[1], "A new one, at last."], [labels[0], other, "late"])
    task = read_labelled(FitConfig.build({"data": "first.csv", "add": [more]}))
    named = dict(zip(task.train.texts, map(task.named, task.train.labels.tolist()), strict=True))
    assert len(task.train) == 41
    assert named == dict(zip(texts, labels, strict=True)) | {texts[1]: other, "A new one, at last.": "late"}
    assert f"1 text has another label in {more} than before; the newer one counts." in capsys.readouterr().err


def test_files_of_several_labels_and_other_columns_are_joined(tmp_path: Path) -> None:
    """A label that no text had widens the others; the cells of other columns come along; groups are those of all files."""
    first = write(
        tmp_path / "first.csv",
        ["one cat", "two dogs", "a bird"] * 4,
        ["cat|pet", "dog", "bird|pet"] * 4,
        price=[*map(str, range(12))],
    )
    more = write(tmp_path / "more.csv", ["a fish"], ["fish|pet"], price=["7"])
    flags = LabelledTableFlags(type="multilabel")
    task = with_added(labelled_task(Path(first), flags, columns=()), [more], Path(first), flags)
    assert task.labels == ("bird", "cat", "dog", "pet", "fish")
    assert task.train.labels.shape == (13, 5)
    assert task.named(task.train.labels[-1].tolist()) == ["fish", "pet"]
    assert task.train.texts[-1].cells == {"price": "7"}
    bare = write(tmp_path / "bare.csv", ["a fish"], ["fish|pet"])
    with pytest.raises(DataError, match="must have the columns that are read beside the text, but lacks price"):
        with_added(task, [bare], Path(first), flags)


def changed(place: Path) -> None:
    """A label of the first table is another."""
    (place / "first.csv").write_text((place / "first.csv").read_text().replace("lost", "bill", 1))


def foreign(place: Path) -> None:
    """A folder of that name is the user's."""
    (place / RUN / BEFORE).mkdir()
    (place / RUN / BEFORE / "mine.txt").write_text("mine")


def race(place: Path) -> None:
    """Another command has made the run."""
    record = place / RUN / RUN_FILE
    record.write_text(record.read_text().replace('"command": "fit"', '"command": "race"', 1))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda place: (place / "first.csv").unlink(), "first.csv is not there; put it back"),
    "changed": (changed, "first.csv was changed; put it back, or learn from it anew: `warmstart fit first.csv`"),
    "foreign": (foreign, "must be an earlier fit and nothing else, but holds mine.txt; move it"),
    "race": (race, "--add needs a model that fit made"),
    "no model": (lambda place: shutil.rmtree(place / RUN / "bundle"), "run without a saved model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_added_changes_nothing(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake that the user can correct."""
    texts, labels = sentences(1)
    write("more.csv", texts, labels)
    spoil, message = REFUSED[name]
    spoil(home)
    before = files(RUN)
    assert main(["fit", RUN, "--add", "more.csv"]) == 2
    assert message in capsys.readouterr().err
    assert files(RUN) == before


def test_files_that_are_no_more_labels_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other columns, labels that are known, a manifest, and no file."""
    before, (texts, labels) = files(RUN), sentences(1)
    polars.DataFrame({"mail": texts, "topic": labels}).write_csv("columns.csv")
    Path("task.yaml").write_text("name: mails\n")
    messages = {
        "columns.csv": "columns.csv has no column 'body'; known: mail, topic; name its columns as in first.csv",
        "first.csv": "--add must bring labels that the model has not learned from, but brings none",
        "task.yaml": "--add needs a table of texts and labels, but task.yaml is none",
        "none.csv": "no such file or folder: none.csv",
    }
    for name, message in messages.items():
        assert main(["fit", RUN, "--add", name]) == 2
        assert message in capsys.readouterr().err
    assert files(RUN) == before


def test_a_model_alone_names_no_labels(home: Path) -> None:
    """It was copied out of its run."""
    shutil.copytree(f"{RUN}/bundle", "alone")
    with pytest.raises(ConfigError, match="needs a model that fit made, but alone is none"):
        add("first.csv", model="alone")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_table_has_grown_if_it_begins_as_it_was(tmp_path: Path, end: str) -> None:
    """The last line may have had no end; a line that goes on is another line."""
    file = tmp_path / "table.csv"
    file.write_bytes(f"text,label\na,yes{end}".encode())
    digest = file_sha256(file)
    assert has_grown(file, digest) is False
    file.write_bytes(f"text,label\na,yes{end or chr(10)}b,no\n".encode())
    assert has_grown(file, digest) is True
    file.write_bytes(b"text,label\na,yesterday\nb,no\n")
    assert has_grown(file, digest) is None
    assert has_grown(tmp_path / "none.csv", digest) is None
    (hashed,) = input_hashes(FitConfig(data=str(tmp_path))).values()
    assert has_grown(tmp_path, hashed) is False
    assert has_grown(tmp_path, digest) is None


def test_a_process_that_ends_half_way_leaves_the_earlier_run_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its last step, too; and the same command goes on."""
    write("more.csv", *sentences(1))
    before = files(RUN)
    with monkeypatch.context() as patch:
        patch.setattr("warmstart.system.storage._put_in_place", ended)
        with pytest.raises(KeyboardInterrupt):
            add("more.csv")
    left = {name: digest for name, digest in files(RUN).items() if not name.startswith("adding")}
    assert left == before
    assert [one.name for one in Path("runs").iterdir()] == [Path(RUN).name]
    assert add("more.csv").better
    assert files(f"{RUN}/{BEFORE}") == before


def ended(*_: object) -> None:
    """The process is asked to end."""
    raise KeyboardInterrupt
