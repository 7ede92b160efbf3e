"""Tables and texts from data frames, without a dependency on the library that made them.

A frame is one of pandas, polars, pyarrow or ``datasets``, a mapping from names to columns, or a list of rows. Nothing is imported
to read it: a frame has the names of its columns, and gives a column by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.data.files import COMPRESSED, without_compression
from warmstart.data.formats import with_names_of_labels
from warmstart.data.tables import TextTable
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
    frame = _of_columns(frame)
    table = frame_table(frame, _names(frame)).frame
    if not len(table):
        raise DataError("the frame must have rows, but is empty")
    table.write_ndjson(file)
    return file


def _of_columns(frame: Any) -> Any:
    """A frame; a list of rows becomes a mapping from names to columns."""
    if not isinstance(frame, Sequence) or isinstance(frame, str | bytes) or not all(isinstance(row, Mapping) for row in frame):
        return frame
    return {name: [row.get(name) for row in frame] for name in dict.fromkeys(name for row in frame for name in row)}


def frame_table(frame: Any, needed: Sequence[str]) -> TextTable:
    """The columns ``needed`` of a frame, as a table like those of files; of ``subject+body`` both.

    Numbers of a ``ClassLabel`` become names. Raises ``DataError`` for a column that is missing, and for what is no frame.
    """
    frame = _of_columns(frame)
    names, place = _names(frame), Path("the frame")
    chosen = [*dict.fromkeys(part for name in needed for part in ([name] if name in names else name.split("+")))]
    if missing := [name for name in chosen if name not in names]:
        raise DataError(f"{place} has no column '{missing[0]}'; {suggest(missing[0], names)}")
    columns = {name: [*map(plain_value, frame[name])] for name in chosen}
    if len({*map(len, columns.values())}) > 1:
        lengths = ", ".join(str(len(one)) for one in columns.values())
        raise DataError(f"the columns {', '.join(chosen)} must be equally long, but have {lengths} values")
    if mixed := [name for name, cells in columns.items() if {list, str} <= {*map(type, cells)}]:
        raise DataError(f"column '{mixed[0]}' must hold texts or lists, but holds both; write each cell as a list")
    features = {name: _feature(one) for name, one in getattr(frame, "features", {}).items()}
    return TextTable(with_names_of_labels(pl.DataFrame(columns, strict=False), features, place), place)


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


def _feature(of: Any) -> dict[str, Any]:
    """What ``datasets`` says of a column, as it writes it beside its files."""
    if (inner := getattr(of, "feature", None)) is not None:
        return {"_type": "List", "feature": _feature(inner)}
    return {"_type": "ClassLabel", "names": of.names} if hasattr(of, "names") else {}


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
