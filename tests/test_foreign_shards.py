"""Shards of other programs: datatrove, llm.c and nanoGPT, written here byte by byte after their formats."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from warmstart.cli import main
from warmstart.corpora.open import ShardsToRead
from warmstart.corpora.shards import TokenShards
from warmstart.data.pretraining_rows import PretrainingRows
from warmstart.errors import ConfigError, DataError
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer

EOS = 2
DOCUMENTS = [[10 + n, 11 + n % 7, *range(20, 20 + n % 5), EOS] for n in range(40)]
FLAT = [token for document in DOCUMENTS for token in document]


def datatrove(file: Path, documents: list[list[int]], size: int = 2, metadata: bool = True) -> Path:
    """NAME.ds and NAME.ds.index: tokens, and the end of each document as a number of eight bytes."""
    flat = [token for document in documents for token in document]
    file.write_bytes(struct.pack(f"<{len(flat)}{'H' if size == 2 else 'I'}", *flat))
    ends = np.cumsum([len(document) for document in documents]).tolist()
    Path(f"{file}.index").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
    if metadata:
        Path(f"{file}.metadata").write_text(f"gpt2|{size}\n{len(flat)}\n{len(flat)} T")
    return file


def llm_c(file: Path, tokens: list[int], magic: int = 20240520, version: int = 1, count: int | None = None) -> Path:
    """256 numbers of four bytes, then the tokens."""
    header = [magic, version, len(tokens) if count is None else count, *[0] * 253]
    file.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}{'H' if magic == 20240520 else 'I'}", *tokens))
    return file


def nanogpt(file: Path, tokens: list[int], size: int = 2) -> Path:
    """Nothing but tokens."""
    file.write_bytes(struct.pack(f"<{len(tokens)}{'H' if size == 2 else 'I'}", *tokens))
    return file


def read(*paths: Path, tokenizer: Tokenizer | None, held_out: str | float | None = None, size: int = 2) -> tuple[Any, Any]:
    """The training text and the held-out text."""
    found = ShardsToRead(tuple(map(str, paths)), held_out, tokenizer, size, "paragraph", paths[0].parent / "cache").open()
    assert found is not None
    return found[1]


def all_tokens(text: TokenShards) -> list[int]:
    """The tokens of all shards, row by row."""
    ids, lengths = text.row_block(np.arange(text.rows(7, ragged=True)), 7, 0, ragged=True)
    rows = [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]
    return [*rows[0][:1], *(token for row in rows for token in row[1:])]


def test_datatrove(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Its tokens in order, and its documents by the index; without end tokens, rows of documents are framed all the same."""
    for size in (2, 4):
        text, held_out = read(datatrove(tmp_path / "a.ds", DOCUMENTS, size), tokenizer=tokenizer, size=size)
        assert held_out is None
        assert all_tokens(text) == FLAT
        assert (text.documents, text.words, text.total_tokens) == (40, None, len(FLAT))
        block, lengths = text.documents_block(np.arange(40), 12, 0)
        assert [row[:n].tolist() for row, n in zip(block, lengths, strict=True)] == [[EOS, *document] for document in DOCUMENTS]
    bare = [document[:-1] for document in DOCUMENTS]
    text, _ = read(datatrove(tmp_path / "a.ds", bare), tokenizer=tokenizer)
    block, lengths = text.documents_block(np.array([3, 39]), 12, 0)
    assert [row[:n].tolist() for row, n in zip(block, lengths, strict=True)] == [[EOS, *bare[3], EOS], [EOS, *bare[39], EOS]]


@settings(deadline=None, max_examples=40)
@given(documents=st.lists(st.lists(st.integers(3, 300), min_size=0, max_size=8), min_size=2, max_size=12), end=st.booleans())
def test_any_documents_come_back_from_datatrove(
    documents: list[list[int]], end: bool, tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer
) -> None:
    """Empty ones, too."""
    stored = [[*document, EOS] if end else document for document in documents]
    if sum(map(len, stored)) < 2:
        return
    text, _ = read(datatrove(tmp_path_factory.mktemp("ds") / "a.ds", stored), tokenizer=tokenizer)
    block, lengths = text.documents_block(np.arange(len(documents)), 12, 0)
    found = [row[:n].tolist() for row, n in zip(block, lengths, strict=True)]
    assert found == [[EOS, *document, EOS] for document in documents]


def test_llm_c_and_nanogpt(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Tokens behind the header of either version, or without one; where documents end is not known."""
    for file, size in (
        (llm_c(tmp_path / "fineweb_train_000001.bin", FLAT), 2),
        (llm_c(tmp_path / "llama.bin", FLAT, 20240801, 7), 2),
        (nanogpt(tmp_path / "train.bin", FLAT), 2),
        (nanogpt(tmp_path / "four.bin", FLAT, 4), 4),
    ):
        text, _ = read(file, tokenizer=tokenizer, size=size)
        assert all_tokens(text) == FLAT
        assert text.documents is None
        rows = PretrainingRows(text, tokenizer.vocabulary(), ObjectiveConfig(rows="documents"), 8)
        refused(DataError, "do not say where documents end; use --rows packed", len, rows)


def test_folders_globs_and_held_out_shards(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Every shard of a folder, those that a glob matches, and others as held-out text."""
    for number in range(3):
        llm_c(tmp_path / f"fineweb_train_{number}.bin", [number + 10] * 9)
    llm_c(tmp_path / "fineweb_val_0.bin", [30] * 9)
    text, held_out = read(tmp_path / "fineweb_train_*.bin", tokenizer=tokenizer, held_out=str(tmp_path / "fineweb_val_0.bin"))
    assert (text.total_tokens, held_out.total_tokens) == (27, 9)
    assert read(tmp_path, tokenizer=tokenizer)[0].total_tokens == 36
    assert read(tmp_path / "*_0*", tokenizer=tokenizer)[0].total_tokens == 18


def test_text_among_shards_is_not_left_out_in_silence(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """What programs write beside their shards is; a glob names the shards alone."""
    nanogpt(tmp_path / "train.bin", FLAT)
    (tmp_path / "meta.pkl").write_bytes(b"")
    read(tmp_path, tokenizer=tokenizer)
    (tmp_path / "input.txt").write_text("text")
    said = r"input\.txt lies among shards and is none; name the shards themselves"
    refused(ConfigError, said, read, tmp_path, tokenizer=tokenizer)
    read(tmp_path / "*.bin", tokenizer=tokenizer)


def test_another_file_has_another_digest(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """A run is not resumed on shards that changed at their beginning or end."""
    digests = {
        read(nanogpt(tmp_path / "a.bin", tokens), tokenizer=tokenizer)[0].digest for tokens in (FLAT, FLAT[:-1], [*FLAT[:-1], 9])
    }
    assert len(digests) == 3


def test_what_does_not_fit_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """At the start, or when the shard is first read."""

    def rows(file: Path, size: int) -> None:
        text, _ = read(file, tokenizer=tokenizer, size=size)
        text.documents_block(np.array([0]), 8, 0) if text.documents else text.row_block(np.array([0]), 1, 0)

    four, plain, short, order = (datatrove(tmp_path / f"{n}.ds", DOCUMENTS, 4 if n < 2 else 2, n > 0) for n in (1, 0, 2, 3))
    Path(f"{short}.index").write_bytes(b"123")
    ends = np.cumsum([len(document) for document in DOCUMENTS])
    ends[[3, 5]] = ends[[5, 3]]
    ends.astype("<u8").tofile(f"{order}.index")
    for file, size, message in [
        (four, 2, "the tokens of .* have 4 bytes, as its metadata says; use --token-size 4, not 2"),
        (plain, 2, "the last document of .* must end at its .* tokens, but .* says .*; check --token-size"),
        (short, 2, "index must hold numbers of 8 bytes, but has 3 bytes"),
        (order, 2, "index must hold the ends of 40 documents in ascending order, but does not"),
        (nanogpt(tmp_path / "odd.bin", FLAT[: len(FLAT) // 2 * 2 - 1]), 4,
         "must hold numbers of 4 bytes, but has 3.. bytes; --token-size 2 or 4 must be that with which it was written"),
        (llm_c(tmp_path / "header.bin", FLAT, count=7), 2,
         "must name version 1 and its .* tokens, but names version 1 and 7; copy it again"),
        (nanogpt(tmp_path / "vocabulary.bin", [*FLAT, 50_256]), 2,
         "must be below .*, the size of the vocabulary, but one is 50256; name the tokenizer it was made with"),
        (nanogpt(tmp_path / "one.bin", [3]), 2, "a shard must hold at least two tokens, but .*one.bin holds 1; leave it out"),
    ]:  # fmt: skip
        refused(DataError, message, rows, file, size)


def test_what_they_do_not_say_must_be_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The tokenizer, and what is held out; and text beside them is refused."""
    file = nanogpt(tmp_path / "train.bin", FLAT)
    refused(ConfigError, "does not say which tokenizer made it; name it: --tokenizer-file", read, file, tokenizer=None)
    held_out = "holds no documents out; name other shards or text"
    refused(ConfigError, held_out, read, file, tokenizer=tokenizer, held_out=0.02)
    (tmp_path / "text.txt").write_text("a text")
    said = "holds shards and .*text.txt does not; tokenize it first"
    refused(ConfigError, said, read, file, tmp_path / "text.txt", tokenizer=tokenizer)


def test_pretraining_on_nanogpt_shards(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """The loss per token of held-out shards is known, that per word is not; an empty folder is an error."""
    tokenizer.save(tmp_path / "tokenizer.json")
    nanogpt(tmp_path / "train.bin", FLAT * 4)
    nanogpt(tmp_path / "val.bin", FLAT)
    (tmp_path / "empty").mkdir()
    words = ["--tokenizer-file", str(tmp_path / "tokenizer.json"), "--held-out", str(tmp_path / "val.bin"), "--steps", "2"]
    words += ["--depth", "1", "--width", "16", "--heads", "2", "--max-length", "16"]
    assert main(["pretrain", str(tmp_path / "train.bin"), "--out", str(tmp_path / "run"), *words]) == 0
    printed = capsys.readouterr().err
    assert "perplexity" in printed
    assert "word_perplexity" not in printed
    assert main(["pretrain", str(tmp_path / "empty"), "--out", str(tmp_path / "none"), *words]) == 2
    assert "must hold at least one file that is not hidden" in capsys.readouterr().err
