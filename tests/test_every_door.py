"""Tables as people have them, through every command, and what is guessed of them: each of a kind that was read wrongly."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import fastexcel
import numpy as np
import polars as pl
import pytest

import warmstart as ws
from helpers.workbook import workbook
from warmstart.app.pool import read_pool
from warmstart.cli import main
from warmstart.commands.fit.command import read_labelled
from warmstart.data import tables
from warmstart.data.read import read_documents
from warmstart.data.source import LabelledTableFlags
from warmstart.data.task import Task, joined_splits
from warmstart.data.written import workbook as workbook_of
from warmstart.errors import DataError
from warmstart.experiment.config import FitConfig, RaceConfig
from warmstart.experiment.sweep import open_sweep
from warmstart.system import console
from warmstart.tasks.guess import MANY_TEXTS, guess_task
from warmstart.tasks.load import load_task, read_spec

SHIP = ("delivery is late again", "where is the box that I ordered", "the parcel was left in the rain", "no courier came to us")
BILL = ("I was charged twice", "the receipt lists a wrong tax", "there is a fee on my account", "money was taken without notice")
TEXTS = [f"{(SHIP, BILL)[number % 2][number // 2 % 4]} in week {number}" for number in range(24)]
LABELS = [("ship", "bill")[number % 2] for number in range(24)]
PAIRS = [*zip(TEXTS, LABELS, strict=True)]
EACH = [*zip(range(24), TEXTS, LABELS, strict=True)]
BOTH = {"bill": 12, "ship": 12}
REST = {"bill": 12, "ship": 6}


def rows_of(rows: Sequence[Sequence[Any]], *head: str, sep: str = ",") -> str:
    """A csv file; without names of columns if none are given."""
    csv.writer(out := io.StringIO(), delimiter=sep, lineterminator="\n").writerows([head, *rows] if head else rows)
    return out.getvalue()


def first_sheet(file: Path) -> pl.DataFrame:
    return fastexcel.read_excel(file).load_sheet(0, dtypes={"id": "int"}).to_polars()


def lines_of(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def marked(sign: str) -> str:
    """A table in which every other text about a delivery has a sign in place of its label."""
    return rows_of([(text, sign if number % 4 == 0 else label) for number, text, label in EACH], "text", "label")


def cells(label: Any, name: str = "label") -> str:
    """A table whose labels are what ``label`` makes of the number and the label of a row."""
    return rows_of([(text, label(number, one)) for number, text, one in EACH], "text", name)


def book(rows: list[list[Any]], merged: Sequence[str] = (), hidden: bool = False) -> bytes:
    """A workbook with places in its cells, cells that are merged, and a first sheet that is hidden."""
    data = workbook(*([[["text", "label"], ["old", "x"], ["older", "y"]]] if hidden else []), rows)
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(out := io.BytesIO(), "w") as after:
        for part in before.namelist():
            text, places = before.read(part).decode(), iter(range(1, 1000))
            if "worksheets/" in part:
                parts = re.split("(?=<row>)", text)
                text = "".join(_placed(row, next(places)) if row.startswith("<row>") else row for row in parts)
                text = text.replace("</sheetData>", "</sheetData>" + "".join(f'<mergeCell ref="{one}"/>' for one in merged))
            text = text.replace('<sheet name="S1"', '<sheet name="S1" state="hidden"') if hidden else text
            after.writestr(part, text)
    return out.getvalue()


def _placed(row: str, number: int) -> str:
    letters = iter("ABCDEF")
    row = re.sub("<c(?=[ >])", lambda _: f'<c r="{next(letters)}{number}"', row)
    return re.sub(r'<c r="\w+" t="inlineStr"><is><t></t></is></c>', "", row).replace("<row>", f'<row r="{number}">')


ONE_HOT = [(n, text, int(label == "ship"), int(label == "bill"), int(n % 6 == 0)) for n, text, label in EACH]
SEVERAL = {"ship": 12, "bill": 12, "urgent": 4}
ODD = [(number, ("open", "shut")[number // 3 % 2], text, label) for number, text, label in EACH]
MERGED = [[text, label if number % 3 == 0 else ""] for number, (text, label) in enumerate(sorted(PAIRS, key=lambda one: one[1]))]
WORDS = "-DOCSTART- -X- -X- O\n\n" + "".join(f"Anna NNP B-NP B-PER\nsaw{number} VBD B-VP O\n\n" for number in range(8))

READ: list[tuple[str, str | bytes, str, dict[str, int]]] = [
    ("no_names.tsv", rows_of([(b, a) for a, b in PAIRS], sep="\t"), r"first row is like the others \('ship'\).*--header yes", BOTH),
    ("numbers_no_names.csv", rows_of([(n, *pair) for n, pair in enumerate(PAIRS)]),
     "like the others.*text is read from column '2'", BOTH),
    ("title.csv", "Tickets of May,\n,\n" + rows_of(PAIRS, "text", "label"), "left out: 'Tickets of May'", BOTH),
    ("comment.csv", "# exported by helpdesk\n" + rows_of(PAIRS, "text", "label"), "left out: '# exported", BOTH),
    ("commas.csv", '"Tickets, May",\n' + rows_of(PAIRS, "text", "label"), "left out: 'Tickets, May'", BOTH),
    ("title.xlsx", workbook([["Tickets of May", ""], ["text", "label"], *map(list, PAIRS)]), "left out: 'Tickets of May'", BOTH),
    ("again.csv", rows_of(PAIRS[:9], "text", "label") + rows_of(PAIRS[9:], "text", "label"), "columns are left out: 1", BOTH),
    ("merged.xlsx", book([["text", "label"], *MERGED], [f"B{row}:B{row + 2}" for row in range(2, 26, 3)]), "8 merged cells hold",
     BOTH),
    ("hidden.xlsx", book([["text", "label"], *map(list, PAIRS)], hidden=True), "S2 is read; hidden, and not read: S1 .--sheet",
     BOTH),
    ("dates.xlsx", workbook([["text", "ward"], *([t, "2024-01-02 00:00:00" if b == "bill" else "3-B"] for t, b in PAIRS)]),
     "labels look like dates .*format Text", {"2024-01-02 00:00:00": 12, "3-B": 12}),
    ("german.csv", rows_of(ODD, "Nr", "Status", "Beschreibung", "Kategorie", sep=";"),
     "from column 'Beschreibung', the label from 'Kategorie'.*late again in week 0' is 'ship'.*stand in Status; --label", BOTH),
    ("unknown.csv", rows_of([(b, c, d) for _, b, c, d in ODD], "Zustand", "Inhalt", "Bereich"),
     "label from 'Bereich'.*also stand in Zustand", BOTH),
    ("split.csv", rows_of([(t, b, ("train", "test")[n // 2 % 2]) for n, t, b in EACH], "utterance", "class_name", "split"),
     "label from 'class_name'.*Column 'split' names splits, but is not read", BOTH),
    ("score.csv", rows_of([(t, n // 2 % 5, b) for n, t, b in EACH], "text", "score", "department"), "from 'department'.*in score",
     BOTH),
    ("ids.csv", rows_of([(f"T{n}", t, b) for n, t, b in EACH], "text", "transcript", "label"), "from column 'transcript'", BOTH),
    ("swapped.csv", rows_of([(b, t) for t, b in PAIRS], "text", "label"), "texts and labels look exchanged; --text-column text",
     BOTH),
    ("one_hot.csv", rows_of(ONE_HOT, "id", "comment_text", "ship", "bill", "urgent"), r"label from 'ship\+bill\+urgent'", SEVERAL),
    ("marks.csv", rows_of([(t, "x" * s, "x" * b) for _, t, s, b, _ in ONE_HOT], "message", "ship", "bill"),
     r"label from 'ship\+bill'", BOTH),
    ("nan.csv", marked("nan"), "6 of 24 rows have no label .'nan' 6.*--unlabelled-as", REST),
    ("question.csv", marked("?"), "6 of 24 rows have no label", REST),
    ("blank.csv", marked(""), "6 of 24 rows have no label .blank 6", REST),
    ("minus.csv", marked("-1"), "6 of 24 rows have no label .'-1' 6", REST),
    ("minus_numbers.csv", cells(lambda n, one: n % 3 - 1 if n % 3 != 1 else 2), "'-1' 8", {"1": 8, "2": 8}),
    ("opinions.csv", cells(lambda n, one: n % 3 - 1), "'-1' is a label, of 8 rows", {"-1": 8, "0": 8, "1": 8}),
    ("none.csv", marked("none"), "'none' is a label, of 6 rows; if it stands for none, say so with --unlabelled-as none",
     REST | {"none": 6}),
    ("gaps.csv", cells(lambda n, one: ["", "1.0", "2.0"][n % 3]), "8 of 24 rows have no label", {"1": 8, "2": 8}),
    ("codes.csv", rows_of([(t, 100 + n % 25) for n, t in enumerate(TEXTS * 5)], "text", "label"),
     "taken as classes; --type regression", {}),
    ("comma.csv", cells(lambda n, one: f"{n / 7:.2f}".replace(".", ",")), "numbers with a decimal comma; --type classification",
     {}),
    ("index.json", json.dumps({str(n): {"text": t, "label": b} for n, t, b in EACH}), "text is read from column 'text'", BOTH),
    ("keys.json", json.dumps({f"k{n}": {"Inhalt": t, "Art": b} for n, t, b in EACH}), "text is read from column 'Inhalt'", BOTH),
    ("table.txt", rows_of(PAIRS, "text", "label"), r"is a table \(csv\), and is read as one; --format text", BOTH),
    ("lines.txt", lines_of([{"text": t, "label": b} for t, b in PAIRS]), r"is a table \(ndjson\)", BOTH),
    ("garbled.csv", rows_of([(f"cafÃ© {t}", b) for t, b in PAIRS], "text", "label"), "'cafÃ©' was 'café'", BOTH),
    ("brackets.csv", cells(lambda n, one: f"[{one}, urgent]" if n % 6 == 0 else f"[{one}]"), "type is multilabel", SEVERAL),
    ("fasttext.txt", "".join(f"__label__{b} {'__label__urgent ' * (n % 6 == 0)}{t}\n" for n, t, b in EACH), "multilabel", SEVERAL),
    ("rare.csv", cells(lambda n, one: f"{one}|urgent" if n % 6 == 0 else one), "are several labels; --type classification",
     SEVERAL),
    ("in_lines.csv", cells(lambda n, one: f"{one}\nurgent" if n % 6 == 0 else one), "are several labels", SEVERAL),
    ("conll2003.conll", WORDS, "words are read from column 1, the tags from column 4, as in: Anna B-PER, saw0 O",
     {"B-PER": 8, "O": 8}),
    ("two.conll", "".join(f"Anna\tB-PER\nsaw{number}\tO\n\n" for number in range(8)), "tags from column 2", {"B-PER": 8, "O": 8}),
]  # fmt: skip
"""file, what it holds, what is said of it, and how often each label is read"""


def counted(task: Task) -> dict[str, int]:
    """How often each label occurs in all splits; of numbers nothing."""
    labels = joined_splits(task.splits()).labels
    if not task.labels:
        return {}
    if labels.ndim == 2:
        return dict(zip(task.labels, labels.sum(axis=0).tolist(), strict=True))
    numbers = np.concatenate([*labels]) if labels.dtype == object else labels
    return dict(zip(task.labels, np.bincount(numbers, minlength=len(task.labels)).tolist(), strict=True))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was printed since the last call, on one line; nothing counts as said before."""

    def read() -> str:
        monkeypatch.setattr(console, "_SAID", set())
        return " ".join(capsys.readouterr().err.split())

    read()
    return read


@pytest.mark.parametrize(("name", "content", "sentence", "labels"), READ, ids=[row[0] for row in READ])
def test_a_table_is_read_alike_by_every_command(
    name: str, content: str | bytes, sentence: str, labels: dict[str, int], tmp_path: Path, said: Any
) -> None:
    """What is meant is learned, and what was taken is said, with the way to change it: in fit, and in audit, race and adapt."""
    place = tmp_path / name
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (load_task, lambda file: read_labelled(FitConfig(data=str(file)))):
        found = counted(read(place))
        assert re.search(sentence, told := said()), told
        assert (found if labels else labels) == labels


HALF = "".join(f"text number {number} café\n" for number in range(9)).encode() + "at the café\n".encode("cp1252")
REFUSED: list[tuple[str, bytes, str]] = [
    ("list.jsonl", lines_of([{"text": [t, "thanks"], "label": b} for t, b in PAIRS]).encode(),
     "must hold one text or number per row"),
    ("mixed.csv", b"text,label\n" + HALF,
     "line 11 .*9 other lines are.* write these again: 11. In cp1252 the first reads 'at the café'"),
    ("unmarked.csv", rows_of([(f"é {t}", b) for t, b in PAIRS], "text", "label").encode("utf-16-le"),
     "reads 'text,label.*--encoding utf-16-le"),
    ("big_endian.csv", rows_of([(f"é {t}", b) for t, b in PAIRS], "text", "label").encode("utf-16-be"), "--encoding utf-16-be"),
    ("page.html", b"<html><p>where is my parcel</p></html>", "pandoc --to plain FILE"),
    ("page.txt", b"<!DOCTYPE html>\n<p>where is my parcel</p>", "it is a page; .*pandoc"),
    ("mails.mbox", b"From a@b\n\nhello", "save each as .eml"),
    ("signs.csv", rows_of([(t, "?") for t in TEXTS] + [(t, "nan") for t in TEXTS], "text", "label").encode(),
     "must have labels in column 'label'"),
]  # fmt: skip


def test_what_is_no_table_of_texts_and_labels_says_what_to_do(tmp_path: Path, said: Any) -> None:
    """Exit code 2 and the way out, whichever command asks."""
    for name, content, message in REFUSED:
        (tmp_path / name).write_bytes(content)
        for command in ("audit", "fit"):
            assert main([command, str(tmp_path / name)]) == 2, name
            assert re.search(message, told := said()), told


def test_test_texts_without_known_labels_are_no_test(tmp_path: Path, said: Any) -> None:
    """Hidden labels of a contest, and names that no training text has: said, and not scored."""
    for number, hidden in enumerate(("-1", "?", "other")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "train.csv").write_text(rows_of(PAIRS, "text", "label"))
        (folder / "test.csv").write_text(rows_of([(f"{text} now", hidden) for text in TEXTS], "text", "label"))
        assert len(read_labelled(FitConfig(data=str(folder / "train.csv"))).test) == 0
        assert "Not used as the test split: " in said()


def test_a_folder_of_texts_without_labels_is_no_label(tmp_path: Path, said: Any) -> None:
    for name in ("ship", "bill", "Unlabeled"):
        (tmp_path / name).mkdir()
        for number in range(6):
            (tmp_path / name / f"{number}.txt").write_text(f"{name} {number}")
    task = read_labelled(FitConfig(data=str(tmp_path)))
    assert (task.labels, len(task.train), len(task.unlabelled)) == (("bill", "ship"), 12, 1)
    assert "Unlabeled are read as texts without a label" in said()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, few_baselines: None) -> Iterator[str]:
    """A fit by words alone."""
    place = tmp_path_factory.mktemp("doors")
    (place / "base.csv").write_text(rows_of(PAIRS, "text", "label"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.interop.encoders.installed", lambda one: None)
        assert main(["fit", str(place / "base.csv"), "--out", str(place / "run"), "--schemes"]) == 0
        yield str(place / "run")


def test_predictions_stand_beside_all_columns_in_every_format(model: str, tmp_path: Path) -> None:
    """Nothing of the table is lost, also where a text holds a carriage return; and it is never written over."""
    rows = [
        {"id": 7, "text": "my parcel\rhas not come", "label": "old"},
        {"id": 8, "text": "a fee\non my account", "label": "older"},
    ]
    (tmp_path / "mails.jsonl").write_text(lines_of(rows))
    before = (tmp_path / "mails.jsonl").read_bytes()
    readers = {"csv": pl.read_csv, "tsv": partial(pl.read_csv, separator="\t"), "jsonl": pl.read_ndjson, "xlsx": first_sheet}
    readers["parquet"] = pl.read_parquet
    for ending, reader in readers.items():
        out = tmp_path / f"out.{ending}"
        assert main(["predict", model, str(tmp_path / "mails.jsonl"), "--out", str(out)]) == 0
        found = reader(out)
        assert found.select("id", "text", "label").rows(named=True) == rows
        assert set(found["predicted_label"].to_list()) <= {"ship", "bill"}
    for name in ("mails.jsonl", "out.ods"):
        assert main(["predict", model, str(tmp_path / "mails.jsonl"), "--out", str(tmp_path / name)]) == 2
    assert ((tmp_path / "mails.jsonl").read_bytes(), (tmp_path / "out.ods").exists()) == (before, False)


def test_a_workbook_keeps_what_text_is_and_what_a_number_is(tmp_path: Path) -> None:
    """Formulas and leading zeros stay text, numbers are numbers, nothing is cut; what no sheet holds is refused."""
    rows = [
        {"a": "=1+1", "b": "007", "c": "1.5", "d": 0.25, "e": None},
        {"a": "http://x", "b": "12", "c": "-3", "d": True, "e": "\r"},
    ]
    (file := tmp_path / "a.xlsx").write_bytes(workbook_of(rows, file))
    found = fastexcel.read_excel(file).load_sheet(0, dtypes={"d": "string"}).to_polars()
    assert found.to_dict(as_series=False) == {
        "a": ["=1+1", "http://x"], "b": ["007", "12"], "c": [1.5, -3.0], "d": ["0.25", "true"], "e": [None, "\r"]
    }  # fmt: skip
    with pytest.raises(DataError, match=r"row 1 has a text of 40,000 characters, and a cell of a workbook holds 32,767"):
        workbook_of([{"a": "x" * 40_000}], file)


def test_a_workbook_without_room_is_refused_before_texts_are_labelled(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is too long for a cell costs no hour of predictions."""
    monkeypatch.setattr("warmstart.commands.predict._labels", None)
    (tmp_path / "long.txt").write_text("x" * 40_000)
    assert main(["predict", model, str(tmp_path / "long.txt"), "--out", str(tmp_path / "a.xlsx")]) == 2
    assert "a cell of a workbook holds 32,767; name a .csv" in capsys.readouterr().err


def test_each_text_gets_one_answer(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mail, a row of a table without a column called text, and of one that is called .txt; and none of what is no text."""
    (tmp_path / "mail.eml").write_text(
        "From: a@b.example\nSubject: parcel\n\nwhere is it\n\n> On Monday you wrote:\n> we refund it\n"
    )
    (tmp_path / "bodies.csv").write_text(rows_of([(n, text) for n, text in enumerate(TEXTS)], "id", "body"))
    (tmp_path / "table.txt").write_text(rows_of(PAIRS, "text", "label"))
    (tmp_path / "lines.txt").write_text("".join(f"{text}, please\n" for text in TEXTS))
    for name, count, first in (
        ("mail.eml", 1, "parcel\n\nwhere is it\n\n> On"), ("bodies.csv", 24, TEXTS[0]), ("table.txt", 24, TEXTS[0]),
        ("lines.txt", 24, f"{TEXTS[0]}, please"),
    ):  # fmt: skip
        assert main(["predict", model, str(tmp_path / name)]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (len(found), (found[0].get("text") or found[0]["body"]).startswith(first)) == (count, True), name
    pool = [str(tmp_path / name) for name in ("mail.eml", "bodies.csv", "table.txt")]
    assert [len(read_pool([path]).texts) for path in pool] == [1, 24, 24]
    assert len(ws.predict(ws.load(model), [])) == 0


@pytest.mark.parametrize("how", ["lines", "csv", "csv.gz", "jsonl", "xlsx"])
def test_standard_input_is_read_as_a_file_of_what_it_holds(
    how: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe of texts, of a table in any form, or of a packed one; beside other texts, and empty, it is refused."""
    table = rows_of([(n, text) for n, text in enumerate(TEXTS)], "id", "text")
    data = {
        "lines": "".join(f"{text}, please\n" for text in TEXTS).encode(),
        "csv": table.encode(), "csv.gz": gzip.compress(table.encode()),
        "jsonl": lines_of([{"id": n, "text": text} for n, text in enumerate(TEXTS)]).encode(),
        "xlsx": workbook([["id", "text"], *map(list, enumerate(TEXTS))]),
    }[how]  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["predict", model, "--file", "-"] if how == "csv" else ["predict", model, "-", "--out", "-"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"].removesuffix(", please") for row in found] == TEXTS
    assert ("id" in found[0]) == (how != "lines")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert [main(["predict", model, *words]) for words in (["-"], ["a text", "-"])] == [2, 2]


def test_spellings_of_a_label_are_one_label(tmp_path: Path, said: Any) -> None:
    """The most frequent one, said once; signs and zeros tell labels apart, and a manifest that names both keeps them."""
    names = ["sport"] * 6 + ["SPORT", "Sport ", "tech", "tech", "TECH.", "C", "C++", "7", "007"]
    place = tmp_path / "mails.csv"
    place.write_text(rows_of([(f"text number {number}", name) for number, name in enumerate(names)], "text", "label"))
    task = load_task(place, flags=LabelledTableFlags(type="classification"))
    assert task.labels == ("007", "7", "C", "C++", "sport", "tech")
    assert sum(split.labels.tolist().count(4) for split in task.splits().values()) == 8
    assert said().count("are read as one: 'SPORT' as 'sport', 'Sport' as 'sport', 'TECH.' as 'tech'.") == 1
    spec = {"name": "kept", "train": "mails.csv", "test": "mails.csv", "labels": sorted({name.strip() for name in names})}
    (tmp_path / "task.yaml").write_text(json.dumps(spec))
    assert len(load_task(tmp_path / "task.yaml").labels) == 9


def test_evaluate_reads_a_table_with_the_labels_of_the_model(model: str, tmp_path: Path, said: Any) -> None:
    """One label, and labels in another case, can be scored; numbers cannot, and what to write is said."""
    (tmp_path / "one.csv").write_text(rows_of([(f"{text} now", "Ship") for text in SHIP], "text", "label"))
    assert main(["evaluate", model, str(tmp_path / "one.csv")]) == 0
    assert "Labels of the train split are read as one: 'Ship' as 'ship'." in said()
    (tmp_path / "numbers.csv").write_text(
        rows_of([(f"{text} now", number % 2) for number, text in enumerate(SHIP)], "text", "label")
    )
    assert main(["evaluate", model, str(tmp_path / "numbers.csv")]) == 2
    assert "it knows bill, ship: write these in their place" in said()


def test_labels_with_commas_between_are_several(tmp_path: Path) -> None:
    (tmp_path / "pool.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "said.csv").write_text(rows_of([(b, t) for t, b in PAIRS], "Thema", "Nachricht"))
    words = ["label", str(tmp_path / "pool.txt"), "--labels", "ship,bill", "--import", str(tmp_path / "said.csv")]
    assert main([*words, "--out", str(tmp_path / "project"), "--export", str(tmp_path / "task")]) == 0
    assert load_task(tmp_path / "task").labels == ("ship", "bill")


def test_more_texts_may_have_another_column(tmp_path: Path, said: Any) -> None:
    """Those without labels are read from the column of the labelled ones where there is one, else from what looks like texts."""
    (tmp_path / "train.csv").write_text(rows_of(PAIRS, "body", "topic"))
    (tmp_path / "more.csv").write_text(rows_of([(n, f"{text} too") for n, text in enumerate(TEXTS)], "id", "message"))
    task = read_labelled(FitConfig(data=str(tmp_path / "train.csv"), unlabelled=(str(tmp_path / "more.csv"),)))
    assert [*read_documents(task.unlabelled[0])][:1] == [f"{TEXTS[0]} too"]
    assert "more.csv are read from column 'message'" in said()


def test_a_race_reads_the_columns_that_are_named(tmp_path: Path, said: Any) -> None:
    """Also where a trial reads the table again, in another process."""
    letters = np.random.default_rng(0).choice([*"abcdefgh"], (24, 5, 6))
    rows = [(n % 3, " ".join(map("".join, letters[n])), label, n // 4) for n, label in enumerate(LABELS)]
    (tmp_path / "t.csv").write_text(rows_of(rows, "kind", "body", "topic", "shift"))
    flags = ["--text-column", "body", "--label-column", "topic", "--group-column", "shift"]
    read = {"text_column": "body", "label_column": "topic", "group_column": "shift"}
    own = {"task": str(tmp_path / "t.csv"), "out": str(tmp_path / "race"), "schemes": (), "selection": "none"}
    sweep = open_sweep(RaceConfig.build(own | read))
    again = sweep.context.load_task()
    assert (again.labels, again.digest, len({*again.train.units})) == (("bill", "ship"), sweep.task.digest, 5)
    assert main(["adapt", "absent", str(tmp_path / "t.csv"), *flags, "--out", str(tmp_path / "adapt")]) == 2
    assert "the label from 'topic'" in said()


def test_a_table_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for it: the guess, the examples, their groups and the texts without a label; and the test texts beside it."""
    read = list[str]()
    parse = tables.read_table
    monkeypatch.setattr(tables, "read_table", lambda source, file, form: read.append(file.name) or parse(source, file, form))
    rows = [(text, "" if number == 3 else label, f"author {number % 6}") for number, text, label in EACH]
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text(rows_of(rows, "text", "label", "author"))
    task = load_task(tmp_path / "train.csv")
    assert (len(task.train), len(task.test), task.unlabelled_texts) == (23, 23, (TEXTS[3],))
    assert task.train.groups is not None
    assert sorted(read) == ["test.csv", "train.csv"]


SENTENCES = [
    "The cat sleeps.",
    "A dog barks, loudly.",
    "Cats sleep all day.",
    "Dogs bark at night.",
    "My cat purrs.",
    "The dog runs.",
]
ANIMALS = ["cat", "dog", "cat", "dog", "cat", "dog"]


def rows(**columns: list[Any]) -> pl.DataFrame:
    """A table of twelve rows."""
    return pl.DataFrame({name: values * 2 for name, values in columns.items()})


def test_the_type_is_guessed(tmp_path: Path) -> None:
    """Classes, numbers, several labels in a cell or a list, tags of words, and pairs of texts."""
    cases: list[tuple[dict[str, list[Any]], str, str | None]] = [
        ({"text": SENTENCES, "label": ["1", "0"] * 3}, "classification", None),
        ({"text": SENTENCES, "label": [0.5, 1.25, 3.0, 2.0, 1.0, 0.1]}, "regression", None),
        ({"review": SENTENCES, "topics": ["a;b", "b", "a", "c;a", "b;c", "c"]}, "multilabel", None),
        ({"text": SENTENCES, "labels": [["a"], ["a", "b"], [], ["b"], ["a"], ["b"]]}, "multilabel", None),
        ({"words": [[*text.split()[:2]] for text in SENTENCES], "tags": [["X", "Y"]] * 6}, "tagging", None),
        ({"premise": SENTENCES, "hypothesis": SENTENCES[::-1], "label": ANIMALS}, "classification", "hypothesis"),
    ]
    for columns, kind, second in cases:
        rows(**columns).write_ndjson(file := tmp_path / "train.ndjson")
        assert (load_task(file).type, read_spec(file)[1].train[0].second) == (kind, second)


def test_files_of_other_splits_are_found(tmp_path: Path) -> None:
    """Beside the training table, by their names; many texts without such files give validation a tenth."""
    for name in ("mails_train", "mails_test", "mails_dev"):
        rows(text=SENTENCES, label=ANIMALS).write_csv(tmp_path / f"{name}.csv")
    guess = guess_task(tmp_path / "mails_train.csv")
    assert guess.splits == {"test": tmp_path / "mails_test.csv", "validation": tmp_path / "mails_dev.csv"}
    pl.DataFrame({"text": SENTENCES * MANY_TEXTS, "label": ANIMALS * MANY_TEXTS}).write_csv(tmp_path / "many.csv")
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
