"""Tokenizers of every kind, trained here or loaded from elsewhere; sentencepiece models give the tokens that it gives."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from helpers.refusals import refused
from helpers.sentencepiece import CONTROL, field, model_file
from warmstart.errors import ConfigError, StorageError, TokenizerError
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.specials import guard, new_special_tokens
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TRAINERS, train_tokenizer

# ------------------------------------------------------------------------------------------------ ours

TEXTS = [
    "the cat sat on the mat, and the dog sat on the log.",
    "The [MASK] is only text; so are [PAD] and [SENTINEL_0], [SENTINEL_0] and [MASK]!",
    "a café; naïve coöperation:\n\tthe end of the tale",
    "the cats and the dogs were sitting and singing",
] * 3
SPELLING = st.sampled_from(new_special_tokens(3))
TRICKY = st.lists(st.one_of(SPELLING, st.sampled_from([" ", "\n", "[", "]", "##", "▁", "Ġ", "［MASK］"]), st.text()))


@cache
def trained(kind: str, lowercase: bool = False) -> Tokenizer:
    """One small tokenizer per kind, trained on texts that spell special tokens."""
    config = TokenizerConfig(type=kind, vocab_size=330, lowercase=lowercase, sentinels=3, min_frequency=1)  # type: ignore[arg-type]
    return train_tokenizer(iter(TEXTS), config)


@cache
def again(kind: str) -> Tokenizer:
    """The same tokenizer after saving and loading."""
    return Tokenizer.from_json(trained(kind).to_json())


def foreign(**names: str) -> Backend:
    """A byte-level tokenizer as other projects save it, with padding and truncation left on."""
    pieces = [*names.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Backend(models.BPE({piece: id for id, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True) for name in names.values()])
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    return backend


def test_types_and_config_name_the_same() -> None:
    """The registry and the setting offer the same kinds, and an unknown one is refused by name."""
    assert set(TRAINERS) == set(typing.get_args(TokenizerConfig.model_fields["type"].annotation))
    with pytest.raises(ConfigError, match="did you mean 'wordpiece'"):
        TRAINERS["wordpeice"]


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_life_of_a_kind(kind: str, tmp_path: Path) -> None:
    """Special tokens first; case as asked; saving, loading and pickling keep all; texts and vocabularies that are too small."""
    tokenizer = trained(kind)
    assert tokenizer.type == kind
    assert [tokenizer.token(id) for id in range(8)] == new_special_tokens(3)
    s = tokenizer.specials
    assert (s.pad, s.unk, s.eos, s.mask, s.cls, s.sentinels) == (0, 1, 2, 3, 4, (5, 6, 7))
    assert tokenizer.vocab_size <= 330
    whole = [id for id in range(tokenizer.vocab_size) if "\\x" not in tokenizer.token(id)]
    assert all(tokenizer.id(tokenizer.token(id)) == id for id in whole)
    lower = trained(kind, lowercase=True)
    assert lower.encode(["THE Cats"]) == lower.encode(["the cats"])
    tokenizer.save(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    for copy in (load_tokenizer(tmp_path / "tokenizer.json"), load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert (copy.digest, copy.type, copy.specials) == (tokenizer.digest, tokenizer.type, tokenizer.specials)
        assert copy.encode(TEXTS) == tokenizer.encode(TEXTS)
    small = TokenizerConfig.build({"type": kind, "vocab_size": 37})
    refused(TokenizerError, "needs text to learn from", train_tokenizer, iter(["", " \n"]), small)
    needed = rf"at least \d+ \(37 special tokens and an alphabet of \d+ for type '{kind}'\), but is 37"
    refused(TokenizerError, needed, train_tokenizer, iter(TEXTS), small)


@settings(deadline=None, max_examples=300)
@given(kind=st.sampled_from([*TRAINERS]), parts=TRICKY)
def test_text_never_becomes_a_special_token(kind: str, parts: list[str]) -> None:
    """Whatever a text spells, it is never encoded to a special id except unk, before and after saving and loading."""
    for text in ("".join(parts), " ".join(parts)):
        for tokenizer in (trained(kind), again(kind)):
            forbidden = tokenizer.specials.all() - {tokenizer.specials.unk}
            assert not forbidden & set(tokenizer.encode([text])[0])


@settings(deadline=None, max_examples=150)
@given(parts=TRICKY)
def test_bytes_are_lossless(parts: list[str]) -> None:
    """Decoding byte-level pieces gives every text back exactly, without unk."""
    text = "".join(parts)
    ids = trained("bytes").encode([text])[0]
    assert trained("bytes").decode(ids) == text
    assert trained("bytes").specials.unk not in ids


def test_what_decoding_loses() -> None:
    """Other kinds give a text back up to white space, spaces around punctuation, and unknown words; special tokens never."""
    for kind, want in (("wordpiece", "the cat , café ! end"), ("unigram", "the cat, café! end"), ("word", "the end")):
        tokenizer = trained(kind)
        assert tokenizer.decode(tokenizer.encode([" the  cat, café!\n end "])[0]) == want, kind
    t = trained("bytes")
    assert t.decode([t.specials.eos, *t.encode(["the cat"])[0], t.specials.mask, *t.specials.sentinels]) == "the cat"


@settings(deadline=None, max_examples=200)
@given(kind=st.sampled_from([*TRAINERS]), text=st.text(alphabet=sorted(set("".join(TEXTS)) - {"[", "]"})))
def test_decoding_settles(kind: str, text: str) -> None:
    """What was decoded once encodes and decodes to itself."""
    tokenizer = trained(kind)
    once = tokenizer.decode(tokenizer.encode([text])[0])
    assert tokenizer.decode(tokenizer.encode([once])[0]) == once


def test_word_starts() -> None:
    """Each kind knows which of its pieces begin a word; special tokens always do."""
    for kind, piece, starts in (
        ("bytes", " the", True), ("bytes", "\n", True), ("bytes", "t", False),
        ("wordpiece", "the", True), ("wordpiece", "##s", False),
        ("unigram", "▁the", True), ("unigram", "t", False),
        ("word", "cats", True), ("character", " ", True), ("character", "t", False),
    ):  # fmt: skip
        tokenizer = trained(kind)
        vocabulary = tokenizer.vocabulary()
        assert vocabulary.word_starts[tokenizer.id(piece)] == starts, (kind, piece)
        assert vocabulary.word_starts.shape == (tokenizer.vocab_size,)
        assert vocabulary.word_starts[sorted(tokenizer.specials.all())].all()
        assert tokenizer.vocabulary() is vocabulary


def test_byte_pieces_print_as_text() -> None:
    """The text of a byte-level piece is what its bytes spell; half a character is its hexadecimal byte."""
    tokenizer = trained("bytes")
    half = tokenizer.encode(["漢"])[0][0]
    assert tokenizer.token(half) == "\\xe6"
    assert tokenizer.id(" the") == tokenizer.id("Ġthe") is not None
    assert tokenizer.id("no such piece") is None
    refused(TokenizerError, "an id must be between 0 and 329, but this is 330", tokenizer.token, 330)


def test_known_characters_are_never_unknown() -> None:
    """Any word of known characters can be spelled from pieces; frequent words are one piece of a unigram tokenizer."""
    for kind in ("wordpiece", "unigram"):
        assert trained(kind).specials.unk not in trained(kind).encode(["tedra tac goddess"])[0], kind
    tokenizer = trained("unigram")
    assert len(tokenizer.encode(["the"])[0]) == 1
    assert np.mean([len(ids) for ids in tokenizer.encode(TEXTS)]) < np.mean([len(text) for text in TEXTS]) / 2


@pytest.mark.journeys
def test_training_is_the_same_in_every_process() -> None:
    """The same texts give the same vocabulary in a process with other hash seeds."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_tokenizer import TRAINERS, trained; "
        "print(*(trained(kind).digest for kind in TRAINERS))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert other == [trained(kind).digest for kind in TRAINERS]


def test_training_reads_a_stream_once() -> None:
    """Training takes an iterator, reads it to its end, and lets the reader's own errors pass."""

    def failing() -> Iterator[str]:
        yield from TEXTS
        raise ConfigError("the reader's own words")

    with pytest.raises(ConfigError, match="the reader's own words"):
        train_tokenizer(failing(), TokenizerConfig(vocab_size=400))


def test_digest_ignores_layout() -> None:
    """The digest depends on the content of the JSON, not on its layout."""
    pretty = json.dumps(json.loads(trained("bytes").to_json()), indent=2)
    assert Tokenizer.from_json(pretty).digest == trained("bytes").digest
    assert len({trained(kind).digest for kind in TRAINERS}) == len(TRAINERS)


def test_foreign_specials_are_known_by_name() -> None:
    """Special tokens of other names keep their ids; missing ones and sentinels come last; text stays text."""
    backend = foreign(pad="<pad>", end="</s>", mask="<mask>", span="<extra_id_0>", other="<|im_start|>")
    tokenizer = Tokenizer(backend.to_str(), sentinels=2)
    s = tokenizer.specials
    assert (s.pad, s.eos, s.mask, s.unk, s.cls, s.sentinels) == (0, 1, 2, 261, 262, (3, 263))
    text = "a <pad></s> <mask><extra_id_0> <|im_start|> that is longer than the truncation"
    ids = tokenizer.encode([text])[0]
    assert tokenizer.decode(ids) == text
    assert not s.all() & set(ids)
    assert Tokenizer.from_json(tokenizer.to_json()).digest == tokenizer.digest


def test_foreign_names_have_one_role_and_unknown_words_theirs() -> None:
    """An end-of-text token alone leaves the other roles new ids; a word that spells a special token is one unknown word."""
    s = Tokenizer(foreign(end="<|endoftext|>").to_str()).specials
    assert (s.eos, s.pad, s.unk, s.mask, s.cls) == (0, 257, 258, 259, 260)  # 50257 onwards in GPT-2
    for words, unknown, text, ids in (
        ({"<unk>": 0, "cat": 1, "<eos>": 2}, "<unk>", "cat <unk> <eos> (<eos>) cat", [1, 0, 0, 0, 1]),
        ({"OOV": 0, "cat": 1}, "OOV", "cat dog", [1, 0]),  # the model's own spelling of unknown text is the unk role
    ):
        backend = Backend(models.WordLevel(words, unk_token=unknown))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = Tokenizer.from_json(backend.to_str())
        assert (tokenizer.specials.unk, tokenizer.encode([text])) == (0, [ids])


def test_a_special_token_goes_before_a_piece_that_is_spelled_like_one() -> None:
    """As in MPNet's vocabulary, which is BERT's with other special tokens."""
    backend = Backend(models.WordLevel({"[PAD]": 0, "cat": 1, "[UNK]": 2, "<pad>": 3}, unk_token="[UNK]"))
    backend.add_special_tokens(["<pad>"])
    assert Tokenizer(backend.to_str()).specials.pad == 3


def test_word_list(tmp_path: Path) -> None:
    """A word list, with or without counts, becomes the word kind in its own order."""
    path = tmp_path / "words.txt"
    path.write_text("the 12\nof 7\n▁cat\n1 1\n", encoding="utf-8")
    tokenizer = load_tokenizer(path)
    assert tokenizer.type == "word"
    assert [tokenizer.token(id) for id in range(5, 9)] == ["the", "of", "▁cat", "1"]
    assert tokenizer.encode(["of  the dog ▁cat [PAD]"])[0][:4] == [6, 5, tokenizer.specials.unk, 7]
    assert load_tokenizer(path, sentinels=4).vocab_size == 5 + 4 + 4


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    """By the file's name, with what is wrong and what to do; so is text that cannot be encoded, and a place that is not there."""
    for name, content, message in (
        ("absent.json", None, "no such tokenizer file: .*absent.json; check the path"),
        ("a.vocab", b"", "must end in .json, .model or .txt"),
        ("a.txt", b"\xff\xfe", "cannot read the tokenizer file .* readable UTF-8"),
        ("a.txt", b"the 3\nof 2\nthe 1\n", "name each word once .*, but 'the' is repeated; correct"),
        ("a.txt", b"[PAD]\nthe\n", "no special token, but '.PAD.' is repeated"),
        ("a.txt", b"\n", "there is no word"),
        ("a.json", b"{}", "must be the JSON of the tokenizers library"),
        ("a.json", b"not json", "must be the JSON of the tokenizers library"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        refused(TokenizerError, message, load_tokenizer, tmp_path / name)
    ends = Backend(models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>")).to_str()
    refused(TokenizerError, "must mark the starts of words", Tokenizer.from_json, ends)
    assert guard(["<pad>", "<eos>", "[X]"], "BPE")["pattern"] == {"Regex": r"<(?=(?:eos>|pad>))|\[(?=(?:X\]))"}
    single = foreign(pad="_").to_str()
    refused(TokenizerError, r"at least two characters.* but one is '_'", Tokenizer.from_json, single)
    twice = trained("bytes").to_json().replace('"normalizer":', '"model": null, "normalizer":', 1)
    refused(TokenizerError, "each name must stand once in a group, but 'model' stands twice", Tokenizer.from_json, twice)
    refused(TokenizerError, "write encode", trained("bytes").encode, "one text")
    refused(TokenizerError, "lone surrogate", trained("bytes").encode, ["\ud800"])
    (tmp_path / "file").touch()
    refused(StorageError, r"cannot write the tokenizer to .*json: ", trained("word").save, tmp_path / "file" / "tokenizer.json")


# ------------------------------------------------------------------------------------------------ sentencepiece

DATA = Path(os.environ.get("WARMSTART_DATA", Path(__file__).parents[1] / "../shared/data"))


LETTERS = [(piece, -float(20 + n), 1) for n, piece in enumerate("▁abc")]


def test_a_small_bpe_model(tmp_path: Path) -> None:
    """Merges are recovered from the scores: the best piece is built first, wherever it is in the text."""
    merged = [("bc", -1.0, 1), ("ab", -2.0, 1), ("▁a", -3.0, 1), ("▁abc", -4.0, 1)]
    path = tmp_path / "a.model"
    path.write_bytes(model_file([*CONTROL, *merged, *LETTERS], field(3, 2)))
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
    path.write_bytes(model_file([*pieces, *spelled], field(3, 1) + field(35, 1), field(3, 0) + field(4, 0)))
    tokenizer = load_tokenizer(path)
    assert [tokenizer.token(id) for id in tokenizer.encode([" abc é"])[0]] == ["▁a", "bc", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode([" abc  é"])[0]) == " abc  é"


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is no BPE or unigram model is refused by name."""
    path = tmp_path / "a.model"
    for content, said in (
        (b"plain text, no model at all", "this is not a sentencepiece model"),
        (b"\x0a\xff", "this is not a sentencepiece model"),
        (b"", "hold an unknown piece, but this one is of type 1 with 0 pieces"),
        (model_file(CONTROL, field(3, 3)), "must be of type unigram .* but this one is of type 3 with 3 pieces"),
    ):
        path.write_bytes(content)
        refused(TokenizerError, rf"a\.model: .*{said}", load_tokenizer, path)


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
    words = load_tokenizer(DATA / "altegrad_cls_books" / "dict.txt")  # a word list, for text that is already split
    assert (words.type, words.vocab_size) == ("word", 49_997 + 5)
    assert words.decode(words.encode(["▁la ▁mais on"])[0]) == "▁la ▁mais on"
