"""Answers of people about texts: tables with the columns text and label, and person if there is one.

For tagging, text and label are lists of words and of labels, or both have spaces between. Who is not named is called like the file.
Exports of labelling programs are refused (``formats.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstart.data.columns import label_columns
from warmstart.data.files import open_text, without_compression
from warmstart.data.formats import refuse_export
from warmstart.data.label_cells import is_list, names_in, other_separator, signs_of_none
from warmstart.data.source import ENDINGS, Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError
from warmstart.system.console import print_once

OUTSIDE_NAME = "O"
"""the label of words in no span"""
PERSON_KEYS = ("person", "annotator", "username")
"""columns that name who labelled a row"""
LISTED = 5
"""refused rows that an error names"""


@dataclass(frozen=True)
class Annotation:
    """One person's label of one text."""

    where: str
    """file and line"""
    text: str
    person: str
    label: str | tuple[str, ...]
    """the name of a label; or one for each word"""


class RowError(Exception):
    """The fault of one row."""


def read_annotations(
    file: Path,
    *,
    tags: bool = False,
    check: Callable[[str, str], None] | None = None,
    reading: Mapping[str, Any] | None = None,
) -> tuple[list[Annotation], int, list[str]]:
    """The rows of a file that have a label (or, with ``tags``, one for each word), the number of those without, and wrong rows.

    ``check`` gets each text and where it is, and raises ``DataError`` for one that cannot be taken; ``reading`` are settings of
    a ``Source``, such as the column of the text, where rows have several.
    """
    source = Source.build({"path": str(file)} | dict(reading or {}))
    entries, separator = _rows(file, source)
    rows, unlabelled, wrong = list[Annotation](), 0, list[str]()
    for where, values in entries:
        try:
            label = _label(values, source.text, tags, separator)
            if label is None:
                unlabelled += 1
                continue
            text = _text(values, source.text, tags)
            if check:
                check(text, where)
            named = (str(values[key]) for key in PERSON_KEYS if values.get(key) not in (None, ""))
            rows.append(Annotation(where, text, next(named, without_compression(file).stem), label))
        except RowError as error:
            wrong.append(f"{where} {error}")
        except DataError as error:
            wrong.append(str(error))
    return rows, unlabelled, wrong


def refuse_rows(wrong: Sequence[str]) -> None:
    """Raise ``DataError`` that names the first of the rows that are wrong, if any are."""
    if wrong:
        more = f"; and {len(wrong) - LISTED} more" if len(wrong) > LISTED else ""
        raise DataError(f"all rows must be labels of texts, but {len(wrong)} are not: {'; '.join(wrong[:LISTED])}{more}")


def _rows(file: Path, source: Source) -> tuple[Iterator[tuple[str, Any]], str | None]:
    """Each row of a file and where it is; and what parts names of labels in cells, if anything does."""
    ending = without_compression(file).suffix.lower()
    if ending in (".jsonl", ".ndjson"):
        return _json_lines(file), None
    if ending not in (".csv", ".tsv", ".parquet", ".json"):
        raise DataError(
            f"labels are read from .csv, .tsv, .parquet, .ndjson, .jsonl and .json files, but got {file}; save them as one of these"
        )
    whole = read_table(source, file, ENDINGS[ending])
    table, text, label = whole.frame, whole.text_name(source), "label"
    texts = whole.column(text) if {text, *text.split("+")} & {*table.columns} else None
    if label not in table.columns:
        free = [name for name in table.columns if name not in (text, *PERSON_KEYS)]
        label = next(iter(label_columns(table, free, texts)), label)
        if label in table.columns:
            print_once(f"The labels of {file} are read from column '{label}'; rename another one to label if that is wrong.")
    if label not in table.columns or texts is None:
        raise DataError(
            f"{file} must have the columns {text} and label, but has {', '.join(table.columns)}; rename them, or name the text "
            "with --text-column"
        )
    cells = table[label].to_list()
    signs, _ = signs_of_none([] if table[label].dtype.is_nested() else ["" if cell is None else str(cell) for cell in cells])
    if signs:
        print_once(f"{file}: {', '.join(map(repr, sorted(signs)))} is read as no label.")
    rows = (
        (f"{file}, row {number}", values | {source.text: text, "label": None if str(cell).strip() in signs else cell})
        for number, (values, text, cell) in enumerate(zip(table.iter_rows(named=True), texts, cells, strict=True), 1)
    )
    return rows, other_separator(cells, "\0")


def _json_lines(file: Path) -> Iterator[tuple[str, Any]]:
    """Each line that is not blank."""
    with open_text(file, "utf-8") as lines:
        text = lines.read()
    refuse_export(text, file)
    for number, line in enumerate(text.split("\n"), 1):
        if line and not line.isspace():
            try:
                yield f"{file}, line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{file}, line {number} must be JSON, but is not ({error}); correct the line") from None


def _text(values: Mapping[str, Any], column: str, tags: bool) -> str:
    text = values.get(column)
    text = " ".join(text) if tags and isinstance(text, list) else text
    if not isinstance(text, str):
        raise RowError(f"must have a text, but has {text!r:.80}")
    return text


def _label(values: Any, column: str, tags: bool, separator: str | None) -> str | tuple[str, ...] | None:
    """The label of a row, or with ``tags`` those of its words; None if it has none."""
    if not isinstance(values, Mapping):
        raise RowError(f"must hold values by name, but holds {values!r:.80}")
    if column not in values and "label" not in values:
        raise RowError(f"must have {column} and label, but has neither")
    label = values.get("label")
    if label is None or label == [] or (isinstance(label, str) and not label.strip()):
        return None
    return _tags(values.get(column), label) if tags else _one_label(label, separator)


def _one_label(label: Any, separator: str | None) -> str | None:
    names = label
    if isinstance(label, str) and (is_list(label) or (separator and separator in label)):
        names = [*names_in(label, separator or "|")]
    if not isinstance(names, list):
        return label_in(names)
    if len(names) > 1:
        raise RowError(f"must have one label, but has {len(names)}: {names!r:.80}")
    return label_in(names[0]) if names else None


def _tags(text: Any, label: Any) -> tuple[str, ...]:
    """The label of each word."""
    if isinstance(text, str) and isinstance(label, str):  # as the page offers them, with spaces between
        text, label = text.split(), label.split()
    if not isinstance(text, list) or not isinstance(label, list) or len(text) != len(label) or not text:
        raise RowError("must have one label for each word, in two lists")
    if any(not isinstance(word, str) or not word or word.split() != [word] for word in text):
        raise RowError("must have words without white space")
    return tuple(map(label_in, label))


def label_in(label: Any) -> str:
    """The name of a label."""
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise RowError(f"must have the name of a label, but has {label!r:.80}")
    return str(label).strip()
