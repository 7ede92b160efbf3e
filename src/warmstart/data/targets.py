r"""What a task asks for, kind by kind: how the rows of a source become inputs and targets.

    label    a text                        one of a few names
    labels   a text                        any number of names: a list, or names parted by `separator`
    number   a text                        a number
    choice   a text and its alternatives   the place of the right one, from 0
    tags     words                         a tag for each: lists, or CoNLL files (one word a line, a blank line after a text)
    span     a question and a passage      the answer and where it begins: SQuAD's JSON, or columns

Where a source names a `second` column, a text of the first three kinds is a pair. Nothing is numbered here: names stay names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.files import opened
from warmstart.data.read import read_documents, read_examples, source_files, source_format
from warmstart.data.source import Source
from warmstart.data.tables import labels_of, read_table
from warmstart.errors import DataError, suggest
from warmstart.registry import Registry

Read = tuple[list[Any], list[Any]]
"""inputs and targets, as many of each"""


def read_targets(kind: str, source: Source) -> Read:
    """All inputs of a source with what is asked of each. Raises ``DataError`` where a row does not hold what its kind needs."""
    texts, targets = READERS[kind](source)
    if not texts:
        raise DataError(f"{source.path} must hold at least one example, but is empty")
    return texts[: source.first], targets[: source.first]


def _label(source: Source) -> Read:
    if source.second is None:
        return read_examples(source)
    labels = [label for file in source_files(source) for label in labels_of(_table(source, file), source, file)]
    return [_input(row, source) for row in _rows(source)], labels


def _labels(source: Source) -> Read:
    rows = list(_rows(source))
    return [_input(row, source) for row in rows], [_names(_value(row, source.label, "label"), source) for row in rows]


def _names(value: Any, source: Source) -> tuple[str, ...]:
    parts = [] if value is None else value.split(source.separator) if isinstance(value, str) else list(value)
    return tuple(name for part in parts if (name := str(part).strip()))


def _number(source: Source) -> Read:
    rows = list(_rows(source))
    targets = []
    for place, row in enumerate(rows, 1):
        try:
            targets.append(float(_value(row, source.label, "label")))
        except (TypeError, ValueError):
            targets.append(math.nan)
        if not math.isfinite(targets[-1]):
            raise DataError(f"row {place} of {source.path} must hold a number in '{source.label}', but holds {row[source.label]!r}")
    return [_input(row, source) for row in rows], targets


def _choice(source: Source) -> Read:
    texts, targets = [], []
    for place, row in enumerate(_rows(source), 1):
        offered = _offered(row, source, place)
        right = _whole(_value(row, source.label, "label"))
        if right is None or not 0 <= right < len(offered) or len(offered) < 2:
            raise DataError(
                f"row {place} of {source.path} needs two alternatives or more and the place of the right one, from 0, but has "
                f"{len(offered)} and {row[source.label]!r}"
            )
        texts.append((_text(row, source.text, "text"), *offered))
        targets.append(right)
    return texts, targets


def _offered(row: Mapping[str, Any], source: Source, place: int) -> list[str]:
    if source.alternatives:
        return [_text(row, name, "alternatives") for name in source.alternatives]
    return [str(one) for one in _list(row, "alternatives", source, place)]


def _whole(value: Any) -> int | None:
    """``1``, ``"1"`` and ``"1.0"`` -> 1; None for what is no whole number."""
    try:
        return int(float(value)) if float(value).is_integer() else None
    except (TypeError, ValueError):
        return None


def _tags(source: Source) -> Read:
    if any(
        file.name.split(".")[-1 if file.suffix not in (".gz", ".xz") else -2] in ("conll", "conllu")
        for file in source_files(source)
    ):
        pairs = [pair for file in source_files(source) for pair in _conll(source, file)]
        return [words for words, _ in pairs], [tags for _, tags in pairs]
    texts, targets = [], []
    for place, row in enumerate(_rows(source), 1):
        words, tags = (tuple(map(str, _list(row, name, source, place))) for name in (source.text, source.label))
        if len(words) != len(tags) or not words:
            raise DataError(
                f"row {place} of {source.path} must have a tag for each word, but has {len(words)} words and {len(tags)} tags"
            )
        texts.append(words)
        targets.append(tags)
    return texts, targets


def _conll(source: Source, file: Path) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Sentences of a CoNLL file. ``text`` and ``label`` are numbers of columns, from 1; as they come they are those of CoNLL-U.

    Where words stand in the first column there are no numbers of words and no comments, which look like words.
    """
    word = int(source.text) - 1 if source.text.isdecimal() else 1
    tag = int(source.label) - 1 if source.label.isdecimal() else 3
    words, tags = list[str](), list[str]()
    with opened(file, source.encoding) as lines:
        for number, line in enumerate(lines, 1):
            cells = line.rstrip("\r\n").split("\t" if "\t" in line else None)
            if line.startswith("-DOCSTART-"):
                continue
            if word and (line.startswith("#") or (cells and "-" in cells[0] and cells[0].replace("-", "").isdecimal())):
                continue  # a comment, or several words written as one
            if not line.strip():
                if words:
                    yield tuple(words), tuple(tags)
                words, tags = [], []
            elif word and "." in cells[0] and cells[0].replace(".", "").isdecimal():
                continue  # a word that was left out of the text
            elif max(word, tag) >= len(cells):
                raise DataError(f"line {number} of {file} must have at least {max(word, tag) + 1} columns, but has {len(cells)}")
            else:
                words.append(cells[word])
                tags.append(cells[tag])
    if words:
        yield tuple(words), tuple(tags)


def _span(source: Source) -> Read:
    """Targets are ``(start, end, answers)``: characters of the passage, and all answers that are right."""
    texts, targets = [], []
    for place, (question, passage, answers) in enumerate(_asked(source), 1):
        start, answer = answers[0]
        if passage[start : start + len(answer)] != answer:
            found = passage.find(answer)
            if found < 0:
                raise DataError(f"example {place} of {source.path}: the passage must hold the answer, but {answer!r} is not in it")
            start = found
        texts.append((question, passage))
        targets.append((start, start + len(answer), tuple(dict.fromkeys(answer for _, answer in answers))))
    return texts, targets


def _asked(source: Source) -> Iterator[tuple[str, str, list[tuple[int, str]]]]:
    for file in source_files(source):
        if source_format(source, file) != "text":
            for row in _rows(source.model_copy(update={"path": str(file)})):
                answer = _text(row, source.label, "label")
                passage = _text(row, source.second or "passage", "second")
                start = _whole(row["start"]) if row.get("start") else passage.find(answer)
                if start is None:
                    raise DataError(f"{file} must hold a whole number in 'start', but holds {row['start']!r}")
                if answer:  # what the passage does not say is left out, as with SQuAD 2.0
                    yield _text(row, source.text, "text"), passage, [(start, answer)]
            continue
        try:
            with opened(file, source.encoding) as stream:
                articles = json.load(stream)["data"]
            for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
                for asked in paragraph["qas"]:
                    answers = [(int(one["answer_start"]), str(one["text"])) for one in asked["answers"]]
                    if answers:  # SQuAD 2.0 also asks what the passage does not say; that is left out
                        yield asked["question"], paragraph["context"], answers
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} must be a table, or JSON as SQuAD has it, but is neither ({error})") from None


def _rows(source: Source) -> Iterator[Mapping[str, Any]]:
    """The rows of a source's tables as mappings from column to value."""
    for file in source_files(source):
        yield from _table(source, file).iter_rows(named=True)


def _table(source: Source, file: Path) -> pl.DataFrame:
    form = source_format(source, file)
    if form in ("text", "pattern"):
        raise DataError(f"{file} must be a table (csv, tsv, ndjson, parquet) for this kind of task")
    return read_table(source, file, form)


def _value(row: Mapping[str, Any], name: str, key: str) -> Any:
    if name not in row:
        raise DataError(f"there is no column '{name}'; {suggest(name, list(row))}; name the one to read with '{key}: …'")
    return row[name]


def _text(row: Mapping[str, Any], name: str, key: str) -> str:
    value = _value(row, name, key)
    return "" if value is None else str(value)


def _list(row: Mapping[str, Any], name: str, source: Source, place: int) -> Sequence[Any]:
    value = _value(row, name, name)
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise DataError(f"row {place} of {source.path} must hold a list in '{name}', but holds {value!r}")
    return list(value)


def _input(row: Mapping[str, Any], source: Source) -> str | tuple[str, str]:
    text = _text(row, source.text, "text")
    return text if source.second is None else (text, _text(row, source.second, "second"))


def read_inputs(kind: str, source: Source) -> list[Any]:
    """What stands in a source to be asked, without any target: see ``read_targets`` for the forms."""
    if kind in ("label", "labels", "number") and source.second is None:
        return list(read_documents(source))
    if kind == "tags" and all(source_format(source, file) == "text" for file in source_files(source)):
        return [tuple(line.split()) for line in read_documents(source)]
    rows = list(_rows(source))
    if kind == "tags":
        return [tuple(map(str, _list(row, source.text, source, place))) for place, row in enumerate(rows, 1)]
    if kind == "choice":
        return [(_text(row, source.text, "text"), *_offered(row, source, place)) for place, row in enumerate(rows, 1)]
    paired = source if source.second or kind != "span" else source.model_copy(update={"second": "passage"})
    return [_input(row, paired) for row in rows]


READERS: Registry[Callable[[Source], Read]] = Registry(
    "kind of task",
    {"label": _label, "labels": _labels, "number": _number, "choice": _choice, "tags": _tags, "span": _span},
)
"""Every kind of task."""
