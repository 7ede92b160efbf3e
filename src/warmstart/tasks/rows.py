"""What the task types share when they read examples: rows of a source's tables, values in their columns, and names of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.data.source import PROSE, Source
from warmstart.errors import ConfigError, DataError, suggest

if TYPE_CHECKING:
    import polars as pl

TableRow = Mapping[str, Any]
"""column name -> value"""
Examples = tuple[list[Any], list[Any]]
"""inputs and their targets, equally many"""


def table_rows(source: Source, *, several: bool | None = None) -> Iterator[TableRow]:
    """The rows of all tables of a source; with ``several`` (or without, False) labels in a cell those that have a label."""
    from warmstart.data.read import source_files
    from warmstart.data.tables import labelled_rows

    for file in source_files(source):
        table = task_table(source, file)
        yield from (table if several is None else labelled_rows(table, source, file, several=several)[0]).iter_rows(named=True)


def unlabelled_texts(source: Source, *, several: bool) -> list[str]:
    """The texts of the rows that have no label, of a table; of anything else none."""
    from warmstart.data.read import source_files
    from warmstart.data.tables import labelled_rows, source_format, text_column

    if source.as_label is not None or source.labels_path is not None or source.second is not None:
        return []
    files = [file for file in source_files(source) if source_format(source, file) not in (*PROSE, "pattern")]
    tables = ((labelled_rows(task_table(source, file), source, file, several=several)[1], file) for file in files)
    return [text for table, file in tables if len(table) for text in text_column(table, source, file) if text.strip()]


def task_table(source: Source, file: Path) -> pl.DataFrame:
    """One table. Raises ``DataError`` for plain text, which has no columns."""
    from warmstart.data.tables import read_table, source_format

    form = source_format(source, file)
    if form in (*PROSE, "pattern"):
        raise DataError(f"{file} must be a table (csv, tsv, ndjson, parquet) for this task type")
    return read_table(source, file, form)


def value_of(row: TableRow, column: str, key: str) -> Any:
    """The value in a column; ``key`` is the setting that names the column."""
    if column not in row:
        raise DataError(f"there is no column '{column}'; {suggest(column, list(row))}; name the column to read with {_naming(key)}")
    return row[column]


def _naming(key: str) -> str:
    """How the column of a setting is named."""
    return f"--{key}-column (in a manifest '{key}: …')" if key in ("text", "label", "group") else f"'{key}: …' in a manifest"


def string_of(row: TableRow, column: str, key: str) -> str:
    """The value in a column as a string; a missing value is the empty string."""
    value = value_of(row, column, key)
    return "" if value is None else str(value)


def list_of(row: TableRow, column: str, source: Source, number: int) -> list[Any]:
    """The list in a column; ``number`` is the row's number, from 1."""
    value = value_of(row, column, "label" if column == source.label else "text")
    if isinstance(value, str):  # as a csv file holds a list
        from warmstart.data.label_cells import listed

        value = listed(value.strip())
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise DataError(f"row {number} of {source.path} must hold a list in '{column}', but holds {row[column]!r}")
    return list(value)


def text_or_pair(row: TableRow, source: Source) -> str | tuple[str, str]:
    """The text of a row; or the pair of texts, if the source names a second column."""
    text = string_of(row, source.text, "text")
    return text if source.second is None else (text, string_of(row, source.second, "second"))


def label_names(present: Sequence[str], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The label names in the order of their numbers: as ``wanted``, else sorted.

    Names that are all whole numbers are sorted as numbers (``"2"`` before ``"10"``). ``present`` holds the labels of all training
    examples. Raises ``DataError`` for fewer than two different ones, ``ConfigError`` if ``wanted`` repeats a name.
    """
    names = set(present)
    if len(names) < 2 and wanted is None:
        found = f"all {len(present)} training examples have {names.pop()!r}" if names else "no training example has one"
        raise DataError(f"a task needs at least two labels, but {found}")
    if wanted is None:
        numeric = all(name.removeprefix("-").isdecimal() for name in names)
        return tuple(sorted(names, key=lambda name: (int(name) if numeric else 0, name)))
    if len(set(wanted)) != len(wanted):
        raise ConfigError(f"'labels' must name each label once, but repeats {Counter(wanted).most_common(1)[0][0]!r}")
    return wanted


def label_numbers(split: str, used: Iterable[str], labels: tuple[str, ...]) -> dict[str, int]:
    """Label name -> number. Raises ``DataError`` if the split uses a name that is not in ``labels``."""
    from warmstart.system.console import print_once

    numbers = {label: number for number, label in enumerate(labels)}
    unknown = Counter(label for label in used if label not in numbers)
    alike = {label: [name for name in labels if name.casefold() == label.casefold()] for label in unknown}
    for label in [label for label, names in alike.items() if len(names) == 1]:
        print_once(f"The label {label!r} of the {split} split is read as {alike[label][0]!r}.")
        numbers[label] = numbers[alike[label][0]]
        del unknown[label]
    if unknown:
        listed = ", ".join(f"{label!r} ({count}×)" for label, count in unknown.most_common(5))
        raise DataError(
            f"every label of the {split} split must be one of {', '.join(labels)}, but it has {listed}; "
            "correct the labels, or add training examples with them"
        )
    return numbers
