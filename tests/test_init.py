"""``warmstart init``: a manifest from any table, which reads as the task that the table holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmstart.cli import main
from warmstart.commands.init import write_manifest
from warmstart.commands.settings import InitConfig
from warmstart.errors import ConfigError, DataError, WarmstartError
from warmstart.tasks.guess import MANY_TEXTS, guess_task
from warmstart.tasks.load import load_task, read_spec

TEXTS = ["The cat sleeps.", "A dog barks, loudly.", "Cats sleep all day.", "Dogs bark at night.", "My cat purrs.", "The dog runs."]
LABELS = ["cat", "dog", "cat", "dog", "cat", "dog"]


def rows(**columns: list[Any]) -> pl.DataFrame:
    """A table of twelve rows."""
    return pl.DataFrame({name: values * 2 for name, values in columns.items()})


WRITERS: dict[str, Any] = {
    "csv": pl.DataFrame.write_csv,
    "tsv": lambda table, file: table.write_csv(file, separator="\t", quote_style="never"),
    "ndjson": pl.DataFrame.write_ndjson,
    "jsonl": pl.DataFrame.write_ndjson,
    "parquet": pl.DataFrame.write_parquet,
}


def test_a_table_becomes_a_task(tmp_path: Path) -> None:
    """In every format, whatever its columns are called; the manifest reads as the task that was shown."""
    for ending, write in WRITERS.items():
        file, out = tmp_path / f"mails.{ending}", tmp_path / f"{ending}.yaml"
        write(rows(id=[*range(6)], message=TEXTS, animal=LABELS), file)
        shown, task = write_manifest(InitConfig(table=str(file), out=str(out))), load_task(out)
        assert task.digest == shown.digest
        assert (task.name, task.type, task.labels) == ("mails", "classification", ("cat", "dog"))
        assert ({*task.train.texts, *task.test.texts}, len(task.validation)) == ({*TEXTS}, 0), ending


def test_a_manifest_makes_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths lead from there to the table."""
    monkeypatch.chdir(tmp_path)
    rows(text=TEXTS, label=LABELS).write_csv("mails.csv")
    assert main(["init", "mails.csv", "--out", "new/one/task.yaml"]) == 0
    assert read_spec(tmp_path / "new" / "one")[1].train[0].path.endswith("mails.csv")
    assert main(["audit", "new/one/task.yaml"]) == 0


def test_the_type_is_guessed(tmp_path: Path) -> None:
    """Classes, numbers, several labels in a cell or a list, tags of words, and pairs of texts."""
    cases: list[tuple[dict[str, list[Any]], str, str | None]] = [
        ({"text": TEXTS, "label": ["1", "0"] * 3}, "classification", None),
        ({"text": TEXTS, "label": [0.5, 1.25, 3.0, 2.0, 1.0, 0.1]}, "regression", None),
        ({"review": TEXTS, "topics": ["a;b", "b", "a", "c;a", "b;c", "c"]}, "multilabel", None),
        ({"text": TEXTS, "labels": [["a"], ["a", "b"], [], ["b"], ["a"], ["b"]]}, "multilabel", None),
        ({"words": [[*text.split()[:2]] for text in TEXTS], "tags": [["X", "Y"]] * 6}, "tagging", None),
        ({"premise": TEXTS, "hypothesis": TEXTS[::-1], "label": LABELS}, "classification", "hypothesis"),
    ]
    for columns, kind, second in cases:
        rows(**columns).write_ndjson(tmp_path / "train.ndjson")
        task = write_manifest(InitConfig(table=str(tmp_path / "train.ndjson"), out=str(tmp_path / "task.yaml"), force=True))
        assert (task.type, read_spec(tmp_path / "task.yaml")[1].train[0].second) == (kind, second)


def test_files_of_other_splits_are_found(tmp_path: Path) -> None:
    """Beside the training table, by their names; flags overrule them, and many texts without a file give validation a tenth."""
    for name in ("mails_train", "mails_test", "mails_dev"):
        rows(text=TEXTS, label=LABELS).write_csv(tmp_path / f"{name}.csv")
    guess = guess_task(tmp_path / "mails_train.csv")
    assert guess.splits == {"test": tmp_path / "mails_test.csv", "validation": tmp_path / "mails_dev.csv"}
    words = ["init", str(tmp_path / "mails_train.csv"), "--out", str(tmp_path / "task.yaml"), "--validation", "none", "--test", "4"]
    assert main(words) == 0
    spec = read_spec(tmp_path)[1]
    assert (spec.validation, spec.test) == (None, 4)
    pl.DataFrame({"text": TEXTS * MANY_TEXTS, "label": LABELS * MANY_TEXTS}).write_csv(tmp_path / "many.csv")
    write_manifest(InitConfig(table=str(tmp_path / "many.csv"), out=str(tmp_path / "many.yaml")))
    assert read_spec(tmp_path / "many.yaml")[1].validation == 0.1


def test_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three rows, the labels with their numbers, what was guessed, and the next command; nothing is asked without a terminal."""
    rows(text=TEXTS, label=LABELS).write_csv(tmp_path / "mails.csv")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "one.txt").write_text("A cat.")
    out = str(tmp_path / "task.yaml")
    assert main(["init", str(tmp_path / "mails.csv"), "--out", out, "--unlabelled", str(tmp_path / "more")]) == 0
    said = capsys.readouterr().err
    assert "column 'text', the label from 'label'" in said
    assert sum(text in said for text in TEXTS) == 3
    assert re.search(r"labels to learn: (cat|dog) \d, (cat|dog) \d", said)
    assert f"warmstart fit {out}" in said
    assert load_task(out).unlabelled[0].document == "file"


def test_the_next_command_learns_the_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``fit`` is for one label per text; a path with a space is quoted."""
    rows(text=TEXTS, label=[0.5, 1.5, 2.25, 3.5, 4.5, 5.5]).write_csv(tmp_path / "m.csv")
    out = str(tmp_path / "my task.yaml")
    assert main(["init", str(tmp_path / "m.csv"), "--out", out, "--type", "regression"]) == 0
    said = capsys.readouterr().err
    assert f"warmstart audit '{out}'" in said
    assert f"warmstart race '{out}'" in said


def test_a_terminal_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most five questions; an empty answer keeps the guess."""
    rows(a=TEXTS, b=TEXTS[::-1], kind=LABELS).write_csv(tmp_path / "mails.csv")
    asked: list[str] = []

    def answer(question: str, *, default: str, **_: Any) -> str:
        asked.append(question)
        return "b" if "text?" in question else default

    monkeypatch.setattr("rich.prompt.Prompt.ask", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    write_manifest(InitConfig(table=str(tmp_path / "mails.csv"), out=str(tmp_path / "task.yaml")))
    assert len(asked) == 5
    assert read_spec(tmp_path)[1].train[0].text == "b"


def test_a_table_that_is_no_task_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a sentence, exit code 2, and no manifest."""
    sound = "text,label\nx,a\ny,b\nz,a\nv,b\n"
    for content, flags, message in (
        ("text\na\n", [], "one column, text"),
        ("text,label\n", [], "looks like labels|at least"),
        ("text,label\nx,1\ny,2\n", ["--label-column", "lable"], "no column 'lable'; did you mean 'label'"),
        ("text,label\nx,1\ny,2\n", ["--type", "classify"], "classification"),
        (sound, ["--test", "nowhere.csv"], "--test must be a file, a fraction"),
        (sound, ["--unlabelled", "nowhere"], "no such file or folder"),
    ):
        (tmp_path / "mails.csv").write_text(content)
        assert main(["init", str(tmp_path / "mails.csv"), "--out", str(tmp_path / "task.yaml"), *flags]) == 2
        assert re.search(message, " ".join(capsys.readouterr().err.split()))
        assert not (tmp_path / "task.yaml").exists()


def test_a_manifest_is_not_replaced_by_accident(tmp_path: Path) -> None:
    """--force replaces it; test_outputs holds that it replaces nothing else."""
    rows(text=TEXTS, label=LABELS).write_csv(tmp_path / "mails.csv")
    settings = {"table": str(tmp_path / "mails.csv"), "out": str(tmp_path / "task.yaml")}
    (tmp_path / "task.yaml").write_text("mine")
    with pytest.raises(ConfigError, match="--force"):
        write_manifest(InitConfig(**settings))
    assert (tmp_path / "task.yaml").read_text() == "mine"
    (tmp_path / "task.yaml").write_text("train: mine.csv")
    write_manifest(InitConfig(**settings, force=True))
    assert load_task(tmp_path).name == "mails"
    with pytest.raises(DataError, match="name a table"):
        guess_task(tmp_path / "nothing.csv")


WORDS = st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip()))


@settings(deadline=None)
@given(
    found=st.lists(st.tuples(WORDS, st.sampled_from(["one", "two: three", "#four"])), min_size=1, max_size=8),
    first=WORDS,
    second=WORDS,
)
def test_any_table_becomes_a_manifest_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[str, str]], first: str, second: str
) -> None:
    """Whatever the columns are called and the cells hold: the manifest reads as the task shown, or a sentence says why not."""
    place = tmp_path_factory.mktemp("any")
    lines = [json.dumps({first: text, second: label}) for text, label in found]
    (place / "any.ndjson").write_text("\n".join(lines), encoding="utf-8")
    try:
        shown = write_manifest(InitConfig(table=str(place / "any.ndjson"), out=str(place / "task.yaml"), test="1"))
    except WarmstartError:
        assert not (place / "task.yaml").exists()
    else:
        assert load_task(place).digest == shown.digest
