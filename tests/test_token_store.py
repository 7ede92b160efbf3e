"""Promises of the token store."""

from __future__ import annotations

import errno
import gzip
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from warmstart.data import token_store as module
from warmstart.data.source import Source
from warmstart.data.token_store import DocumentSplit, TokenStore, counted_documents, prepare_store, sample_of_words
from warmstart.errors import DataError, StorageError
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

LINES = ["the cat sat", "on the  mat", "café [EOS] é", "z", "the end"]


@cache
def tokenizer(kind: str = "bytes") -> Tokenizer:
    """A small tokenizer; "word" knows only words that occur twice."""
    return train_tokenizer(LINES, TokenizerConfig(type=kind, vocab_size=300, sentinels=0))  # type: ignore[arg-type]


def source(folder: Path, lines: list[str], name: str = "text.txt") -> Source:
    """A file with one document per line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Source(path=str(folder / name), document="line")


@pytest.fixture
def small(tmp_path: Path) -> TokenStore:
    """The five lines above, prepared."""
    return prepare_store([source(tmp_path, LINES)], tokenizer(), tmp_path / "cache")


def test_documents_stand_between_ends(small: TokenStore) -> None:
    """Every document stands between two [EOS], bounds point at them, and text comes back whole."""
    t, eos = tokenizer(), tokenizer().specials.eos
    assert small.tokens.dtype == np.uint16
    assert (small.tokens[small.bounds] == eos).all()
    assert (small.tokens == eos).sum() == small.documents + 1 == 6  # the text "[EOS]" is none
    texts = [t.decode(small.tokens[a + 1 : b]) for a, b in zip(small.bounds[:-1], small.bounds[1:], strict=True)]
    assert texts == LINES
    assert small.bounds[-1] == len(small.tokens) - 1 == small.predicted_tokens
    assert len(pickle.dumps(small)) < 1000, "another process gets the folder, not its tokens"
    assert pickle.loads(pickle.dumps(small)).digest == small.digest


def test_counts(tmp_path: Path) -> None:
    """Words, one for each line end, bytes of UTF-8, and unknown tokens are counted; a zipped file is read like the plain one."""
    found = prepare_store([source(tmp_path, LINES)], tokenizer("word"), tmp_path / "cache")
    words = [word for line in LINES for word in line.split()]
    assert found.words == len(words) + 5
    assert found.bytes == sum(len(line.encode()) for line in LINES)
    assert found.unknown == len(words) - words.count("the") > 0
    assert len(found.tokens) == len(words) + 6
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress((tmp_path / "text.txt").read_bytes()))
    zipped = Source(path=str(tmp_path / "text.txt.gz"), document="line")
    assert prepare_store([zipped], tokenizer("word"), tmp_path / "cache").digest == found.digest


@pytest.mark.data
def test_wikitext_has_its_published_words(data_folder: Path) -> None:
    """As paragraphs or as one file; both sides of a split together have them too. Lines do not say where blank ones are."""

    def words(name: str, document: str, side: DocumentSplit | None = None) -> int:
        source = Source.build({"path": str(data_folder / "wikitext-2" / f"{name}.txt.gz"), "document": document})
        return sum(count for _, count in counted_documents([source], side))

    for name, published in (("test", 245_569), ("valid", 217_646)):
        assert words(name, "paragraph") == words(name, "file") == published
        sides = [DocumentSplit(fraction=0.05, held_out=held_out) for held_out in (False, True)]
        assert sum(words(name, "paragraph", side) for side in sides) == published
        with gzip.open(data_folder / "wikitext-2" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
            assert words(name, "line") == published - sum(line.isspace() for line in lines)


def test_counting_words_leaves_the_tokens_alone(tmp_path: Path) -> None:
    """Blank lines before, between and behind paragraphs are words, but no tokens, and belong to one paragraph each."""
    plain, spaced = tmp_path / "plain.txt", tmp_path / "spaced.txt"
    plain.write_text("a b\nc\n\nd\n\ne\n")
    spaced.write_text("\n\na b\nc\n\n \nd\n\ne\n\n\n")
    stores = [prepare_store([Source(path=str(path))], tokenizer(), tmp_path / "cache") for path in (plain, spaced)]
    assert stores[0].digest == stores[1].digest
    assert [store.words for store in stores] == [5 + 6, 5 + 11]
    assert [count for _, count in counted_documents([Source(path=str(spaced))])] == [3 + 2 + 4, 1 + 1 + 1, 1 + 1 + 2]


def test_sources_follow_each_other(tmp_path: Path) -> None:
    """Several sources make one store, in their order; blank documents leave no trace."""
    sources = [source(tmp_path / name, lines) for name, lines in (("a", ["one", " ", "two"]), ("b", ["three"]))]
    found = prepare_store(sources, tokenizer(), tmp_path / "cache")
    assert tokenizer().decode(found.tokens) == "onetwothree"
    assert found.documents == 3


def test_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text is prepared once, wherever the file moved; other text, tokenizer, settings or part is another store."""
    cache = tmp_path / "cache"
    first = prepare_store([source(tmp_path / "a", LINES)], tokenizer(), cache)
    others = [
        prepare_store([source(tmp_path / "b", [*LINES, "more"])], tokenizer(), cache),
        prepare_store([source(tmp_path / "a", LINES)], tokenizer("word"), cache),
        prepare_store([Source(path=str(tmp_path / "a" / "text.txt"), document="file")], tokenizer(), cache),
        prepare_store([source(tmp_path / "a", LINES)], tokenizer(), cache, DocumentSplit(fraction=0.5, held_out=False, seed=1)),
    ]
    assert len({first.folder, *(other.folder for other in others)}) == 5
    monkeypatch.setattr(module, "_write", None)  # nothing is written any more
    again = prepare_store([source(tmp_path / "moved", LINES, "renamed.txt")], tokenizer(), cache)
    assert (again.folder, again.digest) == (first.folder, first.digest)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 400))
def test_a_sample_of_words(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], words: int) -> None:
    """Whole documents of at most so many words, also in a split; more words keep the documents of fewer."""
    origin = [source(tmp_path_factory.mktemp("text"), [" ".join([f"w{n}"] * length) for n, length in enumerate(lengths)])]
    words += max(lengths)
    samples = [sample_of_words(origin, limit) for limit in (words, 2 * words)]
    found = [dict(counted_documents(origin, DocumentSplit(fraction=0, held_out=False, sample=one))) for one in samples]
    total = sum(length + 1 for length in lengths)
    assert [one is None for one in samples] == [total <= words, total <= 2 * words]
    assert 0 < sum(found[0].values()) <= words
    assert found[0].items() <= found[1].items()
    sides = [DocumentSplit(fraction=0.3, held_out=held, sample=samples[0]) for held in (False, True)]
    assert sorted(text for side in sides for text, _ in counted_documents(origin, side)) == sorted(found[0])


def test_rows_by_example() -> None:
    """The example of the documentation."""
    tokens = np.arange(6, dtype=np.uint16)
    store = TokenStore(Path(), tokens, np.array([0, 5]), documents=1, words=1, bytes=1, unknown=0, digest="")
    assert (store.rows(2), store.rows(2, ragged=True)) == (2, 3)
    block, lengths = store.row_block(np.array([2, 0]), 2, 77, ragged=True)
    assert block.tolist() == [[4, 5, 77], [0, 1, 2]]
    assert lengths.tolist() == [2, 3]
    with pytest.raises(AssertionError, match="rows must be below 2"):
        store.row_block(np.array([2]), 2, 77)
    assert store.row_block(np.array([], dtype=np.int64), 2, 77)[0].shape == (0, 3)


def test_rows_of_documents(small: TokenStore) -> None:
    """A row of one document is [EOS] text [EOS], cut at its length and filled with padding."""
    s = tokenizer().specials
    ids = [[s.eos, *row, s.eos] for row in tokenizer().encode(LINES)]
    for length in (3, 50):
        block, lengths = small.documents_block(np.array([4, 1, 3]), length, s.pad)
        assert block.shape == (3, length)
        assert [row[:n].tolist() for row, n in zip(block, lengths, strict=True)] == [ids[i][:length] for i in (4, 1, 3)]
        assert all((row[n:] == s.pad).all() for row, n in zip(block, lengths, strict=True))


def test_big_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    """Ids beyond 65,535 are kept whole."""
    path = tmp_path / "words.txt"
    path.write_text("\n".join(f"w{n}" for n in range(70_000)), encoding="utf-8")
    from warmstart.tokenizer.load import load_tokenizer

    found = prepare_store([source(tmp_path, ["w69999 w0"])], load_tokenizer(path), tmp_path / "cache")
    assert found.tokens.dtype == np.uint32
    assert found.tokens.tolist() == [2, 70_004, 5, 2]


def test_no_text(tmp_path: Path) -> None:
    """Text without a document, or a file that does not exist, is refused, and leaves nothing behind."""
    side = DocumentSplit(fraction=1e-9, held_out=True)
    cache, absent = tmp_path / "cache", Source(path=str(tmp_path / "absent.txt"))
    empty = r"at least one document that is not empty, but .*text.txt has none; give more text"
    refused(DataError, empty, prepare_store, [source(tmp_path, [" ", ""])], tokenizer(), cache)
    part = r"but the held-out part \(fraction 1e-09\) of .*text.txt has none"
    refused(DataError, part, prepare_store, [source(tmp_path, ["one"])], tokenizer(), cache, side)
    refused(DataError, r"absent\.txt", prepare_store, [absent], tokenizer(), cache)
    assert list(cache.iterdir()) == []


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk in the middle leaves no folder; what a killed process left aside is passed over."""

    def failing(file: Any, values: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    origin, cache = [source(tmp_path, LINES)], tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_append", failing)
        full = "cannot write .* No space left on device; free some"
        refused(StorageError, full, prepare_store, origin, tokenizer(), cache)
    assert list(cache.iterdir()) == []
    whole = prepare_store(origin, tokenizer(), cache)
    left = whole.folder.with_name(f".{whole.folder.name}.writing-1")
    whole.folder.rename(left)
    (left / "store.json").unlink()
    assert prepare_store(origin, tokenizer(), cache).digest == whole.digest


def test_a_store_that_is_not_whole_is_written_again(tmp_path: Path) -> None:
    """A file that is short, empty or of another kind is never read as a store."""
    given = [source(tmp_path, LINES)], tokenizer(), tmp_path / "cache"
    whole = prepare_store(*given)
    tokens = whole.tokens.tolist()
    for name, damage in (
        ("tokens.bin", lambda data: data[:-2]),
        ("tokens.bin", lambda data: data[:-1]),
        ("tokens.bin", lambda data: b""),
        ("bounds.npy", lambda data: data[:-8]),
        ("bounds.npy", lambda data: b"no array"),
        ("store.json", lambda data: b"{"),
        ("store.json", lambda data: b"{}"),
    ):
        data = damage((whole.folder / name).read_bytes())
        (whole.folder / name).unlink()
        (whole.folder / name).write_bytes(data)
        refused(DataError, "cannot be read", TokenStore.open, whole.folder)
        assert prepare_store(*given).tokens.tolist() == tokens, (name, data)


STORE = """
import os, sys
from pathlib import Path
os.environ["RAYON_NUM_THREADS"] = sys.argv[4]  # read when the library encodes for the first time
from warmstart.data import token_store
from warmstart.data.source import Source
from warmstart.tokenizer.tokenizer import Tokenizer
token_store.BATCH_CHARACTERS = 5_000
tokenizer = Tokenizer.from_json(Path(sys.argv[1]).read_text())
token_store.prepare_store([Source(path=sys.argv[2], document="line")], tokenizer, Path(sys.argv[3]))
"""


@pytest.mark.journeys
def test_the_number_of_cores_changes_no_byte(tmp_path: Path) -> None:
    """One thread that encodes a batch, or four, or the batches of this process, which are larger: the same files."""
    lines = [" ".join(LINES[(n + k) % 5] for k in range(n % 40 + 1)) for n in range(2_000)]
    origin = source(tmp_path, lines)
    tokenizer().save(tmp_path / "tokenizer.json")
    for threads in ("1", "4"):  # threads of the library
        command = [sys.executable, "-c", STORE, tmp_path / "tokenizer.json", origin.path, tmp_path / threads, threads]
        subprocess.run(command, check=True)
    here = prepare_store([origin], tokenizer(), tmp_path / "here").folder
    for name in ("tokens.bin", "bounds.npy", "store.json"):
        assert len({(tmp_path / place / here.name / name).read_bytes() for place in ("1", "4", "here")}) == 1


MEASURE = """
import resource, sys
from pathlib import Path
from warmstart.data.token_store import prepare_store
from warmstart.data.source import Source
from warmstart.tokenizer.tokenizer import Tokenizer
tokenizer = Tokenizer.from_json(Path(sys.argv[1]).read_text())
for name in sys.argv[2:4]:
    prepare_store([Source(path=name, document="line")], tokenizer, Path(sys.argv[4]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.journeys
def test_memory_stays_flat(tmp_path: Path) -> None:
    """Ten times the text takes no more memory (megabytes at the peak, in a process of its own)."""
    line = " ".join(f"w{n}" for n in range(40))
    paths = [Path(source(tmp_path, [line] * count, f"{count}.txt").path) for count in (12_000, 120_000)]
    assert paths[1].stat().st_size > 16_000_000
    tokenizer("word").save(tmp_path / "tokenizer.json")
    command = [sys.executable, "-c", MEASURE, tmp_path / "tokenizer.json", *paths, tmp_path / "cache"]
    few, many = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert many < few + 30, f"{few} MB for 1.7 MB of text, {many} MB for 17 MB"
