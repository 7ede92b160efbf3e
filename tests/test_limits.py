"""What text, tables and settings may expand to is bounded; a stated environment variable raises the bound of compressed files."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from helpers.hostile import DEEP, LAUGHS
from warmstart.config import read_yaml
from warmstart.data import files, read
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError
from warmstart.system.limits import parse_json


@pytest.mark.parametrize(("module", "form"), [(gzip, "text"), (lzma, "csv")])
def test_compressed_text_expands_to_a_limit(module: Any, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it reading stops; the message names the variable that raises it, and with it all is read."""
    monkeypatch.setattr(files, "FREE_BYTES", 1 << 20)  # of the sixteen megabytes in a few thousand bytes
    file = tmp_path / f"text.csv.{'gz' if module is gzip else 'xz'}"
    with module.open(file, "wt") as stream:
        stream.write("text,label\n" + ("a" * 999 + ",1\n") * 16_000)
    source = Source.build({"path": str(file), "format": form})
    with pytest.raises(DataError, match=r"must hold at most [\d,]+ bytes when decompressed.*set WARMSTART_MAX_EXPANSION"):
        list(read_documents(source))
    monkeypatch.setenv("WARMSTART_MAX_EXPANSION", "100000")
    assert sum(map(len, read_documents(source))) > 15_000_000
    monkeypatch.setenv("WARMSTART_MAX_EXPANSION", "all")
    with pytest.raises(DataError, match="WARMSTART_MAX_EXPANSION must be a whole number.*but is 'all'"):
        list(read_documents(source))


@pytest.mark.parametrize("rows", [["x" * 100_000_000], ["x" * 1000, "y"] * 100_000], ids=["one text", "a repeated text"])
def test_parquet_expands_to_a_limit(rows: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that would fill the memory is met by a process of its own; texts stored once and named often are counted."""
    monkeypatch.setattr(files, "FREE_BYTES", 4 << 20)
    file = tmp_path / "rows.parquet"
    pl.DataFrame({"text": rows}).write_parquet(file, compression="zstd")
    with pytest.raises(DataError, match=r"rows\.parquet must hold at most [\d,]+ bytes when decompressed"):
        list(read_documents(Source(path=str(file))))


def test_a_pattern_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that takes too long is named, and the file is not read."""
    monkeypatch.setattr(read, "PATTERN_SECONDS", 0.2)
    file = tmp_path / "lines.txt"
    file.write_text("aaa\n" + "a" * 60 + "b\n")
    with pytest.raises(DataError, match=r"must match a line within 0.2 seconds, but line 2 of .*lines.txt takes longer"):
        list(read_documents(Source(path=str(file), pattern="^(?P<text>(a|aa)+)$")))


def test_a_table_has_a_limit_of_columns(tmp_path: Path) -> None:
    """A million of them take gigabytes in a file of two."""
    file = tmp_path / "rows.csv"
    file.write_text("," * 1_000_000 + "\n")
    with pytest.raises(DataError, match="must have at most 10,000 columns, but has 1,000,001"):
        list(read_documents(Source(path=str(file))))


MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 9))
YAML = {
    "aliases of aliases": (LAUGHS, "at most 131,072 values, those that its aliases repeat included"),
    "merged groups": (MERGES, "at most 131,072 values"),
    "an alias within itself": ("a: &a [*a]\n", r"the alias \*a is within itself"),
    "deep lists": (DEEP, "nested too deeply"),
    "a large file": ("a: " + "x" * (1 << 21), "must have at most 1,048,576 bytes of settings"),
    "an object": ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
}


def test_yaml_stands_for_what_it_says(tmp_path: Path) -> None:
    """Aliases repeat only so much, and no value of another type than text, numbers, lists and groups is made."""
    for text, said in YAML.values():
        (tmp_path / "settings.yaml").write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_yaml(tmp_path / "settings.yaml")
    (tmp_path / "settings.yaml").write_text("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}\n")
    assert read_yaml(tmp_path / "settings.yaml") == {"a": {"x": 1}, "b": [{"x": 1}] * 2, "c": {"x": 1, "y": 2}}


def test_json_has_limits() -> None:
    """Of depth and of values, before anything is made of it."""
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP.encode(), 10**9)
    with pytest.raises(ValueError, match="at most 3 values, but holds about 5"):
        parse_json(b"[1,[2],3,4]", 3)
