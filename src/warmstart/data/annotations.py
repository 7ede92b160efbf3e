"""Labels from the files of other programs: who said what of which text.

    csv, tsv, parquet, ndjson   the columns text and label, and person if there is one; for tagging lists of words and of labels
    Label Studio                its exports as JSON, JSON-MIN and csv (``label_studio.py``)
    Argilla                     its records (``argilla.py``)
    doccano                     JSONL or JSON: label (or labels), a list of names or of [start, end, name]; or entities
    Prodigy                     JSONL with answer: accept or label; spans
    spaCy                       JSONL: cats with a number for each name, or entities; JSON of version 2

Characters of a span make each word that they touch one of its label. Who is not named is called like the file.
``labelling`` takes the answers of each person from here, and tasks their examples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.annotation_values import (
    Annotation,
    AskedRow,
    RowError,
    UnlabelledRow,
    Wanted,
    label_in,
    labels_in,
    list_in,
    person_in,
    shortened,
    span_in,
    text_in,
    word_tags,
)
from warmstart.data.argilla import is_record, record_readers, record_text
from warmstart.data.files import open_bytes, open_text, without_compression
from warmstart.data.label_cells import names_in, other_separator
from warmstart.data.label_studio import is_task, results_of, row_columns, studio_row, task_readers, task_text
from warmstart.data.source import ENDINGS, Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError

LISTED = 5
"""refused rows that an error names"""
_PEEK = 1 << 20
"""bytes of a file by which it is recognised"""
_JSON_KEYS = {"[{": ("annotations", "completions", "paragraphs", "responses"), "[[": ("cats", "entities")}
"""how JSON of Label Studio, Argilla or spaCy begins, and the keys of which it has one"""
_SAID = ("label", "labels", "entities", "ents")
"""where a row says what its text is, unless it has an ``answer``"""


def holds_annotations(file: Path) -> bool:
    """Whether a file of JSON, or of lines of JSON, is an export of another program, by how it begins."""
    with open_bytes(file) as binary:
        start = binary.read(_PEEK).decode("utf-8-sig", errors="replace").lstrip()
    if without_compression(file).suffix.lower() == ".json":
        keys = _JSON_KEYS.get(re.sub(r"\s+", "", start[:1000])[:2], ())
        return any(f'"{key}"' in start for key in keys) and not _begins_as_table(start)
    try:
        row = json.loads(start.partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    if _is_pair(row) or is_record(row):
        return True
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
        return False
    if row.get("answer") in ("accept", "reject", "ignore") and {"_task_hash", "_input_hash"} & row.keys():
        return True
    return isinstance(row.get("cats"), Mapping) or any(isinstance(row.get(key), list) for key in _SAID)


def _begins_as_table(start: str) -> bool:
    """Whether the first entry of a list in JSON is whole, and no program's task: ``responses`` is a column like others then."""
    try:
        entry, _ = json.JSONDecoder().raw_decode(start[1:].lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, Mapping) and not (is_task(entry) or is_record(entry) or "paragraphs" in entry)


def annotated_table(file: Path, wanted: Wanted, column: str = "text") -> pl.DataFrame:
    """The rows that have an answer, as a table with the columns text and label. Texts of ``tags`` are lists of words.

    ``column`` is the name of the text, where rows have several. A text that several people labelled has several rows. Raises
    ``DataError`` that names the first rows that cannot be read.
    """
    rows, _, wrong = read_annotations(file, wanted, reading={"text": column})
    refuse_rows(wrong)
    given = [row for row in rows if row.label is not None]
    texts = pl.Series(column, [row.text.split() if wanted == "tags" else row.text for row in given], strict=False)
    labels = pl.Series("label", [row.label if isinstance(row.label, str) else [*(row.label or ())] for row in given], strict=False)
    several = pl.List(pl.String)
    kinds = {"text": several if wanted == "tags" else pl.String, "label": pl.String if wanted == "label" else several}
    return pl.DataFrame(
        [texts.cast(kinds["text"]), labels.cast(kinds["label"]), pl.Series("person", [row.person for row in given])]
    )


def annotated_texts(file: Path, column: str = "text") -> list[str]:
    """The text of every row, labelled or not. Raises ``DataError`` that names the first rows that have none."""
    texts, wrong = list[str](), list[str]()
    for where, values in _entries(file):
        try:
            row = _as_mapping(values)
            texts.append(text_in(_unlabelled_text(row, column)))
        except RowError as error:
            wrong.append(f"{where} {error}")
    refuse_rows(wrong)
    return texts


def annotated_target(file: Path) -> Wanted:
    """What the rows of a file say of their texts: tags if one has spans, labels if one has several, else one label."""
    try:
        found = {_shape(values) for _, values in _entries(file)}
    except RowError as error:
        raise DataError(f"{file} {error}; correct the row") from None
    return "tags" if "tags" in found else "labels" if "labels" in found else "label"


def read_annotations(
    file: Path,
    wanted: Wanted,
    check: Callable[[str, str], None] | None = None,
    reading: Mapping[str, Any] | None = None,
) -> tuple[list[Annotation], int, list[str]]:
    """The rows of a file that say something, the number of those that do not, and what is wrong with others.

    ``check`` gets each text and where it is, and raises ``DataError`` for one that cannot be taken; ``reading`` are settings of
    a ``Source``, such as the column of the text, where rows have several.
    """
    rows, unlabelled, wrong = list[Annotation](), 0, list[str]()
    for where, read in _readers(file, wanted, reading or {}):
        try:
            row = read()
            if check:
                check(row.text, where)
            rows.append(row)
        except UnlabelledRow:
            unlabelled += 1
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


# ------------------------------------------------------------------------------------------------ files

_Reader = Callable[[], Annotation]


def _readers(file: Path, wanted: Wanted, reading: Mapping[str, Any]) -> Iterator[tuple[str, _Reader]]:
    """Each row of a file: where it is, and what reads it."""
    ending, column = without_compression(file).suffix.lower(), reading.get("text", "text")
    asked = AskedRow("", without_compression(file).stem, wanted, column)
    if ending in (".csv", ".tsv", ".parquet"):
        yield from _table_readers(read_table(Source.build({"path": str(file)} | dict(reading)), file, ENDINGS[ending]), file, asked)
    elif ending in (".json", ".jsonl", ".ndjson"):
        entries = [*_entries(file)]
        columns = row_columns([one for _, one in entries if isinstance(one, Mapping)], column)
        for where, values in entries:
            row = replace(asked, where=where)
            if columns and isinstance(values, Mapping):
                yield where, partial(studio_row, values, columns, row)
            elif is_record(values):
                yield from ((where, reader) for reader in record_readers(values, row))
            elif ending == ".json" and not _is_line(values):
                yield from ((where, reader) for reader in task_readers(values, row))
            else:
                yield where, partial(_json_row, values, row)
    else:
        raise DataError(
            f"labels are read from .csv, .tsv, .parquet, .ndjson, .jsonl and .json files, but got {file}; save them as one of these"
        )


def _table_readers(table: pl.DataFrame, file: Path, asked: AskedRow) -> Iterator[tuple[str, _Reader]]:
    """The same of a table. What parts names of labels in its cells is found by how they recur."""
    rows = table.to_dicts()
    columns = row_columns(rows, asked.column)
    for name in () if columns else (asked.column, "label"):
        if name not in table.columns:
            raise DataError(
                f"{file} must have the columns {asked.column} and label, but has {', '.join(table.columns)}; rename them, or name "
                "the text with --text-column"
            )
    separator = None if columns or asked.wanted == "tags" else other_separator((row["label"] for row in rows), "\0")
    for number, values in enumerate(rows, 1):
        row = replace(asked, where=f"{file}, row {number}")
        yield row.where, partial(studio_row, values, columns, row) if columns else partial(_table_row, values, row, separator)


def _entries(file: Path) -> Iterator[tuple[str, Any]]:
    """Each line of JSON lines, or each entry of a list; of spaCy's lists the paragraphs, each with a text."""
    if without_compression(file).suffix.lower() != ".json":
        for number, line in _json_lines(file):
            yield f"{file}, line {number}", line
        return
    with open_text(file, "utf-8") as text:
        try:
            tasks = json.loads(text.read())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{file} must be JSON, but is not ({error}); export it again") from None
    if not isinstance(tasks, list):
        raise DataError(f"{file} must hold a list, as the JSON export of Label Studio does, but holds {shortened(tasks)}")
    for number, task in enumerate(tasks, 1):
        parts = task.get("paragraphs") if isinstance(task, Mapping) else None
        for part in parts if isinstance(parts, list) else [task]:
            yield f"{file}, task {number}", _paragraph(part) if isinstance(parts, list) else part


def _json_lines(file: Path) -> Iterator[tuple[int, Any]]:
    with open_text(file, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise DataError(f"{file}, line {number} must be JSON, but is not ({error}); correct the line") from None


def _paragraph(part: Any) -> dict[str, Any]:
    """A paragraph of spaCy's JSON of version 2 as a line of its JSON lines."""
    values = part if isinstance(part, Mapping) else {}
    found = values.get("cats")
    named = {one.get("label"): one.get("value") for one in found if isinstance(one, Mapping)} if isinstance(found, list) else {}
    return {"text": values.get("raw"), "cats": named}


def _is_pair(values: Any) -> bool:
    """Whether a row is spaCy's pair of a text and what is said of it."""
    return isinstance(values, list) and len(values) == 2 and isinstance(values[0], str) and isinstance(values[1], Mapping)


def _is_line(values: Any) -> bool:
    """Whether an entry of a list reads like a line of JSON lines, as those of spaCy and doccano do."""
    return _is_pair(values) or (
        isinstance(values, Mapping) and not is_task(values) and any(key in values for key in ("cats", "answer", *_SAID))
    )


def _shape(values: Any) -> Wanted | None:
    """What a row says of its text; None if it says nothing."""
    if is_task(values):
        results = results_of(values)
        if any(one.get("type") == "labels" for one in results):
            return "tags"
        choices = [value.get("choices") for one in results if isinstance(value := one.get("value"), Mapping)]
        return "labels" if any(isinstance(names, list) and len(names) > 1 for names in choices) else "label"
    if is_record(values):
        return _shape_of_record(values)
    row = _as_mapping(values)
    if isinstance(row.get("cats"), Mapping):
        return "label" if len(_categories(row["cats"])) == 1 else "labels"
    given = next((row[key] for key in ("accept", *_SAID, "spans") if key in row), None)
    if not isinstance(given, list):
        return None if given is None else "label"
    if "spans" in row or "entities" in row or any(isinstance(one, list | Mapping) for one in given):
        return "tags" if "accept" not in row else "label"
    return "labels" if len(given) > 1 else "label"


def _shape_of_record(record: Mapping[str, Any]) -> Wanted:
    """The same of a record of Argilla: the first form in which its responses can be read."""
    for wanted in ("label", "labels", "tags"):
        try:
            for reader in record_readers(record, AskedRow("", "?", wanted)):
                with suppress(UnlabelledRow):
                    reader()
        except RowError:
            continue
        return wanted
    return "label"


def _as_mapping(values: Any) -> Mapping[str, Any]:
    """A row of JSON lines by name; spaCy's pairs become one. Raises ``RowError`` for anything else."""
    if _is_pair(values):
        return {"text": values[0], **values[1]}
    if not isinstance(values, Mapping):
        raise RowError(f"must hold values by name, but holds {shortened(values)}")
    return values


# ------------------------------------------------------------------------------------------------ rows


def _unlabelled_text(row: Mapping[str, Any], column: str) -> Any:
    """The text of a row, a task or a record, labelled or not."""
    if isinstance(row.get("data"), Mapping) and "text" not in row:
        return task_text(row, column, results_of(row))
    return record_text(row, column) if is_record(row) else _row_text(row, column)


def _row_text(row: Mapping[str, Any], column: str) -> Any:
    """The text of a row; doccano may call it data."""
    return next((row[name] for name in (column, "text", "data") if name in row), None)


def _table_row(values: Mapping[str, Any], asked: AskedRow, separator: str | None = None) -> Annotation:
    """A row with the columns text and label."""
    text, label = _row_text(values, asked.column), values.get("label")
    if label is None or label == "" or (isinstance(label, str) and not label.strip()):
        raise UnlabelledRow
    name = person_in(values, asked.person)
    if asked.wanted != "tags":
        return asked.answer(text, labels_in(label, asked.wanted, separator), person=name)
    if isinstance(text, str) and isinstance(label, str):  # as the page offers them, with spaces between
        text, label = text.split(), label.split()
    if not isinstance(text, list) or not isinstance(label, list) or len(text) != len(label) or not text:
        raise RowError("must have one label for each word, in two lists")
    if any(not isinstance(word, str) or not word or word.split() != [word] for word in text):
        raise RowError("must have words without white space")
    return asked.answer(" ".join(text), tuple(map(label_in, label)), person=name)


def _json_row(row: Any, asked: AskedRow) -> Annotation:
    """A line of Prodigy (with ``answer``), spaCy (``cats``, or a pair), doccano (lists or spans), or with a text and a label."""
    values = _as_mapping(row)
    if "answer" in values:
        return _prodigy(values, asked)
    person = person_in(values, asked.person)
    if isinstance(values.get("cats"), Mapping) and asked.wanted != "tags":
        return asked.answer(values.get("text"), labels_in(_categories(values["cats"]), asked.wanted), person=person)
    given = next((values[key] for key in _SAID if key in values), None)
    text = _row_text(values, asked.column)
    if given is None:
        raise UnlabelledRow if text is not None else RowError("must have text and label, but has neither")
    if isinstance(text, list) or not isinstance(given, list):
        return _table_row({**values, "label": given}, asked)
    text = text_in(text)
    comment = " ".join(str(one) for one in values.get("Comments") or values.get("comments") or [])
    label = word_tags(text, [span_in(one) for one in given]) if asked.wanted == "tags" else labels_in(given, asked.wanted)
    return asked.answer(text, label, person=person, comment=comment)


def _categories(cats: Mapping[str, Any]) -> list[str]:
    """The names that spaCy's ``cats`` give at least 0.5."""
    if wrong := [value for value in cats.values() if not isinstance(value, bool | int | float)]:
        raise RowError(f"must have a number for each name in cats, but has {shortened(wrong[0])}")
    return [*names_in(dict(cats), "|")]


def _prodigy(values: Mapping[str, Any], asked: AskedRow) -> Annotation:
    text, person = text_in(_row_text(values, asked.column)), person_in(values, asked.person)
    if values["answer"] == "ignore":
        return asked.answer(text, None, person=person)
    if values["answer"] == "reject":
        raise UnlabelledRow
    if values["answer"] != "accept":
        raise RowError(f"must have the answer accept, reject or ignore, but has {shortened(values['answer'])}")
    if asked.wanted == "tags":
        return asked.answer(
            text, word_tags(text, [span_in(one) for one in list_in(values.get("spans") or [], "spans")]), person=person
        )
    given = values.get("accept", values.get("label"))
    return asked.answer(text, labels_in(_options(given, values.get("options")), asked.wanted), person=person)


def _options(given: Any, options: Any) -> list[Any]:
    """The names of what was accepted: the ids of options, or their texts where the ids are numbers."""
    listed = [one for one in options if isinstance(one, Mapping)] if isinstance(options, list) else []
    texts = {one["id"]: one.get("text") for one in listed if isinstance(one.get("id"), int)}
    return [texts.get(one, one) if isinstance(one, int) else one for one in (given if isinstance(given, list) else [given])]
