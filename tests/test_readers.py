"""Documents, databases and saved datasets: what they hold is read like any other text, and a file that is broken says so."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import polars as pl
import pytest
import yaml

from helpers.documents import class_label, docx, pdf, saved_dataset
from helpers.refusals import refused
from helpers.settings import in_file
from warmstart.cli import main
from warmstart.corpora.pieces import documents_of_piece, pieces_of
from warmstart.data import files, sqlite
from warmstart.data import pdf as pdf_file
from warmstart.data.read import read_documents, read_examples
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.labelling.reading import read_pool
from warmstart.tasks.load import load_task

TEXTS = ["The cat sat.", "A dog ran, été.", "No bird sang."]
LABELS = ["cat", "dog", "cat"]
FEATURES = {"text": {"dtype": "string", "_type": "Value"}, "label": class_label("cat", "dog")}


def texts_of(file: Path, **settings: object) -> list[str]:
    return list(read_documents(Source.build({"path": str(file), **settings})))


def database(file: Path, *, rows: int = 3, other: bool = False) -> Path:
    """A SQLite file with a table of mails, a view of it, and perhaps another table."""
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE mails (id INTEGER PRIMARY KEY, body TEXT, label TEXT)")
        values = [(TEXTS[i % 3] + " " * (i // 3), LABELS[i % 3]) for i in range(rows)]
        connection.executemany("INSERT INTO mails (body, label) VALUES (?, ?)", values)
        if other:
            connection.execute('CREATE TABLE "other ""table""" (text)')
    connection.close()
    return file


# ---------------------------------------------------------------------------------------------------- documents


def test_paragraphs_of_a_word_document_are_texts(tmp_path: Path) -> None:
    """One by one, by sentence, or as one text, wherever its main part lies; in a folder and in a pool to label, too."""
    file = docx(tmp_path / "a.docx", [*TEXTS[:2], "", "Tom & Jerry. They ran."], part="word/document2.xml")
    assert texts_of(file) == [*TEXTS[:2], "Tom & Jerry. They ran."]
    assert texts_of(file, document="sentence")[2:] == ["Tom & Jerry.", "They ran."]
    assert texts_of(file, document="file") == ["\n\n".join([*TEXTS[:2], "Tom & Jerry. They ran."])]
    assert read_pool([str(file)]).texts == (*TEXTS[:2], "Tom & Jerry. They ran.")
    (tmp_path / "b.txt").write_text("A last one.")
    assert texts_of(tmp_path)[2:] == ["Tom & Jerry. They ran.", "A last one."]
    (piece,) = pieces_of([str(tmp_path)], Source(path=""))
    assert [text for text, _ in documents_of_piece(piece, Source(path=""), tmp_path)] == texts_of(tmp_path)


def test_what_is_no_text_of_a_word_document_is_left_out(tmp_path: Path) -> None:
    """Deleted words, field codes, and the second copy of a text box; tabs and line ends stay."""
    same = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    box = "<w:p><w:r><w:t>boxed</w:t></w:r></w:p>"
    body = (
        "<w:p><w:r><w:t>one</w:t><w:tab/><w:t>two</w:t><w:br/><w:t>three</w:t></w:r>"
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
        f'<w:p><w:r><w:t>before </w:t><m:AlternateContent xmlns:m="{same}"><m:Choice>{box}</m:Choice>'
        f"<m:Fallback>{box}</m:Fallback></m:AlternateContent><w:t>after</w:t></w:r></w:p>"
    )
    assert texts_of(docx(tmp_path / "a.docx", (), body=body)) == ["one\ttwo\nthree", "boxed", "before after"]


def test_a_word_document_from_a_stranger_is_held_to_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not expand without end, and XML that could define entities is refused."""
    monkeypatch.setattr(files, "FREE_BYTES", 1 << 20)
    with pytest.raises(DataError, match="must hold at most .* bytes when decompressed"):
        texts_of(docx(tmp_path / "bomb.docx", ["a" * 50_000_000]))
    entities = '<!DOCTYPE w [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    with pytest.raises(DataError, match="without a document type"):
        texts_of(docx(tmp_path / "laughs.docx", (), body="<w:p><w:r><w:t>&b;</w:t></w:r></w:p>", head=entities))


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


def test_pages_of_a_pdf_are_texts(tmp_path: Path) -> None:
    """A page is a paragraph; a folder of documents for each label is a task."""
    pytest.importorskip("pypdf")
    assert texts_of(pdf(tmp_path / "a.pdf", ["The cat sat.", "A dog ran."])) == ["The cat sat.", "A dog ran."]
    for label in ("cat", "dog"):
        (tmp_path / "mails" / label).mkdir(parents=True)
        for i in range(2):
            docx(tmp_path / "mails" / label / f"{i}.docx", [f"The {label}.", f"It is number {i}."])
    pdf(tmp_path / "mails" / "dog" / "2.pdf", ["A third dog."])
    assert main(["init", str(tmp_path / "mails"), "--out", str(tmp_path / "task.yaml"), "--test", "2"]) == 0
    task = load_task(tmp_path)
    assert sorted([*task.train.texts, *task.test.texts])[:2] == ["A third dog.", "The cat.\n\nIt is number 0."]


def test_a_pdf_without_text_or_reader_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan, a file that is cut or locked, and a missing extra, which is named."""
    pytest.importorskip("pypdf")
    with pytest.raises(DataError, match="its 1 pages hold none; if they are scanned, recognise the text first"):
        texts_of(pdf(tmp_path / "scan.pdf", [""]))
    (tmp_path / "cut.pdf").write_bytes(pdf(tmp_path / "a.pdf", ["A text."]).read_bytes()[:60])
    refused(DataError, "cut.pdf cannot be read as PDF", texts_of, tmp_path / "cut.pdf")
    locked = f"/Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <{'00' * 32}> /U <{'11' * 32}> >> /ID [<00> <00>] "
    with pytest.raises(DataError, match="it needs a password"):
        texts_of(pdf(tmp_path / "locked.pdf", ["A text."], locked))
    monkeypatch.setattr(pdf_file, "find_spec", lambda name: None)
    refused(DataError, r"pip install \"warmstart\[pdf\]\"", texts_of, tmp_path / "a.pdf")


def test_other_documents_say_what_to_save_them_as(tmp_path: Path) -> None:
    """Instead of being taken for text in the wrong encoding; who says that it is text is believed."""
    for name, message in (("a.xls", "a spreadsheet; save it as .xlsx or .csv"), ("a.doc", "save it as .docx")):
        (tmp_path / name).write_text("A text.")
        refused(DataError, message, texts_of, tmp_path / name)
        assert texts_of(tmp_path / name, format="text") == ["A text."]


# ---------------------------------------------------------------------------------------------------- databases


def test_a_table_of_a_database_is_read_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only table, one that is named, or what a query gives; init writes its manifest, and the file stays as it was."""
    file = database(tmp_path / "mails.db", rows=12)
    before = file.read_bytes()
    assert texts_of(file, text="body")[:3] == TEXTS
    assert read_examples(Source(path=str(file), text="body"))[1][:3] == LABELS
    query = "SELECT body AS text, label, id * 1.5 AS score FROM mails WHERE id < 4 ORDER BY id"
    assert read_examples(Source(path=str(file), query=query)) == (TEXTS, LABELS)
    assert read_examples(Source(path=str(file), query=query, label="score"))[1] == ["1.5", "3.0", "4.5"]
    assert main(["init", str(file), "--out", str(tmp_path / "task.yaml")]) == 0
    assert yaml.safe_load((tmp_path / "task.yaml").read_text())["source"] == {"text": "body"}
    assert load_task(tmp_path).labels == ("cat", "dog")
    assert read_pool([str(file)], reading={"text": "body"}).texts[0] == TEXTS[0]
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("mails")] == ["mails.db"]


def test_of_several_tables_one_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message lists them, and the exit code is 2; names need no escapes."""
    file = database(tmp_path / "mails.sqlite", rows=12, other=True)
    assert main(["init", str(file), "--out", str(tmp_path / "task.yaml")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert 'holds 2 tables: mails, other "table"; name the one to read with' in said
    assert main(["init", str(file), *in_file(sqlite_table="mails"), "--out", str(tmp_path / "task.yaml")]) == 0
    assert yaml.safe_load((tmp_path / "task.yaml").read_text())["source"]["sqlite_table"] == "mails"
    assert texts_of(file, sqlite_table='other "table"') == []
    refused(DataError, "has no table 'mail'; did you mean 'mails'", texts_of, file, sqlite_table="mail")


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


def test_a_query_can_do_nothing_but_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And neither the rows nor the time are without limit."""
    monkeypatch.setattr(files, "FREE_BYTES", 1 << 16)
    monkeypatch.setattr(sqlite, "READ_WITHIN_SECONDS", 0.2)
    file = database(tmp_path / "a.db")
    before = file.read_bytes()
    for query, message in (
        ("DROP TABLE mails", "may only read it, but not authorized; write a SELECT"),
        ("INSERT INTO mails (body) VALUES ('x')", "may only read it"),
        ("ATTACH DATABASE 'b.db' AS b", "may only read it"),
        ("SELECT load_extension('x')", "may only read it"),
        ("SELECT body FROM mails; SELECT 1", "one statement at a time"),
        ("SELECT bodi FROM mails", "no such column: bodi"),
        ("", "must be a SELECT"),
        ("SELECT body AS text, label AS text FROM mails", "two are called text"),
        ("SELECT x'ff' AS text", "must hold texts, but holds Binary"),
        (f"{ENDLESS} SELECT x AS text FROM c", "read fewer with a query"),
        (f"{ENDLESS} SELECT x AS text FROM c WHERE x < 0", "must give a row within"),
    ):
        refused(DataError, message, texts_of, file, query=query)
        assert file.read_bytes() == before, query


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """And a table beside a query, a compressed file, and one without tables."""
    (tmp_path / "a.db").write_text("text,label\n")
    (tmp_path / "a.db.gz").write_bytes(b"")
    refused(DataError, r"a\.db must be a SQLite file, but is not", texts_of, tmp_path / "a.db")
    refused(DataError, "is compressed; decompress it", texts_of, tmp_path / "a.db.gz")
    with sqlite3.connect(tmp_path / "b.db") as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    refused(DataError, "must hold a table, but holds none", texts_of, tmp_path / "b.db")


# ---------------------------------------------------------------------------------------------------- saved datasets


def test_a_saved_dataset_is_read_with_its_label_names(tmp_path: Path) -> None:
    """Its files in their order; numbers of labels become names, in lists too; -1 stands for none."""
    first, second = (pl.DataFrame({"text": TEXTS, "label": [number, 1, 0]}) for number in (0, 1))
    folder = saved_dataset(tmp_path / "saved", first, second, features=FEATURES)
    assert read_examples(Source(path=str(folder))) == (TEXTS * 2, [*LABELS, "dog", "dog", "cat"])
    table = pl.DataFrame({"text": TEXTS, "label": [0, -1, None]})
    with pytest.raises(DataError, match="every row of .* must have a label, but 2 have none, first row 2"):
        read_examples(Source(path=str(saved_dataset(tmp_path / "gaps", table, features=FEATURES))))
    words = pl.DataFrame({"text": [["Ada", "ran"]] * 4, "label": [[1, 0]] * 4})
    tags = {"label": {"feature": class_label("O", "PER"), "_type": "Sequence"}}
    saved_dataset(tmp_path / "words", words, features=tags)
    (tmp_path / "task.yaml").write_text("name: t\ntype: tagging\ntrain: words\ntest: words\n")
    assert load_task(tmp_path).labels == ("O", "PER")


def test_a_dataset_of_splits_becomes_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its splits are the task's; as text, one of them must be named, so that no test text is pretrained on by accident."""
    for name in ("train", "dev", "test"):
        table = pl.DataFrame({"text": [f"{text} {name}" for text in TEXTS], "label": [0, 1, 0]})
        saved_dataset(tmp_path / "mails" / name, table, features=FEATURES)
    (tmp_path / "mails" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "dev", "test"]}))
    assert main(["init", str(tmp_path / "mails"), "--out", str(tmp_path / "task.yaml")]) == 0
    written = yaml.safe_load((tmp_path / "task.yaml").read_text())
    assert written == {
        "name": "mails", "type": "classification", "train": "mails/train", "validation": "mails/dev", "test": "mails/test",
    }  # fmt: skip
    assert load_task(tmp_path).test.texts[0] == "The cat sat. test"
    with pytest.raises(
        DataError, match="holds the splits train, dev, test of a saved dataset; name one of them, for instance .*train"
    ):
        texts_of(tmp_path / "mails")


def _cut(folder: Path) -> None:
    file = folder / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:-8])


def _replace(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def test_a_damaged_dataset_is_refused(tmp_path: Path) -> None:
    """With what is wrong."""
    table = pl.DataFrame({"text": TEXTS, "label": [0, 1, 0]})
    for number, (damage, message) in enumerate([
        (_cut, "is cut short"),
        (lambda folder: (folder / "data-00000-of-00001.arrow").unlink(), "is missing; copy the folder again"),
        (_replace("state.json", '{"_data_files": [{"filename": "../x.arrow"}]}'), "must list files of its own folder"),
        (_replace("state.json", '{"_data_files": [{"filename": "x"}], "_indices_data_files": [{}]}'), "save the dataset again"),
        (_replace("state.json", "{"), "cannot read .*state.json"),
        (_replace("dataset_info.json", "[]"), "must hold values by name"),
        (_replace("dataset_info.json", json.dumps({"features": {"label": class_label("cat")}})), "from 0 to 0, .* but holds 1"),
    ]):  # fmt: skip
        folder = saved_dataset(tmp_path / f"{number}", table, features=FEATURES)
        damage(folder)
        refused(DataError, message, read_examples, Source(path=str(folder)))


def test_an_arrow_file_expands_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As parquet does; the format of random access is read, too."""
    monkeypatch.setattr(files, "FREE_BYTES", 4 << 20)
    pl.DataFrame({"text": TEXTS}).write_ipc(tmp_path / "a.arrow")
    assert texts_of(tmp_path / "a.arrow") == TEXTS
    pl.DataFrame({"text": ["x" * 100_000_000]}).write_ipc_stream(tmp_path / "b.arrow", compression="zstd")
    refused(DataError, r"b\.arrow must hold at most [\d,]+ bytes when decompressed", texts_of, tmp_path / "b.arrow")
