"""Names in place of the numbers of labels, as the ``datasets`` library keeps them: beside an Arrow file, and in a parquet file.

A folder that it saved as a whole is refused with the way to a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from warmstart.errors import DataError
from warmstart.system.limits import MANIFEST_BYTES, parse_json
from warmstart.system.storage import read_inside

_INFO = "dataset_info.json"
_SAVED = ({"state.json", _INFO}, {"dataset_dict.json"})
"""files that tell the folder of a saved dataset, or of its splits"""


def refuse_saved_dataset(folder: Path) -> None:
    """Raise ``DataError`` for a folder that ``save_to_disk`` has written."""
    if any(all((folder / name).is_file() for name in names) for names in _SAVED):
        raise DataError(
            f"{folder} is a folder of the datasets library, which is not read; write each split as a table, with the names of "
            f'labels: load_from_disk({str(folder)!r})[split].to_parquet(split + ".parquet")'
        )


def features_of(folder: Path) -> Any:
    """What ``dataset_info.json`` says of the columns of the Arrow files beside it; None if there is none."""
    return _read(folder, _INFO).get("features") if (folder / _INFO).is_file() else None


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
