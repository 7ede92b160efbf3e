"""Tables as the datasets library writes them, with no other library than polars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl


def arrow_table(folder: Path, table: pl.DataFrame, features: Mapping[str, Any]) -> Path:
    """An Arrow stream in a new folder, with what its columns are beside it."""
    folder.mkdir(parents=True)
    table.write_ipc_stream(folder / "data.arrow")
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}), encoding="utf-8")
    return folder / "data.arrow"


def parquet_table(file: Path, table: pl.DataFrame, features: Mapping[str, Any]) -> Path:
    """A parquet file that says itself what its columns are."""
    table.write_parquet(file, metadata={"huggingface": json.dumps({"info": {"features": features}})})
    return file


def class_label(*names: str) -> dict[str, Any]:
    """The feature of a column of labels."""
    return {"names": [*names], "_type": "ClassLabel"}
