"""A table is a task: what it holds is guessed, the same in every command; or a sentence says why it is none."""

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
from warmstart.errors import DataError, WarmstartError
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


def test_a_table_is_a_task(tmp_path: Path) -> None:
    """In every format, whatever its columns are called."""
    for ending, write in WRITERS.items():
        write(rows(id=[*range(6)], message=TEXTS, animal=LABELS), file := tmp_path / f"mails.{ending}")
        task = load_task(file)
        assert (task.name, task.type, task.labels) == ("mails", "classification", ("cat", "dog"))
        assert ({*task.train.texts, *task.test.texts}, len(task.validation)) == ({*TEXTS}, 0), ending


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
        rows(**columns).write_ndjson(file := tmp_path / "train.ndjson")
        assert (load_task(file).type, read_spec(file)[1].train[0].second) == (kind, second)


def test_files_of_other_splits_are_found(tmp_path: Path) -> None:
    """Beside the training table, by their names; many texts without such files give validation a tenth."""
    for name in ("mails_train", "mails_test", "mails_dev"):
        rows(text=TEXTS, label=LABELS).write_csv(tmp_path / f"{name}.csv")
    guess = guess_task(tmp_path / "mails_train.csv")
    assert guess.splits == {"test": tmp_path / "mails_test.csv", "validation": tmp_path / "mails_dev.csv"}
    pl.DataFrame({"text": TEXTS * MANY_TEXTS, "label": LABELS * MANY_TEXTS}).write_csv(tmp_path / "many.csv")
    assert read_spec(tmp_path / "many.csv")[1].validation == 0.1


def test_a_table_that_is_no_task_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a sentence and exit code 2."""
    for content, flags, message in (
        ("text\na\n", [], "one column, text"),
        ("text,label\n", [], "looks like labels|at least"),
        ("text,label\nx,1\ny,2\n", ["--label-column", "lable"], "no column 'lable'; did you mean 'label'"),
        ("text,label\nx,1\ny,2\n", ["--type", "classify"], "classification"),
    ):
        (tmp_path / "mails.csv").write_text(content)
        assert main(["audit", str(tmp_path / "mails.csv"), *flags]) == 2
        assert re.search(message, " ".join(capsys.readouterr().err.split()))
    with pytest.raises(DataError, match="name a table"):
        guess_task(tmp_path / "nothing.csv")


WORDS = st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip()))


@settings(deadline=None)
@given(
    found=st.lists(st.tuples(WORDS, st.sampled_from(["one", "two: three", "#four"])), min_size=1, max_size=8),
    first=WORDS,
    second=WORDS,
)
def test_any_table_is_a_task_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[str, str]], first: str, second: str
) -> None:
    """Whatever the columns are called and the cells hold: a sentence says why it is none."""
    file = tmp_path_factory.mktemp("any") / "any.ndjson"
    file.write_text("\n".join(json.dumps({first: text, second: label}) for text, label in found), encoding="utf-8")
    try:
        task = load_task(file)
    except WarmstartError:
        return
    assert len(task.train) + len(task.validation) + len(task.test) <= len(found)
