"""Sources: every format says the same, mails and tables of the datasets library too; a broken file is refused with the remedy."""

from __future__ import annotations

import gzip
import io
import json
import lzma
from email.message import EmailMessage
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.documents import arrow_table, class_label, parquet_table
from helpers.refusals import refused
from helpers.tasks import read_examples
from warmstart.cli import main
from warmstart.data import files
from warmstart.data.read import MAX_CHARACTERS, count_documents, read_documents, source_files
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError
from warmstart.tasks.load import load_task

TREC = r"^(?P<label>[A-Z]+):\S+ (?P<text>.*)$"
TEXTS = ["the cat", 'a "quoted dog', "été, l'été"]
LABELS = ["3", "10", "3"]


def written(folder: Path, name: str, content: str | bytes) -> str:
    """Write a file and return its path."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


def packed(name: str, content: bytes) -> bytes:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix)
    return pack(content) if pack else content


def parquet(table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    table.write_parquet(file)
    return file.getvalue()


TSV = "label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in zip(TEXTS, LABELS, strict=True))
NDJSON = "".join(json.dumps({"text": t, "label": int(n)}) + "\n" for t, n in zip(TEXTS, LABELS, strict=True))
TABLE = pl.DataFrame({"text": TEXTS, "label": [3.0, 10.0, 3.0]})
BODY = TSV.partition("\n")[2]

SAME = {
    "tsv": ("a.tsv", TSV.encode(), {}),
    "tsv, CRLF, BOM": ("a.tsv", b"\xef\xbb\xbf" + TSV.replace("\n", "\r\n").encode(), {}),
    "tsv in latin-1": ("a.tsv", TSV.encode("latin-1"), {"encoding": "latin-1"}),
    "tsv in utf-16": ("a.tsv", TSV.encode("utf-16"), {"encoding": "utf-16"}),
    "tsv without header": ("a.tsv", BODY.encode(), {"header": False, "label": 1, "text": 2}),
    "tsv, packed": ("a.tsv.gz", TSV.encode(), {}),
    "csv": ("a.csv", pl.DataFrame({"text": TEXTS, "label": LABELS}).write_csv().encode(), {}),
    "csv, other columns": (
        "a.csv.xz",
        pl.DataFrame({"sentence": TEXTS, "mood": LABELS}).write_csv().encode(),
        {"text": "sentence", "label": "mood"},
    ),
    "ndjson": ("a.ndjson", NDJSON.encode(), {}),
    "jsonl, packed": ("a.jsonl.gz", NDJSON.encode(), {}),
    "parquet, whole floats": ("a.parquet", parquet(TABLE), {}),
    "named format": ("a.data", parquet(TABLE.cast({"label": pl.Int64})), {"format": "parquet"}),
    "pattern": ("a.label", BODY.encode(), {"pattern": r"^(?P<label>\d+)\t(?P<text>.*)$"}),
    "pattern, blank lines": ("a.tsv", b"\n" + BODY.encode() + b"\n\n", {"pattern": r"^(?P<label>\d+)\t(?P<text>.*)$"}),
}


def test_every_format_says_the_same(tmp_path: Path) -> None:
    """The same examples come back whatever they were stored as, numbers as strings, stray quotes and all."""
    for case, (name, content, how) in SAME.items():
        source = Source.build({"path": written(tmp_path / case, name, packed(name, content)), **how})
        assert read_examples(source) == (TEXTS, LABELS), case
        assert list(read_documents(source)) == TEXTS, case


def test_one_file_per_label(tmp_path: Path) -> None:
    """With as_label every document of a file or folder has that label, in the unit that is asked for."""
    written(tmp_path, "pos/b.txt", "so\ngood\n")
    written(tmp_path, "pos/a.txt", "fine\n\nreally\n")
    by_file = Source(path=str(tmp_path / "pos"), as_label="pos", document="file")
    assert read_examples(by_file) == (["fine\n\nreally", "so\ngood"], ["pos", "pos"])
    by_line = Source(path=str(tmp_path / "pos"), as_label="pos", document="line")
    assert read_examples(by_line)[0] == ["fine", "really", "so", "good"]


def test_labels_in_a_second_file(tmp_path: Path) -> None:
    """Lines are paired with the lines of the second file; empty texts and stray carriage returns do not shift them."""
    texts = written(tmp_path, "a.txt.gz", gzip.compress(b"one\n\nth\rree\r\n"))
    labels = written(tmp_path, "a.label", "1\n0\n1\n")
    assert read_examples(Source(path=texts, labels_path=labels)) == (["one", "", "th\rree"], ["1", "0", "1"])


def test_documents(tmp_path: Path) -> None:
    """Paragraphs are runs of lines that are not blank, whatever ends the lines and however the file is packed."""
    units = {"paragraph": ["one\ntwo", " three", "four"], "line": ["one", "two", " three", "four"]}
    units |= {"file": ["\none\ntwo\n\n \n three\n\nfour"]}
    for name, ends in (("a.txt", "\n"), ("a.txt", "\r\n"), ("a.txt.gz", "\r\n"), ("a.xz", "\n")):
        text = "\ufeff\none\ntwo\n\n \n three\n\nfour\n".replace("\n", ends)
        path = written(tmp_path, name, packed(name, text.encode()))
        for document, expected in units.items():
            assert list(read_documents(Source.build({"path": path, "document": document}))) == expected, (name, ends, document)


def test_sentencepiece_pieces_are_joined(tmp_path: Path) -> None:
    """In documents, with their words counted, and in lines with labels; a table has none."""
    file = written(tmp_path, "a.spm", "▁Un ▁bon ▁rom an .\n▁L ' été\n")
    labels = written(tmp_path, "a.label", "1\n0\n")
    source = Source(path=file, document="line", pieces=True)
    assert list(count_documents(source)) == [("Un bon roman.", 4), ("L'été", 2)]
    assert read_examples(Source(path=file, labels_path=labels, pieces=True)) == (["Un bon roman.", "L'été"], ["1", "0"])
    table = written(tmp_path, "a.tsv", "text\tlabel\n▁Un\t1\n")
    with pytest.raises(DataError, match=r"pieces are joined in plain text only, but .*a\.tsv is read as tsv; leave pieces out"):
        read_examples(Source(path=table, pieces=True))


def test_folder(tmp_path: Path) -> None:
    """A folder is read whole, in the order of names, without hidden files; a file in it may be a table."""
    for name, content in (("b/z.txt", "3"), ("b/a.tsv", "text\n2\n"), ("a.txt", "1"), (".hidden", "no"), ("b/.git/x", "no")):
        written(tmp_path, name, content)
    source = Source(path=str(tmp_path))
    assert [file.name for file in source_files(source)] == ["a.txt", "a.tsv", "z.txt"]
    assert list(read_documents(source)) == ["1", "2", "3"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(alphabet="ab \t", max_size=5), max_size=12))
def test_no_words_are_lost(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    """All units hold the same words in the same order."""
    path = written(tmp_path_factory.mktemp("text"), "a.txt", "\n".join(lines))
    for document in ("paragraph", "line", "file", "sentence"):
        found = list(read_documents(Source.build({"path": path, "document": document})))
        assert " ".join(found).split() == " ".join(lines).split(), document


def test_long_documents_come_in_pieces(tmp_path: Path) -> None:
    """Beyond a mebibyte they are cut at line ends, a line at white space, or anywhere if it has none; nothing is lost."""
    text = "\n".join(f"line {n} of a long text" for n in range(150_000))
    line = "word " * 300_000 + "x" * (MAX_CHARACTERS + 5)
    path, long = written(tmp_path, "a.txt", text), written(tmp_path, "b.txt", line)
    for document in ("paragraph", "file"):
        pieces = list(read_documents(Source.build({"path": path, "document": document})))
        assert len(pieces) > 2
        assert max(map(len, pieces)) <= MAX_CHARACTERS
        assert "\n".join(pieces) == text
    pieces = list(read_documents(Source(path=long, document="line")))
    assert max(map(len, pieces)) <= MAX_CHARACTERS
    assert "".join(" ".join(pieces).split()) == line.replace(" ", "")
    assert set(pieces[0].split()) == {"word"}


BROKEN = {
    "wrong encoding": (
        "a.txt",
        b"fine\nca\xf1on\n",
        {"document": "line"},
        r"but is not at line 2 \(byte offset 7, value 0xf1\); it may be cp1252, .* reads 'cañon'.*'encoding: cp1252'",
    ),
    "wrong wide encoding": ("a.txt", b"abc", {"encoding": "utf-16"}, r"must be text in utf-16, but is not; it may be cp1252"),
    "unknown encoding": ("a.txt", b"a", {"encoding": "latin1x"}, r"unknown encoding 'latin1x'; did you mean 'latin-1'"),
    "no gzip": ("a.txt.gz", b"plain", {}, r"a\.txt\.gz is damaged or incomplete .*; copy or download it again"),
    "half a gzip": ("a.gz", gzip.compress(b"text " * 99)[:20], {}, r"a\.gz is damaged or incomplete"),
    "no xz": ("a.xz", b"plain", {}, r"a\.xz is damaged or incomplete"),
    "half an xz": ("a.xz", lzma.compress(b"text " * 99)[:40], {}, r"a\.xz is damaged or incomplete"),
    "no parquet": ("a.parquet", b"PAR1 but not really", {}, r"a\.parquet cannot be read as parquet: .*correct the file"),
    "no json": ("a.ndjson", b"{text: no\n", {}, r"a\.ndjson cannot be read as ndjson"),
    "empty table": ("a.csv", b"\n", {}, r"a\.csv must hold a table, but is empty"),
    "fields without values": ("a.csv", b",\n,", {"header": False}, r"a\.csv must hold a table, but all its fields are empty"),
    "missing column": (
        "a.csv",
        b"texts,label\na,b\n",
        {"text": "txt"},
        r"a\.csv has no column 'txt'; did you mean 'texts'\? known: label, texts; name the column to read with --text-column",
    ),
    "nested column": ("a.ndjson", b'{"text": ["a"], "label": 1}\n', {}, r"column 'text' of .* must hold one text or number"),
    "no regular expression": ("a", b"x", {"pattern": "("}, r"the pattern '\(' is not a regular expression \(.*\); write one, for"),
    "no text group": ("a", b"x", {"pattern": "(?P<label>.)"}, r"must have a group named 'text', but has none"),
    "lines do not match": (
        "a",
        b"A:b ok\nwhat?\nA:b ok\nno",
        {"pattern": TREC},
        r"every line of .*a must match the pattern .*, but 2 do not, first line 2: 'what\?'; change the pattern",
    ),
}


def test_broken_files(tmp_path: Path) -> None:
    """A file that is not what it claims, a path that leads nowhere and an empty folder are refused with place and remedy."""
    for case, (name, content, how, message) in BROKEN.items():
        source = Source.build({"path": written(tmp_path / case, name, content), **how})
        refused(DataError, message, list, read_documents(source))
    refused(DataError, "no such file or folder: .*absent", list, read_documents(Source(path=str(tmp_path / "absent"))))
    written(tmp_path / "hidden", ".hidden", "x")
    nothing = read_documents(Source(path=str(tmp_path / "hidden")))
    refused(DataError, "must hold at least one file that is not hidden, but holds none", list, nothing)


UNLABELLED = {
    "plain text": ("a.txt", b"x", {}, r"read as text, which has no columns; give a table .* a pattern .* or as_label"),
    "empty pattern file": ("a.txt", b"", {"pattern": TREC}, r"must hold at least one example, but is empty"),
    "empty class": ("a.txt", b"\n", {"as_label": "x"}, r"must hold at least one example, but is empty"),
    "header alone": ("a.csv", b"text,label\n", {}, r"must hold at least one example, but is empty"),
    "no label group": ("a", b"x", {"pattern": "(?P<text>.)"}, r"must have a group named 'label', but has none"),
    "short row": (
        "a.tsv",
        b"text\tlabel\na\t1\nc\n",
        {},
        r"must have 2 fields with a tab .* line 3 has 1: 'c'; fill in what is missing",
    ),
    "no label": (
        "a.tsv",
        b"text\tlabel\na\t\nb\tnan\nc\t\n",
        {},
        r"must have labels in column 'label', but has none .blank 2, 'nan' 1",
    ),
}


def test_missing_labels(tmp_path: Path) -> None:
    """Labelled text without texts or labels is refused, with where labels may come from; two files must be equally long."""
    for case, (name, content, how, message) in UNLABELLED.items():
        refused(DataError, message, read_examples, Source.build({"path": written(tmp_path / case, name, content), **how}))
    texts = written(tmp_path, "a", "1\n2\n3\n")
    for labels, message in (
        ("1\n2\n", r"a and .*b must have equally many lines, but have 3 and 2; check that they match"),
        ("1\n\n2\n", r"every line of .*b must have a label, but 1 have none, first line 2"),
    ):
        refused(DataError, message, read_examples, Source(path=texts, labels_path=written(tmp_path, "b", labels)))


def test_null_text_is_empty(tmp_path: Path) -> None:
    """A row without a text is an empty text: what to do about it is the audit's to say."""
    path = written(tmp_path, "a.ndjson", '{"text": null, "label": true}\n{"text": "b", "label": false}\n')
    assert read_examples(Source(path=path)) == (["", "b"], ["true", "false"])


def test_a_blank_text_of_a_table_with_one_column_is_a_row(tmp_path: Path) -> None:
    """As pandas and csv.writer write it; the rows behind it keep their numbers."""
    source = Source(path=written(tmp_path, "a.csv", 'text\na\n""\nb\n'))
    assert [*read_documents(source)] == ["a", "", "b"]


def test_wrong_settings() -> None:
    """Settings that contradict each other are refused before any file is opened."""
    for values, message in (
        ({"patern": "x"}, "unknown key 'patern'; did you mean 'pattern'"),
        ({"as_label": "a", "labels_path": "b"}, "give as_label or labels_path, not both"),
        ({"format": "pattern"}, "format 'pattern' needs a pattern, such as"),
        ({"format": "xml"}, "'format' must be"),
        ({"limit": 0}, "'limit' must be greater than 0"),
    ):
        refused(ConfigError, message, Source.build, {"path": "x", **values})


def test_sentences(tmp_path: Path) -> None:
    """Cut where a sentence ends and no lower-case letter follows, never across paragraphs; nothing but white space is lost."""
    for text, parts in (
        ("I rub the dog. Do you? He can!", ["I rub the dog.", "Do you?", "He can!"]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("It cost 3.5 pounds, e.g. two coins", ["It cost 3.5 pounds, e.g. two coins"]),
        ("One line.\nStill one text", ["One line.", "Still one text"]),
        ("I rub. You hold\nit. \n\nand so on. He\n", ["I rub.", "You hold\nit.", "and so on.", "He"]),
        ("", []),
    ):
        assert list(read_documents(Source(path=written(tmp_path, "a.txt", text), document="sentence"))) == parts


def test_only_the_first_texts(tmp_path: Path) -> None:
    """In the order of the file, for documents and for examples alike."""
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "".join(f"t{i}\tl{i}\n" for i in range(5)))
    source = Source(path=str(tmp_path / "a.tsv"), limit=2)
    assert list(read_documents(source)) == ["t0", "t1"]
    assert read_examples(source) == (["t0", "t1"], ["l0", "l1"])


ANIMALS = ["The cat sat.", "A dog ran, été.", "No bird sang."]
KINDS = ["cat", "dog", "cat"]
FEATURES = {"text": {"dtype": "string", "_type": "Value"}, "label": class_label("cat", "dog")}


def texts_of(file: Path, **settings: object) -> list[str]:
    return list(read_documents(Source.build({"path": str(file), **settings})))


def test_a_mail_is_its_subject_and_body(tmp_path: Path) -> None:
    """Encoded parts are decoded, of several bodies the plain one is read, of HTML the words; attachments and headers are not."""
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "Où est ma facture ?", "a@b.example"
    mail.set_content("Bonjour,\nelle n'est pas arrivée.\n", cte="base64")
    mail.add_alternative("<p>not read</p>", subtype="html")
    mail.add_attachment(b"not read", maintype="application", subtype="pdf", filename="a.pdf")
    (tmp_path / "1.eml").write_bytes(bytes(mail))
    page = "<style>p {}</style><title>no</title>A &amp; b<p>x\n y<br>z</p>"
    (tmp_path / "2.eml").write_text(f"Subject: HTML\nContent-Type: text/html\n\n<html>{page}</html>", encoding="utf-8")
    (tmp_path / "3.eml").write_text("Date: today\n\nété\n", encoding="utf-8")
    assert texts_of(tmp_path, document="file") == [
        "Où est ma facture ?\n\nBonjour,\nelle n'est pas arrivée.",
        "HTML\n\nA & b\nx y\nz",
        "été",
    ]


@pytest.mark.parametrize("command", ["pretrain", "fit"])
def test_other_documents_name_the_tool_that_converts_them(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, instead of being taken for text in the wrong encoding."""
    for name, message in (
        ("a.db", "sqlite3 -header -csv FILE"),
        ("a.pdf", "pdftotext FILE.pdf FILE.txt"),
        ("a.docx", "pandoc --to plain FILE"),
        ("a.xls", "a spreadsheet; save it as .xlsx or .csv"),
    ):
        (tmp_path / name).write_text("A text.")
        assert main([command, str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
        assert message in " ".join(capsys.readouterr().err.split()), name


def test_who_says_that_a_document_is_text_is_believed(tmp_path: Path) -> None:
    """And a folder in which such a file lies is refused, for it would be read as text."""
    (tmp_path / "a.pdf").write_text("A text.")
    assert texts_of(tmp_path / "a.pdf", format="text") == ["A text."]
    (tmp_path / "b.txt").write_text("Another text.")
    refused(DataError, r"a\.pdf cannot be read: write its text with pdftotext", texts_of, tmp_path)


def test_numbers_of_labels_become_their_names(tmp_path: Path) -> None:
    """In Arrow files with what is said beside them, in parquet, and in lists; -1 stands for none."""
    table = pl.DataFrame({"text": ANIMALS, "label": [0, 1, 0]})
    for file in (arrow_table(tmp_path / "a", table, FEATURES), parquet_table(tmp_path / "a.parquet", table, FEATURES)):
        assert read_examples(Source(path=str(file))) == (ANIMALS, KINDS)
    table = pl.DataFrame({"text": ANIMALS, "label": [0, -1, None]})
    assert read_examples(Source(path=str(arrow_table(tmp_path / "gaps", table, FEATURES)))) == (ANIMALS[:1], KINDS[:1])
    words = pl.DataFrame({"text": [["Ada", "ran"]] * 4, "label": [[1, 0]] * 4})
    parquet_table(tmp_path / "words.parquet", words, {"label": {"feature": class_label("O", "PER"), "_type": "Sequence"}})
    (tmp_path / "task.yaml").write_text("name: t\ntype: tagging\ntrain: words.parquet\ntest: words.parquet\n")
    assert load_task(tmp_path).labels == ("O", "PER")


def test_names_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """With the number that has none; and a description that is damaged."""
    table = pl.DataFrame({"text": ANIMALS, "label": [0, 1, 0]})
    file = arrow_table(tmp_path / "a", table, {"label": class_label("cat")})
    refused(DataError, "from 0 to 0, .* but holds 1", read_examples, Source(path=str(file)))
    for content, message in (("{", "cannot read .*dataset_info.json"), ("[]", "must hold values by name")):
        (tmp_path / "a" / "dataset_info.json").write_text(content)
        refused(DataError, message, read_examples, Source(path=str(file)))
    file.write_bytes(file.read_bytes()[:-8])
    refused(DataError, "is cut short", read_examples, Source(path=str(file)))


def test_a_saved_dataset_names_the_way_to_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One split or several, as a task and as text: exit code 2."""
    arrow_table(tmp_path / "one", pl.DataFrame({"text": ANIMALS, "label": [0, 1, 0]}), FEATURES)
    (tmp_path / "one" / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    for name in ("one", "several"):
        for command in ("pretrain", "fit"):
            assert main([command, str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
            assert '[split].to_parquet(split + ".parquet")' in " ".join(capsys.readouterr().err.split())
        refused(DataError, "is a folder of the datasets library", texts_of, tmp_path / name)


def test_an_arrow_file_expands_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As parquet does; the format of random access is read, too."""
    monkeypatch.setattr(files, "FREE_BYTES", 4 << 20)
    pl.DataFrame({"text": ANIMALS}).write_ipc(tmp_path / "a.arrow")
    assert texts_of(tmp_path / "a.arrow") == ANIMALS
    pl.DataFrame({"text": ["x" * 100_000_000]}).write_ipc_stream(tmp_path / "b.arrow", compression="zstd")
    refused(DataError, r"b\.arrow must hold at most [\d,]+ bytes when decompressed", texts_of, tmp_path / "b.arrow")
