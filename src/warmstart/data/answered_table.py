"""Answers behind the columns of the table from which their texts were read, in a file of its format or of another.

In the same format the file stays as it is, but for the new fields behind its rows: title, header, delimiter, quotes, encoding and
line ends of a table with delimiters; sheets, formats and formulas of a workbook; keys of each line of JSON. Another format gets the
columns in their order with the types that it has. Rows that are blank stay where they are, and have no answer.
"""

from __future__ import annotations

import codecs
import html
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, time
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.delimited import DELIMITERS, DelimitedRows
from warmstart.data.files import codec_of, open_bytes, open_text
from warmstart.data.formats import column_number, sheet_cells, sheet_parts
from warmstart.data.source import Format, Source
from warmstart.data.tables import Tables, delimiter_of, source_format
from warmstart.data.written import NUMERAL, delimited, workbook
from warmstart.system.console import print_once

Values = Mapping[str, Any]
WRITTEN: dict[str, Format] = {
    **{".csv": "csv", ".tsv": "tsv", ".xlsx": "xlsx", ".parquet": "parquet"},
    **{".jsonl": "ndjson", ".ndjson": "ndjson"},
}
"""ending of a file -> the format in which it is written"""
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d+)?)?")
_ROW = re.compile(r"<row\b([^>]*?)(?:/>|>(.*?)</row>)", re.DOTALL)
_CELL, _EMPTY = re.compile(r"<c\b([^>]*)>"), re.compile(r'<c\b[^>]*?\br="([A-Z]+)\d+"[^>]*/>')
_NUMBERED, _LETTERS = re.compile(r'\br="(\d+)"'), re.compile(r'\br="([A-Z]+)\d+"')
_STYLE, _SPANS = re.compile(r'\bs="(\d+)"'), re.compile(r'\sspans="[^"]*"')
_DIMENSION = re.compile(r"<dimension\b[^>]*/>")
"""what is read and written in the XML of a sheet"""
_HEADER, _MOST_ABOVE = -1, 12
"""mark of the row of names, and the most rows above it"""
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def file_of(rows: Sequence[Values], out: Path) -> bytes:
    """Rows of plain values as the ending of a file promises; lines of JSON without one."""
    form = WRITTEN.get(out.suffix.lower(), "ndjson")
    if form == "xlsx":
        return workbook(rows, out)
    if form == "parquet":
        names = dict.fromkeys(name for row in rows for name in row)
        return _parquet(pl.DataFrame({name: pl.Series([row.get(name) for row in rows], strict=False) for name in names}))
    if form in DELIMITERS:
        return delimited(rows, DELIMITERS[form][0]).encode()
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows).encode()


def untaken(name: str, taken: Sequence[str]) -> str:
    """A name that is not taken: also by the predictions of another model."""
    return untaken(f"predicted_{name}", taken) if name in taken else name


def beside_row(before: Values, row: Values) -> dict[str, Any]:
    """A row with new values behind it, under names that it does not have."""
    return {**before} | {untaken(name, [*before]): value for name, value in row.items()}


def cell_of(value: Any) -> Any:
    """A cell of a table: words with | between, other lists and mappings as JSON."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "|".join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value


class AnsweredTable:
    """A table that was read from a file, and its rows as they stand there."""

    def __init__(self, source: Source, tables: Tables) -> None:
        self.source, self.file = source, Path(source.path)
        self.form, self.frame = source_format(source, self.file), tables.read(source, self.file).frame

    def rows(self) -> list[dict[str, Any]]:
        """The rows that were read, with all their columns; of lines of JSON with the keys that each has."""
        if self.form == "ndjson":
            with open_text(self.file, self.source.encoding) as lines:
                return [json.loads(line) for line in lines if line.strip()]
        return (_typed(self.frame) if self.form == "xlsx" else self.frame).fill_nan(None).rows(named=True)

    def written(self, answers: Sequence[Values], out: Path) -> tuple[bytes, int]:
        """The table with the answer to each row behind it, in the format of ``out``, and the number of its blank rows.

        Answers have plain values; blank rows have none.
        """
        form, answered = WRITTEN[out.suffix.lower()], [*dict.fromkeys(name for row in answers for name in row)]
        names = [untaken(name, self.frame.columns) for name in answered]
        values = [[row.get(name) for name in answered] for row in answers]
        order: list[int | None] = [*range(len(answers))]
        whole: bytes | None = None
        if self.form in DELIMITERS:
            whole, order = self._delimited(names, values, same=form == self.form)
        elif self.form == "xlsx":
            whole, order = self._workbook(names, values, same=form == "xlsx")
        blank = order.count(None)
        if whole is not None:
            return whole, blank
        typed = self.form == "xlsx" or (self.form in DELIMITERS and form in ("xlsx", "parquet"))
        frame = _typed(self.frame, numbers=form not in DELIMITERS) if typed else self.frame
        added = [pl.Series(name, [row[place] for row in values], strict=False) for place, name in enumerate(names)]
        frame = frame.with_columns(added).select(pl.all().gather(pl.Series(order, dtype=pl.UInt32)))
        if form == "parquet":
            return _parquet(frame), blank
        rows = frame.fill_nan(None).rows(named=True)
        return file_of([{name: cell_of(value) for name, value in row.items()} for row in rows], out), blank

    def _delimited(self, names: list[str], values: list[list[Any]], *, same: bool) -> tuple[bytes | None, list[int | None]]:
        """The bytes of the file with fields behind its rows, if the ``same`` format is wanted; and the order of the answers."""
        with open_bytes(self.file) as binary:
            codec = codec_of(binary, self.source.encoding)
            unmarked = codec == "utf-8-sig" and binary.read(3) != codecs.BOM_UTF8
        with open_text(self.file, self.source.encoding) as lines:
            text = lines.read()
        table = DelimitedRows.of(text, self.form, delimiter_of(self.source), self.source.header)
        rows = [row for _, row in table.rows]
        if (places := _places(rows, table.filled, len(values))) is None:
            return None, [*range(len(values))]
        width = max(map(len, rows))
        whole = [place is None and 1 < len(row) == width for place, row in zip(places, rows, strict=True)]
        order = _between(places, whole)
        if not same:
            return None, order
        _say_if_unnamed(self.file, places, names)
        cells = [["" if cell is None else str(cell) for cell in row] for row in values]
        none = [""] * len(names)
        added = [_at(place, names, cells, none if is_row else None) for place, is_row in zip(places, whole, strict=True)]
        if (beside := table.beside(added)) is None:
            return None, order
        try:
            return beside.encode("utf-8" if unmarked else codec), order
        except UnicodeEncodeError:
            print_once(f"{self.file} is {self.source.encoding}, which has no letters for some labels; the new file is UTF-8")
            return beside.encode("utf-8-sig"), order

    def _workbook(self, names: list[str], values: list[list[Any]], *, same: bool) -> tuple[bytes | None, list[int | None]]:
        """The bytes of the workbook with cells behind its rows, if the ``same`` format is wanted; and the order of the answers."""
        with open_bytes(self.file) as binary:
            data = binary.read()
        sheet, table = sheet_cells(data, self.file, self.source.sheet)
        rows = [[] if {*row} == {None} else ["" if cell is None else cell for cell in row] for row in table.rows()]
        if (places := _places(rows, [*map(bool, rows)], len(values))) is None:
            return None, [*range(len(values))]
        order = _between(places, [not row for row in rows])
        if not same:
            return None, order
        _say_if_unnamed(self.file, places, names)
        with suppress(KeyError, UnicodeError), zipfile.ZipFile(io.BytesIO(data)) as archive:
            part = sheet_parts(archive)[sheet]
            text = _sheet_beside(archive.read(part).decode(), [_at(place, names, values) for place in places])
            with zipfile.ZipFile(out := io.BytesIO(), "w") as after:
                for entry in archive.infolist():
                    after.writestr(entry, text if entry.filename == part else archive.read(entry))
            found = sheet_cells(out.getvalue(), self.file, sheet)[1]
            if self.file.suffix.lower() != ".xlsm" and found[:, : table.width].equals(table):
                return out.getvalue(), order
        print_once(f"{self.file}: the sheet {sheet} is written anew; other sheets, formats and formulas are not kept.")
        return None, order


def _places(rows: Sequence[Sequence[str]], filled: Sequence[bool], count: int) -> list[int | None] | None:
    """For each row the number of the text that was read from it, ``_HEADER`` for names of columns, or None.

    Rows that are blank, or stand above the names, give no text, and rows that repeat the names may give none. None: it cannot
    be told.
    """
    there = [number for number, is_filled in enumerate(filled) if is_filled]
    for above, head in enumerate((None, *there[:_MOST_ABOVE])):
        below = there[above:]
        again = set[int]()
        if head is not None and len(below) > count:
            names = [*map(str.strip, rows[head])]
            again = {number for number in below if [*map(str.strip, rows[number])] == names}
        if len(below) - len(again) == count:
            texts = {number: place for place, number in enumerate(number for number in below if number not in again)}
            return [_HEADER if number == head or number in again else texts.get(number) for number in range(len(rows))]
    return None


def _between(places: Sequence[int | None], blank: Sequence[bool]) -> list[int | None]:
    """The texts in the order of their rows, with None for each blank row from the first of them to the last."""
    texts = [number for number, place in enumerate(places) if place is not None and place != _HEADER]
    span = range(texts[0], texts[-1] + 1)
    return [places[number] for number in span if blank[number] or (places[number] is not None and places[number] != _HEADER)]


def _say_if_unnamed(file: Path, places: Sequence[int | None], names: list[str]) -> None:
    if _HEADER not in places:
        print_once(f"{file} has no names of columns, and gets none; its last columns are {', '.join(names)}.")


def _at(place: int | None, names: list[str], values: list[list[Any]], blank: list[str] | None = None) -> Sequence[Any] | None:
    """The cells to write behind a row."""
    return blank if place is None else names if place == _HEADER else values[place]


def _typed(frame: pl.DataFrame, *, numbers: bool = True) -> pl.DataFrame:
    """A table of strings, in which a column of numbers, of yes and no, or of dates has the type of these."""
    columns = list[pl.Series]()
    for column in frame:
        cells = column.drop_nulls().to_list() if column.dtype == pl.String else []
        if not cells:
            continue
        if numbers and all(map(NUMERAL.fullmatch, cells)):
            columns.append(column.cast(pl.Float64 if any("." in cell for cell in cells) else pl.Int64))
        elif numbers and {*cells} <= {"true", "false"}:
            columns.append(column == "true")
        elif all(map(_DATE.fullmatch, cells)):
            with suppress(ValueError):
                times = pl.Series(column.name, [cell and datetime.fromisoformat(cell) for cell in column], dtype=pl.Datetime)
                columns.append(times.cast(pl.Date) if (times.drop_nulls().dt.time() == time()).all() else times)
    return frame.with_columns(columns)


def _parquet(frame: pl.DataFrame) -> bytes:
    frame.write_parquet(out := io.BytesIO())
    return out.getvalue()


def _sheet_beside(sheet: str, added: Sequence[Sequence[Any] | None]) -> str:
    """The XML of a sheet with cells behind its rows, from the first that holds something; the header's in the format of its last.

    Raises ``KeyError`` if a row is missing that gets some.
    """
    rows, number, width, top, style = list[tuple[re.Match[str], int]](), 0, 0, 0, ""
    head = next(number for number, cells in enumerate(added) if cells is not None)
    for row in _ROW.finditer(sheet):
        number, column, last = int((_NUMBERED.findall(row[1]) or [number + 1])[0]), 0, ""
        for tag in _CELL.findall(row[2] or ""):
            column = column_number(named[1]) if (named := _LETTERS.search(tag)) else column + 1
            if not tag.endswith("/"):  # it holds something
                top, last = top or number, tag
                width = max(width, column) if number >= top + head else width
        style = "".join(_STYLE.findall(last)) if top and number == top + head else style
        rows.append((row, number))
    parts, end, left = list[str](), 0, {place for place, cells in enumerate(added) if cells is not None}
    for row, number in rows:
        if (place := number - top) in left:
            left.remove(place)
            inner = _EMPTY.sub(lambda cell: "" if column_number(cell[1]) > width else cell[0], row[2] or "")
            at = ((f"{_letters(width + behind)}{number}", value) for behind, value in enumerate(added[place] or (), 1))
            new = "".join(_cell_xml(cell, value, style if place == head else "") for cell, value in at)
            parts += [sheet[end : row.start()], f"<row{_SPANS.sub('', row[1])}>{inner}{new}</row>"]
            end = row.end()
    if left:
        raise KeyError(min(left))
    return _DIMENSION.sub("", "".join([*parts, sheet[end:]]), count=1)


def _letters(column: int) -> str:
    """1 -> ``A``, 27 -> ``AA``."""
    return (_letters((column - 1) // 26) if column > 26 else "") + chr(65 + (column - 1) % 26)


def _cell_xml(place: str, value: Any, style: str) -> str:
    if value is None or value == "":
        return ""
    start = f'<c r="{place}"' + (f' s="{style}"' if style else "")
    if isinstance(value, bool):
        return f'{start} t="b"><v>{value:d}</v></c>'
    if isinstance(value, int | float):
        return f"{start}><v>{value}</v></c>"
    text = html.escape(_NO_XML.sub(" ", str(value)), quote=False)
    return f'{start} t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
