"""Tables as text, with a delimiter between fields: csv, tsv and their relatives, in the dialect that reads them without loss.

The delimiter is the first of the usual ones with which every row has as many fields as the first, and more than one; a line
``sep=;``, which Excel writes and reads, names it. Quotes are undone where a program has written them: always in csv; in tsv, where
a text often has quotes of its own, if all of them stand where pandas, Excel or csv.writer would put them. Empty rows are none, but
``""`` in a table of one column is a row.

A file without quotes is read by polars, any other by Python's csv, which says at which line it stops.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import polars as pl

from warmstart.errors import DataError

DELIMITERS = {"csv": (",", ";", "\t", "|"), "tsv": ("\t", ",", ";", "|")}
"""what may stand between fields, by format, the likeliest first"""
NO_DELIMITER = "\x1f"
"""stands in no text: each line is one field, also if there are commas in it"""
MOST_COLUMNS = 10_000
"""each costs time and memory, however short the file"""
_SAMPLE = 200
"""rows that decide on the delimiter"""
csv.field_size_limit(1 << 30)


def read_delimited(text: str, file: Path, form: str, delimiter: str | None = None, *, header: bool = True) -> pl.DataFrame:
    """All rows, every column as strings; without a header columns are numbered from 1. ``form`` is csv or tsv.

    Raises ``DataError`` with the line at which a row has another number of fields, or a quote is not closed.
    """
    text = in_lines(text)
    delimiter = delimiter or found_delimiter(text, form)
    lines_before = int(_named_delimiter(text) is not None)
    text = text.partition("\n")[2] if lines_before else text
    if (columns := 1 + text.partition("\n")[0].count(delimiter)) > MOST_COLUMNS:
        raise DataError(f"{file} must have at most {MOST_COLUMNS:,} columns, but has {columns:,}; keep those that you need")
    quoted = '"' in text and (form == "csv" or _written_with_quotes(text, delimiter))
    if not quoted and (table := _read_plain(text, delimiter, header=header)) is not None:
        return table
    return _read_quoted(text, file, delimiter, quoted=quoted, header=header, lines_before=lines_before)


def in_lines(text: str) -> str:
    """The text of a table with its lines ended by LF or CRLF, without what stands around it."""
    return (text if "\n" in text else text.replace("\r", "\n")).rstrip("\x1a\0").strip("\r\n")


def _named_delimiter(text: str) -> str | None:
    """The delimiter that a first line ``sep=;`` names."""
    first = text.partition("\n")[0].rstrip("\r")
    return first[4] if first.lower().startswith("sep=") and len(first) == 5 else None


def found_delimiter(text: str, form: str) -> str:
    """The delimiter that the text names, or the first with which all rows of a sample have equally many fields, more than one.

    If there is none, the first of its format. ``form`` is csv or tsv.
    """
    if named := _named_delimiter(text):
        return named
    for delimiter in DELIMITERS[form]:
        for quoted in (True, False):
            try:
                widths = {len(row) for _, row in islice(_rows(text, delimiter, quoted=quoted), _SAMPLE)}
            except csv.Error:
                continue
            if len(widths) == 1 and widths != {1}:
                return delimiter
    # with no delimiter all rows are alike: one of the first line, so that the message is about the rows that differ
    return next((one for one in DELIMITERS[form] if one in text.partition("\n")[0]), NO_DELIMITER)


def _rows(text: str, delimiter: str, *, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """The last line of each row and its fields, without blank lines. Raises ``csv.Error``."""
    lines = (line + "\n" for line in text.split("\n"))  # only "\n" ends a line: a stray carriage return shifts no label
    reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True)
    for row in reader:
        if any(field.strip() for field in row) or row == [""]:  # "" alone is a blank text of a table with one column
            yield reader.line_num, row


def _written_with_quotes(text: str, delimiter: str) -> bool:
    """Whether a program's rule for quotes gives this text again: quotes where needed, also around commas, or around all fields."""
    try:
        rows = [row for _, row in _rows(text, delimiter, quoted=True)]
    except csv.Error:
        return False
    plain = "\n".join(line for line in text.replace("\r\n", "\n").split("\n") if line.strip())
    for needs in ({*f'"\n\r{delimiter}'}, {*f'"\n\r,{delimiter}'}, None):
        lines = (delimiter.join(_quoted(field) if needs is None or needs & {*field} else field for field in row) for row in rows)
        if "\n".join(line for part in lines for line in part.replace("\r\n", "\n").split("\n") if line.strip()) == plain:
            return True
    return False


def _quoted(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


def _read_plain(text: str, delimiter: str, *, header: bool) -> pl.DataFrame | None:
    """The table by polars, which is fast; None if rows have different numbers of fields, which it would fill."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip(f"{delimiter} \t\r")]
    if not lines or any(line.count(delimiter) != lines[0].count(delimiter) for line in lines):
        return None
    data = "\n".join(lines).encode()
    try:
        table = pl.read_csv(io.BytesIO(data), separator=delimiter, quote_char=None, has_header=header, infer_schema=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    table.columns = [name.strip() for name in table.columns] if header else [str(number) for number in range(1, table.width + 1)]
    return table


def _read_quoted(text: str, file: Path, delimiter: str, *, quoted: bool, header: bool, lines_before: int) -> pl.DataFrame:
    """The table by Python's csv."""
    rows, line = list[list[str]](), 0
    try:
        for line, row in _rows(text, delimiter, quoted=quoted):
            if rows and len(row) != len(rows[0]):
                raise DataError(_other_width(file, line + lines_before, row, rows[0], delimiter))
            rows.append(row)
    except csv.Error as error:
        if quoted and (table := _if_whole(text, delimiter, header=header)) is not None:
            return table  # quotes that nobody meant as such: 5" pipe
        raise DataError(
            f"{file} must be a table with quotes around fields that hold '{delimiter}', quotes or line ends, but behind line "
            f"{line + lines_before} one is wrong ({error}); write quotes within a field twice"
        ) from None
    if not rows:
        raise DataError(f"{file} must hold a table, but all its fields are empty")
    return _table(rows, header=header)


def _if_whole(text: str, delimiter: str, *, header: bool) -> pl.DataFrame | None:
    """The table with quotes as ordinary characters, if all rows have as many fields as the first, and none has an open quote."""
    with contextlib.suppress(csv.Error):
        rows = [row for _, row in _rows(text, delimiter, quoted=False)]
        open_quote = any(field.startswith('"') and field.count('"') % 2 for row in rows for field in row)
        return _table(rows, header=header) if len({len(row) for row in rows}) == 1 and not open_quote else None
    return None


def _table(rows: Sequence[list[str]], *, header: bool) -> pl.DataFrame:
    names = [name.strip() for name in rows[0]] if header else [str(number) for number in range(1, len(rows[0]) + 1)]
    unique = [name if name not in names[:number] else f"{name}_duplicated_{number}" for number, name in enumerate(names)]
    body = [[field or None for field in row] for row in rows[1 if header else 0 :]]
    return pl.DataFrame(body, schema=dict.fromkeys(unique, pl.String), orient="row")


def _other_width(file: Path, line: int, row: Sequence[str], first: Sequence[str], delimiter: str) -> str:
    more = "quotes around a field that holds it" if len(row) > len(first) else "fill in what is missing"
    shown = delimiter.join(row)[:80]
    return (
        f"every row of {file} must have {len(first)} fields with {_name(delimiter)} between, as the first row has, but line {line} "
        f"has {len(row)}: {shown!r}; {more}, or name another delimiter"
    )


def _name(delimiter: str) -> str:
    return "a tab" if delimiter == "\t" else f"'{delimiter}'"
