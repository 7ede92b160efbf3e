"""Token shards: the same bytes for any number of jobs, the same rows as a token store, and damage that is found."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.workers import killed_at_piece_2
from warmstart.cli import main
from warmstart.commands import tokenize as tokenize_module
from warmstart.commands.tokenize import TokenizeConfig, tokenize
from warmstart.corpora import order as order_module
from warmstart.corpora import pieces as pieces_module
from warmstart.corpora import write as write_module
from warmstart.corpora.index import SHARD_INDEX, total_counts
from warmstart.corpora.open import ShardsToRead, shard_folders, text_of_shards
from warmstart.corpora.order import ShardOrder
from warmstart.corpora.pieces import documents_of_piece, pieces_of
from warmstart.corpora.shards import Shard, TokenShards
from warmstart.data.pretraining_rows import PretrainingRows, pretraining_batches
from warmstart.data.read import count_documents
from warmstart.data.source import Source
from warmstart.data.token_store import prepare_store
from warmstart.errors import ConfigError, DataError, WarmstartError
from warmstart.objectives.config import ObjectiveConfig
from warmstart.storage import sealed, unsealed
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TokenizerConfig

DOCUMENTS = [f"document {n} says\nthat {' and '.join(f'w{(n * k) % 97}' for k in range(1, 3 + n % 9))}." for n in range(120)]


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


def opened(folder: Path, tokenizer: Tokenizer, *, held_out: bool = False) -> TokenShards:
    """One side of a folder of shards."""
    found = text_of_shards(shard_folders([str(folder)], folder), tokenizer, folder / "copies", held_out=held_out)
    assert found is not None
    return found


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder of shards but the lock."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name[0] != "."
    }


def decoded(text: TokenShards, tokenizer: Tokenizer) -> list[str]:
    """The documents of shards."""
    assert text.documents is not None
    ids, lengths = text.documents_block(np.arange(text.documents), 4000, tokenizer.specials.pad)
    return [tokenizer.decode(row[1 : length - 1]) for row, length in zip(ids, lengths, strict=True)]


# ------------------------------------------------------------------------------------------------ writing


@pytest.mark.usefixtures("small")
def test_shards_hold_every_document_once(texts: Path, tmp_path: Path, kept_tokenizer: str, tokenizer: Tokenizer) -> None:
    """Training and held-out shards together are the text, in its order; the index counts what they hold, as a token store does."""
    index = tokenize(TokenizeConfig(text=(str(texts),), out=str(tmp_path / "out"), tokenizer_file=kept_tokenizer, held_out="0.3"))
    sides = [opened(tmp_path / "out", tokenizer, held_out=held_out) for held_out in (False, True)]
    found = [decoded(side, tokenizer) for side in sides]
    assert sorted(found[0] + found[1]) == sorted(DOCUMENTS)
    assert found[0] == [one for one in DOCUMENTS if one in found[0]]
    assert 15 < len(found[1]) < 60
    assert len(index.side(held_out=False)) > 3
    store = prepare_store([Source(path=str(texts))], tokenizer, tmp_path / "cache")
    counts = total_counts(index.shards)
    assert (counts.documents, counts.words, counts.bytes, counts.unknown) == (120, store.words, store.bytes, 0)
    assert counts.tokens - len(index.shards) == store.predicted_tokens


def test_the_number_of_jobs_changes_no_byte(
    texts: Path, tmp_path: Path, kept_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers in processes of their own, or none: the same files."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 1500)
    for jobs in (1, 2):
        tokenize(TokenizeConfig(text=(str(texts),), out=str(tmp_path / f"{jobs}"), tokenizer_file=kept_tokenizer, jobs=jobs))
    assert len(content(tmp_path / "1")) > 12
    assert content(tmp_path / "1") == content(tmp_path / "2")


@pytest.mark.usefixtures("small")
def test_the_same_command_goes_on(texts: Path, tmp_path: Path, kept_tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure in the middle, only the pieces that are missing are tokenized, and the bytes are those of one go."""
    config = TokenizeConfig(
        text=(str(texts),), out=str(tmp_path / "whole"), tokenizer_file=kept_tokenizer, drop_near_duplicates=True
    )
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


def test_a_killed_worker_ends_in_an_error_and_the_command_goes_on(
    texts: Path, tmp_path: Path, kept_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others finished is kept; a second start, with another number of jobs, ends with the bytes of one go."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 1500)
    config = TokenizeConfig(text=(str(texts),), out=str(tmp_path / "out"), tokenizer_file=kept_tokenizer, jobs=2)
    with monkeypatch.context() as patch:
        patch.setattr(write_module, "write_piece", killed_at_piece_2)
        with pytest.raises(DataError, match="a worker of 2 was killed, perhaps because memory ran out; use fewer --jobs"):
            tokenize(config)
    assert not (tmp_path / "out" / SHARD_INDEX).exists()
    tokenize(config.model_copy(update={"jobs": 1}))
    tokenize(config.model_copy(update={"jobs": 1, "out": str(tmp_path / "one go")}))
    assert content(tmp_path / "out") == content(tmp_path / "one go")


@pytest.mark.parametrize("document", ["paragraph", "line", "sentence", "file"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_pieces_of_a_file_are_its_documents(document: Any, newline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a file is cut, the documents and their words are those of the whole: blank lines, long lines and byte order mark."""
    blank = ["", " ", "\t", "\u00a0", ""]
    lines = [DOCUMENTS[n % 120].replace("\n", newline) + newline * (n % 3) + blank[n % 5] for n in range(200)]
    file = tmp_path / "text.txt"
    file.write_bytes(b"\xef\xbb\xbf" + newline.join([*lines, "x" * 3000, "", "é" * 500, "end"]).encode())
    source = Source(path=str(file), document=document)
    whole = [one for one in count_documents(source) if not one[0].isspace()]
    for size in (50, 777, 10_000, 1 << 20):
        monkeypatch.setattr(pieces_module, "PIECE_BYTES", size)
        pieces = pieces_of([str(file)], document)
        assert len(pieces) > 1 or size > 10_000 or document == "file"
        assert [one for piece in pieces for one in documents_of_piece(piece, document, tmp_path)] == whole


def test_a_folder_of_other_text_or_settings_is_refused(texts: Path, tmp_path: Path, kept_tokenizer: str) -> None:
    """Nothing is overwritten: not by other settings, other text or other files; and text must not lie in the folder."""
    config = TokenizeConfig(text=(str(texts),), out=str(tmp_path / "out"), tokenizer_file=kept_tokenizer)
    tokenize(config)
    before = content(tmp_path / "out")
    with pytest.raises(ConfigError, match="was begun with other text or other settings"):
        tokenize(config.model_copy(update={"held_out": "none"}))
    (texts / "a.txt").write_text("changed")
    with pytest.raises(ConfigError, match="a file that changed is other text"):
        tokenize(config)
    with pytest.raises(ConfigError, match="exists and is not empty; choose another --out"):
        tokenize(
            config.model_copy(update={"out": str(texts.parent)}).model_copy(update={"text": (kept_tokenizer,), "out": str(texts)})
        )
    with pytest.raises(ConfigError, match="lies inside the folder of the shards"):
        tokenize(config.model_copy(update={"out": str(texts)}))
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize(("given", "message"), [
    ({"text": ()}, "'text' must name at least 1"),
    ({"held_out": "1.5"}, "'held_out' must be a fraction between 0 and 1, or none, but is '1.5'"),
    ({"held_out": "some"}, "must be a fraction between 0 and 1, or none"),
    ({"jobs": 0}, "'jobs' must be greater than 0"),
])  # fmt: skip
def test_settings_that_cannot_be(given: dict[str, Any], message: str) -> None:
    """Each is refused with what must hold."""
    with pytest.raises(ConfigError, match=message):
        TokenizeConfig.build({"text": ("a",), "out": "b"} | given)


def test_text_without_a_document_is_refused(tmp_path: Path, kept_tokenizer: str) -> None:
    """Blank files become no shards."""
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(DataError, match="at least one document that is kept and not empty"):
        tokenize(TokenizeConfig(text=(str(tmp_path / "blank.txt"),), out=str(tmp_path / "out"), tokenizer_file=kept_tokenizer))


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


def written(folder: Path, streams: list[list[int]], **changes: Any) -> TokenShards:
    """Shards with these tokens."""
    shards = []
    for number, tokens in enumerate(streams):
        file = folder / f"{number}.bin"
        np.array(tokens, dtype="<u2").tofile(file)
        shards.append(Shard(str(file), len(tokens), "uint16", tokens.count(2) - 1))
    return TokenShards(tuple(shards), **{"vocab_size": 60_000, "eos": 2, "unk": 1, "digest": "d", "cache": folder, **changes})


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(2, 40), min_size=1, max_size=5), length=st.integers(1, 12), data=st.data())
def test_every_token_of_every_shard_is_predicted_once(
    sizes: list[int], length: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over all rows, the short ones at the ends of shards included, in any order; and no row has tokens of two shards."""
    streams = [[1000 * shard + 10 + at for at in range(size)] for shard, size in enumerate(sizes)]
    text = written(tmp_path_factory.mktemp("shards"), streams)
    rows = text.rows(length, ragged=True)
    order = np.array(data.draw(st.permutations(range(rows))), dtype=np.int64)
    block, lengths = text.row_block(order, length, 0, ragged=True)
    real = np.arange(length + 1) < lengths[:, None]
    assert sorted(block[:, 1:][real[:, 1:]].tolist()) == [token for stream in streams for token in stream[1:]]
    assert all(len({token // 1000 for token in row[:n]}) == 1 for row, n in zip(block, lengths, strict=True))
    assert (block[~real] == 0).all()
    full = text.rows(length)
    assert full == sum((size - 1) // length for size in sizes)
    assert (text.row_block(np.arange(full), length, 0)[1] == length + 1).all()


@settings(deadline=None, max_examples=60)
@given(documents=st.lists(st.lists(st.integers(3, 90), min_size=1, max_size=9), min_size=1, max_size=12), length=st.integers(1, 14))
def test_documents_come_back(documents: list[list[int]], length: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Framed by [EOS], cut at the length and padded, in two shards as in one."""
    half = len(documents) // 2
    parts = [part for part in (documents[:half], documents[half:]) if part]
    text = written(tmp_path_factory.mktemp("shards"), [[2, *(token for one in part for token in (*one, 2))] for part in parts])
    assert text.documents == len(documents)
    block, lengths = text.documents_block(np.arange(len(documents)), length, 0)
    expected = [[2, *one, 2][:length] for one in documents]
    assert [row[:n].tolist() for row, n in zip(block, lengths, strict=True)] == expected
    assert all((row[n:] == 0).all() for row, n in zip(block, lengths, strict=True))


def test_the_rows_of_a_shard_are_those_of_a_token_store(
    texts: Path, tmp_path: Path, kept_tokenizer: str, tokenizer: Tokenizer
) -> None:
    """One shard with nothing held out holds the bytes of the store of the same text, and gives the same rows and documents."""
    tokenize(TokenizeConfig(text=(str(texts),), out=str(tmp_path / "out"), tokenizer_file=kept_tokenizer, held_out="none"))
    text, store = opened(tmp_path / "out", tokenizer), prepare_store([Source(path=str(texts))], tokenizer, tmp_path / "cache")
    assert Path(text.shards[0].place).read_bytes() == (store.folder / "tokens.bin").read_bytes()
    assert (text.words, text.bytes, text.unknown, text.documents) == (store.words, store.bytes, store.unknown, store.documents)
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
@pytest.mark.parametrize("rows_are", ["packed", "documents"])
def test_a_step_is_a_function_of_its_number(
    rows_are: Any, texts: Path, tmp_path: Path, kept_tokenizer: str, tokenizer: Tokenizer
) -> None:
    """A run that resumes, or a second process, reads at step n what the first one read, without the steps before; across epochs."""
    tokenize(TokenizeConfig(text=(str(texts),), out=str(tmp_path / "out"), tokenizer_file=kept_tokenizer))
    objective = ObjectiveConfig(name="masked", rows=rows_are)

    def batches() -> Callable[[int], Any]:
        rows = PretrainingRows(opened(tmp_path / "out", tokenizer), tokenizer.vocabulary(), objective, 24)
        return pretraining_batches(rows, 4, 2, seed=5)

    first, resumed = batches(), batches()
    steps = 2 * len(PretrainingRows(opened(tmp_path / "out", tokenizer), tokenizer.vocabulary(), objective, 24)) // 8
    straight = [first(step) for step in range(steps)]
    for step in (steps - 1, 3, steps // 2):
        for one, other in zip(straight[step], resumed(step), strict=True):
            assert (one.ids == other.ids).all()
            assert one.targets is not None
            assert (one.targets == other.targets).all()


# ------------------------------------------------------------------------------------------------ damage


@pytest.fixture
def folder(texts: Path, tmp_path: Path, kept_tokenizer: str) -> Path:
    """A folder of shards."""
    tokenize(TokenizeConfig(text=(str(texts),), out=str(tmp_path / "out"), tokenizer_file=kept_tokenizer, held_out="0.2"))
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


@pytest.mark.parametrize(("damage", "message"), [
    (lambda folder, shard: shard.unlink(), r"train-0000.bin cannot be read \(No such file or directory\); copy it again"),
    (lambda folder, shard: shard.write_bytes(shard.read_bytes()[:-2]), r"must have [\d,]+ bytes, but has [\d,]+; copy it again"),
    (lambda folder, shard: shard.write_bytes(bytes([*shard.read_bytes()[:-4], 9, 0, 2, 0])), "was changed after it was written"),
    (lambda folder, shard: lie(folder, tokens=7), "must have 14 bytes, but has"),
    (lambda folder, shard: lie(folder, documents=3), "must hold 3 documents and 0 unknown tokens, as its index says, but holds"),
    (lambda folder, shard: lie(folder, unknown=3), "documents and 3 unknown tokens, as its index says, but holds"),
    (lambda folder, shard: lie(folder, sha256="0" * 64), "was changed after it was written"),
    (lambda folder, shard: lie(folder, sha256="none"), "cannot be used: .*sha256' must match"),
    (lambda folder, shard: lie(folder, tokens=-1), "cannot be used: .*tokens' must be at least 0"),
    (lambda folder, shard: lie(folder, name="../../secret.bin"), "cannot be used: a file's name must be plain and relative"),
    (lambda folder, shard: edit(folder / SHARD_INDEX, '"words": 1', '"words": 2'), "cannot be used: its contents do not match"),
    (lambda folder, shard: (folder / SHARD_INDEX).unlink(), "not complete; run the same tokenize command again"),
    (lambda folder, shard: edit(folder / "tokenizer.json", "[SENTINEL_3]", "[SENTINEL_9999]"), "of its shards, but is another"),
])  # fmt: skip
def test_damage_and_lies_are_found(folder: Path, tokenizer: Tokenizer, damage: Any, message: str) -> None:
    """At the start of a run, or when a shard is first read."""
    damage(folder, next((folder / "shards").rglob("train-*.bin")))

    def read() -> None:
        ShardsToRead((str(folder),), None, None, 2, "paragraph", folder).open()
        opened(folder, tokenizer).row_block(np.arange(2), 8, 0)

    with pytest.raises(WarmstartError, match=message):
        read()


def test_shards_of_two_tokenizers_are_refused(folder: Path, texts: Path, tmp_path: Path) -> None:
    """Also those that are held out, and a tokenizer that is named beside."""
    other = TokenizeConfig(text=(str(texts),), out=str(tmp_path / "other"), tokenizer=TokenizerConfig(vocab_size=300, sentinels=0))
    tokenize(other)
    for paths, held_out in (((str(folder), other.out), None), ((str(folder),), other.out)):
        with pytest.raises(DataError, match="must be of one tokenizer, but those of .* are of another than those of"):
            ShardsToRead(paths, held_out, None, 2, "paragraph", tmp_path).open()
    named = load_tokenizer(Path(other.out))
    with pytest.raises(ConfigError, match="were made with another tokenizer than the one that is named"):
        ShardsToRead((str(folder),), None, named, 2, "paragraph", tmp_path).open()


def test_shards_are_not_mixed_with_text(folder: Path, texts: Path, tmp_path: Path) -> None:
    """One of the two is named."""
    with pytest.raises(ConfigError, match="is a folder of shards and .* is not; tokenize it first"):
        ShardsToRead((str(folder), str(texts)), None, None, 2, "paragraph", tmp_path).open()
    assert ShardsToRead((str(texts),), None, None, 2, "paragraph", tmp_path).open() is None


def test_what_is_held_out_was_decided_before(folder: Path, texts: Path, tmp_path: Path, kept_tokenizer: str) -> None:
    """Another fraction is refused, and so is one of shards that hold nothing out; other shards and text can be named."""
    with pytest.raises(ConfigError, match=r"decided when they were tokenized \(0.2\), so --held-out must not be 0.5; leave it out"):
        ShardsToRead((str(folder),), 0.5, None, 2, "paragraph", tmp_path).open()
    config = TokenizeConfig(text=(str(texts / "inner"),), out=str(tmp_path / "all"), tokenizer_file=kept_tokenizer, held_out="none")
    tokenize(config)
    with pytest.raises(ConfigError, match="holds no documents out; name other shards or text"):
        ShardsToRead((config.out,), 0.02, None, 2, "paragraph", tmp_path).open()
    for held_out, documents in ((None, None), (0.02, 20), (config.out, 30), (str(texts / "inner"), 30)):
        found = ShardsToRead((str(folder),), held_out, None, 2, "paragraph", tmp_path).open()
        assert found
        assert (found[1][1] and found[1][1].documents) == documents


def test_a_lost_shard_is_written_again(folder: Path, texts: Path, tmp_path: Path, kept_tokenizer: str) -> None:
    """By the same command; the others stay."""
    before = content(folder)
    shutil.rmtree(folder / "shards" / "00000")
    tokenize(TokenizeConfig(text=(str(texts),), out=str(folder), tokenizer_file=kept_tokenizer, held_out="0.2"))
    assert content(folder) == before


@pytest.mark.usefixtures("no_second_process")
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
