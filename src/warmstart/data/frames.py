"""Rows and texts from data frames, without a dependency on the library that made them.

A frame is one of pandas, polars, pyarrow or ``datasets``, a mapping from names to columns, or a list of rows. Nothing is imported
to read it: a frame has the names of its columns, and gives a column by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from warmstart.data.files import COMPRESSED, without_compression
from warmstart.errors import DataError, suggest
from warmstart.system.storage import atomic_file

_MISSING = ("NAType", "NaTType")
"""types of the values by which pandas says that there is none"""


def write_texts(texts: Iterable[Any], file: str | Path) -> Path:
    """Write texts as a file that ``pretrain`` and every other command reads, and return its path.

    ``texts`` is any iterable of strings, such as the column of a data frame; it is read once, and never whole in memory. The name
    ends in .jsonl or .ndjson, and in .gz or .xz to compress it; an earlier file is replaced.

    >>> write_texts(frame["body"], "mails.jsonl.gz")  # doctest: +SKIP
    PosixPath('mails.jsonl.gz')
    """
    path = Path(file)
    if without_compression(path).suffix not in (".jsonl", ".ndjson"):
        raise DataError(f"texts are written as .jsonl, .jsonl.gz or .jsonl.xz, but the file is {path}; name it so")
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise DataError(f"texts must be several strings, but are {texts!r:.80}; give a list, or a column of a frame")
    with (
        atomic_file(path, "the texts") as aside,
        COMPRESSED.get(path.suffix, open)(aside, "wt", encoding="utf-8", newline="\n") as out,
    ):
        count = 0
        for count, value in enumerate(texts, 1):
            text = plain_value(value)
            if not isinstance(text, str):
                raise DataError(f"every text must be a string, but number {count} is {value!r:.80}; remove or convert it")
            out.write(json.dumps({"text": text}) + "\n")
        if not count:
            raise DataError("there must be at least one text, but there are none; give some")
    return path


def write_frame(frame: Any, file: Path) -> Path:
    """Write all columns of a frame as lines of JSON, which are read like any table, and return the path."""
    rows = frame_rows(frame, _names(_of_columns(frame)))
    if not rows:
        raise DataError("the frame must have rows, but is empty")
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8", newline="\n")
    return file


def _of_columns(frame: Any) -> Any:
    """A frame; a list of rows becomes a mapping from names to columns."""
    if not isinstance(frame, Sequence) or isinstance(frame, str | bytes) or not all(isinstance(row, Mapping) for row in frame):
        return frame
    return {name: [row.get(name) for row in frame] for name in dict.fromkeys(name for row in frame for name in row)}


def frame_rows(frame: Any, needed: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a frame as plain values: its columns ``needed``.

    A name of several columns (``subject+body``) stands for their texts one under the other, as in a file. Numbers of a
    ``ClassLabel`` become names. Raises ``DataError`` for a column that is missing, and for what is no frame.
    """
    frame = _of_columns(frame)
    names = _names(frame)
    parts = {name: [name] if name in names else name.split("+") for name in needed}
    if missing := [part for several in parts.values() for part in several if part not in names]:
        raise DataError(f"the frame has no column '{missing[0]}'; {suggest(missing[0], names)}")
    chosen = [*dict.fromkeys(chain(*parts.values()))]
    columns = [_with_names(frame, name, [plain_value(value) for value in frame[name]]) for name in chosen]
    if len({len(column) for column in columns}) > 1:
        raise DataError(
            f"the columns {', '.join(chosen)} must be equally long, but have {', '.join(str(len(one)) for one in columns)} values"
        )
    rows = [dict(zip(chosen, values, strict=True)) for values in zip(*columns, strict=True)]
    for name in {*needed} - {*names}:
        rows = [row | {name: "\n".join(str(row[one]) for one in parts[name] if row[one] not in (None, ""))} for row in rows]
    return rows


def _names(frame: Any) -> list[str]:
    """The names of the columns of a frame."""
    found = frame.keys() if isinstance(frame, Mapping) else getattr(frame, "column_names", None)
    lazy = hasattr(frame, "collect")
    found = getattr(frame, "columns", None) if found is None and not lazy else found
    several = isinstance(frame, Mapping) and any(hasattr(one, "column_names") for one in frame.values())  # a DatasetDict
    if found is None or several or lazy or not hasattr(frame, "__getitem__"):
        raise DataError(
            f"a task is made of data frames, or of lists of rows, but got {type(frame).__name__}; of a lazy frame collect() it, "
            "of a DatasetDict give each split"
        )
    return [name for name in found if isinstance(name, str)]


def _with_names(frame: Any, name: str, values: list[Any]) -> list[Any]:
    """A column of ``datasets`` with the names of labels in place of their numbers; -1 stands for none."""
    features = getattr(frame, "features", None)
    feature = features.get(name) if isinstance(features, Mapping) else None
    names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    if not isinstance(names, list):
        return values

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(one) for one in value]
        return None if value is None or value < 0 else names[value]

    return [named(value) for value in values]


def plain_value(value: Any) -> Any:
    """A cell as JSON has it: numpy's, pandas' and pyarrow's values as Python's, what is missing as None, any other as a string."""
    for convert in ("as_py", "tolist", "to_list"):
        if hasattr(value, convert):
            value = getattr(value, convert)()
            break
    if value is None or type(value).__name__ in _MISSING or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(one) for one in value]
    return str(value)
