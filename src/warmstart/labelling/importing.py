"""Labels from files of other programs, as answers of the people who gave them.

    csv, tsv, parquet, ndjson   the columns text and label, and person if there is one; for tagging lists of words and of labels
    Label Studio                its JSON export: choices, or labels of spans
    doccano                     JSONL: label (or labels), a list of names or of [start, end, name]; or entities
    Prodigy                     JSONL with answer: accept or label; spans

A text is the one of the pool that is equal, else one of the same letters and digits (``text_key``), else it is added. Characters of
a span make each word that they touch one of its label. Who is not named is called like the file. All rows are taken, or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmstart.data.files import open_text
from warmstart.data.pool import pool_unlike
from warmstart.data.read import source_format
from warmstart.data.source import Source
from warmstart.data.tables import read_table
from warmstart.data.text_key import text_key
from warmstart.errors import ConfigError, DataError
from warmstart.labelling.project import Project, check_text
from warmstart.labelling.records import IMPORTED, OUTSIDE_NAME, Value

PERSON_KEYS = ("person", "annotator", "username", "_annotator_id", "_session_id")
"""where rows name who labelled them"""
LISTED = 5
"""refused rows that an error names"""
LabelOrTags = str | tuple[str, ...]


@dataclass(frozen=True)
class ImportedRow:
    """One person's label of one text."""

    where: str
    """file and line"""
    text: str
    person: str
    label: LabelOrTags | None
    """the name of a label, or one for each word; None: skipped"""
    seconds: float = 0.0
    comment: str = ""


@dataclass
class ImportSummary:
    """What came of an import."""

    answers: int = 0
    skipped: int = 0
    """of them: rows that say that there is no label"""
    unlabelled: int = 0
    """rows without an answer, or with one that only says what a text is not"""
    known: int = 0
    """rows that had been imported before"""
    left_out: int = 0
    """rows whose texts are like those that score models"""
    new_texts: int = 0
    new_labels: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)


class _RowError(Exception):
    """What is wrong with one row."""


class _Unlabelled(Exception):  # noqa: N818  # no error: the row has no answer
    """A row says nothing of its text."""


def import_files(project: Project, files: Sequence[str | Path], held_out: Sequence[str] = ()) -> ImportSummary:
    """Read labels from files into a project, without texts that are like those ``held_out`` to score models.

    Raises ``DataError`` that names the first rows that cannot be read; then none is.
    """
    summary, rows, wrong = ImportSummary(), list[ImportedRow](), list[str]()
    for file in map(Path, files):
        for where, read in _readers(file, project.type == "tagging"):
            try:
                row = read()
                check_text(row.text, where)
                rows.append(row)
            except _Unlabelled:
                summary.unlabelled += 1
            except _RowError as error:
                wrong.append(f"{where} {error}")
            except DataError as error:
                wrong.append(str(error))
    if wrong:
        more = f"; and {len(wrong) - LISTED} more" if len(wrong) > LISTED else ""
        raise DataError(f"all rows must be labels of texts, but {len(wrong)} are not: {'; '.join(wrong[:LISTED])}{more}")
    if held_out:
        allowed = {*pool_unlike(tuple(row.text for row in rows), tuple(held_out)).texts}
        summary.left_out = sum(row.text not in allowed for row in rows)
        rows = [row for row in rows if row.text in allowed]
    take_rows(project, rows, summary)
    return summary


def take_rows(project: Project, rows: Sequence[ImportedRow], summary: ImportSummary | None = None) -> ImportSummary:
    """Write rows into a project, all or none. Raises ``DataError`` that names a row whose labels do not fit its text."""
    summary = ImportSummary() if summary is None else summary
    with project.at_once():
        places = _places(project, rows)
        summary.new_texts = project.add_texts([row.text for row, place in zip(rows, places, strict=True) if place is None])
        at = {text: number for number, text in enumerate(project.texts)}
        labels = project.label_ids()
        done = {(draw.text, draw.person) for draw in project.draws() if draw.queue == IMPORTED}
        said = {(answer.text, answer.person, answer.value) for answer in project.answers()} if done else set()
        for row, place in zip(rows, places, strict=True):
            text = at[row.text] if place is None else place
            value = _value(project, row, labels, summary)
            person = row.person.strip()
            if (text, person) in done and (text, person, value) in said:
                summary.known += 1
                continue
            _check_words(project.texts[text], value, row)
            draw = project.draw(text=text, person=person, queue=IMPORTED)
            project.answer(draw.id, person, value, row.seconds, row.comment)
            summary.answers += 1
            summary.skipped += value is None
            if person not in summary.people:
                summary.people.append(person)
    return summary


def _places(project: Project, rows: Sequence[ImportedRow]) -> list[int | None]:
    """The text of the pool that each row labels; None if there is none."""
    exact = {text: number for number, text in enumerate(project.texts)}
    near: dict[str, int] = {}
    if any(row.text not in exact for row in rows):
        for number, text in enumerate(project.texts):
            near.setdefault(text_key(text), number)
    return [exact[row.text] if row.text in exact else near.get(text_key(row.text)) for row in rows]


def _value(project: Project, row: ImportedRow, labels: dict[str, int], summary: ImportSummary) -> Value | None:
    """The ids of a row's labels; labels that are new are added."""
    if row.label is None:
        return None
    for name in [row.label] if isinstance(row.label, str) else row.label:
        if name not in labels:
            try:
                labels[name] = project.add_label(name, row.person).id
            except ConfigError as error:
                raise DataError(f"{row.where}: {error}") from None
            summary.new_labels.append(name)
    return labels[row.label] if isinstance(row.label, str) else tuple(labels[name] for name in row.label)


def _check_words(text: str, value: Value | None, row: ImportedRow) -> None:
    if isinstance(value, tuple) and len(value) != len(text.split()):
        raise DataError(
            f"{row.where} must have a label for each word, but has {len(value)} for the {len(text.split())} words of {text[:80]!r}"
        )


# ------------------------------------------------------------------------------------------------ files

Reader = Callable[[], ImportedRow]


def _readers(file: Path, tagging: bool) -> Iterator[tuple[str, Reader]]:
    """Each row of a file: where it is, and what reads it."""
    bare = file.with_suffix("") if file.suffix in (".gz", ".xz") else file
    ending = bare.suffix.lower()
    person = bare.stem
    if ending == ".json":
        yield from _label_studio(file, person, tagging)
    elif ending in (".jsonl", ".ndjson"):
        for number, values in _json_lines(file):
            where = f"{file}, line {number}"
            yield where, _bound(_json_row, values, where, person, tagging)
    elif ending in (".csv", ".tsv", ".parquet"):
        source = Source(path=str(file))
        table = read_table(source, file, source_format(source, file))
        for column in ("text", "label"):
            if column not in table.columns:
                raise DataError(f"{file} must have the columns text and label, but has {', '.join(table.columns)}; rename them")
        for number, values in enumerate(table.iter_rows(named=True), 1):
            where = f"{file}, row {number}"
            yield where, _bound(_table_row, values, where, person, tagging)
    else:
        raise DataError(
            f"labels are read from .csv, .tsv, .parquet, .ndjson, .jsonl and .json files, but got {file}; save them as one of these"
        )


def _bound(read: Callable[..., ImportedRow], values: Any, *rest: Any) -> Reader:
    def call() -> ImportedRow:
        if not isinstance(values, Mapping):
            raise _RowError(f"must hold values by name, but holds {_short(values)}")
        return read(values, *rest)

    return call


def _json_lines(file: Path) -> Iterator[tuple[int, Any]]:
    with open_text(file, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise DataError(f"{file}, line {number} must be JSON, but is not ({error}); correct the line") from None


# ------------------------------------------------------------------------------------------------ rows


def _table_row(values: Mapping[str, Any], where: str, person: str, tagging: bool) -> ImportedRow:
    """A row with the columns text and label."""
    text, label = values.get("text"), values.get("label")
    if label is None or label == "" or (isinstance(label, str) and not label.strip()):
        raise _Unlabelled
    name = _who(values, person)
    if not tagging:
        return ImportedRow(where, _text(text), name, _label(label))
    if isinstance(text, str) and isinstance(label, str):  # as the page offers them, with spaces between
        text, label = text.split(), label.split()
    if not isinstance(text, list) or not isinstance(label, list) or len(text) != len(label) or not text:
        raise _RowError("must have one label for each word, in two lists")
    if any(not isinstance(word, str) or not word or word.split() != [word] for word in text):
        raise _RowError("must have words without white space")
    return ImportedRow(where, " ".join(text), name, tuple(map(_label, label)))


def _json_row(values: Mapping[str, Any], where: str, person: str, tagging: bool) -> ImportedRow:
    """A line of Prodigy (which has ``answer``), doccano (which has lists or spans), or with a text and a label."""
    if "answer" in values:
        return _prodigy(values, where, _who(values, person), tagging)
    given = next((values[key] for key in ("label", "labels", "entities") if key in values), None)
    if given is None:
        raise _Unlabelled if "text" in values else _RowError("must have text and label, but has neither")
    if isinstance(values.get("text"), list) or not isinstance(given, list):
        return _table_row({**values, "label": given}, where, person, tagging)
    text = _text(values.get("text"))
    comment = " ".join(str(one) for one in values.get("Comments") or values.get("comments") or [])
    if not tagging:
        return ImportedRow(where, text, _who(values, person), _only(given), comment=comment)
    return ImportedRow(where, text, _who(values, person), _tags(text, [_span(one) for one in given]), comment=comment)


def _prodigy(values: Mapping[str, Any], where: str, person: str, tagging: bool) -> ImportedRow:
    text = _text(values.get("text"))
    if values["answer"] == "ignore":
        return ImportedRow(where, text, person, None)
    if values["answer"] == "reject":
        raise _Unlabelled
    if values["answer"] != "accept":
        raise _RowError(f"must have the answer accept, reject or ignore, but has {_short(values['answer'])}")
    if tagging:
        return ImportedRow(where, text, person, _tags(text, [_span(one) for one in _list(values.get("spans") or [], "spans")]))
    given = values.get("accept", values.get("label"))
    return ImportedRow(where, text, person, _only(given) if isinstance(given, list) else _label(given))


def _label_studio(file: Path, person: str, tagging: bool) -> Iterator[tuple[str, Reader]]:
    """A row for each annotation of each task."""
    with open_text(file, "utf-8") as text:
        try:
            tasks = json.loads(text.read())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{file} must be JSON, but is not ({error}); export it again") from None
    if not isinstance(tasks, list):
        raise DataError(f"{file} must hold a list, as the JSON export of Label Studio does, but holds {_short(tasks)}")
    for number, task in enumerate(tasks, 1):
        where = f"{file}, task {number}"
        annotations = task.get("annotations", task.get("completions")) if isinstance(task, Mapping) else None
        if not isinstance(annotations, list):
            yield where, _bound(_no_annotations, task)
            continue
        for annotation in annotations:
            yield where, _bound(_annotation, task, annotation, where, person, tagging)
        if not annotations:
            yield where, _bound(_unlabelled, task)


def _no_annotations(_: Any) -> ImportedRow:
    raise _RowError("must have annotations, as in the JSON export of Label Studio (not JSON-MIN)")


def _unlabelled(_: Any) -> ImportedRow:
    raise _Unlabelled


def _annotation(task: Mapping[str, Any], annotation: Any, where: str, person: str, tagging: bool) -> ImportedRow:
    if not isinstance(annotation, Mapping) or not isinstance(task.get("data"), Mapping):
        raise _RowError("must have data, and annotations with values by name")
    data = task["data"]
    strings = [value for value in data.values() if isinstance(value, str)]
    text = _text(data["text"] if "text" in data else strings[0] if len(strings) == 1 else None)
    by = annotation.get("completed_by")
    by = by.get("email") or by.get("id") if isinstance(by, Mapping) else by
    who = person if by is None else str(by)
    seconds = annotation.get("lead_time")
    seconds = float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 1e7 else 0.0
    if annotation.get("was_cancelled"):
        return ImportedRow(where, text, who, None, seconds)
    wanted = "labels" if tagging else "choices"
    results = [_studio_value(one, wanted) for one in _list(annotation.get("result"), "result")]
    found = [one for one in results if one is not None]
    if tagging:
        spans = [(one["start"], one["end"], _only(one[wanted])) for one in found]
        return ImportedRow(where, text, who, _tags(text, [_checked_span(*span) for span in spans]), seconds)
    return ImportedRow(where, text, who, _only([name for one in found for name in _list(one[wanted], wanted)]), seconds)


def _studio_value(result: Any, wanted: str) -> Mapping[str, Any] | None:
    """The value of a result of the wanted type; None for another type."""
    if not isinstance(result, Mapping) or not isinstance(result.get("value"), Mapping):
        raise _RowError("must have results with a type and a value")
    if result.get("type") != wanted:
        return None
    value: Mapping[str, Any] = result["value"]
    needed = (wanted, "start", "end") if wanted == "labels" else (wanted,)
    if missing := [key for key in needed if key not in value]:
        raise _RowError(f"has a value of {wanted} without {missing[0]}")
    return value


# ------------------------------------------------------------------------------------------------ values


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise _RowError(f"must have a text, but has {_short(text)}")
    return text


def _who(values: Mapping[str, Any], default: str) -> str:
    named = [str(values[key]) for key in PERSON_KEYS if values.get(key) not in (None, "")]
    return named[0] if named else default


def _label(label: Any) -> str:
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise _RowError(f"must have the name of a label, but has {_short(label)}")
    return str(label).strip()


def _only(labels: Any) -> str:
    """The one label of a list. A row with none has no answer."""
    labels = _list(labels, "labels")
    if not labels:
        raise _Unlabelled
    if len(labels) > 1:
        raise _RowError(f"must have one label, but has {len(labels)}: {_short(labels)}")
    return _label(labels[0])


def _list(values: Any, what: str) -> list[Any]:
    if not isinstance(values, list):
        raise _RowError(f"must have a list of {what}, but has {_short(values)}")
    return values


def _span(span: Any) -> tuple[int, int, str]:
    """A span from a list of three, or from values by name."""
    if isinstance(span, Mapping):
        ends = [span.get(key, span.get(f"{key}_offset")) for key in ("start", "end")]
        return _checked_span(ends[0], ends[1], span.get("label"))
    if isinstance(span, list) and len(span) == 3:
        return _checked_span(*span)
    raise _RowError(f"must have spans as [start, end, label], but has {_short(span)}")


def _checked_span(start: Any, end: Any, label: Any) -> tuple[int, int, str]:
    if type(start) is not int or type(end) is not int or not 0 <= start < end:
        raise _RowError(f"must have spans that begin before they end, but one is from {_short(start)} to {_short(end)}")
    return start, end, _label(label)


def _tags(text: str, spans: Sequence[tuple[int, int, str]]) -> tuple[str, ...]:
    """The label of each word: that of the span that touches it.

    ``"Ada, of London"`` with ``(0, 3, "PER")`` and ``(8, 14, "LOC")`` -> ``("PER", "O", "LOC")``.
    """
    tags, at = [], 0
    for _, end, _ in spans:
        if end > len(text):
            raise _RowError(f"has a span that ends at {end}, but its text at {len(text)}")
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        names = {label for first, last, label in spans if first < at and last > start}
        if len(names) > 1:
            raise _RowError(f"has several labels for the word {_short(word)}: {', '.join(sorted(names))}")
        tags.append(names.pop() if names else OUTSIDE_NAME)
    return tuple(tags)


def _short(value: Any) -> str:
    return repr(value)[:80]
