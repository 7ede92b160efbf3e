"""Text and archives from elsewhere: the same as here, or a clear error; no name that a file holds leads out of its folder."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.models import SENTENCES
from helpers.refusals import refused
from warmstart.cli import main
from warmstart.commands.import_ import fetch
from warmstart.commands.recipe import read_recipe
from warmstart.commands.settings import TokenizeConfig
from warmstart.commands.tokenize import tokenize
from warmstart.corpora import write as write_module
from warmstart.corpora.write import text_here
from warmstart.data.read import read_documents, source_files
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError, StorageError, WarmstartError
from warmstart.experiment.store import SweepContext, find_result, result_file
from warmstart.experiment.trial import Method, Trial
from warmstart.finetuning.config import FineTuneConfig
from warmstart.interop.companions import read_pooling
from warmstart.interop.folder import find_folder, shards_of
from warmstart.system import urls
from warmstart.system.storage import inside, names_a_folder
from warmstart.system.urls import bring, is_url, remote_files
from warmstart.tasks.load import load_named_tasks
from warmstart.tokenizer.tokenizer import Tokenizer

fsspec = pytest.importorskip("fsspec")
LINES = [f"{sentence} {number}" for number in range(30) for sentence in SENTENCES]


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system in memory, empty."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def put(memory: Any, folder: Path, name: str) -> None:
    """Copy a folder into memory, in place of what was there."""
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)
    for file in folder.rglob("*"):
        if file.is_file():
            memory.pipe(f"/{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder of text on this machine."""
    (tmp_path / "text" / "inner").mkdir(parents=True)
    (tmp_path / "text" / "a.txt").write_text("\n\n".join(LINES[:70]))
    (tmp_path / "text" / "inner" / "b.txt").write_text("\n\n".join(LINES[70:]))
    (tmp_path / "text" / ".hidden").write_text("not read")
    return tmp_path / "text"


@pytest.fixture
def elsewhere(here: Path, memory: Any) -> str:
    """The same folder in memory."""
    put(memory, here, "text")
    return "memory://text"


@pytest.fixture
def kept_tokenizer(tmp_path: Path, tokenizer: Tokenizer) -> str:
    """The file of a tokenizer."""
    tokenizer.save(tmp_path / "tokenizer.json")
    return str(tmp_path / "tokenizer.json")


def test_what_a_url_is() -> None:
    """A protocol of at least two letters, and two slashes, and no drive; commands that read none say so."""
    assert all(map(is_url, ["s3://bucket/a", "file:///a", "https://example.org/", "memory://a"]))
    assert not any(map(is_url, ["a/b", "C://a", "/a:b", "a:b//c", "./s3"]))
    with pytest.raises(DataError, match="is a URL, which only pretrain and tokenize read; download it first"):
        source_files(Source(path="s3://bucket/text"))


def test_the_files_of_a_url(elsewhere: str, here: Path) -> None:
    """A folder, a glob or one file, in the order of their names, with sizes; hidden ones are skipped."""
    for root in (elsewhere, f"file://{here}"):
        assert [(one.name, one.size) for one in remote_files(root)] == [
            (name, (here / name).stat().st_size) for name in ("a.txt", "inner/b.txt")
        ]
        assert [one.name for one in remote_files(f"{root}/inner/*.txt")] == ["b.txt"]
        assert [one.name for one in remote_files(f"{root}/a.txt")] == ["a.txt"]
        with pytest.raises(DataError, match=r"no such file or folder: .*absent; check the address"):
            remote_files(f"{root}/absent")
        with pytest.raises(DataError, match="must hold at least one file that is not hidden, but holds none"):
            remote_files(f"{root}/*.csv")


def test_text_elsewhere_is_the_text_here(elsewhere: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by pretrain from a copy, which is brought once."""
    expected = list(read_documents(Source(path=str(here))))
    for url, found in ((elsewhere, expected), (f"{elsewhere}/a.txt", LINES[:70])):
        assert list(read_documents(text_here(Source(path=url, document="paragraph"), tmp_path / "cache"))) == found
    monkeypatch.setattr("warmstart.corpora.write.bring", None)
    assert list(read_documents(text_here(Source(path=elsewhere, document="paragraph"), tmp_path / "cache"))) == expected
    assert text_here(Source(path=str(here), document="line"), tmp_path) == Source(path=str(here), document="line")


def test_text_that_is_gone_elsewhere_is_not_read(elsewhere: str, memory: Any, tmp_path: Path) -> None:
    """Though an earlier run has a copy of it."""
    text_here(Source(path=elsewhere, document="paragraph"), tmp_path / "cache")
    memory.rm("/text/a.txt")
    assert list(read_documents(text_here(Source(path=elsewhere, document="paragraph"), tmp_path / "cache"))) == LINES[70:]


def test_links_that_sort_a_listing_are_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As web servers write them above a folder's files."""
    root = "http://here/text/"
    places = [f"{root}a.txt", f"{root}?C=N;O=D", "http://here/other.txt", root]
    system = SimpleNamespace(
        find=lambda *_, **__: {place: {"type": "file", "size": 3} for place in places}, unstrip_protocol=lambda place: place
    )
    monkeypatch.setattr(urls, "_file_system", lambda _: (system, root))
    assert [(one.name, one.url) for one in remote_files(root)] == [("a.txt", f"{root}a.txt")]


def test_tokenize_reads_urls(elsewhere: str, here: Path, tmp_path: Path, kept_tokenizer: str) -> None:
    """The same shards as from this machine, and nothing that was fetched is left."""
    indexes = [
        tokenize(TokenizeConfig(text=(text,), out=str(tmp_path / name), tokenizer_file=kept_tokenizer))
        for text, name in ((str(here), "one"), (elsewhere, "two"))
    ]
    assert indexes[0] == indexes[1]
    assert not (tmp_path / "two" / write_module.WORK).exists()


def test_shards_elsewhere_are_no_text(elsewhere: str, memory: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with what to do."""
    assert main(["tokenize", elsewhere, "--out", str(tmp_path / "shards"), "--tokenizer.vocab-size", "330"]) == 0
    put(memory, tmp_path / "shards", "shards")
    for command in ("tokenize", "pretrain"):
        capsys.readouterr()
        assert main([command, "memory://shards", "--out", str(tmp_path / "none")]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "memory://shards holds token shards, which are read on this machine alone; copy the folder here first" in said


def test_half_a_file_is_never_taken_for_a_whole_one(elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that fails, and one that ends early: a sentence, and nothing is left."""
    system = type(fsspec.filesystem("memory"))

    def reset(self: Any, source: str, target: str, **named: Any) -> None:
        Path(target).write_bytes(b"half")
        raise ConnectionResetError("the other side hung up")

    def short(self: Any, source: str, target: str, **named: Any) -> None:
        Path(target).write_bytes(b"half")

    for copy, message in (
        (reset, "ConnectionResetError: the other side hung up.; check the address and the connection"),
        (short, "must have 9 bytes, but 4 came; run the same command again"),
    ):
        monkeypatch.setattr(system, "get_file", copy)
        with pytest.raises(DataError, match=message):
            bring(f"{elsewhere}/a.txt", tmp_path / "copy.txt", 9)
        assert not [one for one in tmp_path.iterdir() if "copy" in one.name]


def test_a_full_disk_is_not_the_connections_fault(elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said as it is."""

    def full(self: Any, source: str, target: str, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", full)
    with pytest.raises(StorageError, match="No space left on device; free some space"):
        bring(f"{elsewhere}/a.txt", tmp_path / "copy")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec with the extra, the package of a protocol beside it; an unknown protocol is no package."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "s3fs", None)
        with pytest.raises(ConfigError, match=r"cannot be opened .*: pip install \"warmstart\[remote\]\", and the package of"):
            remote_files("s3://bucket/text")
    with pytest.raises(ConfigError, match="must have a protocol that fsspec knows, such as s3, gs or https"):
        remote_files("nowhere://a")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ConfigError, match=r"cannot be opened .*: pip install \"warmstart\[remote\]\""):
        remote_files("memory://a")


def test_pretraining_by_url(elsewhere: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; on what is not there 2, and one sentence."""
    small = ["--depth", "1", "--width", "16", "--heads", "2", "--max-length", "16", "--steps", "2"]
    assert main(["pretrain", elsewhere, "--out", str(tmp_path / "text-run"), *small, "--tokenizer.vocab-size", "330"]) == 0
    capsys.readouterr()
    assert main(["pretrain", "memory://absent", "--out", str(tmp_path / "none"), *small]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("warmstart: no such file or folder: memory://absent")


def test_text_over_http(serve: Callable[[Path], str], here: Path, tmp_path: Path, kept_tokenizer: str) -> None:
    """A folder's address ends with a slash."""
    pytest.importorskip("aiohttp", reason="http:// needs aiohttp, which comes with warmstart[remote]")
    address = serve(tmp_path)
    assert [one.name for one in remote_files(f"{address}/text/")] == ["a.txt", "inner/b.txt"]
    assert (
        list(read_documents(text_here(Source(path=f"{address}/text/a.txt", document="paragraph"), tmp_path / "cache")))
        == LINES[:70]
    )
    index = tokenize(TokenizeConfig(text=(f"{address}/text/",), out=str(tmp_path / "shards"), tokenizer_file=kept_tokenizer))
    assert index.counts(held_out=False).documents + index.counts(held_out=True).documents == len(LINES)
    with pytest.raises(DataError, match=r"no such file or folder: .*/absent.txt"):
        remote_files(f"{address}/absent.txt")


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


NAMES = ["../x", "..", "/x", "a/../../x", "a/b", "", ".", "a\0b", "x\nb", "/dev/zero"]
"""files of fixed names in a stranger's folder, which may be links, are in ``helpers/hostile.py`` ("is a link out", "is a pipe")"""


def shard(name: str, folder: Path) -> None:
    """An index of shards."""
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": f"{name}.safetensors"}}))
    if name == "a/b":
        raise DataError("folders within the folder are allowed")
    shards_of(folder)


def pooling(name: str, folder: Path) -> None:
    """The list of modules of sentence-transformers."""
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": f"../{name}"}]))
    read_pooling(folder)


def task_name(name: str, folder: Path) -> None:
    """A race on several tasks makes a folder of each task's name."""
    (folder / "rows.csv").write_text("text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(8)))
    (folder / "task.yaml").write_text(json.dumps({"name": name, "train": "rows.csv", "test": 0.5}))
    load_named_tasks([folder])


def step(name: str, folder: Path) -> None:
    """A recipe makes a folder of each step's name."""
    (folder / "recipe.yaml").write_text(json.dumps({"title": "t", "steps": {name: {"command": "doctor", "model": "x"}}}))
    read_recipe(str(folder / "recipe.yaml"), folder, None)


def hub_name(name: str, folder: Path) -> None:
    """A model of the hub is kept in a folder of its name."""
    find_folder(f"hf:{folder / 'none'}/{name}", folder)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """With one of our own errors, before anything is read or written there."""
    for reader in (shard, pooling, task_name, step, hub_name):
        for number, name in enumerate(NAMES):
            folder = tmp_path / reader.__name__ / str(number)
            folder.mkdir(parents=True)
            try:
                reader(name, folder)
            except WarmstartError:
                continue
            raise AssertionError(f"{reader.__name__} takes {name!r}")


def test_results_of_trials_are_named_by_hashes(tmp_path: Path) -> None:
    """Whatever a method or a backbone is called, its results lie in the folder of the trials; others' files there are data."""
    for name in NAMES:
        context = SweepContext(task="task.yaml", digest=name, folder=str(tmp_path), tune=FineTuneConfig())
        trial = Trial(method=Method(name=name, family="baseline", backbone=name, backbone_digest=name), seed=0)
        file = result_file(trial, context)
        assert file.parent == tmp_path
        file.write_text('{"trial": ' + "[" * 100_000)
        assert find_result(trial, context) is None


def test_a_link_to_itself_and_a_folder_are_no_files(tmp_path: Path) -> None:
    """Each is refused with the reason."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match="a link to itself"):
        inside(tmp_path, "loop")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="must be an ordinary file"):
        inside(tmp_path, "folder")


def test_ordinary_names_of_tasks_are_folders() -> None:
    """Spaces and letters of any script are."""
    assert all(map(names_a_folder, ["AG News", "sst-2", "tâche 1", "v1.0"]))
