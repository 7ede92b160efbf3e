"""Situations from public bug reports of programs that read labelled text: what went wrong there must be read rightly here.

Each row names the report, a file as its users had it, and the texts and labels that it holds, or what must be said of it.
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from helpers.workbook import workbook
from warmstart.cli import main
from warmstart.tasks.load import load_task

Pairs = list[tuple[Any, Any]]


def csv_of(pairs: Pairs, end: str = "\n") -> bytes:
    """A table as programs write it: every field in quotes."""
    rows = [("text", "label"), *pairs]
    return "".join(",".join('"' + str(one).replace('"', '""') + '"' for one in row) + end for row in rows).encode()


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    """JSON lines, with every character as it is."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parquet(metadata: dict[str, str] | None = None, **columns: Any) -> bytes:
    """A parquet file."""
    pl.DataFrame(columns).write_parquet(data := BytesIO(), metadata=metadata)
    return data.getvalue()


NURSE = [("She helped me.", "nurse"), ("He cut the tree.", "not nurse"), ("She is kind.", "nurse"), ("A car.", "not nurse")]
ZEROS = [("a dog", "0012"), ("a cat", "012"), ("two dogs", "0012"), ("two cats", "012")]
MISSING = [("he left", "NA"), ("n/a", "EU"), ("NULL", "EU"), ("she came", "NA")]
BREAKS = [("one\u2028two", "a"), ("three\x85four", "b"), ("five\x0csix", "a"), ("seven\u2029eight", "b")]
LINES = [("first\nsecond", "a"), ('say "no", or not', "b"), ("third\n\nfourth", "a"), ("comma, here", "b")]
PLAIN = [("a dog", "x"), ("a cat", "y"), ("two dogs", "x"), ("two cats", "y")]
NUMBERS = [("a dog", "20099"), ("a cat", "7"), ("two dogs", "20099"), ("two cats", "7")]
EMOJI = [("👩‍👩‍👧 ok", "👍🏽"), ("no", "👍🏽"), *PLAIN]
LONG = ("x" * 200_000, "a")
TAGGED = [(("EU", "rejects"), ("3", "0")), (("Peter", "don't"), ("1", "2")), (("a,b", "c"), ("0", "0")), (("x", "y"), ("3", "0"))]

READ: list[tuple[str, str, bytes, Pairs]] = [
    ("huggingface/datasets#1989: a label of two words", "a.csv", csv_of(NURSE), NURSE),
    ("speechbrain/speechbrain#3043: zeros before a number", "a.csv", csv_of(ZEROS), ZEROS),
    ("pandas-dev/pandas#12186: the same in a spreadsheet", "a.xlsx", workbook([["text", "label"], *map(list, ZEROS)]), ZEROS),
    ("pandas-dev/pandas#10647, #24681, #50458: NA is a name", "a.csv", csv_of(MISSING), MISSING),
    ("the same, unquoted", "a.tsv", "".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *MISSING]).encode(), MISSING),
    ("wbolster/jsonlines#53, datalad/datalad#3523: signs that end lines elsewhere", "a.jsonl",
     lines_of([{"text": text, "label": label} for text, label in BREAKS]), BREAKS),
    ("huggingface/tau#354: the same in csv", "a.csv", csv_of(BREAKS), BREAKS),
    ("doccano/doccano#330, #1290: line ends within a text", "a.json",
     json.dumps([{"text": text, "label": label} for text, label in LINES]).encode(), LINES),
    ("HumanSignal/label-studio#4033: commas and quotes in csv", "a.csv", csv_of(LINES), LINES),
    ("datarobot/batch-scoring#125: a double carriage return", "a.csv", csv_of(PLAIN, "\r\r\n"), PLAIN),
    ("the same, unquoted", "a.csv", "".join(f"{a},{b}\r\r\n" for a, b in [("text", "label"), *PLAIN]).encode(), PLAIN),
    ("minimaxir/textgenrnn#106, beakerx#7951: empty rows", "a.csv", csv_of(PLAIN, "\r\n\r\n"), PLAIN),
    ("pola-rs/polars#13462: numbers and names in one column", "a.xlsx",
     workbook([["text", "label"], ["a dog", 1], ["a cat", "two"], ["two dogs", 1], ["two cats", "two"]]),
     [("a dog", "1"), ("a cat", "two"), ("two dogs", "1"), ("two cats", "two")]),
    ("the same in JSON lines", "a.jsonl", lines_of([{"text": f"t{n}", "label": [1, "two"][n % 2]} for n in range(4)]),
     [("t0", "1"), ("t1", "two"), ("t2", "1"), ("t3", "two")]),
    ("pandas-dev/pandas#20828: numbers beside gaps", "a.parquet",
     parquet(text=[one for one, _ in NUMBERS], label=[20099.0, 7.0, 20099.0, 7.0]), NUMBERS),
    ("numbers of labels whose names datasets keeps in the file", "a.parquet", parquet(
        {"huggingface": json.dumps({"info": {"features": {"label": {"names": ["x", "y"], "_type": "ClassLabel"}}}})},
        text=[one for one, _ in PLAIN], label=[0, 1, 0, 1]), PLAIN),
    ("a column of categories", "a.parquet",
     parquet(text=[one for one, _ in PLAIN], label=pl.Series(["x", "y"] * 2, dtype=pl.Categorical)), PLAIN),
    ("huggingface/datasets#4673: lists as csv prints them", "a.tsv",
     b"words\ttags\n['EU' 'rejects']\t[3 0]\n['Peter' \"don't\"]\t[1 2]\n['a,b', 'c']\t[0, 0]\n[\"x\", \"y\"]\t[3 0]\n",
     TAGGED),
    ("an index that pandas wrote", "a.csv", b",text,label\n0,a dog,x\n1,a cat,y\n2,two dogs,x\n3,two cats,y\n", PLAIN),
    ("python/cpython#81680: a field of 200,000 characters", "a.csv", csv_of([LONG, *PLAIN]), [LONG, *PLAIN]),
    ("a NUL within a text", "a.csv", csv_of([("a\0b", "x"), *PLAIN]), [("a\0b", "x"), *PLAIN]),
    ("a byte order mark in the middle: two files joined", "a.csv", b"\xef\xbb\xbf" + csv_of(PLAIN), PLAIN),
    ("an emoji of several characters", "a.csv", csv_of(EMOJI), EMOJI),
]  # fmt: skip

REFUSED: list[tuple[str, str, bytes, str]] = [
    ("HumanSignal/label-studio-converter#185: quotes and line ends as they are", "a.csv",
     b'id,label,text\n1,x,<table id="a" class="b">\n </table>\n2,y,no\n', r"line 3 has 1: ' </table>'"),
    ("senderle/topic-modeling-tool#43: rows of other lengths", "a.csv", b"text,label\na,x\nb,y,z\n", "line 3 has 3"),
    ("KhiopsML/khiops#615: a quote that never ends", "a.csv", b'text,label\n"a dog,x\na cat,y\n', "line"),
    ("ultralytics/yolov5#8: the text column lies under another", "a.jsonl",
     lines_of([{"data": {"text": f"t{n}"}, "label": "ab"[n % 2]} for n in range(4)]), "no column of .* holds texts"),
]  # fmt: skip


def test_what_others_read_wrongly_is_read(tmp_path: Path) -> None:
    """Every text and label, as the file has them, through ``init`` and the task that it writes."""
    wrong: dict[str, Any] = {}
    for number, (report, name, data, expected) in enumerate(READ):
        place = tmp_path / str(number)
        place.mkdir()
        (place / name).write_bytes(data)
        if main(["init", str(place / name), "--out", str(place / "task.yaml"), "--test", "1"]):
            wrong[report] = "refused"
            continue
        task = load_task(place)
        found = [
            (text, task.labels[label] if task.single_label else tuple(task.labels[tag] for tag in label))
            for split in task.splits().values()
            for text, label in zip(split.texts, split.labels, strict=True)
        ]
        if sorted(found) != sorted(expected):
            wrong[report] = found
    assert wrong == {}


def test_what_cannot_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the line, and exit code 2."""
    for report, name, data, message in REFUSED:
        (tmp_path / name).write_bytes(data)
        assert main(["audit", str(tmp_path / name)]) == 2, report
        assert re.search(message, " ".join(capsys.readouterr().err.split())), report
