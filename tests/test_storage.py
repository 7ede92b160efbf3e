"""Atomic writes leave either the old file or folder or the new one, whole; names never lead out of a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmstart.errors import StorageError
from warmstart.storage import atomic_folder, atomic_write, inside, sha256


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
    with atomic_folder(target) as temporary:
        (temporary / "b").write_text("new")
    assert [path.name for path in target.iterdir()] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_refused_rename_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the new folder cannot take its place, the old one returns to it."""
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    replace, calls = os.replace, list[object]()

    def second_fails(source: Path, destination: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", second_fails)
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

    def full(_source: Path, _destination: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match=r"cannot write the tokenizer to .*tokenizer\.json: No space left"):
        atomic_write(file, b"new", "the tokenizer")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("name", ["../x", "/x", ".hidden", "a/../x", "a//b", "", None, 7, "a\\b"])
def test_names_that_lead_elsewhere_are_refused(name: object, tmp_path: Path) -> None:
    """Only plain relative names are file names."""
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


def test_sha256_is_the_standard_hash() -> None:
    """Of an empty file."""
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
