"""Arrays that are kept for later runs: the same bits or nothing, never an error, never more than the limit."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from warmstart.system import array_store
from warmstart.system.array_store import ArrayStore, Kept
from warmstart.system.processes import in_workers

SIZE = 300


def entries(first: int, last: int) -> dict[bytes, Kept]:
    return {b"%d" % i: Kept(np.random.default_rng(i).normal(size=SIZE).astype(np.float32), i / 7) for i in range(first, last)}


def same(found: dict[bytes, Kept], wanted: dict[bytes, Kept]) -> bool:
    equal = all(np.array_equal(found[key].values, one.values) and found[key].seconds == one.seconds for key, one in wanted.items())
    return found.keys() == wanted.keys() and equal


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    """Bit for bit, with its seconds, of its own family and size only; without a file there is nothing."""
    store, given = ArrayStore(tmp_path / "sub" / "arrays"), entries(0, 1200)
    keys = [*given, b"other"]
    assert store.read("a", keys, SIZE) == {}
    store.write("a", given)
    assert same(ArrayStore(store.file).read("a", keys, SIZE), given)
    assert store.count("a", keys) == len(given)
    assert store.read("b", keys, SIZE) == store.read("a", keys, SIZE - 1) == ArrayStore().read("a", keys, SIZE) == {}


def test_a_damaged_file_counts_as_none_and_is_made_anew(tmp_path: Path) -> None:
    """Cut, flipped anywhere, foreign or of another table: never a wrong number, and the next run can write again."""
    store, given = ArrayStore(tmp_path / "arrays"), entries(0, 40)
    assert store.file
    store.write("a", given)
    data = store.file.read_bytes()
    with sqlite3.connect(tmp_path / "foreign") as connection:
        connection.execute("create table arrays (other text)")
    connection.close()
    flipped = [data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :] for at in range(20, len(data), len(data) // 40)]
    for damaged in (data[: len(data) // 2], data[:-5], b"no database", (tmp_path / "foreign").read_bytes(), *flipped):
        store.file.write_bytes(damaged)
        again = ArrayStore(store.file)
        found = again.read("a", [*given], SIZE)
        assert same(found, {key: given[key] for key in found})
        again.write("a", given)
        ArrayStore(store.file).write("a", given)
        assert same(ArrayStore(store.file).read("a", [*given], SIZE), given)


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in place of the folder, a folder in place of the file, another process that never ends, and a user without a home."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(array_store, "WAIT", 0.01)
    ArrayStore(tmp_path / "held").write("a", entries(0, 1))
    holder = sqlite3.connect(tmp_path / "held")
    holder.execute("begin exclusive")
    monkeypatch.setattr(array_store, "cache_folder", lambda: None)
    stores = (
        ArrayStore(tmp_path / "file" / "x"),
        ArrayStore(tmp_path / "folder"),
        ArrayStore(tmp_path / "held"),
        ArrayStore.of_user(),
    )
    for store in stores:
        store.write("a", entries(0, 2))
        assert store.read("a", [b"0"], SIZE) == {}
        assert store.count("a", [b"0"]) == 0
    holder.close()


def test_what_was_used_longest_ago_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays within its limit; what is read stays longer than what is not."""
    store, day = ArrayStore(tmp_path / "arrays", limit=300_000), 86_400.0
    assert store.file
    for number in range(30):
        monkeypatch.setattr(array_store.time, "time", lambda number=number: number * day)
        store.write("a", entries(10 * number, 10 * number + 10))
        assert len(store.read("a", [b"3"], SIZE)) == 1
    assert store.file.stat().st_size < 1.2 * store.limit
    assert store.count("a", [*entries(290, 300)]) == 10
    assert store.count("a", [*entries(0, 50)]) == 1


def _write(file: Path, number: int) -> int:
    store = ArrayStore(file)
    for i in range(10):
        store.write("a", entries(100 * number + 10 * i, 100 * number + 10 * i + 10))
    return store.count("a", [*entries(100 * number, 100 * number + 100)])


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """None loses what another wrote."""
    calls = [(tmp_path / "arrays", number) for number in range(4)]
    assert [count for _, count in in_workers(_write, calls, 2, RuntimeError)] == [100] * 4
    wanted = entries(0, 400)
    assert same(ArrayStore(tmp_path / "arrays").read("a", [*wanted], SIZE), wanted)
