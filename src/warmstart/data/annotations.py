"""Labels from the files of other programs: who said what of which text.

    csv, tsv, parquet, ndjson   the columns text and label, and person if there is one; for tagging lists of words and of labels
    Label Studio                its JSON export: choices, or labels of spans
    doccano                     JSONL: label (or labels), a list of names or of [start, end, name]; or entities
    Prodigy                     JSONL with answer: accept or label; spans
    spaCy                       JSONL: cats with a number for each name, or entities; JSON of version 2

Characters of a span make each word that they touch one of its label. Who is not named is called like the file.
``labelling`` takes the answers of each person from here, and tasks their examples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import polars as pl

from warmstart.data.files import open_bytes, open_text, without_compression
from warmstart.data.source import ENDINGS, Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError

Wanted = Literal["label", "labels", "tags"]
"""what a task needs of a text: one label, any number of them, or one for each word"""
OUTSIDE_NAME = "O"
"""the label of words in no span"""
PERSON_KEYS = ("person", "annotator", "username", "_annotator_id", "_session_id")
"""where rows name who labelled them"""
LISTED = 5
"""refused rows that an error names"""
_PEEK = 1 << 20
"""bytes of a file by which it is recognised"""
_JSON_KEYS = {"[{": ("annotations", "completions", "paragraphs"), "[[": ("cats", "entities")}
"""how JSON of Label Studio or spaCy begins, and the keys of which it has one"""


@dataclass(frozen=True)
class Annotation:
    """One person's label of one text."""

    where: str
    """file and line"""
    text: str
    person: str
    label: str | tuple[str, ...] | None
    """the name of a label; several names; one for each word; or None: skipped"""
    seconds: float = 0.0
    comment: str = ""


class RowError(Exception):
    """What is wrong with one row."""


class UnlabelledRow(Exception):  # noqa: N818  # no error: the row has no answer
    """A row says nothing of its text."""


def holds_annotations(file: Path) -> bool:
    """Whether a file of JSON, or of lines of JSON, is an export of Label Studio, doccano, Prodigy or spaCy, by how it begins."""
    with open_bytes(file) as binary:
        start = binary.read(_PEEK).decode("utf-8-sig", errors="replace").lstrip()
    if without_compression(file).suffix.lower() == ".json":
        keys = _JSON_KEYS.get(re.sub(r"\s+", "", start[:1000])[:2], ())
        return any(f'"{key}"' in start for key in keys)
    try:
        row = json.loads(start.partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    if _is_pair(row):
        return True
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
        return False
    if row.get("answer") in ("accept", "reject", "ignore") and {"_task_hash", "_input_hash"} & row.keys():
        return True
    return isinstance(row.get("cats"), Mapping) or any(isinstance(row.get(key), list) for key in ("label", "labels", "entities"))


def annotated_table(file: Path, wanted: Wanted) -> pl.DataFrame:
    """The rows that have an answer, as a table with the columns text and label. Texts of ``tags`` are lists of words.

    A text that several people labelled has several rows. Raises ``DataError`` that names the first rows that cannot be read.
    """
    rows, _, wrong = read_annotations(file, wanted)
    refuse_rows(wrong)
    given = [row for row in rows if row.label is not None]
    texts = pl.Series("text", [row.text.split() if wanted == "tags" else row.text for row in given], strict=False)
    labels = pl.Series("label", [row.label if isinstance(row.label, str) else [*(row.label or ())] for row in given], strict=False)
    several = pl.List(pl.String)
    kinds = {"text": several if wanted == "tags" else pl.String, "label": pl.String if wanted == "label" else several}
    return pl.DataFrame(
        [texts.cast(kinds["text"]), labels.cast(kinds["label"]), pl.Series("person", [row.person for row in given])]
    )


def annotated_texts(file: Path) -> list[str]:
    """The text of every row, labelled or not. Raises ``DataError`` that names the first rows that have none."""
    texts, wrong = list[str](), list[str]()
    for where, values in _entries(file):
        try:
            row = _as_mapping(values)
            texts.append(_text(_studio_text(row) if "data" in row and "text" not in row else row.get("text")))
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
    file: Path, wanted: Wanted, check: Callable[[str, str], None] | None = None
) -> tuple[list[Annotation], int, list[str]]:
    """The rows of a file that say something, the number of those that do not, and what is wrong with others.

    ``check`` gets each text and where it is, and raises ``DataError`` for one that cannot be taken.
    """
    rows, unlabelled, wrong = list[Annotation](), 0, list[str]()
    for where, read in _readers(file, wanted):
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


def _readers(file: Path, wanted: Wanted) -> Iterator[tuple[str, _Reader]]:
    """Each row of a file: where it is, and what reads it."""
    ending, person = without_compression(file).suffix.lower(), without_compression(file).stem
    if ending in (".csv", ".tsv", ".parquet"):
        table = read_table(Source(path=str(file)), file, ENDINGS[ending])
        for column in ("text", "label"):
            if column not in table.columns:
                raise DataError(f"{file} must have the columns text and label, but has {', '.join(table.columns)}; rename them")
        for number, values in enumerate(table.iter_rows(named=True), 1):
            where = f"{file}, row {number}"
            yield where, partial(_table_row, values, where, person, wanted)
    elif ending in (".json", ".jsonl", ".ndjson"):
        for where, values in _entries(file):
            if ending == ".json" and not _is_line(values):
                yield from _task_readers(values, where, person, wanted)
            else:
                yield where, partial(_json_row, values, where, person, wanted)
    else:
        raise DataError(
            f"labels are read from .csv, .tsv, .parquet, .ndjson, .jsonl and .json files, but got {file}; save them as one of these"
        )


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
        raise DataError(f"{file} must hold a list, as the JSON export of Label Studio does, but holds {_short(tasks)}")
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
    """Whether an entry of a list reads like a line of JSON lines, as spaCy's do."""
    return _is_pair(values) or (isinstance(values, Mapping) and isinstance(values.get("cats"), Mapping))


def _shape(values: Any) -> Wanted | None:
    """What a row says of its text; None if it says nothing."""
    if isinstance(values, Mapping) and isinstance(values.get("annotations", values.get("completions")), list):
        results = [one for annotation in values.get("annotations", values.get("completions")) if isinstance(annotation, Mapping)
                   for one in annotation.get("result") or () if isinstance(one, Mapping)]  # fmt: skip
        if any(one.get("type") == "labels" for one in results):
            return "tags"
        choices = [value.get("choices") for one in results if isinstance(value := one.get("value"), Mapping)]
        return "labels" if any(isinstance(names, list) and len(names) > 1 for names in choices) else "label"
    row = _as_mapping(values)
    if isinstance(row.get("cats"), Mapping):
        return "label" if len(_categories(row["cats"])) == 1 else "labels"
    given = next((row[key] for key in ("accept", "label", "labels", "entities", "spans") if key in row), None)
    if not isinstance(given, list):
        return None if given is None else "label"
    if "spans" in row or "entities" in row or any(isinstance(one, list | Mapping) for one in given):
        return "tags" if "accept" not in row else "label"
    return "labels" if len(given) > 1 else "label"


def _as_mapping(values: Any) -> Mapping[str, Any]:
    """A row of JSON lines by name; spaCy's pairs become one. Raises ``RowError`` for anything else."""
    if _is_pair(values):
        return {"text": values[0], **values[1]}
    if not isinstance(values, Mapping):
        raise RowError(f"must hold values by name, but holds {_short(values)}")
    return values


# ------------------------------------------------------------------------------------------------ rows


def _table_row(values: Mapping[str, Any], where: str, person: str, wanted: Wanted) -> Annotation:
    """A row with the columns text and label."""
    text, label = values.get("text"), values.get("label")
    if label is None or label == "" or (isinstance(label, str) and not label.strip()):
        raise UnlabelledRow
    name = _who(values, person)
    if wanted != "tags":
        return Annotation(where, _text(text), name, _chosen([label], wanted))
    if isinstance(text, str) and isinstance(label, str):  # as the page offers them, with spaces between
        text, label = text.split(), label.split()
    if not isinstance(text, list) or not isinstance(label, list) or len(text) != len(label) or not text:
        raise RowError("must have one label for each word, in two lists")
    if any(not isinstance(word, str) or not word or word.split() != [word] for word in text):
        raise RowError("must have words without white space")
    return Annotation(where, " ".join(text), name, tuple(map(_label, label)))


def _json_row(row: Any, where: str, person: str, wanted: Wanted) -> Annotation:
    """A line of Prodigy (with ``answer``), spaCy (``cats``, or a pair), doccano (lists or spans), or with a text and a label."""
    values = _as_mapping(row)
    if "answer" in values:
        return _prodigy(values, where, _who(values, person), wanted)
    if isinstance(values.get("cats"), Mapping) and wanted != "tags":
        return Annotation(where, _text(values.get("text")), _who(values, person), _chosen(_categories(values["cats"]), wanted))
    given = next((values[key] for key in ("label", "labels", "entities") if key in values), None)
    if given is None:
        raise UnlabelledRow if "text" in values else RowError("must have text and label, but has neither")
    if isinstance(values.get("text"), list) or not isinstance(given, list):
        return _table_row({**values, "label": given}, where, person, wanted)
    text = _text(values.get("text"))
    comment = " ".join(str(one) for one in values.get("Comments") or values.get("comments") or [])
    if wanted != "tags":
        return Annotation(where, text, _who(values, person), _chosen(given, wanted), comment=comment)
    return Annotation(where, text, _who(values, person), _tags(text, [_span(one) for one in given]), comment=comment)


def _categories(cats: Mapping[str, Any]) -> list[str]:
    """The names that spaCy's ``cats`` give at least 0.5."""
    if wrong := [value for value in cats.values() if not isinstance(value, bool | int | float)]:
        raise RowError(f"must have a number for each name in cats, but has {_short(wrong[0])}")
    return [name for name, value in cats.items() if value >= 0.5]


def _prodigy(values: Mapping[str, Any], where: str, person: str, wanted: Wanted) -> Annotation:
    text = _text(values.get("text"))
    if values["answer"] == "ignore":
        return Annotation(where, text, person, None)
    if values["answer"] == "reject":
        raise UnlabelledRow
    if values["answer"] != "accept":
        raise RowError(f"must have the answer accept, reject or ignore, but has {_short(values['answer'])}")
    if wanted == "tags":
        return Annotation(where, text, person, _tags(text, [_span(one) for one in _list(values.get("spans") or [], "spans")]))
    given = values.get("accept", values.get("label"))
    return Annotation(where, text, person, _chosen(given if isinstance(given, list) else [given], wanted))


def _task_readers(task: Any, where: str, person: str, wanted: Wanted) -> Iterator[tuple[str, _Reader]]:
    """What reads each annotation of a task of Label Studio."""
    annotations = task.get("annotations", task.get("completions")) if isinstance(task, Mapping) else None
    if not isinstance(annotations, list):
        yield where, partial(_no_annotations, task)
        return
    for annotation in annotations:
        yield where, partial(_annotation, task, annotation, where, person, wanted)
    if not annotations:
        yield where, _unlabelled


def _no_annotations(task: Any) -> Annotation:
    _as_mapping(task)
    raise RowError("must have annotations, as in the JSON export of Label Studio (not JSON-MIN)")


def _unlabelled() -> Annotation:
    raise UnlabelledRow


def _annotation(task: Mapping[str, Any], annotation: Any, where: str, person: str, wanted: Wanted) -> Annotation:
    if not isinstance(annotation, Mapping):
        raise RowError("must have data, and annotations with values by name")
    text = _text(_studio_text(task))
    by = annotation.get("completed_by")
    by = by.get("email") or by.get("id") if isinstance(by, Mapping) else by
    who = person if by is None else str(by)
    seconds = annotation.get("lead_time")
    seconds = float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 1e7 else 0.0
    if annotation.get("was_cancelled"):
        return Annotation(where, text, who, None, seconds)
    kind = "labels" if wanted == "tags" else "choices"
    results = [_studio_value(one, kind) for one in _list(annotation.get("result"), "result")]
    found = [one for one in results if one is not None]
    if wanted == "tags":
        spans = [(one["start"], one["end"], _only(one[kind])) for one in found]
        return Annotation(where, text, who, _tags(text, [_checked_span(*span) for span in spans]), seconds)
    return Annotation(where, text, who, _chosen([name for one in found for name in _list(one[kind], kind)], wanted), seconds)


def _studio_text(task: Mapping[str, Any]) -> Any:
    """The text of a task of Label Studio: that called text, or the only string."""
    data = task.get("data")
    if not isinstance(data, Mapping):
        raise RowError("must have data, and annotations with values by name")
    strings = [value for value in data.values() if isinstance(value, str)]
    return data["text"] if "text" in data else strings[0] if len(strings) == 1 else None


def _studio_value(result: Any, wanted: str) -> Mapping[str, Any] | None:
    """The value of a result of the wanted type; None for another type."""
    if not isinstance(result, Mapping) or not isinstance(result.get("value"), Mapping):
        raise RowError("must have results with a type and a value")
    if result.get("type") != wanted:
        return None
    value: Mapping[str, Any] = result["value"]
    needed = (wanted, "start", "end") if wanted == "labels" else (wanted,)
    if missing := [key for key in needed if key not in value]:
        raise RowError(f"has a value of {wanted} without {missing[0]}")
    return value


# ------------------------------------------------------------------------------------------------ values


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise RowError(f"must have a text, but has {_short(text)}")
    return text


def _who(values: Mapping[str, Any], default: str) -> str:
    named = [str(values[key]) for key in PERSON_KEYS if values.get(key) not in (None, "")]
    return named[0] if named else default


def _label(label: Any) -> str:
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise RowError(f"must have the name of a label, but has {_short(label)}")
    return str(label).strip()


def _chosen(labels: list[Any], wanted: Wanted) -> str | tuple[str, ...]:
    """The label of a list, or all of them; an empty list is an answer only if any number is wanted."""
    return tuple(map(_label, labels)) if wanted == "labels" else _only(labels)


def _only(labels: Any) -> str:
    """The one label of a list. A row with none has no answer."""
    labels = _list(labels, "labels")
    if not labels:
        raise UnlabelledRow
    if len(labels) > 1:
        raise RowError(f"must have one label, but has {len(labels)}: {_short(labels)}")
    return _label(labels[0])


def _list(values: Any, what: str) -> list[Any]:
    if not isinstance(values, list):
        raise RowError(f"must have a list of {what}, but has {_short(values)}")
    return values


def _span(span: Any) -> tuple[int, int, str]:
    """A span from a list of three, or from values by name."""
    if isinstance(span, Mapping):
        ends = [span.get(key, span.get(f"{key}_offset")) for key in ("start", "end")]
        return _checked_span(ends[0], ends[1], span.get("label"))
    if isinstance(span, list) and len(span) == 3:
        return _checked_span(*span)
    raise RowError(f"must have spans as [start, end, label], but has {_short(span)}")


def _checked_span(start: Any, end: Any, label: Any) -> tuple[int, int, str]:
    if type(start) is not int or type(end) is not int or not 0 <= start < end:
        raise RowError(f"must have spans that begin before they end, but one is from {_short(start)} to {_short(end)}")
    return start, end, _label(label)


def _tags(text: str, spans: Sequence[tuple[int, int, str]]) -> tuple[str, ...]:
    """The label of each word: that of the span that touches it.

    ``"Ada, of London"`` with ``(0, 3, "PER")`` and ``(8, 14, "LOC")`` -> ``("PER", "O", "LOC")``.
    """
    tags, at = [], 0
    for _, end, _ in spans:
        if end > len(text):
            raise RowError(f"has a span that ends at {end}, but its text at {len(text)}")
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        names = {label for first, last, label in spans if first < at and last > start}
        if len(names) > 1:
            raise RowError(f"has several labels for the word {_short(word)}: {', '.join(sorted(names))}")
        tags.append(names.pop() if names else OUTSIDE_NAME)
    return tuple(tags)


def _short(value: Any) -> str:
    return repr(value)[:80]
