"""What can be done next: ``warmstart`` alone says it of a folder, and what a command prints below "Next" runs as it is printed."""

from __future__ import annotations

import csv
import json
import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import classifier, language_bundle
from helpers.fits import quickstart_result
from helpers.pages import PAGES, command_lines
from helpers.workbook import workbook
from warmstart.cli import main, read_command
from warmstart.config import NAMES_FILES, NAMES_TASKS
from warmstart.model.bundle import Bundle, Language
from warmstart.model.files import save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import WordRows
from warmstart.model.stack import Member, Stack
from warmstart.next_steps import next_steps
from warmstart.tokenizer.tokenizer import Tokenizer

NO_FILES = ("pool", "rest", "none")
"""what stands for files in settings"""
CHEAP = ("predict", "export", "study", "audit", "generate")
"""commands that end in a second; besides, label with --export"""
TOPICS = {"sport": ("goal", "match", "coach"), "tech": ("phone", "chip", "laptop")}


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of which some rows have no label, a file of texts with a blank in its name, and a language model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warmstart.interop.encoders.installed", lambda one: None)
    for name, labelled in (("my tickets.csv", 40), ("all.csv", 52)):
        with Path(name).open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(("customer", "subject", "body", "category"))
            for number in range(52):
                topic = ("sport", "tech")[number % 2]
                said = f"It's the {TOPICS[topic][number % 3]} of {number}."
                table.writerow(("Ann", f"The {topic} news", said, topic if number < labelled else ""))
    Path("my pool.txt").write_text("".join(f"She holds the cat in {number}.\n\n" for number in range(40)))
    pair = json.dumps({"sentence_good": "He can hold it.", "sentence_bad": "He can holds it.", "linguistics_term": "a", "UID": "b"})
    Path("pairs.jsonl").write_text(f"{pair}\n" * 4)
    save(language_bundle(tokenizer, "causal"), Path("runs/lm/bundle"))
    save(replace(language_bundle(tokenizer, "causal"), language=Language()), Path("runs/writer/bundle"))
    words = FittedBaseline(WordRows(("hold", "can"), word_pairs=False, idf=np.ones(2)), LinearReadout(np.eye(2), np.zeros(2)))
    save(Stack((Member("words", words),), "classification", ("a", "b")), Path("runs/words/bundle"))
    rows = (f"{split}\t{label}\t{label} holds the cat in {i}" for split in ("tr", "va", "te") for i in range(6) for label in "AB")
    Path("first.txt").write_text("\n".join(rows))
    tags = ("1\tShe\t_\tPRON", "2\tholds\t_\tVERB", "3\tit\t_\tPRON")
    Path("tags.conllu").write_text("".join("\n".join(tags) + "\n\n" for _ in range(60)))
    Path("none.csv").write_text("text,label\nHe can hold it.,\nShe can hold it.,\n")
    Path("some.csv").write_text("text,label\n" + "".join(f"He holds {number}.,{'ab'[number % 2]}\n" for number in range(8)))
    return tmp_path


def printed_steps(said: str) -> list[str]:
    """The lines below the last "Next"."""
    below = said.split("\nNext\n")[-1].splitlines() if "\nNext\n" in said else []
    assert below, f"no next step: {said}"
    assert all(line.startswith("  warmstart ") for line in below), below
    return [line.strip() for line in below]


def check(step: str) -> None:
    """It can be read, its inputs are there, and its output is not, unless it goes on with it."""
    assert "·" not in step
    _, settings = read_command(shlex.split(step)[1:])
    for name, field in type(settings).model_fields.items():
        if {NAMES_FILES, NAMES_TASKS} & {mark for mark in field.metadata if isinstance(mark, str)} and (
            value := getattr(settings, name)
        ):
            for word in (value,) if isinstance(value, str) else value:
                assert word in NO_FILES or word[0].isdigit() or " " in word or Path(word).exists(), f"{name} of {step}"
    assert not {"FILE", "TABLE", "MODEL", "TASK", "NEW.csv"} & set(shlex.split(step))
    if step.split()[1] not in ("fit", "label") and getattr(settings, "out", None):
        assert not Path(settings.out).exists(), step


def follow(steps: list[str], exported: bool = False) -> None:
    """Check each in order, and run those that are cheap."""
    for step in steps:
        words = shlex.split(step)[1:]
        if not (exported and words[0] in ("fit", "race")):  # of what the step before it writes
            check(step)
        if words[0] in CHEAP or "--export" in words:
            assert main(words) == 0, step


COMMANDS: dict[str, tuple[str, list[str]]] = {
    "rows without a label": ("fit 'my tickets.csv' --minutes 0.05", ["predict", "label", "serve", "export"]),
    "named columns": ("fit 'my tickets.csv' --minutes 0.05 --text-column subject+body", ["predict", "label", "serve", "export"]),
    "a file of texts": ("fit all.csv --minutes 0.05 --unlabelled 'my pool.txt'", ["predict", "label", "serve", "export"]),
    "nothing to label": ("fit all.csv --minutes 0.05", ["predict", "serve", "export"]),
    "tokens": ("tokenize 'my pool.txt' --out tokens --tokenizer.vocab-size 300", ["pretrain"]),
    "a model that writes": (
        "pretrain 'my pool.txt' --out runs/new --objective causal --steps 4 --tokenizer.vocab-size 300 --width 16 --depth 1 "
        "--held-out 0.2",
        ["pretrain --config runs/new/config.yaml --init-from runs/new --steps", "generate runs/new 'She holds the cat'", "serve"],
    ),
    "no labels yet": ("label none.csv --out labels --labels a b --import none.csv", ["label"]),
    "labels": ("label some.csv --out labels --import some.csv", ["label", "fit", "label"]),
    "attention": ("study attention runs/lm 'He can hold it.' --text 'my pool.txt'", ["study ablate"]),
    "attention to one text": ("study attention runs/writer 'He can hold it.'", ["study explain"]),
    "explanation": ("study explain runs/writer 'He can hold it.'", ["study attention"]),
    "ablation": ("study ablate runs/lm --text 'my pool.txt'", ["study attention"]),
    "explanation by words alone": ("study explain runs/words 'He can hold it.'", ["serve"]),
    "layers": ("study probe runs/lm --tasks first.txt --seeds 1 --no-mlp", ["study attention"]),
    "lab": ("study lab --samples 100", ["study lab"]),
    "neurons of tagged sentences": ("study neurons runs/lm --text tags.conllu --no-control --shifts 2", ["study attention"]),
    "neurons": ("study neurons runs/lm --text 'my pool.txt' --no-control --shifts 2", ["study ablate"]),
    "pairs": ("evaluate runs/lm --pairs pairs.jsonl", ["study attention"]),
}
"""a command, and those that it prints"""


@pytest.mark.parametrize("name", COMMANDS)
def test_next_steps_run_as_printed(name: str, place: Path, capsys: pytest.CaptureFixture[str], few_baselines: Any) -> None:
    """One command a line, with the user's own files, and no output that is there already."""
    command, following = COMMANDS[name]
    assert main(shlex.split(command)) == 0
    steps = printed_steps(capsys.readouterr().err)
    room = command.startswith("fit ")  # the last step goes where a fit has much to say
    assert len(following) - room <= len(steps) <= len(following)
    assert [step.removeprefix("warmstart ")[: len(one)] for step, one in zip(steps, following, strict=False)] == following[
        : len(steps)
    ]
    follow(steps, exported=name == "labels")


@pytest.mark.parametrize("export", ["my labels/task", "a task elsewhere"])
def test_the_thread_of_labels_holds_with_absolute_paths(
    export: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], few_baselines: Any
) -> None:
    """From labels to a model and back to the same project, whether its task was written into it or beside it, from any folder."""
    project, task = tmp_path / "away" / "my labels", tmp_path / "away" / export
    words = ["label", str(place / "my tickets.csv"), "--labels", "sport", "tech", "--text-column", "body", "--out", str(project)]
    assert main([*words, "--label-column", "category", "--import", str(place / "my tickets.csv")]) == 0
    steps = printed_steps(capsys.readouterr().err)
    assert steps[-1] == shlex.join(["warmstart", "label", "--out", str(project)])
    assert main(["label", "--out", str(project), "--export", str(task)]) == 0
    (learn,) = printed_steps(capsys.readouterr().err)
    for folder, manifest in ((place, str(task / "task.yaml")), (task, "task.yaml"), (task.parent, str(task))):
        os.chdir(folder)
        out = tmp_path / "away" / f"fit {len(manifest)}"
        assert main(["fit", manifest, "--minutes", "0.05", "--out", str(out)]) == 0
        steps = printed_steps(capsys.readouterr().err)
        follow(steps)
        back = next(shlex.split(step) for step in steps if step.startswith("warmstart label"))
        assert Path(back[-1]).resolve() == project
    assert learn == shlex.join(["warmstart", "fit", str(task / "task.yaml")])


@pytest.mark.parametrize("page", ["tutorials/support-tickets", "how-to/excel", "how-to/emails"])
def test_what_a_page_for_beginners_shows_runs_as_printed(page: str, place: Path, few_baselines: Any) -> None:
    """On tables as people have them; of what listens until Ctrl-C the project of labels is made, and the words are read."""
    labelled = [*csv.reader(Path("my tickets.csv").read_text().splitlines())]
    new = [row[:-1] for row in labelled]
    Path("my tickets.csv").rename("tickets.csv")
    Path("new.csv").write_text("\n".join(",".join(row) for row in new))
    for name, rows in (("tickets.xlsx", labelled), ("new.xlsx", new)):
        Path(name).write_bytes(workbook(rows))
    Path("inbox").mkdir()
    Path("inbox/one.eml").write_text("Subject: The news\nFrom: ann@example.org\n\nThe coach left.\n")
    for line in command_lines(PAGES[f"docs/{page}.md"]):
        check(line)
        words = shlex.split(line)[1:]
        if words[0] != "serve":
            assert main([*words, *(["--export", "first"] if words[0] == "label" and "--export" not in words else [])]) == 0, line


def test_texts_are_labelled_by_the_columns_that_fit_read(place: Path) -> None:
    """Also when the project is opened again, and when its task is written."""
    assert (
        main(shlex.split("label --task 'my tickets.csv' --text-column subject+body --label-column category --out p --export t"))
        == 0
    )
    assert "The sport news" in Path("t/test.csv").read_text()
    assert main(shlex.split("label --out p --export t")) == 0
    assert "The sport news" in Path("t/test.csv").read_text()


def test_the_quickstart_names_only_what_it_made(place: Path) -> None:
    """It has no table of its user's."""
    lines = quickstart_result().lines(Path("runs/quickstart"), Path("report.html"))
    steps = printed_steps("\n".join(lines))
    assert [step.split()[1] for step in steps] == ["predict", "serve", "export"]


@pytest.mark.journeys
@pytest.mark.parametrize(
    "command", ["race all.csv --backbones runs/lm --budget 20s --no-scratch --schemes full", "adapt runs/lm all.csv"]
)
def test_a_comparison_of_methods_says_how_to_go_on(
    command: str, place: Path, capsys: pytest.CaptureFixture[str], few_baselines: Callable[[], None]
) -> None:
    """In commands that run; the race that keeps its recommendation goes on with the trials that it has."""
    assert main([*shlex.split(command), "--steps", "2"]) == 0
    steps = printed_steps(capsys.readouterr().err)
    for step in steps:
        if "--config" not in step:
            check(step)
    follow([step for step in steps if step.split()[1] in CHEAP])
    if kept := next((step for step in steps if "--config" in step), None):
        assert main(shlex.split(kept)[1:]) == 0
        check(printed_steps(capsys.readouterr().err)[0])


# ------------------------------------------------------------------------------------------------ of a folder


def suggested(folder: Path) -> list[str]:
    """The suggested commands, each of which the command line can read."""
    found = [command for _, command in next_steps(folder)]
    for command in found:
        read_command(shlex.split(command)[1:])
    return found


def test_every_stage_has_its_next_command(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """From an empty folder to a model that labels texts."""
    assert suggested(tmp_path) == ["warmstart quickstart"]
    (tmp_path / "my mails").mkdir()
    (tmp_path / "my mails" / "one.txt").write_text("A text.")
    pretrain, label = suggested(tmp_path)
    assert pretrain == "warmstart pretrain 'my mails' --objective masked --minutes 10 --out runs/lm"
    assert label == "warmstart label 'my mails' --labels yes no --out labels"
    (tmp_path / "labelled.csv").write_text("text,label\na,b\n")
    assert suggested(tmp_path) == ["warmstart fit labelled.csv --unlabelled 'my mails'"]
    save(language_bundle(tokenizer), tmp_path / "runs" / "lm" / "bundle")
    assert [one.split()[1] for one in suggested(tmp_path)] == ["serve", "fit", "race"]
    assert "--backbones runs/lm" in suggested(tmp_path)[-1]
    save(Bundle(classifier(tokenizer), tokenizer, ("no", "yes")), tmp_path / "runs" / "topics" / "bundle")
    assert suggested(tmp_path)[0] == "warmstart predict runs/topics 'A new text.'"


def test_what_has_no_labels_is_not_learned_from(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """New rows beside labelled ones, what predict wrote, and a test split; a sheet is read, too."""
    columns = "id,customer,subject,body"
    for name, header in (
        ("a new.csv", columns),
        ("labelled.csv", f"{columns},label,probability"),
        ("my_test.csv", f"{columns},queue"),
    ):
        (tmp_path / name).write_text(f"{header}\n1,Ann,Hello,I wait.,x,0.9\n")
    assert suggested(tmp_path) == ["warmstart label 'a new.csv' --text-column body --labels yes no --out labels"]
    (tmp_path / "tickets.xlsx").write_bytes(workbook([[*columns.split(","), "category"], ["1", "Ann", "Hello", "I wait.", "mail"]]))
    assert suggested(tmp_path) == ["warmstart fit tickets.xlsx"]
    save(Bundle(classifier(tokenizer), tokenizer, ("no", "yes")), tmp_path / "runs" / "topics" / "bundle")
    assert suggested(tmp_path)[0] == "warmstart predict runs/topics 'a new.csv' --out labelled.csv"


def test_what_a_fit_saved_labels_texts(tmp_path: Path) -> None:
    """Also if it is made of several models."""
    (tmp_path / "runs" / "fit" / "bundle").mkdir(parents=True)
    (tmp_path / "runs" / "fit" / "bundle" / "bundle.json").write_text(json.dumps({"members": []}))
    assert [one.split()[:3] for one in suggested(tmp_path)] == [["warmstart", way, "runs/fit"] for way in ("predict", "serve")]


def test_a_project_of_labels_goes_on(tmp_path: Path) -> None:
    """Where there is a folder in which texts are labelled."""
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "project.sqlite").touch()
    assert suggested(tmp_path) == ["warmstart label --out labels"]


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """A damaged model, a file that is no Unicode, a link that leads nowhere."""
    (tmp_path / "runs" / "broken" / "bundle").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "bundle" / "bundle.json").write_text("[1")
    (tmp_path / "a.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "b.jsonl").write_text("[1, 2]\n")
    (tmp_path / "c.xlsx").write_bytes(b"PK")
    (tmp_path / "d.csv").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert suggested(tmp_path) == ["warmstart quickstart"]
    assert suggested(tmp_path / "missing") == ["warmstart quickstart"]


def test_the_suggestions_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the way to all commands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labelled.csv").write_text("text,label\na,b\n")
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "warmstart fit labelled.csv" in said
    assert "warmstart --help" in said
