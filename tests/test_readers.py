"""Mails and tables of the datasets library are read like any other text; other documents say what converts them."""

from __future__ import annotations

import json
from email.message import EmailMessage
from pathlib import Path

import polars as pl
import pytest

from helpers.documents import arrow_table, class_label, parquet_table
from helpers.refusals import refused
from warmstart.cli import main
from warmstart.data import files
from warmstart.data.read import read_documents, read_examples
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.tasks.load import load_task

TEXTS = ["The cat sat.", "A dog ran, été.", "No bird sang."]
LABELS = ["cat", "dog", "cat"]
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


@pytest.mark.parametrize("command", ["init", "fit"])
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
    table = pl.DataFrame({"text": TEXTS, "label": [0, 1, 0]})
    for file in (arrow_table(tmp_path / "a", table, FEATURES), parquet_table(tmp_path / "a.parquet", table, FEATURES)):
        assert read_examples(Source(path=str(file))) == (TEXTS, LABELS)
    table = pl.DataFrame({"text": TEXTS, "label": [0, -1, None]})
    with pytest.raises(DataError, match="every row of .* must have a label, but 2 have none, first row 2"):
        read_examples(Source(path=str(arrow_table(tmp_path / "gaps", table, FEATURES))))
    words = pl.DataFrame({"text": [["Ada", "ran"]] * 4, "label": [[1, 0]] * 4})
    parquet_table(tmp_path / "words.parquet", words, {"label": {"feature": class_label("O", "PER"), "_type": "Sequence"}})
    (tmp_path / "task.yaml").write_text("name: t\ntype: tagging\ntrain: words.parquet\ntest: words.parquet\n")
    assert load_task(tmp_path).labels == ("O", "PER")


def test_names_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """With the number that has none; and a description that is damaged."""
    table = pl.DataFrame({"text": TEXTS, "label": [0, 1, 0]})
    file = arrow_table(tmp_path / "a", table, {"label": class_label("cat")})
    refused(DataError, "from 0 to 0, .* but holds 1", read_examples, Source(path=str(file)))
    for content, message in (("{", "cannot read .*dataset_info.json"), ("[]", "must hold values by name")):
        (tmp_path / "a" / "dataset_info.json").write_text(content)
        refused(DataError, message, read_examples, Source(path=str(file)))
    file.write_bytes(file.read_bytes()[:-8])
    refused(DataError, "is cut short", read_examples, Source(path=str(file)))


def test_a_saved_dataset_names_the_way_to_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One split or several, as a task and as text: exit code 2."""
    arrow_table(tmp_path / "one", pl.DataFrame({"text": TEXTS, "label": [0, 1, 0]}), FEATURES)
    (tmp_path / "one" / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    for name in ("one", "several"):
        for command in ("init", "fit"):
            assert main([command, str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
            assert '[split].to_parquet(split + ".parquet")' in " ".join(capsys.readouterr().err.split())
        refused(DataError, "is a folder of the datasets library", texts_of, tmp_path / name)


def test_an_arrow_file_expands_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As parquet does; the format of random access is read, too."""
    monkeypatch.setattr(files, "FREE_BYTES", 4 << 20)
    pl.DataFrame({"text": TEXTS}).write_ipc(tmp_path / "a.arrow")
    assert texts_of(tmp_path / "a.arrow") == TEXTS
    pl.DataFrame({"text": ["x" * 100_000_000]}).write_ipc_stream(tmp_path / "b.arrow", compression="zstd")
    refused(DataError, r"b\.arrow must hold at most [\d,]+ bytes when decompressed", texts_of, tmp_path / "b.arrow")
