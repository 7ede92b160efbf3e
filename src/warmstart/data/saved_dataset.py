"""A folder that the ``datasets`` library has written with ``save_to_disk``, without that library.

Its files:

    saved/state.json         the Arrow files, in their order
    saved/dataset_info.json  the names of the labels (``ClassLabel``), which are numbers in the Arrow files
    saved/data-*.arrow       the rows
    saved/dataset_dict.json  instead, in a folder of several such folders, one for each split
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.errors import DataError
from warmstart.system.limits import MANIFEST_BYTES, parse_json
from warmstart.system.storage import inside, names_a_folder, read_inside

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"


def dataset_splits(folder: Path) -> list[str] | None:
    """The splits that a folder of several datasets names, each a folder in it; None for any other folder."""
    if not (folder / SPLITS).is_file():
        return None
    names = _read(folder, SPLITS).get("splits")
    if not isinstance(names, list) or not all(_is_split(folder, name) for name in names):
        raise DataError(f"{folder / SPLITS} must name the folders of splits, but does not; save the dataset again")
    return names


def dataset_files(folder: Path) -> list[Path] | None:
    """The Arrow files of a saved dataset, in their order; None for any other folder.

    Raises ``DataError`` for several datasets, and for files that are missing.
    """
    if splits := dataset_splits(folder):
        raise DataError(
            f"{folder} holds the splits {', '.join(splits)} of a saved dataset; name one of them, for instance {folder / splits[0]}"
        )
    if not (folder / STATE).is_file() or not (folder / INFO).is_file():
        return None
    state = _read(folder, STATE)
    entries = state.get("_data_files")
    if state.get("_indices_data_files") or not isinstance(entries, list) or not entries:
        raise DataError(f"{folder / STATE} must list the Arrow files of the rows; save the dataset again with a recent datasets")
    files = []
    for entry in entries:
        name = entry.get("filename") if isinstance(entry, Mapping) else None
        try:
            file = inside(folder, name)
        except ValueError as error:
            raise DataError(f"{folder / STATE} must list files of its own folder: {error}; save the dataset again") from None
        if not file.is_file():
            raise DataError(f"{folder} must hold the files that {STATE} lists, but {name!r} is missing; copy the folder again")
        files.append(folder / str(name))
    return files


def _is_split(folder: Path, name: Any) -> bool:
    return isinstance(name, str) and names_a_folder(name) and all((folder / name / file).is_file() for file in (STATE, INFO))


def features_of(folder: Path) -> Any:
    """What a saved dataset says of its columns; None if it says nothing."""
    return _read(folder, INFO).get("features") if (folder / INFO).is_file() else None


def features_in_parquet(metadata: Mapping[str, str]) -> Any:
    """The same of a parquet file that ``datasets`` has written."""
    try:
        return parse_json(metadata.get("huggingface", "{}").encode())["info"]["features"]
    except (ValueError, LookupError, TypeError):
        return None


def with_names_of_labels(table: pl.DataFrame, features: Any, file: Path) -> pl.DataFrame:
    """A table with names in place of the numbers of labels; -1, which stands for no label, becomes missing."""
    for column, feature in (features or {}).items() if isinstance(features, Mapping) else ():
        if column not in table.columns or not isinstance(feature, Mapping):
            continue
        inner = feature.get("feature") if feature.get("_type") in ("Sequence", "List", "LargeList") else None
        names = _names(inner if inner is not None else feature)
        if names is None:
            continue
        wanted = pl.List(pl.String) if inner is not None else pl.String
        values = [_named(value, names, file, column) for value in table[column].to_list()]
        table = table.with_columns(pl.Series(column, values, dtype=wanted))
    return table


def _names(feature: Any) -> list[str] | None:
    """The names of a ``ClassLabel``; None for another feature."""
    names = feature.get("names") if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) else None


def _named(value: Any, names: list[str], file: Path, column: str) -> Any:
    if isinstance(value, list):
        return [_named(one, names, file, column) for one in value]
    if value is None or value == -1:
        return None
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise DataError(
            f"'{column}' in {file} must hold numbers of labels from 0 to {len(names) - 1}, as it says, but holds {value!r}; "
            "save the dataset again"
        )
    return names[value]


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        values = parse_json(read_inside(folder, name, MANIFEST_BYTES))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {folder / name} ({error}); copy the folder again") from None
    if not isinstance(values, dict):
        raise DataError(f"{folder / name} must hold values by name, but does not; copy the folder again")
    return values
