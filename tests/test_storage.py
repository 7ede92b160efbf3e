"""Atomic writes leave the old or the new, whole; one process writes a folder at a time; arrays are kept for later runs."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from helpers.holding import held_by_another
from helpers.refusals import refused
from helpers.tasks import write_race_inputs
from warmstart.cli import main
from warmstart.errors import StorageError
from warmstart.runs.run import Run
from warmstart.studies.lab import StudyLabConfig
from warmstart.system import array_store, storage
from warmstart.system.array_store import ArrayStore, Kept
from warmstart.system.locks import LOCK, discard_dead, hold, releasing_locks
from warmstart.system.processes import in_workers
from warmstart.system.storage import atomic_file, atomic_folder, atomic_write, inside, make_folder, sealed, sweep, unsealed
from warmstart.tokenizer.tokenizer import Tokenizer

DEAD = subprocess.Popen([sys.executable, "-c", ""])
DEAD.wait()


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """An error while it is written leaves the old folder as it was, and nothing beside it."""
    target = tmp_path / "model"
    with atomic_folder(target) as temporary:
        (temporary / "a").write_text("old")
        assert not target.exists()

    def fail() -> None:
        with atomic_folder(target) as temporary:
            (temporary / "a").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (target / "a").read_text() == "old"


def failing_rename(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rename of this number finds a full disk."""
    replace, calls = os.replace, list[object]()

    def rename(source: Path, destination: Path) -> None:
        calls.append(source)
        if len(calls) == number:
            raise OSError(28, "No space left on device")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", rename)


def test_a_refused_rename_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the new folder cannot take its place, the old one returns to it."""
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    monkeypatch.setattr(storage, "_exchange", lambda *_: False)
    failing_rename(2, monkeypatch)
    with (
        pytest.raises(StorageError, match="cannot write .*model: No space left on device; free some space or choose"),
        atomic_folder(target) as temporary,
    ):
        (temporary / "a").write_text("new")
    assert (target / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_file_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure leaves the old content, no temporary file, and a message that names what was to be written."""
    file = tmp_path / "tokenizer.json"
    atomic_write(file, b"old")
    assert file.read_bytes() == b"old"
    failing_rename(1, monkeypatch)
    with pytest.raises(StorageError, match=r"cannot write the tokenizer to .*tokenizer\.json: No space left"):
        atomic_write(file, b"new", "the tokenizer")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(("number", "advice"), {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some space or choose another folder",
    errno.EACCES: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "choose another folder",
}.items())  # fmt: skip
def test_what_to_do_depends_on_what_went_wrong(number: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space is to be freed only where it is short."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", fails)
    for place, write in ((tmp_path / "a", make_folder), (tmp_path / "a" / "b", lambda file: atomic_write(file, b""))):
        refused(StorageError, f"{re.escape(str(place))}: {os.strerror(number)}; {advice}$", write, place)


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    """A file in the place of a folder, a folder in the place of a file, and a lock in a folder that is not there."""
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    refused(StorageError, "a part of this one is a file$", make_folder, tmp_path / "file" / "new")
    refused(StorageError, "a part of this one is a file$", make_folder, tmp_path / "file")
    refused(StorageError, "choose a name that no folder has$", atomic_write, tmp_path / "folder", b"")
    refused(StorageError, r"none/\.warmstart\.lock: No such file .*; choose another", hold, tmp_path / "none" / LOCK, "the run")


def test_threads_that_write_one_file_do_not_meet(tmp_path: Path) -> None:
    """Each has its own file aside, the last one wins, and nothing is left."""
    met = threading.Barrier(4, timeout=60)

    def write(number: int) -> None:
        with atomic_file(tmp_path / "page.html") as aside:
            met.wait()
            aside.write_text(f"page {number}")
            met.wait()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert (tmp_path / "page.html").read_text() in [f"page {number}" for number in range(4)]
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    """Only plain relative names are file names."""
    for name in ("../x", "/x", ".hidden", "a/../x", "a//b", "", None, 7, "a\\b"):
        with pytest.raises(ValueError, match="must be plain and relative, but is"):
            inside(tmp_path, name)


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    """Except those of a hub's cache, from ``snapshots/REVISION`` into ``blobs`` beside it."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "data").write_text("x")
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "weights").symlink_to(tmp_path / "blobs" / "data")
    assert inside(snapshot, "weights").read_text() == "x"
    (snapshot / "secret").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="must lie in .* but leads to"):
        inside(snapshot, "secret")


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_changes_places_with_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool) -> None:
    """In one step, in which its name always leads to a complete folder; in two where the system cannot."""
    target, seen = tmp_path / "model", list[bool]()
    target.mkdir()
    if not exchanges:
        monkeypatch.setattr(storage, "_exchange", lambda *_: False)
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (replace(*paths), seen.append(target.exists())))
    with atomic_folder(target) as temporary:
        (temporary / "b").write_text("new")
    assert [path.name for path in target.iterdir()] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert seen == ([] if exchanges and sys.platform == "linux" else [False, True])


def test_what_a_dead_process_left_is_swept(tmp_path: Path) -> None:
    """When the same file or folder is written again, or the folder around it is opened; other things stay."""
    for name in ("model", "other", "a.json", "in/model"):
        (tmp_path / f"{name}/x").parent.mkdir(parents=True, exist_ok=True)
        path = tmp_path / name
        path.with_name(f".{path.name}.writing-{DEAD.pid}").mkdir()
    (tmp_path / f".file.writing-{DEAD.pid}@{platform.node()}").write_text("x")
    (tmp_path / ".model.writing-x").mkdir()
    with atomic_folder(tmp_path / "model"):
        pass
    atomic_write(tmp_path / "file", b"")
    hidden = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob(".*"))
    assert hidden == [
        f".a.json.writing-{DEAD.pid}",
        ".model.writing-x",
        f".other.writing-{DEAD.pid}",
        f"in/.model.writing-{DEAD.pid}",
    ]
    sweep(tmp_path)
    assert [path.name for path in tmp_path.rglob(".*")] == [".model.writing-x"]


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    """Of this host; and what any process of another host writes, of which nobody here knows whether it lives."""
    names = [f".model.{role}-{pid}" for role in ("writing", "old") for pid in (os.getpid(), os.getppid(), f"{DEAD.pid}@elsewhere")]
    for name in names:
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_an_old_folder_returns_if_the_new_one_never_arrived(tmp_path: Path) -> None:
    """After a kill between the two renames; if the new one is there, the old one goes."""
    for name in ("model", "done"):
        (tmp_path / f".{name}.old-{DEAD.pid}").mkdir()
        (tmp_path / f".{name}.old-{DEAD.pid}" / "a").write_text("old")
    (tmp_path / "done").mkdir()
    sweep(tmp_path)
    assert {path.name: [file.name for file in path.iterdir()] for path in tmp_path.iterdir()} == {"model": ["a"], "done": []}


def test_a_seal_finds_every_flipped_bit() -> None:
    """Of JSON that is read back: an error, or the very same values."""
    values = {"step": 90, "seconds": 1.5, "name": "ä", "rows": [[1, None], ["x", float("inf")]]}
    data = json.dumps(sealed(values)).encode()
    assert unsealed(data) == values
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert unsealed(bytes(flipped)) == values
        except ValueError:
            continue
    with pytest.raises(ValueError, match="do not match its digest"):
        unsealed(json.dumps(values))


def test_what_is_no_sealed_json_is_a_value_error() -> None:
    """Whatever stands in the file."""
    for data, message in (
        (b"", "Expecting value"),
        (b"[]", "it must hold values by name, but holds list"),
        (b"\xff", "can't decode byte"),
        (b'{"a":' * 100_000, "it is nested too deeply"),
    ):
        with pytest.raises(ValueError, match=message):
            unsealed(data)


def test_what_a_link_names_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    """A user may keep large folders elsewhere."""
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "old").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "large", target_is_directory=True)
    with atomic_folder(tmp_path / "link") as aside:
        (aside / "new").write_text("b")
    assert (tmp_path / "link").is_symlink()
    assert [one.name for one in (tmp_path / "large").iterdir()] == ["new"]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes the folder."""
    with held_by_another(tmp_path / LOCK) as process:
        yield process


def test_a_second_process_is_refused(
    holder: subprocess.Popen[str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It learns who holds the folder, and what to do; a command, a race too, exits with code 2, and writes nothing there."""
    message = rf"the run is in use by process {holder.pid} on .+; wait until it has ended, or end it, and run the command again"
    with pytest.raises(StorageError, match=message):
        hold(tmp_path / LOCK, "the run")
    inputs = write_race_inputs(tmp_path_factory.mktemp("inputs"), tokenizer)
    for words in (["study", "lab"], ["race", str(inputs / "task"), "--backbones", str(inputs / "lm"), "--pool", "none"]):
        assert main([*words, "--out", str(tmp_path)]) == 2, words
        assert f"is in use by process {holder.pid} on" in capsys.readouterr().err, words
        assert [path.name for path in tmp_path.iterdir()] == [LOCK], words


def test_the_lock_of_a_dead_process_is_taken_over(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    """However it died."""
    discard_dead(tmp_path / LOCK)
    assert (tmp_path / LOCK).exists()
    holder.kill()
    holder.wait()
    with releasing_locks():
        hold(tmp_path / LOCK, "the run")
        hold(tmp_path / LOCK, "the run")  # a process may lock what it holds
        assert f'"process": {os.getpid()}' in (tmp_path / LOCK).read_text()
    assert not (tmp_path / LOCK).exists()
    with held_by_another(tmp_path / LOCK) as other:
        other.kill()
        other.wait()
        discard_dead(tmp_path / LOCK)
        assert not (tmp_path / LOCK).exists()


def test_a_process_that_ends_leaves_no_lock(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    """Also one that never released it."""
    assert holder.stdin is not None
    holder.stdin.close()
    assert holder.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_was_removed_is_no_lock(tmp_path: Path) -> None:
    """Whoever still has it open holds nothing: the next one makes a new file."""
    with releasing_locks():
        hold(tmp_path / LOCK, "the run")
        (tmp_path / LOCK).unlink()
        hold(tmp_path / LOCK, "the run")
        assert (tmp_path / LOCK).exists()


def test_an_opened_run_has_no_leftovers(tmp_path: Path) -> None:
    """A folder in which a killed process left nothing but an unfinished file is empty; an unfinished bundle is removed."""
    (tmp_path / f".config.yaml.writing-{DEAD.pid}").touch()
    config = StudyLabConfig(out=str(tmp_path))
    Run.open(str(tmp_path), config)
    (tmp_path / f".bundle.writing-{DEAD.pid}").mkdir()
    Run.open(str(tmp_path), config)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "config.yaml", "run.json"]


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
    flipped = [data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :] for at in range(20, len(data), len(data) // 15)]
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


@pytest.mark.journeys
def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """None loses what another wrote."""
    calls = [(tmp_path / "arrays", number) for number in range(4)]
    assert [count for _, count in in_workers(_write, calls, 2, RuntimeError)] == [100] * 4
    wanted = entries(0, 400)
    assert same(ArrayStore(tmp_path / "arrays").read("a", [*wanted], SIZE), wanted)
