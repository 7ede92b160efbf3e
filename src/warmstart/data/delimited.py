"""Tables as text, with a delimiter between fields: csv, tsv and their relatives, in the dialect that reads them without loss.

The delimiter is the first of the usual ones with which every row has as many fields as the first, and more than one; a line
``sep=;``, which Excel writes and reads, names it. Quotes are undone where a program has written them: always in csv; in tsv, where
a text often has quotes of its own, if all of them stand where pandas, Excel or csv.writer would put them. Empty rows are none, but
``""`` in a table of one column is a row.

Quotes are read by Python's csv, which says at which line it stops; without any, fields are cut at the delimiters.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import polars as pl

from warmstart.data.columns import named_columns, names_columns
from warmstart.errors import DataError

DELIMITERS = {"csv": (",", ";", "\t", "|"), "tsv": ("\t", ",", ";", "|")}
"""delimiters of each format, the likeliest first"""
NO_DELIMITER = "\x1f"
"""stands in no text: each line is one field, also if there are commas in it"""
MOST_COLUMNS = 10_000
"""most columns of a table: each costs time and memory, however short the file"""
_SAMPLE, _MOST_ABOVE, _ENOUGH_LINES, _MANY_LINES = 200, 10, 4, 20
"""rows that decide on the delimiter; lines that may stand above a table; and lines of a table that is called text, with names of
columns and without"""
csv.field_size_limit(1 << 30)


def read_delimited(text: str, file: Path, form: str, delimiter: str | None = None, *, header: bool | None = None) -> pl.DataFrame:
    """All rows, every column as strings, with names as ``named_columns`` finds them. ``form`` is csv or tsv.

    Raises ``DataError`` with the line at which a row has another number of fields, or a quote is not closed.
    """
    text = in_lines(text)
    above, lines_before, separator = _layout(text, form, delimiter, header)
    text = text.split("\n", lines_before)[-1]
    if (columns := 1 + text.partition("\n")[0].count(separator)) > MOST_COLUMNS:
        raise DataError(f"{file} must have at most {MOST_COLUMNS:,} columns, but has {columns:,}; keep those that you need")
    quoted = '"' in text and (form == "csv" or _written_with_quotes(text, separator))
    return named_columns(_read(text, file, separator, quoted=quoted, lines_before=lines_before), file, header, above)


def _layout(text: str, form: str, delimiter: str | None, header: bool | None) -> tuple[str, int, str]:
    """The first line above a table, the number of such lines (``sep=;`` is one), and the delimiter of the rows below."""
    named = int(_named_delimiter(text) is not None)
    title = (
        _title(text, delimiter or form) if header is None and not named and _consistent(text, delimiter or form) is None else None
    )
    return title or ("", named, delimiter or found_delimiter(text, form))


@dataclass(frozen=True)
class DelimitedRows:
    """The lines of a table as they stand in its file, and its rows: also blank ones, each with the number of its last line."""

    before: str
    lines: list[str]
    rows: list[tuple[int, list[str]]]
    after: str
    delimiter: str
    quoted: bool
    end: str
    """what ends a line"""

    @property
    def filled(self) -> list[bool]:
        """True for each row that is read: one that is not blank, or ``""`` in a table of one column."""
        return [any(map(str.strip, row)) or (self.quoted and row == [""]) for _, row in self.rows]

    @classmethod
    def of(cls, text: str, form: str, delimiter: str | None, header: bool | None) -> DelimitedRows:
        """The rows of a text that ``read_delimited`` has read."""
        body = in_lines(text)
        _, above, separator = _layout(body, form, delimiter, header)
        *titles, rest = body.split("\n", above)
        at, quoted = max(text.find(body), 0), '"' in rest and (form == "csv" or _written_with_quotes(rest, separator))
        try:
            rows = [*_rows(rest, separator, quoted=quoted, blank=True)]
        except csv.Error:  # quotes that nobody meant as such
            rows, quoted = [*_rows(rest, separator, quoted=False, blank=True)], False
        end = "\n" if "\n" in text else "\r"
        before, after = text[:at] + "".join(title + end for title in titles), text[at + len(body) :]
        return cls(before, rest.split("\n"), rows, after, separator, quoted, end)

    def beside(self, added: Sequence[Sequence[str] | None]) -> str | None:
        """The text with fields behind those of each row, as its header is written; None: this table cannot hold such fields."""
        special, lines = re.compile(f'["\n\r{re.escape(self.delimiter)}]').search, [*self.lines]
        as_it_is = not self.quoted and any('"' in line for line in lines)  # quotes are ordinary characters there
        if self.delimiter == NO_DELIMITER or (as_it_is and any(map(special, chain.from_iterable(filter(None, added))))):
            return None
        first = next(row for row in self.rows if any(row[1]))
        every = lines[first[0] - 1].removesuffix("\r") == self.delimiter.join(map(_quoted, first[1]))  # also the header is quoted
        for (last, _), fields in zip(self.rows, added, strict=True):
            cells = [_quoted(field) if every or special(field) else field for field in fields or ()]
            line = lines[last - 1].removesuffix("\r")
            lines[last - 1] = self.delimiter.join([line, *cells]) + lines[last - 1][len(line) :]
        return self.before + self.end.join(lines) + self.after


def in_lines(text: str) -> str:
    """The text of a table with lines ended by LF or CRLF, without the blank lines and the marks of its begin and end."""
    return (text if "\n" in text else text.replace("\r", "\n")).removeprefix("\ufeff").rstrip("\x1a\0").strip("\r\n")


def _named_delimiter(text: str) -> str | None:
    """The delimiter that a first line ``sep=;`` names."""
    first = text.partition("\n")[0].rstrip("\r")
    return first[4] if first.lower().startswith("sep=") and len(first) == 5 else None


def found_delimiter(text: str, form: str) -> str:
    """The delimiter that the text names, or the first with which all rows of a sample have equally many fields, more than one.

    If there is none, the first of its format. ``form`` is csv or tsv.
    """
    # with no delimiter all rows are alike: one of the first line, so that the message is about the rows that differ
    first = (character for character in DELIMITERS[form] if character in text.partition("\n")[0])
    return _named_delimiter(text) or _consistent(text, form) or next(first, NO_DELIMITER)


def table_form(text: str) -> Literal["csv", "tsv"] | None:
    """The format of a text that is a table, by a tab in each line, or another delimiter and names of columns; None: it is none."""
    lines = in_lines(text).split("\n")[:_SAMPLE]
    form: Literal["csv", "tsv"] = "tsv" if "\t" in lines[0] else "csv"
    delimiter = _consistent("\n".join(lines), "\t" if form == "tsv" else form) if len(lines) >= _ENOUGH_LINES else None
    if delimiter is None:
        return None
    many = form == "tsv" and len(lines) >= _MANY_LINES and len({line.count(delimiter) for line in lines}) == 1
    return form if many or names_columns(lines[0].split(delimiter)) else None


def _consistent(text: str, form: str) -> str | None:
    """The first delimiter of a format, or this one alone, with which a sample of rows has equally many fields, more than one."""
    for delimiter in DELIMITERS.get(form, form):
        for quoted in (True, False):
            try:
                widths = {len(row) for _, row in islice(_rows(text, delimiter, quoted=quoted), _SAMPLE)}
            except csv.Error:
                continue
            if len(widths) == 1 and widths != {1}:
                return delimiter
    return None


def _title(text: str, form: str) -> tuple[str, int, str] | None:
    """The first of the lines that stand above a table as a title or a comment, how many they are, and its delimiter; or None."""
    lines = text.split("\n", _MOST_ABOVE + 1)
    for above in range(1, len(lines) - 1):
        rest = text.split("\n", above)[-1]
        if rest.count("\n") and (delimiter := _consistent(rest, form)):
            named = names_columns(rest.lstrip().split("\n", 1)[0].split(delimiter))
            fields = [[*filter(None, map(str.strip, line.split(delimiter)))] for line in lines[:above]]
            is_title = all(len(row) <= 1 or (named and not names_columns(row)) for row in fields)
            return (next(filter(str.strip, lines), ""), above, delimiter) if is_title else None
    return None


def _rows(text: str, delimiter: str, *, quoted: bool, blank: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The last line of each row and its fields; no blank rows, unless these are wanted. Raises ``csv.Error``."""
    lines = text.split("\n")  # only "\n" ends a line: a stray carriage return shifts no label
    if quoted:
        reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
        # "" alone is a blank text of a table with one column
        yield from ((reader.line_num, row) for row in reader if blank or any(map(str.strip, row)) or row == [""])
    else:
        filled = ((number, line) for number, line in enumerate(lines, 1) if blank or line.replace(delimiter, "").strip())
        yield from ((number, line.removesuffix("\r").split(delimiter)) for number, line in filled)


def _written_with_quotes(text: str, delimiter: str) -> bool:
    """True if a program's rule for quotes gives this text again: quotes where needed, also around commas, or around all fields."""
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


def _read(text: str, file: Path, delimiter: str, *, quoted: bool, lines_before: int) -> pl.DataFrame:
    """All rows. Raises ``DataError`` for one with another number of fields than the first, and for a wrong quote."""
    rows, line = list[list[str]](), 0
    try:
        for line, row in _rows(text, delimiter, quoted=quoted):
            if rows and len(row) != len(rows[0]):
                between = "a tab" if delimiter == "\t" else repr(delimiter)
                more = "quotes around a field that holds it" if len(row) > len(rows[0]) else "fill in what is missing"
                raise DataError(
                    f"every row of {file} must have {len(rows[0])} fields with {between} between, as the first row has, but line "
                    f"{line + lines_before} has {len(row)}: {delimiter.join(row)[:80]!r}; {more}, or name another delimiter"
                )
            rows.append(row)
    except csv.Error as error:
        if quoted and (table := _if_whole(text, delimiter)) is not None:
            return table  # quotes that nobody meant as such: 5" pipe
        raise DataError(
            f"{file} must be a table with quotes around fields that hold '{delimiter}', quotes or line ends, but behind line "
            f"{line + lines_before} one is wrong ({error}); write quotes within a field twice"
        ) from None
    if not rows:
        raise DataError(f"{file} must hold a table, but all its fields are empty")
    return _table(rows)


def _if_whole(text: str, delimiter: str) -> pl.DataFrame | None:
    """The table with quotes as ordinary characters, if all rows have as many fields as the first, and none has an open quote."""
    rows = [row for _, row in _rows(text, delimiter, quoted=False)]
    open_quote = any(field.startswith('"') and field.count('"') % 2 for row in rows for field in row)
    return _table(rows) if len({len(row) for row in rows}) == 1 and not open_quote else None


def _table(rows: Sequence[list[str]]) -> pl.DataFrame:
    columns = {str(place): pl.Series(cells, dtype=pl.String) for place, cells in enumerate(zip(*rows, strict=True))}
    return pl.DataFrame(columns).with_columns(pl.all().replace("", None))
