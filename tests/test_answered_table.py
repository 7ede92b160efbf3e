"""Answers beside the table that was read: what of it stays as it was."""

from __future__ import annotations

import datetime
import io
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastexcel
import polars as pl
import pytest
import xlsxwriter

from helpers.workbook import workbook
from warmstart.data.answered_table import AnsweredTable
from warmstart.data.source import Source
from warmstart.data.tables import Tables


def answers(count: int) -> list[dict[str, Any]]:
    return [{"label": f"l{number}", "sure": number % 2 == 0} for number in range(count)]


def beside(file: Path, out: str, **how: Any) -> tuple[bytes, int]:
    """The file that is written for a table, and its blank rows."""
    table = AnsweredTable(Source.build({"path": str(file), "document": "line", **how}), Tables())
    return table.written(answers(len(table.frame)), Path(out))


def cells(data: bytes, sheet: int = 0) -> list[tuple[str | None, ...]]:
    """The cells of a sheet as text."""
    return fastexcel.read_excel(data).load_sheet(sheet, header_row=None, dtypes="string").to_polars().rows()


DELIMITED = [
    ("bom.csv", {}, b'\xef\xbb\xbfNr;text\r\n007;"a; ""b""\nc"\r\n;\r\n\r\n8;\xc3\xa9\r\n',
     b'\xef\xbb\xbfNr;text;label;sure\r\n007;"a; ""b""\nc";l0;True\r\n;;;\r\n\r\n8;\xc3\xa9;l1;False\r\n'),
    ("latin.csv", {"encoding": "cp1252"}, b"id,text\n1,\xe9\n2,b", b"id,text,label,sure\n1,\xe9,l0,True\n2,b,l1,False"),
    ("utf16.csv", {}, "id,text\n1,é\n".encode("utf-16"), "id,text,label,sure\n1,é,l0,True\n".encode("utf-16")),
    ("quotes.tsv", {}, b'text\tn\na "b" c\t1\n5" pipe\t2\n',
     b'text\tn\tlabel\tsure\na "b" c\t1\tl0\tTrue\n5" pipe\t2\tl1\tFalse\n'),
    ("all.csv", {}, b'"id","text"\n"1","a"\n', b'"id","text","label","sure"\n"1","a","l0","True"\n'),
    ("sep.csv", {}, b"sep=;\nid;text\n1;a\n", b"sep=;\nid;text;label;sure\n1;a;l0;True\n"),
    ("title.csv", {}, b"Tickets of May\n\nid,text\n1,a\n2,b\n",
     b"Tickets of May\n\nid,text,label,sure\n1,a,l0,True\n2,b,l1,False\n"),
    ("title2.csv", {}, b"May,,\n,,\nid,text,x\n1,a,\n2,b,\n",
     b"May,,,,\n,,,,\nid,text,x,label,sure\n1,a,,l0,True\n2,b,,l1,False\n"),
    ("again.csv", {}, b"id,text\n1,a\nid,text\n2,b\n", b"id,text,label,sure\n1,a,l0,True\nid,text,label,sure\n2,b,l1,False\n"),
    ("mac.csv", {}, b"id;text\r1;a, b\r", b"id;text;label;sure\r1;a, b;l0;True\r"),
    ("bare.tsv", {"header": False}, b"1\ta\n2\tb\n", b"1\ta\tl0\tTrue\n2\tb\tl1\tFalse\n"),
    ("one.csv", {}, b"text\na, b\nc\n", b'text,label,sure\n"a, b",l0,True\nc,l1,False\n'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "how", "before", "after"), DELIMITED, ids=[case[0] for case in DELIMITED])
def test_a_table_with_delimiters_stays_byte_for_byte(
    name: str, how: dict[str, Any], before: bytes, after: bytes, tmp_path: Path
) -> None:
    """Encoding, mark, delimiter, quotes, line ends, title, blank rows; only of one column without a delimiter quotes are added."""
    (tmp_path / name).write_bytes(before)
    data, blank = beside(tmp_path / name, f"out{name[-4:]}", **how)
    assert (data, blank) == (after, name == "bom.csv")


def test_labels_that_an_encoding_lacks_make_a_file_of_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "latin.csv").write_bytes("id,text\n1,é\n".encode("cp1252"))
    table = AnsweredTable(Source.build({"path": str(file), "document": "line", "encoding": "cp1252"}), Tables())
    assert table.written([{"label": "любовь"}], Path("out.csv"))[0] == "\ufeffid,text,label\n1,é,любовь\n".encode()
    assert "the new file is UTF-8" in capsys.readouterr().err


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """A workbook with two sheets: a merged title, formats, a blank row, a formula, formatted cells to the right of the table."""
    book = xlsxwriter.Workbook(file := tmp_path / "book.xlsx")
    book.add_worksheet("Notes").write(0, 0, "hello")
    sheet, bold = book.add_worksheet("Tickets"), book.add_format({"bold": True})
    date, money = book.add_format({"num_format": "dd.mm.yyyy"}), book.add_format({"num_format": "0.00 €"})
    sheet.merge_range("B2:J2", "Tickets of May", bold)
    for place, name in enumerate(["text", "day", "euro", "zip", "open"], 1):
        sheet.write(3, place, name, bold)
    for row, text in ((4, "a <b> & c"), (6, "d")):
        sheet.write(row, 1, text)
        sheet.write_datetime(row, 2, datetime.date(2024, 1, row), date)
        sheet.write_number(row, 3, row + 0.25, money)
        sheet.write_string(row, 4, f"00{row}")
        sheet.write_boolean(row, 5, row == 4)
        sheet.write_blank(row, 7, None, bold)
    sheet.write_formula("D9", "=SUM(D5:D7)", money, 5)
    sheet.autofilter("B4:F7")
    book.close()
    return file


def test_a_workbook_keeps_its_sheets_formats_and_formulas(tickets: Path) -> None:
    """The answers stand behind the columns, under a header of the same format; everything else is as it was."""
    data, blank = beside(tickets, "out.xlsx", sheet="Tickets")
    before, after = cells(tickets.read_bytes(), 1), cells(data, 1)
    assert blank == 2
    assert [row[:5] for row in after] == [row[:5] for row in before]
    assert [row[5:7] for row in after[2:8]] == [
        ("label", "sure"),
        ("l0", "true"),
        (None,) * 2,
        ("l1", "false"),
        (None,) * 2,
        ("l2", "true"),
    ]
    assert cells(data, 0) == [("hello",)]
    with zipfile.ZipFile(tickets) as old, zipfile.ZipFile(io.BytesIO(data)) as new:
        assert old.namelist() == new.namelist()
        assert [name for name in old.namelist() if old.read(name) != new.read(name)] == ["xl/worksheets/sheet2.xml"]
        text = new.read("xl/worksheets/sheet2.xml").decode()
    for kept in ("<f>SUM(D5:D7)</f>", '<mergeCell ref="B2:J2"/>', '<autoFilter ref="B4:F7"/>', '<c r="C5" s="2"><v>'):
        assert kept in text
    assert '<c r="G4" s="1" t="inlineStr"><is><t xml:space="preserve">label</t></is></c>' in text


def test_a_workbook_that_names_no_places_and_one_with_macros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells without references are counted; what cannot be kept is written anew, and said."""
    (tmp_path / "bare.xlsx").write_bytes(data := workbook([["id", "text"], [1, "a"], [2, "b"]]))
    (tmp_path / "macros.xlsm").write_bytes(data)
    expected = [("id", "text", "label", "sure"), ("1", "a", "l0", "true"), ("2", "b", "l1", "false")]
    assert cells(beside(tmp_path / "bare.xlsx", "out.xlsx")[0]) == expected
    assert "written anew" not in capsys.readouterr().err
    assert cells(beside(tmp_path / "macros.xlsm", "out.xlsx")[0]) == expected
    assert "the sheet S1 is written anew; other sheets, formats and formulas are not kept" in " ".join(
        capsys.readouterr().err.split()
    )


def test_types_of_a_workbook_reach_other_formats(tickets: Path) -> None:
    """Dates, numbers, yes and no; zeros of a code stay; a blank row is one of empty cells."""
    frame = pl.read_parquet(io.BytesIO(beside(tickets, "out.parquet", sheet="Tickets")[0]))
    assert frame.schema == {
        "text": pl.String, "day": pl.Date, "euro": pl.Float64, "zip": pl.String, "open": pl.Boolean,
        "label": pl.String, "sure": pl.Boolean,
    }  # fmt: skip
    assert frame.rows()[:2] == [("a <b> & c", datetime.date(2024, 1, 4), 4.25, "004", True, "l0", True), (None,) * 7]
    lines = beside(tickets, "out.csv", sheet="Tickets")[0].decode().splitlines()
    assert lines[:3] == ["text,day,euro,zip,open,label,sure", "a <b> & c,2024-01-04,4.25,004,true,l0,True", ",,,,,,"]


def test_types_of_columns_are_kept(tmp_path: Path) -> None:
    """Parquet keeps all of them, a workbook dates and numbers; a name that is taken is not written over."""
    frame = pl.DataFrame(
        {
            "id": [1, 2], "text": ["a", None], "day": [datetime.date(2024, 1, 2), datetime.date(1850, 1, 1)], "kind": ["x", "y"],
            "parts": [[1, 2], []], "label": ["q", "r"], "price": [Decimal("1.50"), None], "rate": [0.5, float("nan")],
        },
        schema_overrides={"kind": pl.Categorical, "price": pl.Decimal(10, 2)},
    )  # fmt: skip
    frame.write_parquet(file := tmp_path / "typed.parquet")
    found = pl.read_parquet(io.BytesIO(beside(file, "out.parquet")[0]))
    assert found.columns[-2:] == ["predicted_label", "sure"]
    assert found.select(frame.columns).equals(frame)
    assert found.select(frame.columns).schema == frame.schema
    assert cells(beside(file, "out.xlsx")[0])[1:] == [
        ("1", "a", "2024-01-02 00:00:00", "x", "[1, 2]", "q", "1.5", "0.5", "l0", "true"),
        ("2", None, "1850-01-01", "y", None, "r", None, None, "l1", "false"),
    ]


def test_numbers_and_dates_of_a_table_with_delimiters_are_such_where_types_are(tmp_path: Path) -> None:
    """A column of numbers, or of dates, alone is one of them; a code with zeros, and one odd date, are text."""
    (file := tmp_path / "a.csv").write_text("n,x,code,day,odd,text\n1,1.5,007,2024-01-02,2024-02-31,a\n,2,8,,2024-01-01,b\n")
    frame = pl.read_parquet(io.BytesIO(beside(file, "out.parquet")[0]))
    assert frame.dtypes[:5] == [pl.Int64, pl.Float64, pl.String, pl.Date, pl.String]
    assert frame.row(1)[:5] == (None, 2.0, "8", None, "2024-01-01")
    assert beside(file, "out.tsv")[0].startswith(
        b"n\tx\tcode\tday\todd\ttext\tlabel\tsure\n1\t1.5\t007\t2024-01-02\t2024-02-31\ta\tl0\t"
    )


def test_lines_of_json_keep_their_own_keys(tmp_path: Path) -> None:
    """Nested values, numbers of any length, and keys that only some lines have."""
    lines = '{"text": "a", "more": {"n": [1, 2.0]}}\n\n{"text": "b", "big": 12345678901234567890, "none": null}\n'
    (file := tmp_path / "a.jsonl").write_text(lines)
    rows = AnsweredTable(Source.build({"path": str(file), "document": "line"}), Tables()).rows()
    assert repr(rows) == "[{'text': 'a', 'more': {'n': [1, 2.0]}}, {'text': 'b', 'big': 12345678901234567890, 'none': None}]"
