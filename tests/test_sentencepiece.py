"""The sentencepiece reader gives the tokens that sentencepiece gives."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import pytest

from warmstart.errors import TokenizerError
from warmstart.tokenizer.load import load_tokenizer

DATA = Path(os.environ.get("WARMSTART_DATA", Path(__file__).parents[1] / "../shared/data"))


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first."""
    head = b""
    while value >= 0x80:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def field(number: int, value: int | bytes | float) -> bytes:
    """One field of a protocol-buffer message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(pieces: list[tuple[str, float, int]], trainer: bytes, normalizer: bytes = b"") -> bytes:
    """A model file with these pieces (spelling, score, type)."""
    parts = [field(1, piece.encode()) + field(2, score) + field(3, kind) for piece, score, kind in pieces]
    return b"".join(field(1, part) for part in parts) + field(2, trainer) + field(3, normalizer)


CONTROL = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
LETTERS = [(piece, -float(20 + n), 1) for n, piece in enumerate("▁abc")]


def test_a_small_bpe_model(tmp_path: Path) -> None:
    """Merges are recovered from the scores: the best piece is built first, wherever it is in the text."""
    merged = [("bc", -1.0, 1), ("ab", -2.0, 1), ("▁a", -3.0, 1), ("▁abc", -4.0, 1)]
    path = tmp_path / "a.model"
    path.write_bytes(message([*CONTROL, *merged, *LETTERS], field(3, 2)))
    tokenizer = load_tokenizer(path)
    pieces = [tokenizer.token(id) for id in tokenizer.encode(["  abc   ab <s> "])[0]]
    assert pieces == ["▁abc", "▁", "ab", "▁", "<unk>", "<unk>"]
    assert (tokenizer.type, tokenizer.specials.eos, tokenizer.specials.cls) == ("sentencepiece", 2, 1)
    assert tokenizer.decode(tokenizer.encode(["abc ab"])[0]) == "abc ab"
    starts = tokenizer.vocabulary().word_starts
    assert starts[tokenizer.id("▁abc")]
    assert not starts[tokenizer.id("bc")]


def test_a_small_unigram_model(tmp_path: Path) -> None:
    """A unigram model takes the most probable split, and spells unknown characters as bytes if it may."""
    pieces = [*CONTROL, ("▁ab", -2.0, 1), ("c", -2.5, 1), ("▁a", -1.0, 1), ("bc", -1.5, 1), *LETTERS[:3]]
    spelled = [(f"<0x{byte:02X}>", -30.0, 6) for byte in range(256)]
    path = tmp_path / "a.model"
    path.write_bytes(message([*pieces, *spelled], field(3, 1) + field(35, 1), field(3, 0) + field(4, 0)))
    tokenizer = load_tokenizer(path)
    assert [tokenizer.token(id) for id in tokenizer.encode([" abc é"])[0]] == ["▁a", "bc", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode([" abc  é"])[0]) == " abc  é"


@pytest.mark.parametrize(("content", "text"), [
    (b"plain text, no model at all", "this is not a sentencepiece model"),
    (b"\x0a\xff", "this is not a sentencepiece model"),
    (b"", "hold an unknown piece, but this one is of type 1 with 0 pieces"),
    (message(CONTROL, field(3, 3)), "must be of type unigram .* but this one is of type 3 with 3 pieces"),
])  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, content: bytes, text: str) -> None:
    """A file that is no BPE or unigram model is refused by name."""
    path = tmp_path / "a.model"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=rf"a\.model: .*{text}"):
        load_tokenizer(path)


def lines(name: str, count: int) -> list[str]:
    """The first lines of a zipped file of French sentences."""
    with gzip.open(DATA / "french_novel_sentences" / name, "rt", encoding="utf-8", newline="\n") as file:
        return [next(file).rstrip("\n") for _ in range(count)]


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "altegrad_cls_books").is_dir(), reason="WARMSTART_DATA has no altegrad_cls_books")
def test_splits_as_sentencepiece_did() -> None:
    """The French model splits 2,000 sentences exactly as sentencepiece did (which prints unknown text unchanged)."""
    tokenizer = load_tokenizer(DATA / "altegrad_cls_books" / "sentencepiece.french.model")
    assert tokenizer.vocab_size == 50_002  # 50,000 pieces, [PAD] and [MASK]
    unk = tokenizer.specials.unk
    found = [[tokenizer.id(piece) for piece in line.split(" ")] for line in lines("sentences.spm.txt.gz", 2_000)]
    want = [[unk if id is None else id for id in ids] for ids in found]
    assert tokenizer.encode(lines("sentences.txt.gz", 2_000)) == want


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "altegrad_cls_books").is_dir(), reason="WARMSTART_DATA has no altegrad_cls_books")
def test_a_real_word_list() -> None:
    """The French word list has 49,997 pieces, and covers text that is already split into them."""
    tokenizer = load_tokenizer(DATA / "altegrad_cls_books" / "dict.txt")
    assert (tokenizer.type, tokenizer.vocab_size) == ("word", 49_997 + 5)
    ids = tokenizer.encode(["▁la ▁mais on"])[0]
    assert tokenizer.decode(ids) == "▁la ▁mais on"
