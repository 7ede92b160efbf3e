"""Fetching: by checksum, unpacked, once; and nothing is left when it fails."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.refusals import refused
from warmstart.cli import main
from warmstart.data.fetch import fetch
from warmstart.errors import DataError


@pytest.fixture
def served(tmp_path: Path, serve: Callable[[Path], str]) -> tuple[str, str]:
    """The address and checksum of a zip archive on this machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("texts/a.txt", "a text\n")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "texts.zip").write_bytes(buffer.getvalue())
    return f"{serve(tmp_path / 'www')}/texts.zip", "sha256:" + hashlib.sha256(buffer.getvalue()).hexdigest()


def test_an_archive_is_fetched_and_unpacked_once(served: tuple[str, str], tmp_path: Path) -> None:
    """A second time nothing is fetched; the archive itself does not stay."""
    url, checksum = served
    out = tmp_path / "here"
    assert main(["import", url, "--checksum", checksum, "--out", str(out)]) == 0
    assert [file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()] == ["texts/a.txt"]
    assert fetch("http://127.0.0.1:1/texts.zip", checksum, out) == out


def test_a_wrong_checksum_leaves_nothing(served: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is not what it claims to be: an error, and no folder; without a checksum nobody knows what came."""
    refused(DataError, "cannot download .*download it by hand", fetch, served[0], "sha256:" + "0" * 64, tmp_path / "here")
    assert not (tmp_path / "here").exists()
    assert main(["import", "http://nowhere/x.zip", "--checksum", "123", "--out", str(tmp_path / "x")]) == 2
    assert "--checksum must match ^(sha256|md5):[0-9a-f]+$, but is 123" in capsys.readouterr().err
    assert main(["import", "http://nowhere/x.zip", "--out", str(tmp_path / "x")]) == 2
    assert "--checksum must say what http://nowhere/x.zip is" in capsys.readouterr().err
