"""Tokenised text: the same bytes for any number of jobs and after a stop, every token read once, and damage that is found."""

from __future__ import annotations

import errno
import gzip
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from helpers.workers import killed_at_piece_2
from warmstart.cli import main
from warmstart.commands import tokenize as tokenize_module
from warmstart.commands.settings import TokenizeConfig
from warmstart.commands.tokenize import tokenize
from warmstart.corpora import order as order_module
from warmstart.corpora import pieces as pieces_module
from warmstart.corpora import write as write_module
from warmstart.corpora.order import ShardOrder
from warmstart.corpora.pieces import DocumentSplit, documents_of_piece, pieces_of, sample_of_words
from warmstart.corpora.rows import PretrainingRows, ShardsToRead, pretraining_batches, shard_folders
from warmstart.corpora.store import SHARD_INDEX, Shard, ShardEntry, TokenText, text_of_shards, total_counts
from warmstart.corpora.write import tokenized_sides, tokenized_text
from warmstart.data.read import count_documents, counted_documents
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError, StorageError, WarmstartError
from warmstart.objectives.config import ObjectiveConfig
from warmstart.seeding import rng
from warmstart.system.storage import file_sha256, sealed, unsealed
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

Configured = Callable[..., TokenizeConfig]
DOCUMENTS = [f"document {n} says\nthat {' and '.join(f'w{(n * k) % 97}' for k in range(1, 3 + n % 9))}." for n in range(120)]

LINES = ["the cat sat", "on the  mat", "café [EOS] é", "z", "the end"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Two files of paragraphs, one of them in a folder."""
    folder = tmp_path / "texts"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("\n\n".join(DOCUMENTS[:90]))
    (folder / "inner" / "b.txt").write_text("\n\n".join(DOCUMENTS[90:]))
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces, shards and buffers, so that a small text has many of each."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 1500)
    monkeypatch.setattr(write_module, "SHARD_TOKENS", 400)
    monkeypatch.setattr(write_module, "BATCH_CHARACTERS", 300)
    monkeypatch.setattr(order_module, "BLOCK_ROWS", 3)
    monkeypatch.setattr(order_module, "BUFFER_BLOCKS", 2)
    monkeypatch.setattr(order_module, "SHARDS_AT_ONCE", 2)


@pytest.fixture
def kept_tokenizer(tmp_path: Path, tokenizer: Tokenizer) -> str:
    """The file of a tokenizer."""
    tokenizer.save(tmp_path / "tokenizer.json")
    return str(tmp_path / "tokenizer.json")


@pytest.fixture
def configured(texts: Path, tmp_path: Path, kept_tokenizer: str) -> Configured:
    """Settings that turn the texts into shards in a folder of this name."""
    usual = {"text": (str(texts),), "tokenizer_file": kept_tokenizer}
    return lambda out, **more: TokenizeConfig.build(usual | {"out": str(tmp_path / out)} | more)


def to_read(tmp_path: Path, *places: object, held_out: Any = None, tokenizer: Tokenizer | None = None) -> ShardsToRead:
    """Shards, or text, as a pretraining run finds them."""
    return ShardsToRead(tuple(map(str, places)), held_out, tokenizer, "paragraph", tmp_path)


def opened(folder: Path, tokenizer: Tokenizer, *, held_out: bool = False) -> TokenText:
    """One side of a folder of shards."""
    found = text_of_shards(shard_folders([str(folder)]), tokenizer, held_out=held_out)
    assert found is not None
    return found


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder of shards but the lock."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name[0] != "."
    }


def decoded(text: TokenText, tokenizer: Tokenizer) -> list[str]:
    """The documents of shards."""
    ids, lengths = text.documents_block(np.arange(text.documents), 4000, tokenizer.specials.pad)
    return [tokenizer.decode(row[1 : length - 1]) for row, length in zip(ids, lengths, strict=True)]


# ------------------------------------------------------------------------------------------------ writing


@pytest.mark.usefixtures("small")
def test_shards_hold_every_document_once(texts: Path, tmp_path: Path, tokenizer: Tokenizer, configured: Configured) -> None:
    """Training and held-out shards together are the text, in its order; the index counts what they hold."""
    index = tokenize(configured("out", held_out="0.3"))
    sides = [opened(tmp_path / "out", tokenizer, held_out=held_out) for held_out in (False, True)]
    found = [decoded(side, tokenizer) for side in sides]
    assert sorted(found[0] + found[1]) == sorted(DOCUMENTS)
    assert found[0] == [one for one in DOCUMENTS if one in found[0]]
    assert 15 < len(found[1]) < 60
    assert len(index.side(held_out=False)) > 3
    store = tokenized_text([Source(path=str(texts))], tokenizer, tmp_path / "cache")
    counts = total_counts(index.shards)
    assert (counts.documents, counts.words, counts.bytes, counts.unknown) == (120, store.counts.words, store.counts.bytes, 0)
    assert counts.tokens - len(index.shards) == store.predicted_tokens


@pytest.mark.journeys
def test_the_number_of_jobs_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: Configured) -> None:
    """Workers in processes of their own, or none: the same files."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 1500)
    for jobs in (1, 2):
        tokenize(configured(f"{jobs}", jobs=jobs))
    assert len(content(tmp_path / "1")) > 12
    assert content(tmp_path / "1") == content(tmp_path / "2")


@pytest.mark.usefixtures("small")
def test_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: Configured) -> None:
    """After a failure in the middle, only the pieces that are missing are tokenized, and the bytes are those of one go."""
    config = configured("whole")
    tokenize(config)
    broken = config.model_copy(update={"out": str(tmp_path / "broken")})
    real, written = write_module.write_piece, list[int]()

    def failing(plan: Any, identity: str, number: int, *rest: Any) -> None:
        written.append(number)
        if len(written) == 3:
            raise KeyboardInterrupt
        real(plan, identity, number, *rest)

    monkeypatch.setattr(write_module, "write_piece", failing)
    with pytest.raises(KeyboardInterrupt):
        tokenize(broken)
    assert not (tmp_path / "broken" / SHARD_INDEX).exists()
    tokenize(broken)
    assert written.count(0) == written.count(1) == 1
    assert content(tmp_path / "broken") == content(tmp_path / "whole")
    written.clear()
    tokenize(broken)
    assert not written


@pytest.mark.chaos
def test_a_killed_worker_ends_in_an_error_and_the_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: Configured
) -> None:
    """What the others finished is kept; a second start, with another number of jobs, ends with the bytes of one go."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 1500)
    config = configured("out", jobs=2)
    with monkeypatch.context() as patch:
        patch.setattr(write_module, "write_piece", killed_at_piece_2)
        refused(DataError, "a worker of 2 was killed, perhaps because memory ran out; use fewer --jobs", tokenize, config)
    assert not (tmp_path / "out" / SHARD_INDEX).exists()
    tokenize(config.model_copy(update={"jobs": 1}))
    tokenize(config.model_copy(update={"jobs": 1, "out": str(tmp_path / "one go")}))
    assert content(tmp_path / "out") == content(tmp_path / "one go")


def test_pieces_of_a_file_are_its_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a file is cut, the documents and their words are those of the whole: blank lines, long lines and byte order mark."""
    blank = ["", " ", "\t", "\u00a0", ""]
    cases = (("paragraph", "\n"), ("paragraph", "\r\n"), ("line", "\r\n"), ("sentence", "\n"), ("file", "\n"))
    for document, newline in cases:
        lines = [DOCUMENTS[n % 120].replace("\n", newline) + newline * (n % 3) + blank[n % 5] for n in range(200)]
        file = tmp_path / "text.txt"
        file.write_bytes(b"\xef\xbb\xbf" + newline.join([*lines, "x" * 3000, "", "é" * 500, "end"]).encode())
        source = Source.build({"path": str(file), "document": document})
        whole = [one for one in count_documents(source) if not one[0].isspace()]
        for size in (50, 777, 10_000, 1 << 20):
            monkeypatch.setattr(pieces_module, "PIECE_BYTES", size)
            pieces = pieces_of([str(file)], source)
            assert len(pieces) > 1 or size > 10_000 or document == "file"
            found = [(text, words) for piece in pieces for text, words, _ in documents_of_piece(piece, tmp_path)]
            assert found == whole, (document, newline, size)


def test_a_folder_of_other_text_or_settings_is_refused(
    texts: Path, tmp_path: Path, kept_tokenizer: str, configured: Configured
) -> None:
    """Nothing is overwritten: not by other settings, other text or other files; and text must not lie in the folder."""
    config = configured("out")
    tokenize(config)
    before = content(tmp_path / "out")
    other = config.model_copy(update={"held_out": "none"})
    refused(ConfigError, "was begun with other text or other settings", tokenize, other)
    (texts / "a.txt").write_text("changed")
    refused(ConfigError, "a file that changed is other text", tokenize, config)
    taken, inside = ({"text": (kept_tokenizer,), "out": str(texts)}, {"out": str(texts)})
    refused(ConfigError, "exists and is not empty; choose another --out", tokenize, config.model_copy(update=taken))
    refused(ConfigError, "lies inside the folder of the shards", tokenize, config.model_copy(update=inside))
    assert content(tmp_path / "out") == before


def test_settings_that_cannot_be(tmp_path: Path, configured: Configured) -> None:
    """Each is refused with what must hold; and blank files become no shards."""
    for values, message in (
        ({"text": ()}, "'text' must name at least 1"),
        ({"held_out": "1.5"}, "'held_out' must be a fraction between 0 and 1, or none, but is '1.5'"),
        ({"held_out": "some"}, "must be a fraction between 0 and 1, or none"),
        ({"jobs": 0}, "'jobs' must be greater than 0"),
    ):
        refused(ConfigError, message, TokenizeConfig.build, {"text": ("a",), "out": "b"} | values)
    (tmp_path / "blank.txt").write_text("\n \n")
    blank = configured("out", text=(str(tmp_path / "blank.txt"),))
    refused(DataError, "at least one document that is kept and not empty", tokenize, blank)


def test_the_tokenizer_of_a_large_text_is_trained_on_part_of_it(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On pieces drawn at random, without held-out documents, and always on the same ones."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 1000)
    monkeypatch.setattr(tokenize_module, "PIECE_BYTES", 1000)
    monkeypatch.setattr(tokenize_module, "SAMPLE_BYTES", 2500)
    read = list[list[str]]()
    real = tokenize_module.train_tokenizer

    def train(stream: Iterator[str], config: TokenizerConfig) -> Tokenizer:
        read.append(list(stream))
        return real(read[-1], config)

    monkeypatch.setattr(tokenize_module, "train_tokenizer", train)
    for name in ("a", "b"):
        config = TokenizeConfig(
            text=(str(texts),), out=str(tmp_path / name), held_out="0.2", tokenizer=TokenizerConfig(vocab_size=300, sentinels=0)
        )
        tokenize(config)
    assert read[0] == read[1]
    assert 0 < len(read[0]) < 60
    held_out = decoded(opened(tmp_path / "a", load_tokenizer(tmp_path / "a"), held_out=True), load_tokenizer(tmp_path / "a"))
    assert not set(read[0]) & set(held_out)
    assert "The tokenizer is trained on 2 of " in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------ reading


def written(folder: Path, streams: list[list[int]], eos: int = 2) -> TokenText:
    """Shards with these tokens."""
    shards = []
    for number, tokens in enumerate(streams):
        file = folder / f"{number}.bin"
        np.array(tokens, dtype="<u2").tofile(file)
        counts = {"tokens": len(tokens), "documents": tokens.count(eos) - 1, "unknown": tokens.count(1)}
        shards.append(Shard(file, "uint16", ShardEntry(name=file.name, sha256=file_sha256(file), **counts)))
    return TokenText(tuple(shards), vocab_size=60_000, eos=eos, unk=1)


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(2, 40), min_size=1, max_size=5), length=st.integers(1, 12), data=st.data())
def test_every_token_of_every_shard_is_predicted_once(
    sizes: list[int], length: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over all rows, the short ones at the ends of shards included, in any order; and no row has tokens of two shards."""
    streams = [[2, *(1000 * shard + 10 + at for at in range(1, size))] for shard, size in enumerate(sizes)]
    text = written(tmp_path_factory.mktemp("shards"), streams)
    rows = text.rows(length, ragged=True)
    order = np.array(data.draw(st.permutations(range(rows))), dtype=np.int64)
    block, lengths = text.row_block(order, length, 0, ragged=True)
    real = np.arange(length + 1) < lengths[:, None]
    assert sorted(block[:, 1:][real[:, 1:]].tolist()) == [token for stream in streams for token in stream[1:]]
    assert all(len({token // 1000 for token in row[:n] if token != 2}) == 1 for row, n in zip(block, lengths, strict=True))
    assert (block[~real] == 0).all()
    full = text.rows(length)
    assert full == sum((size - 1) // length for size in sizes)
    assert (text.row_block(np.arange(full), length, 0)[1] == length + 1).all()


def test_a_small_text_is_one_shard(texts: Path, tmp_path: Path, tokenizer: Tokenizer, configured: Configured) -> None:
    """It has the bytes of a piece of the same text, with nothing held out, and the same rows; an epoch shuffles them whole."""
    tokenize(configured("out", held_out="none"))
    text, store = opened(tmp_path / "out", tokenizer), tokenized_text([Source(path=str(texts))], tokenizer, tmp_path / "cache")
    assert text.shards[0].place.read_bytes() == store.shards[0].place.read_bytes()
    assert text.counts == store.counts
    assert store.digest == store.shards[0].entry.sha256
    assert (np.asarray(store.order(3, 1, 24)) == rng(3, "rows", 1).permutation(store.rows(24))).all()
    for one, other in zip(text.row_block(np.arange(20), 24, 0), store.row_block(np.arange(20), 24, 0), strict=True):
        assert (one == other).all()
    some = np.array([7, 0, 119, 7])
    for one, other in zip(text.documents_block(some, 30, 0), store.documents_block(some, 30, 0), strict=True):
        assert (one == other).all()
    assert (pickle.loads(pickle.dumps(text)).row_block(some, 24, 0)[0] == text.row_block(some, 24, 0)[0]).all()


# ------------------------------------------------------------------------------------------------ order


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(st.integers(0, 40), min_size=1, max_size=9),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 4)),
    seed=st.integers(0, 5),
)
def test_an_epoch_reads_every_row_once(rows: list[int], sizes: tuple[int, int, int], seed: int) -> None:
    """Whatever the sizes of shards, blocks and buffers; and any position can be asked for first."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("SHARDS_AT_ONCE", "BLOCK_ROWS", "BUFFER_BLOCKS"), sizes, strict=True):
            patch.setattr(order_module, name, size)
        order = ShardOrder(rows, seed, 3)
        read = [order[position] for position in range(len(order))]
        assert sorted(read) == list(range(sum(rows)))
        again = ShardOrder(rows, seed, 3)
        assert [again[position] for position in reversed(range(len(again)))] == read[::-1]


def test_the_order_depends_on_seed_and_epoch_and_mixes_few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed or epoch is another order; a small corpus is shuffled whole, of a large one few shards are read at a time."""
    orders = [[*map(ShardOrder([50, 70], seed, epoch).__getitem__, range(120))] for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert len({*map(tuple, orders)}) == 3
    assert {row < 50 for row in orders[0][:20]} == {True, False}
    monkeypatch.setattr(order_module, "SHARDS_AT_ONCE", 2)
    order = ShardOrder([100] * 10, 0, 0)
    read = [order[position] // 100 for position in range(1000)]
    assert all(len(set(read[start : start + 200])) == 2 for start in range(0, 1000, 200))


@pytest.mark.usefixtures("small")
def test_a_step_is_a_function_of_its_number(tmp_path: Path, tokenizer: Tokenizer, configured: Configured) -> None:
    """A run that resumes, or a second process, reads at step n what the first one read, without the steps before; across epochs."""
    tokenize(configured("out"))

    def pretraining_rows(rows: str) -> PretrainingRows:
        objective = ObjectiveConfig.build({"name": "masked", "rows": rows})
        return PretrainingRows(opened(tmp_path / "out", tokenizer), tokenizer.vocabulary(), objective, 24)

    for rows in ("packed", "documents"):
        first, resumed = (pretraining_batches(pretraining_rows(rows), 4, 2, seed=5) for _ in range(2))
        steps = 2 * len(pretraining_rows(rows)) // 8
        straight = [first(step) for step in range(steps)]
        for step in (steps - 1, 3, steps // 2):
            for one, other in zip(straight[step], resumed(step), strict=True):
                assert (one.ids == other.ids).all()
                assert one.targets is not None
                assert (one.targets == other.targets).all()


# ------------------------------------------------------------------------------------------------ damage


@pytest.fixture
def folder(tmp_path: Path, configured: Configured) -> Path:
    """A folder of shards."""
    tokenize(configured("out", held_out="0.2"))
    return tmp_path / "out"


def lie(folder: Path, **changes: Any) -> None:
    """An index that was sealed again, with another first shard."""
    values = unsealed((folder / SHARD_INDEX).read_bytes())
    values["shards"][0] |= changes
    (folder / SHARD_INDEX).write_text(json.dumps(sealed(values)))


def edit(file: Path, old: str, new: str) -> None:
    """A file with something else in it."""
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))


def test_damage_and_lies_are_found(folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """At the start of a run, or when a shard is first read."""

    def read(folder: Path) -> None:
        to_read(folder, folder).open()
        opened(folder, tokenizer).row_block(np.arange(2), 8, 0)

    read(folder)
    for number, (damage, message) in enumerate([
        (lambda place, shard: shard.unlink(), r"train-0000.bin cannot be read \(No such file or directory\); copy it again"),
        (lambda place, shard: shard.write_bytes(shard.read_bytes()[:-2]), r"must have [\d,]+ bytes, but has [\d,]+; copy it again"),
        (lambda place, shard: shard.write_bytes(bytes([*shard.read_bytes()[:-4], 9, 0, 2, 0])), "was changed after it was written"),
        (lambda place, shard: lie(place, tokens=7), "must have 14 bytes, but has"),
        (lambda place, shard: lie(place, documents=3), "must hold 3 documents and 0 unknown tokens, as its index says, but holds"),
        (lambda place, shard: lie(place, unknown=3), "documents and 3 unknown tokens, as its index says, but holds"),
        (lambda place, shard: lie(place, sha256="0" * 64), "was changed after it was written"),
        (lambda place, shard: lie(place, sha256="none"), "cannot be used: .*sha256' must match"),
        (lambda place, shard: lie(place, tokens=-1), "cannot be used: .*tokens' must be at least 0"),
        (lambda place, shard: lie(place, name="../../secret.bin"), "cannot be used: a file's name must be plain and relative"),
        (lambda place, shard: edit(place / SHARD_INDEX, '"words": 1', '"words": 2'), "cannot be used: its contents do not match"),
        (lambda place, shard: (place / SHARD_INDEX).unlink(), "not complete; run the same tokenize command again"),
        (lambda place, shard: edit(place / "tokenizer.json", "[SENTINEL_3]", "[SENTINEL_9999]"), "of its shards, but is another"),
    ]):  # fmt: skip
        hurt = shutil.copytree(folder, tmp_path / f"{number}")
        damage(hurt, next((hurt / "shards").rglob("train-*.bin")))
        refused(WarmstartError, message, read, hurt)


def test_shards_of_two_tokenizers_and_text_beside_shards_are_refused(folder: Path, texts: Path, tmp_path: Path) -> None:
    """Also those that are held out, and a tokenizer that is named beside."""
    other = TokenizeConfig(text=(str(texts),), out=str(tmp_path / "other"), tokenizer=TokenizerConfig(vocab_size=300, sentinels=0))
    tokenize(other)
    for paths, held_out in (((folder, other.out), None), ((folder,), other.out)):
        both = to_read(tmp_path, *paths, held_out=held_out)
        refused(DataError, "must be of one tokenizer, but those of .* are of another than those of", both.open)
    named = to_read(tmp_path, folder, tokenizer=load_tokenizer(Path(other.out)))
    refused(ConfigError, "were made with another tokenizer than the one that is named", named.open)
    mixed = to_read(tmp_path, folder, texts)
    refused(ConfigError, "is a folder of shards and .* is not; tokenize it first", mixed.open)
    assert to_read(tmp_path, texts).open() is None


def test_what_is_held_out_was_decided_before(folder: Path, texts: Path, tmp_path: Path, configured: Configured) -> None:
    """Another fraction is refused, and so is one of shards that hold nothing out; other shards and text can be named."""
    said = r"decided when they were tokenized \(0.2\), so --held-out must not be 0.5; leave it out"
    refused(ConfigError, said, to_read(tmp_path, folder, held_out=0.5).open)
    config = configured("all", text=(str(texts / "inner"),), held_out="none")
    tokenize(config)
    whole = to_read(tmp_path, config.out, held_out=0.02)
    refused(ConfigError, "holds no documents out; name other shards or text", whole.open)
    for held_out, documents in ((None, None), (0.02, 20), (config.out, 30), (str(texts / "inner"), 30)):
        found = to_read(tmp_path, folder, held_out=held_out).open()
        assert found
        assert (found[1][1] and found[1][1].documents) == documents


def test_a_damaged_folder_is_mended_by_the_same_command(
    folder: Path, tokenizer: Tokenizer, configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shard of the right size with other bytes is named and written again, and so is a damaged index."""
    before = content(folder)
    shard = next((folder / "shards").rglob("train-*.bin"))
    shard.write_bytes(bytes([*shard.read_bytes()[:-4], 9, 0, 2, 0]))
    tokenize(configured("out", held_out="0.2"))
    said = " ".join(capsys.readouterr().err.split())
    assert f"the shard {shard.relative_to(folder).as_posix()} of {folder} is gone or was changed; it is written again" in said
    assert content(folder) == before
    (folder / SHARD_INDEX).write_bytes(before[SHARD_INDEX][:-9])
    tokenize(configured("out", held_out="0.2"))
    assert content(folder) == before


def test_a_changed_tokenizer_is_no_complete_folder(
    folder: Path, configured: Configured, kept_tokenizer: str, tmp_path: Path
) -> None:
    """It is refused with what to do; without it the same command makes the folder whole again."""
    config = configured("trained", tokenizer_file=None, tokenizer=TokenizerConfig(vocab_size=300))
    tokenize(config)
    before = content(Path(config.out))
    (Path(config.out) / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    refused(DataError, "tokenizer.json was changed after the text was tokenized; remove it", tokenize, config)
    (Path(config.out) / "tokenizer.json").unlink()
    tokenize(config)
    assert content(Path(config.out)) == before


def test_a_run_reads_shards_that_are_no_text(tmp_path: Path) -> None:
    """Whatever their bytes are; nobody looks for lines in them."""
    (tmp_path / "text.txt").write_text("\n\n".join(f"été façon {number} naïve" for number in range(60)), encoding="utf-8")
    shards = tmp_path / "shards"
    assert main(["tokenize", str(tmp_path / "text.txt"), "--out", str(shards), "--tokenizer.vocab-size", "300"]) == 0
    (shard,) = shards.rglob("train-*.bin")
    with pytest.raises(UnicodeDecodeError):
        shard.read_bytes().decode("utf-8")
    shape = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32", "--batch", "4"]
    assert main(["pretrain", str(shards), "--steps", "2", "--out", str(tmp_path / "run"), *shape]) == 0


# ------------------------------------------------------------------------------------------------ text in one piece


@cache
def trained(kind: str = "bytes") -> Tokenizer:
    """A small tokenizer; "word" knows only words that occur twice."""
    return train_tokenizer(LINES, TokenizerConfig(type=kind, vocab_size=300, sentinels=0))  # type: ignore[arg-type]


def source(folder: Path, lines: list[str], name: str = "text.txt") -> Source:
    """A file with one document per line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Source(path=str(folder / name), document="line")


@pytest.fixture
def lines(tmp_path: Path) -> TokenText:
    """The five lines above, prepared."""
    return tokenized_text([source(tmp_path, LINES)], trained(), tmp_path / "cache")


def test_documents_stand_between_ends(lines: TokenText) -> None:
    """Every document stands between two [EOS], bounds point at them, and text comes back whole."""
    t, eos = trained(), trained().specials.eos
    assert lines.tokens(0).dtype == np.uint16
    assert (lines.tokens(0)[lines.bounds(0)] == eos).all()
    assert (lines.tokens(0) == eos).sum() == lines.documents + 1 == 6  # the text "[EOS]" is none
    texts = [t.decode(lines.tokens(0)[a + 1 : b]) for a, b in zip(lines.bounds(0)[:-1], lines.bounds(0)[1:], strict=True)]
    assert texts == LINES
    assert lines.bounds(0)[-1] == len(lines.tokens(0)) - 1 == lines.predicted_tokens
    assert len(pickle.dumps(lines)) < 1000, "another process gets the folder, not its tokens"
    assert pickle.loads(pickle.dumps(lines)).digest == lines.digest


def test_counts(tmp_path: Path) -> None:
    """Words, one for each line end, bytes of UTF-8, and unknown tokens are counted; a zipped file is read like the plain one."""
    found = tokenized_text([source(tmp_path, LINES)], trained("word"), tmp_path / "cache")
    words = [word for line in LINES for word in line.split()]
    assert found.counts.words == len(words) + 5
    assert found.counts.bytes == sum(len(line.encode()) for line in LINES)
    assert found.counts.unknown == len(words) - words.count("the") > 0
    assert len(found.tokens(0)) == len(words) + 6
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress((tmp_path / "text.txt").read_bytes()))
    zipped = Source(path=str(tmp_path / "text.txt.gz"), document="line")
    assert tokenized_text([zipped], trained("word"), tmp_path / "cache").digest == found.digest


@pytest.mark.data
def test_wikitext_has_its_published_words(data_folder: Path) -> None:
    """As paragraphs or as one file. Lines do not say where blank ones are."""

    def words(name: str, document: str) -> int:
        source = Source.build({"path": str(data_folder / "wikitext-2" / f"{name}.txt.gz"), "document": document})
        return sum(count for _, count in counted_documents([source]))

    for name, published in (("test", 245_569), ("valid", 217_646)):
        assert words(name, "paragraph") == words(name, "file") == published
        with gzip.open(data_folder / "wikitext-2" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
            assert words(name, "line") == published - sum(line.isspace() for line in lines)


def test_counting_words_leaves_the_tokens_alone(tmp_path: Path) -> None:
    """Blank lines before, between and behind paragraphs are words, but no tokens, and belong to one paragraph each."""
    plain, spaced = tmp_path / "plain.txt", tmp_path / "spaced.txt"
    plain.write_text("a b\nc\n\nd\n\ne\n")
    spaced.write_text("\n\na b\nc\n\n \nd\n\ne\n\n\n")
    stores = [tokenized_text([Source(path=str(path))], trained(), tmp_path / "cache") for path in (plain, spaced)]
    assert stores[0].digest == stores[1].digest
    assert [store.counts.words for store in stores] == [5 + 6, 5 + 11]
    assert [count for _, count in counted_documents([Source(path=str(spaced))])] == [3 + 2 + 4, 1 + 1 + 1, 1 + 1 + 2]


def test_sources_follow_each_other(tmp_path: Path) -> None:
    """Several sources make one store, in their order; blank documents leave no trace."""
    sources = [source(tmp_path / name, lines) for name, lines in (("a", ["one", " ", "two"]), ("b", ["three"]))]
    found = tokenized_text(sources, trained(), tmp_path / "cache")
    assert trained().decode(found.tokens(0)) == "onetwothree"
    assert found.documents == 3


def test_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text is prepared once, wherever the file moved; other text, tokenizer, settings or split is another folder."""
    cache = tmp_path / "cache"
    first = tokenized_text([source(tmp_path / "a", LINES)], trained(), cache)
    tokenized_text([source(tmp_path / "b", [*LINES, "more"])], trained(), cache)
    tokenized_text([source(tmp_path / "a", LINES)], trained("word"), cache)
    tokenized_text([Source(path=str(tmp_path / "a" / "text.txt"), document="file")], trained(), cache)
    tokenized_sides([source(tmp_path / "a", LINES)], trained(), cache, DocumentSplit(fraction=0.3))
    assert len([*cache.glob("*/index.json")]) == 5
    monkeypatch.setattr(write_module, "write_piece", None)  # nothing is written any more
    again = tokenized_text([source(tmp_path / "moved", LINES, "renamed.txt")], trained(), cache)
    assert (again.shards, again.digest) == (first.shards, first.digest)


def test_a_split_has_every_document_on_one_side(tmp_path: Path) -> None:
    """In their order, and of a sample only those that are in it."""
    texts = [f"w{n} and w{n + 1}" for n in range(60)]
    origin = [source(tmp_path, texts)]
    for sample in (None, sample_of_words(origin, 90)):
        split = DocumentSplit(fraction=0.3, sample=sample)
        sides = [decoded(side, trained()) for side in tokenized_sides(origin, trained(), tmp_path / "cache", split) if side]
        numbers = {held_out: [n for n in range(60) if split.held_out(n) is held_out] for held_out in (False, True)}
        assert sides == [[texts[n] for n in numbers[held_out]] for held_out in (False, True)]
        assert sum(map(len, sides)) == (60 if sample is None else 90 // 4)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 400))
def test_a_sample_of_words(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], words: int) -> None:
    """Whole documents of at most so many words; more words keep the documents of fewer."""
    origin = [source(tmp_path_factory.mktemp("text"), [" ".join([f"w{n}"] * length) for n, length in enumerate(lengths)])]
    words += max(lengths)
    samples = [sample_of_words(origin, limit) for limit in (words, 2 * words)]
    splits = [DocumentSplit(fraction=0.3, sample=one) for one in samples]
    documents = [*enumerate(counted_documents(origin))]
    found = [dict(one for number, one in documents if split.held_out(number) is not None) for split in splits]
    total = sum(length + 1 for length in lengths)
    assert [one is None for one in samples] == [total <= words, total <= 2 * words]
    assert 0 < sum(found[0].values()) <= words
    assert found[0].items() <= found[1].items()


def test_rows_by_example(tmp_path: Path) -> None:
    """The example of the documentation."""
    text = written(tmp_path, [[*range(6)]], eos=0)
    assert (text.rows(2), text.rows(2, ragged=True)) == (2, 3)
    block, lengths = text.row_block(np.array([2, 0]), 2, 77, ragged=True)
    assert block.tolist() == [[4, 5, 77], [0, 1, 2]]
    assert lengths.tolist() == [2, 3]
    with pytest.raises(AssertionError, match="rows must be below 2"):
        text.row_block(np.array([2]), 2, 77)
    assert text.row_block(np.array([], dtype=np.int64), 2, 77)[0].shape == (0, 3)


def test_rows_of_documents(lines: TokenText) -> None:
    """A row of one document is [EOS] text [EOS], cut at its length and filled with padding."""
    s = trained().specials
    ids = [[s.eos, *row, s.eos] for row in trained().encode(LINES)]
    for length in (3, 50):
        block, lengths = lines.documents_block(np.array([4, 1, 3]), length, s.pad)
        assert block.shape == (3, length)
        assert [row[:n].tolist() for row, n in zip(block, lengths, strict=True)] == [ids[i][:length] for i in (4, 1, 3)]
        assert all((row[n:] == s.pad).all() for row, n in zip(block, lengths, strict=True))


def test_big_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    """Ids beyond 65,535 are kept whole."""
    path = tmp_path / "words.txt"
    path.write_text("\n".join(f"w{n}" for n in range(70_000)), encoding="utf-8")
    from warmstart.tokenizer.load import load_tokenizer

    found = tokenized_text([source(tmp_path, ["w69999 w0"])], load_tokenizer(path), tmp_path / "cache")
    assert found.tokens(0).dtype == np.uint32
    assert found.tokens(0).tolist() == [2, 70_004, 5, 2]


def test_no_text(tmp_path: Path) -> None:
    """Text without a document, on one side of a split, or a file that does not exist, is refused, and leaves nothing behind."""
    cache, absent = tmp_path / "cache", Source(path=str(tmp_path / "absent.txt"))
    empty = r"at least one document that is not empty, but .*text.txt has none; give more text"
    refused(DataError, empty, tokenized_text, [source(tmp_path, [" ", ""])], trained(), cache)
    for fraction, side in ((1e-9, "held-out"), (0.999, "kept")):
        part = rf"but the {side} part \(fraction {fraction}\) of .*text.txt has none"
        refused(DataError, part, tokenized_sides, [source(tmp_path, ["one"])], trained(), cache, DocumentSplit(fraction=fraction))
    refused(DataError, r"absent\.txt", tokenized_text, [absent], trained(), cache)
    assert list(cache.iterdir()) == []


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk in the middle leaves no folder; what a killed process left aside is passed over."""

    def failing(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    origin, cache = [source(tmp_path, LINES)], tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(write_module, "file_sha256", failing)
        patch.setattr(write_module, "_content", str)
        full = "cannot write .* No space left on device; free some"
        refused(StorageError, full, tokenized_text, origin, trained(), cache)
    assert list(cache.iterdir()) == []
    whole = tokenized_text(origin, trained(), cache)
    (folder,) = (place.parent for place in cache.glob("*/index.json"))
    left = folder.with_name(f".{folder.name}.writing-1")
    folder.rename(left)
    (left / SHARD_INDEX).unlink()
    assert tokenized_text(origin, trained(), cache).digest == whole.digest


def test_a_text_that_is_not_whole_is_written_again(tmp_path: Path) -> None:
    """A file that is short, empty, changed or of another kind is never read; every byte is checked before."""
    given = [source(tmp_path, LINES)], trained(), tmp_path / "cache"
    tokens = tokenized_text(*given).tokens(0).tolist()
    (folder,) = (place.parent for place in given[2].glob("*/index.json"))
    shard = "shards/00000/train-0000.bin"
    for name, damage in (
        (shard, lambda data: data[:-2]),
        (shard, lambda data: data[:-1]),
        (shard, lambda data: bytes([*data[:-4], 9, 0, 2, 0])),
        (shard, lambda data: b""),
        (SHARD_INDEX, lambda data: b"{"),
        (SHARD_INDEX, lambda data: b"{}"),
        (SHARD_INDEX, lambda data: data.replace(b"uint16", b"O")),
    ):
        data = damage((folder / name).read_bytes())
        (folder / name).unlink()
        (folder / name).write_bytes(data)
        assert tokenized_text(*given).tokens(0).tolist() == tokens, (name, data)


STORE = """
import os, sys
from pathlib import Path
os.environ["RAYON_NUM_THREADS"] = sys.argv[4]  # read when the library encodes for the first time
from warmstart.corpora import write
from warmstart.data.source import Source
from warmstart.tokenizer.tokenizer import Tokenizer
write.BATCH_CHARACTERS = 5_000
tokenizer = Tokenizer.from_json(Path(sys.argv[1]).read_text())
write.tokenized_text([Source(path=sys.argv[2], document="line")], tokenizer, Path(sys.argv[3]))
"""


@pytest.mark.journeys
def test_the_number_of_cores_changes_no_byte(tmp_path: Path) -> None:
    """One thread that encodes a batch, or four, or the batches of this process, which are larger: the same files."""
    lines = [" ".join(LINES[(n + k) % 5] for k in range(n % 40 + 1)) for n in range(2_000)]
    origin = source(tmp_path, lines)
    trained().save(tmp_path / "tokenizer.json")
    for threads in ("1", "4"):  # threads of the library
        command = [sys.executable, "-c", STORE, tmp_path / "tokenizer.json", origin.path, tmp_path / threads, threads]
        subprocess.run(command, check=True)
    tokenized_text([origin], trained(), tmp_path / "here")
    one, four, here = (content(tmp_path / place) for place in ("1", "4", "here"))
    assert len(one) == 4
    assert one == four == here


MEASURE = """
import resource, sys
from pathlib import Path
from warmstart.corpora.write import tokenized_text
from warmstart.data.source import Source
from warmstart.tokenizer.tokenizer import Tokenizer
tokenizer = Tokenizer.from_json(Path(sys.argv[1]).read_text())
for name in sys.argv[2:4]:
    tokenized_text([Source(path=name, document="line")], tokenizer, Path(sys.argv[4]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.journeys
def test_memory_stays_flat(tmp_path: Path) -> None:
    """Ten times the text takes no more memory (megabytes at the peak, in a process of its own)."""
    line = " ".join(f"w{n}" for n in range(40))
    paths = [Path(source(tmp_path, [line] * count, f"{count}.txt").path) for count in (12_000, 120_000)]
    assert paths[1].stat().st_size > 16_000_000
    trained("word").save(tmp_path / "tokenizer.json")
    command = [sys.executable, "-c", MEASURE, tmp_path / "tokenizer.json", *paths, tmp_path / "cache"]
    few, many = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert many < few + 30, f"{few} MB for 1.7 MB of text, {many} MB for 17 MB"
