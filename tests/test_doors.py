"""Files, labels and calls as people have them: the smallest inputs of real reports, with what each must give.

Every row was read wrongly, or refused without a way out, by some version of this or a like program.
"""

from __future__ import annotations

import bz2
import gzip
import json
import sys
import zipfile
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

from helpers.bundles import classifier
from helpers.models import make_language_model
from helpers.refusals import refused
from helpers.settings import in_file
from helpers.tasks import read_examples
from helpers.workbook import workbook
from warmstart.baselines import BASELINES
from warmstart.cli import main
from warmstart.commands.settings import AuditConfig
from warmstart.config import read_yaml
from warmstart.corpora.store import SHARD_INDEX, read_index
from warmstart.data import files
from warmstart.data.label_cells import names_in
from warmstart.data.read import given_file, read_documents
from warmstart.data.scorings import read_ledger
from warmstart.data.source import LabelledTableFlags, Source
from warmstart.data.splits import grouped_split
from warmstart.data.units import independent_units
from warmstart.errors import ConfigError, DataError
from warmstart.estimators import TextClassifier
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.report.drawings import class_scores_chart, confusions
from warmstart.report.parts import Figure, Table
from warmstart.runs.made_of import input_hashes
from warmstart.system import console
from warmstart.tasks.load import load_task, read_sources
from warmstart.tasks.predict import predict
from warmstart.tokenizer.tokenizer import Tokenizer

TWO = [("hello, you", "a"), ("x", "b")]
INCH = [('5" pipe', "a"), ('6" tube', "b")]
LINES = [("my box is late\nplease help", "ship"), ("x", "y")]
TABLES: list[tuple[str, bytes, list[tuple[str, str]]]] = [
    ("excel_de.csv", b"text;label\nhello, you;a\nx;b\n", TWO),
    ("pipe.csv", b"text|label\nhello, you|a\nx|b\n", TWO),
    ("tabs.csv", b"text\tlabel\nhello, you\ta\nx\tb\n", TWO),
    ("sep.csv", b"sep=;\r\ntext;label\r\nhello, you;a\r\nx;b\r\n", TWO),
    ("inch.csv", b'text,label\n5" pipe,a\n6" tube,b\n', INCH),
    ("inch_written.csv", b'text,label\n"5"" pipe",a\n"6"" tube",b\n', INCH),
    ("blank_end.csv", b'text,label\n"hello, you",a\nx,b\n\n \n,\n', TWO),
    ("crlf_end.csv", b'text,label\r\n"hello, you",a\r\nx,b\r\n\r\n\r\n', TWO),
    ("ctrl_z.csv", b'text,label\n"hello, you",a\nx,b\n\x1a', TWO),
    ("old_mac.csv", b'text,label\r"hello, you",a\rx,b\r', TWO),
    ("spaces.csv", b'text, label\n"hello, you",a\nx,b\n', TWO),
    ("line_in_quotes.csv", b'text,label\n"my box is late\nplease help",ship\nx,y\n', LINES),
    ("pandas.tsv", b'label\ttext\nship\t"my box is late\nplease help"\ny\tx\n', LINES),
    ("excel.tsv", b'label\ttext\na\t"hello, you"\nb\tx\n', TWO),
    ("all_quoted.tsv", b'"label"\t"text"\n"a"\t"hello, you"\n"b"\t"x"\n', TWO),
    (
        "own_quotes.tsv",
        b'label\ttext\na\t"The best film."\nb\t"bad" they said\n',
        [('"The best film."', "a"), ('"bad" they said', "b")],
    ),
    ("unpaired.tsv", b'label\ttext\na\t5" pipe\nb\t6" tube\n', INCH),
    ("utf16.csv", 'text,label\n"hello, you",a\nx,b\n'.encode("utf-16"), TWO),
    ("utf16.tsv", "text\tlabel\nhello, you\ta\nx\tb\n".encode("utf-16"), TWO),
    ("bom.csv", b'\xef\xbb\xbftext,label\n"hello, you",a\nx,b\n', TWO),
    ("list.json", json.dumps([{"text": text, "label": label} for text, label in TWO]).encode(), TWO),
    ("split.json", json.dumps({"columns": ["text", "label"], "index": [0, 1], "data": TWO}).encode(), TWO),
    ("columns.json", json.dumps({"text": {"0": "hello, you", "1": "x"}, "label": {"0": "a", "1": "b"}}).encode(), TWO),
    ("wrapped.json", json.dumps({"version": 1, "data": [{"text": text, "label": label} for text, label in TWO]}).encode(), TWO),
    ("lines.json", b'{"text": "hello, you", "label": "a"}\n{"text": "x", "label": "b"}\n', TWO),
    ("a.csv.GZ", gzip.compress(b'text,label\n"hello, you",a\nx,b\n'), TWO),
    ("a.csv.bz2", bz2.compress(b'text,label\n"hello, you",a\nx,b\n'), TWO),
]


def zipped(**files: str) -> bytes:
    """A zip archive."""
    with zipfile.ZipFile(data := BytesIO(), "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return data.getvalue()


def test_tables_as_programs_write_them(tmp_path: Path) -> None:
    """Delimiters, quotes, blank lines, encodings, JSON and compression are found; texts and labels are those that were written."""
    rows = [["text", "label"], *map(list, TWO)]
    zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    packed = [("a.csv.zst", zstd.compress(b'text,label\n"hello, you",a\nx,b\n'), TWO)]
    binary = [
        *packed,
        ("book.xlsx", workbook(rows, []), TWO),
        ("a.zip", zipped(**{"a.csv": 'text,label\n"hello, you",a\nx,b\n'}), TWO),
    ]
    wrong = {}
    for name, data, expected in [*TABLES, *binary]:
        (tmp_path / name).write_bytes(data)
        found = [*zip(*read_examples(Source(path=str(tmp_path / name))), strict=True)]
        wrong |= {name: found} if found != expected else {}
    assert wrong == {}


Pairs = list[tuple[Any, Any]]


def csv_of(pairs: Pairs, end: str = "\n") -> bytes:
    """A table as programs write it: every field in quotes."""
    rows = [("text", "label"), *pairs]
    return "".join(",".join('"' + str(one).replace('"', '""') + '"' for one in row) + end for row in rows).encode()


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    """JSON lines, with every character as it is."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parquet(**columns: Any) -> bytes:
    """A parquet file."""
    pl.DataFrame(columns).write_parquet(data := BytesIO())
    return data.getvalue()


NURSE = [("She helped me.", "nurse"), ("He cut the tree.", "not nurse"), ("She is kind.", "nurse"), ("A car.", "not nurse")]
ZEROS = [("a dog", "0012"), ("a cat", "012"), ("two dogs", "0012"), ("two cats", "012")]
MISSING = [("he left", "NA"), ("n/a", "EU"), ("NULL", "EU"), ("she came", "NA")]
BREAKS = [("one\u2028two", "a"), ("three\x85four", "b"), ("five\x0csix", "a"), ("seven\u2029eight", "b")]
BREAKS_WITHIN = [("first\nsecond", "a"), ('say "no", or not', "b"), ("third\n\nfourth", "a"), ("comma, here", "b")]
PLAIN = [("a dog", "x"), ("a cat", "y"), ("two dogs", "x"), ("two cats", "y")]
NUMBERS = [("a dog", "20099"), ("a cat", "7"), ("two dogs", "20099"), ("two cats", "7")]
EMOJI = [("👩‍👩‍👧 ok", "👍🏽"), ("no", "👍🏽"), *PLAIN]
LONG = ("x" * 200_000, "a")
TAGGED = [(("EU", "rejects"), ("3", "0")), (("Peter", "don't"), ("1", "2")), (("a,b", "c"), ("0", "0")), (("x", "y"), ("3", "0"))]

REPORTED: list[tuple[str, str, bytes, Pairs]] = [
    ("huggingface/datasets#1989: a label of two words", "a.csv", csv_of(NURSE), NURSE),
    ("speechbrain/speechbrain#3043: zeros before a number", "a.csv", csv_of(ZEROS), ZEROS),
    ("pandas-dev/pandas#12186: the same in a spreadsheet", "a.xlsx", workbook([["text", "label"], *map(list, ZEROS)]), ZEROS),
    ("pandas-dev/pandas#10647, #24681, #50458: NA is a name", "a.csv", csv_of(MISSING), MISSING),
    ("the same, unquoted", "a.tsv", "".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *MISSING]).encode(), MISSING),
    ("wbolster/jsonlines#53, datalad/datalad#3523: signs that end lines elsewhere", "a.jsonl",
     lines_of([{"text": text, "label": label} for text, label in BREAKS]), BREAKS),
    ("huggingface/tau#354: the same in csv", "a.csv", csv_of(BREAKS), BREAKS),
    ("doccano/doccano#330, #1290: line ends within a text", "a.json",
     json.dumps([{"text": text, "label": label} for text, label in BREAKS_WITHIN]).encode(), BREAKS_WITHIN),
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
    ("a column of categories", "a.parquet",
     parquet(text=[one for one, _ in PLAIN], label=pl.Series(["x", "y"] * 2, dtype=pl.Categorical)), PLAIN),
    ("huggingface/datasets#4673: lists as csv prints them", "a.tsv",
     b"words\ttags\n['EU' 'rejects']\t[3 0]\n['Peter' \"don't\"]\t[1 2]\n['a,b', 'c']\t[0, 0]\n[\"x\", \"y\"]\t[3 0]\n",
     TAGGED),
    ("an index that pandas wrote", "a.csv", b",text,label\n0,a dog,x\n1,a cat,y\n2,two dogs,x\n3,two cats,y\n", PLAIN),
    ("python/cpython#81680: a field of 200,000 characters", "a.csv", csv_of([LONG, *PLAIN]), [LONG, *PLAIN]),
    ("a NUL within a text", "a.csv", csv_of([("a\0b", "x"), *PLAIN]), [("a\0b", "x"), *PLAIN]),
    ("an emoji of several characters", "a.csv", csv_of(EMOJI), EMOJI),
]  # fmt: skip
"""a public bug report of a program that reads labelled text, a file as its users had it, and the texts and labels in it"""


def test_what_others_read_wrongly_is_read(tmp_path: Path) -> None:
    """Every text and label of a table that is a task, as its file has them; a text that lies under another name is none."""
    wrong: dict[str, Any] = {}
    for number, (report, name, data, expected) in enumerate(REPORTED):
        place = tmp_path / str(number)
        place.mkdir()
        (place / name).write_bytes(data)
        task = load_task(place / name)
        found = [
            (text, task.labels[label] if task.single_label else tuple(task.labels[tag] for tag in label))
            for split in task.splits().values()
            for text, label in zip(split.texts, split.labels, strict=True)
        ]
        if sorted(found) != sorted(expected):
            wrong[report] = found
    assert wrong == {}
    (tmp_path / "a.jsonl").write_bytes(lines_of([{"data": {"text": f"t{n}"}, "label": "ab"[n % 2]} for n in range(4)]))
    refused(DataError, "no column of .* holds texts", load_task, tmp_path / "a.jsonl")


REFUSED = [
    ("ragged.csv", b"text,label\nhello,a\nx,b,c\n", r"ragged\.csv must have 2 fields with ',' between, .* line 3 has 3: 'x,b,c'"),
    ("short.csv", b"text,label\n\nhello\n", r"line 3 has 1: 'hello'; fill in what is missing"),
    ("table.csv", b'id,label,text\n1,x,<table id="a" class="b">\n </table>\n2,y,no\n', r"line 3 has 1: ' </table>'"),
    ("open.csv", b'text,label\n"a dog,x\na cat,y\n', "line"),
    ("cp1252.csv", "text,label\nGröße und Maß des schönen Hauses für Käufer,a\n".encode("cp1252"),
     r"must be text in utf-8, but is not at line 2 .*reads 'Größe und Maß.*say so with 'encoding: \S+', or --encoding"),
    ("a.7z", b"7z", "it is packed; unpack it first"),
    ("a.csv.zst", b"(\xb5/\xfd", "damaged or incomplete"), ("a.xls", b"\xd0\xcf\x11\xe0", "a spreadsheet; save it"),
    ("no.json", b'{"a": 1}', "must hold a list of objects"), ("bad.json", b"[{", "must be JSON, but is not"),
    ("two.zip", zipped(**{"a.csv": "text\n", "b.csv": "text\n"}), "must hold one file, but holds 2; unpack it"),
    ("two.xlsx", workbook([["text"], ["a"]], [["text"], ["b"]]), "has S1, S2; name one with --sheet"),
    ("no.xlsx", b"PK", "cannot be read as xlsx"),
]  # fmt: skip


def test_what_cannot_be_read_says_where_and_what_to_do(tmp_path: Path) -> None:
    """With the file, the line and the way out; and the way out works."""
    for name, data, message in REFUSED:
        (tmp_path / name).write_bytes(data)
        for read in (read_examples, lambda source: list(read_documents(source))):
            with pytest.raises(DataError, match=message):
                read(Source(path=str(tmp_path / name)))
    texts, _ = read_examples(Source(path=str(tmp_path / "cp1252.csv"), encoding="cp1252"))
    assert texts == ["Größe und Maß des schönen Hauses für Käufer"]
    assert list(read_documents(Source(path=str(tmp_path / "two.xlsx"), sheet="S2"))) == ["b"]


def test_a_mistyped_file_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("held.csv").write_text("x")
    assert given_file(["held.csv"]) == "held.csv"
    assert {given_file([text]) for text in ("and/or", "3.5", "hald.csv ", "Read hald.csv", "https://a.b/c d")} == {None}
    refused(DataError, r"hald\.csv reads like a file, but there is none; did you mean 'held\.csv'\?", given_file, ["hald.csv"])
    refused(DataError, r"held\.csv must be given alone", given_file, ["held.csv", "hello"])


def test_packed_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a .zip or .xlsx file holds is bounded by its own size, as in other compressed files."""
    monkeypatch.setattr(files, "FREE_BYTES", 10)
    monkeypatch.setenv("WARMSTART_MAX_EXPANSION", "0")
    for name, data in (("a.zip", zipped(**{"a.csv": "text\n" + "a\n" * 50})), ("a.xlsx", workbook([["text"], ["a"]]))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match="must hold at most 10 bytes when decompressed, but holds more"):
            list(read_documents(Source(path=str(tmp_path / name))))


def test_several_labels_in_every_spelling(tmp_path: Path) -> None:
    """Lists of JSON, Python and numpy, values by label, other programs' cells; a separator that never occurs is asked for."""
    both, one = ("a", "b"), ("a",)
    spellings: list[tuple[Any, tuple[str, ...]]] = [
        ("a|b", both), ("a| b |", both), ("['a', 'b']", both), ('["a", "b"]', both), ("('a', 'b')", both), ("{'b', 'a'}", both),
        ("['a' 'b']", both), ("['a'\n 'b']", both), ('{"choices": ["a", "b"]}', both), ('{"choices": "a"}', one),
        (["a", "b"], both),
        ({"a": 1.0, "b": 0.0}, one), ("{'a': 1, 'b': 0}", one), ({"a": True, "b": False}, one), (["a", None], one), ("a", one),
        ("[]", ()), ("", ()), (None, ()), ("nan", ()), (float("nan"), ()), (3, ("3",)), (3.0, ("3",)),
        ("[urgent] b", ("[urgent] b",)),
    ]  # fmt: skip
    assert [(value, names_in(value, "|")) for value, expected in spellings if names_in(value, "|") != expected] == []
    (tmp_path / "t.csv").write_text('text,label\nt1,"a,b"\nt2,a\nt3,"b,c"\nt4,"a,c"\nt5,"b"\n')
    manifest = tmp_path / "task.yaml"
    manifest.write_text("name: t\ntype: multilabel\ntrain: t.csv\nvalidation: 1\ntest: 1\n")
    with pytest.raises(DataError, match=r"'a,b' looks like several; write 'separator: \",\"'"):
        load_task(manifest)


def test_names_in_yaml_stay_as_they_are_written(tmp_path: Path) -> None:
    """Numbers with zeros, times, dates, yes and no are text; settings that are numbers still are."""
    (tmp_path / "a.yaml").write_text(
        "a: [007, 1_000, 12:30, yes, no, 2026-11-25, off]\nlimit: 20\nrate: 1e-3\nlabel: 1.50\nnone: ~\n"
    )
    found = read_yaml(tmp_path / "a.yaml")
    assert found["a"] == ["007", "1_000", "12:30", "yes", "no", "2026-11-25", "off"]
    assert (found["limit"], found["rate"], found["none"]) == (20, 0.001, None)
    assert Source.build({"path": "a", "as_label": found["label"], "limit": found["limit"]}).as_label == "1.50"


def test_blank_texts_and_missing_groups_are_not_copies(tmp_path: Path) -> None:
    """Neither moves as one block; and no block is most of what is held out, unless there is nothing else."""
    assert len(set(independent_units(["", " ", "a", "A!", ""], None).tolist())) == 4
    (tmp_path / "g.csv").write_text("text,label,user\na,x,u1\nb,y,\nc,x,\nd,y,u1\n")
    groups = read_sources([Source(path="g.csv", group="user")], tmp_path).groups
    assert groups is not None
    assert len(set(groups.tolist())) == 3
    blocks = np.array([0] * 40 + [*range(1, 261)])
    for seed in range(20):
        _, held = grouped_split(np.zeros(300, dtype=np.int64), blocks, 0.2, seed)
        assert 0 not in blocks[held]


ODD = "été à Paris {};cat\nle chien dort {};dog\n"
"""as Excel saves a table in western Europe, without names of columns"""


def test_the_next_file_is_read_as_the_training_texts_were(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model remembers columns, delimiter, header and encoding; a flag or a file in UTF-8 says more. Each row keeps its number."""
    train = "".join(ODD.format(number, number) for number in range(12))
    (tmp_path / "train.csv").write_bytes(train.encode("cp1252"))
    manifest = "name: odd\nsource: {encoding: cp1252, header: false, text: 1, label: 2}\ntrain: train.csv\ntest: 6\n"
    (tmp_path / "task.yaml").write_text(manifest)
    save(Bundle(make_language_model(vocab_size=tokenizer.vocab_size), tokenizer), tmp_path / "lm")
    quick = ["--steps", "2", "--seeds", "1", "--no-scratch", "--no-baselines", "--out", str(tmp_path / "run")]
    assert main(["adapt", str(tmp_path / "lm"), str(tmp_path / "task.yaml"), *quick]) == 0
    texts = ["été à Paris 99", "le chien dort 99"]

    def predicted(name: str, data: bytes, *flags: str) -> list[tuple[int, str, bool]]:
        (tmp_path / name).write_bytes(data)
        assert main(["predict", str(tmp_path / "run"), "--file", str(tmp_path / name), *flags]) == 0, name
        rows = map(json.loads, capsys.readouterr().out.splitlines())
        return [(row["row"], row["text"], row["label"] is not None) for row in rows]

    expected = [(1, texts[0], True), (2, texts[1], True)]
    assert predicted("next.csv", ODD.format(99, 99).encode("cp1252")) == expected
    assert predicted("utf8.csv", ODD.format(99, 99).encode()) == expected
    assert predicted("tab.csv", "x\té\n".encode("cp1252"), "--text-column", "2", *in_file(delimiter="tab")) == [(1, "é", True)]
    assert predicted("lines.txt", f"{texts[0]}\n \n\n{texts[1]}\n\n".encode()) == [
        (1, texts[0], True), (2, " ", False), (3, "", False), (4, texts[1], True),
    ]  # fmt: skip
    (tmp_path / "named.csv").write_text("text,label\na,b\n")
    assert main(["predict", str(tmp_path / "run"), "--file", str(tmp_path / "named.csv"), "--text-column", "txt"]) == 2
    assert "no column 'txt'" in capsys.readouterr().err


def test_a_table_is_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its columns are guessed and printed, flags overrule the guess; so are folders of texts; a manifest takes no such flags."""
    rows = "".join(f"{number};{label};text {number} of {label}\n" for number in range(20) for label in ("cat", "dog"))
    (tmp_path / "mails.csv").write_bytes(f"\ufeffnumber;art;Straße\n{rows}".encode("utf-16"))
    task = load_task(tmp_path / "mails.csv")
    assert (task.labels, len(task.train), len(task.test), task.reading) == (("cat", "dog"), 32, 8, {"text": "Straße"})
    assert "text is read from column 'Straße', the label from 'art'" in capsys.readouterr().err
    assert main(["audit", str(tmp_path / "mails.csv"), "--text-column", "art", "--label-column", "number"]) == 0
    assert "from column 'art', the label from 'number'" in capsys.readouterr().err
    (tmp_path / "lines.txt").write_text("".join(f"__label__{'ab'[n % 2]} text {n}\n" for n in range(20)))
    (tmp_path / "words.conllu").write_text(
        "".join(f"1\tw{n}\t_\t{('NOUN', 'VERB')[n % 2]}\t_\t_\t_\t_\t_\t_\n\n" for n in range(20))
    )
    assert [load_task(tmp_path / name).type for name in ("lines.txt", "words.conllu")] == ["classification", "tagging"]
    (tmp_path / "task.yaml").write_text("name: a\ntrain: mails.csv\ntest: 2\n")
    assert main(["audit", str(tmp_path), "--label-column", "art"]) == 2
    assert "is a manifest" in capsys.readouterr().err


def test_the_folder_that_one_is_in_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its own name, with a folder of texts for each label, in whatever case their endings are."""
    for label, ending in (("cat", ".txt"), ("dog", ".TXT")):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for number in range(6):
            (tmp_path / "pets" / label / f"{number}{ending}").write_text(f"text {number} of a {label}")
    for place, words in (("pets", "."), ("pets/cat", "..")):
        monkeypatch.chdir(tmp_path / place)
        task = load_task(words)
        assert (task.name, task.labels, read_ledger(task).unwritable) == ("pets", ("cat", "dog"), None)
    monkeypatch.chdir(tmp_path / "pets")
    (tmp_path / "pets" / "cat" / "0.txt").write_bytes("le cœur d'été".encode("cp1252"))
    task = load_task(".", flags=LabelledTableFlags(encoding="cp1252"))
    assert "le cœur d'été" in (*task.train.texts, *task.test.texts)
    refused(ConfigError, "a task is a manifest", load_task, "nowhere.csv")
    before = input_hashes(AuditConfig(task="."))
    assert before
    (tmp_path / "pets" / "dog" / "6.txt").write_text("another text of a dog")
    assert input_hashes(AuditConfig(task=".")) != before


def test_text_is_tokenized_as_the_flags_say(tmp_path: Path) -> None:
    """The column, delimiter and encoding of a table."""
    text = "".join(f"{number};Die Größe von Haus {number} ist nicht gleich.\n" for number in range(50))
    (tmp_path / "old.csv").write_bytes(f"id;Satz\n{text}".encode("cp1252"))
    flags = ["--text-column", "Satz", "--encoding", "cp1252", "--tokenizer.vocab-size", "300", "--held-out", "none"]
    assert main(["tokenize", str(tmp_path / "old.csv"), *flags, "--out", str(tmp_path / "shards")]) == 0
    assert read_index((tmp_path / "shards" / SHARD_INDEX).read_bytes(), "").counts(held_out=False).documents == 50


def test_predict_takes_a_column(tokenizer: Tokenizer) -> None:
    """Of pandas or polars, an array, an iterator; what is missing is named, and a whole table refused."""
    import pandas as pd

    texts = ["I rub the cat", "You hold a dog"]
    predictor = partial(predict, Bundle(classifier(tokenizer), tokenizer, ("a", "b")))
    expected = list(predictor(texts))
    for inputs in (pd.Series(texts), pl.Series(texts), np.array(texts), iter(texts), tuple(texts)):
        assert list(predictor(inputs)) == expected, type(inputs)
    for wrong, message in [
        ([None], "input 0 must be a text, but is None"), (pd.Series(["a", None]), "input 1 must be a text"), ([b"a"], "is b'a'"),
        (pd.DataFrame({"text": texts}), "give its column of texts"), ({"text": "a"}, "but are a dict"),
    ]:  # fmt: skip
        with pytest.raises(DataError, match=message):
            predictor(wrong)


def test_a_loaded_estimator_begins_nowhere_that_has_seen_its_labels(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """It has the settings of its training; a clone, as cross-validation makes, asks for a backbone instead of using its weights."""
    backbone = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, max_length=16), tokenizer)
    texts, labels = ["I rub the cat", "You hold a dog"] * 4, ["a", "b"] * 4
    made = TextClassifier(backbone, scheme="probe", epochs=1, batch=4, selection="none").fit(texts, labels)
    found = TextClassifier.load(made.save(tmp_path / "model"))
    assert (found.backbone, found.scheme, found.epochs, found.batch) == ("", "probe", 1, 4)
    assert (found.predict(texts) == made.predict(texts)).all()
    with pytest.raises(ConfigError, match="must be trained from a backbone, but has none"):
        clone(found).fit(texts, labels)
    clone(found).set_params(backbone=backbone).fit(texts, labels)


def test_what_commands_a_terminal_is_shown_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, marks of direction and the terminal's markup in labels and texts of strangers, in sentences and tables."""
    hostile = "a\x1b]0;title\x07\x9b2J\u202eb[/x]"
    console.make_console().print(f"label {hostile}\n")
    console.print_table(hostile, [(hostile, 1)], ("label", "count"))
    printed = capsys.readouterr().err
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
    assert printed.count("a\ufffd]0;title\ufffd\ufffd2J\ufffdb[/x]") == 3


def test_a_report_of_many_classes_stays_small() -> None:
    """The most frequent confusions are a table, with the labels and the number of texts; a chart shows a hundred classes."""
    labels = [f"intent {number}" for number in range(1000)]
    matrix = np.eye(1000, dtype=np.int64) * 3
    matrix[7, 9], matrix[3, 4] = 5, 2
    found = confusions(matrix, labels)
    assert isinstance(found, Table)
    assert [*found.rows] == [("intent 7", "intent 9", "5", "8"), ("intent 3", "intent 4", "2", "5")]
    assert len(class_scores_chart([("full", label, 0.5) for label in labels]).to_json()) < 100_000
    assert isinstance(confusions(matrix[:3, :3], labels[:3]), Figure)


@pytest.mark.journeys
def test_a_thousand_classes(
    tmp_path: Path,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of three texts each: audit, adapt, race, export and predict end, what they print is short, and a report has at most 2 MB."""
    rows = "".join(f"intent {number % 1000} please {number},intent_{number % 1000}\n" for number in range(3000))
    (tmp_path / "many.csv").write_text(f"text,intent\n{rows}")
    save(Bundle(make_language_model(vocab_size=tokenizer.vocab_size), tokenizer), tmp_path / "lm")
    monkeypatch.setattr(BASELINES, "_rows", {name: BASELINES[name] for name in ("majority", "NBSVM")})
    task, model, run = str(tmp_path / "many.csv"), str(tmp_path / "lm"), str(tmp_path / "run")
    quick = ["--steps", "2", "--seeds", "1"]
    race = ["race", task, "--backbones", model, "--schemes", "probe", "--learning-rates", "1e-3", "--selection", "none"]
    for words in (
        ["audit", task],
        ["adapt", model, task, "--out", run, "--no-scratch", *quick],
        [*race, "--out", str(tmp_path / "race"), *quick],
        ["export", run, "--to", "page", "--out", str(tmp_path / "page.html")],
        ["predict", run, "intent 5 please 5"],
    ):
        assert main(words) == 0, words
        assert len(capsys.readouterr().err) < 20_000, words
    for folder in ("run", "race"):
        assert (tmp_path / folder / "report.html").stat().st_size < 2 << 20, folder
