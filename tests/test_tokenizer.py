"""Tokenizers of every kind, trained here or loaded from elsewhere."""

from __future__ import annotations

import json
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

from warmstart.errors import ConfigError, StorageError, TokenizerError
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.specials import guard, new_special_tokens
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TRAINERS, TokenizerConfig, train_tokenizer
from warmstart.tokenizer.vocabulary import vocabulary_report

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
def test_special_tokens_come_first(kind: str) -> None:
    """Special tokens have the first ids, in the documented order, in every kind."""
    tokenizer = trained(kind)
    assert tokenizer.type == kind
    assert [tokenizer.token(id) for id in range(8)] == new_special_tokens(3)
    s = tokenizer.specials
    assert (s.pad, s.unk, s.eos, s.mask, s.cls, s.sentinels) == (0, 1, 2, 3, 4, (5, 6, 7))
    assert tokenizer.vocab_size <= 330
    whole = [id for id in range(tokenizer.vocab_size) if "\\x" not in tokenizer.token(id)]
    assert all(tokenizer.id(tokenizer.token(id)) == id for id in whole)


@pytest.mark.parametrize("kind", TRAINERS)
@settings(deadline=None, max_examples=60)
@given(parts=TRICKY)
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


@settings(deadline=None, max_examples=60)
@given(text=st.text(alphabet=sorted(set("".join(TEXTS)))))
def test_known_characters_are_lossless(text: str) -> None:
    """The character kind gives back every text of known characters exactly."""
    assert trained("character").decode(trained("character").encode([text])[0]) == text


@pytest.mark.parametrize(("kind", "want"), [
    ("wordpiece", "the cat , café ! end"),
    ("unigram", "the cat, café! end"),
    ("word", "the end"),
])  # fmt: skip
def test_what_decoding_loses(kind: str, want: str) -> None:
    """Other kinds give a text back up to white space, spaces around punctuation, and unknown words."""
    tokenizer = trained(kind)
    assert tokenizer.decode(tokenizer.encode([" the  cat, café!\n end "])[0]) == want


@pytest.mark.parametrize("kind", TRAINERS)
@settings(deadline=None, max_examples=40)
@given(text=st.text(alphabet=sorted(set("".join(TEXTS)) - {"[", "]"})))
def test_decoding_settles(kind: str, text: str) -> None:
    """What was decoded once encodes and decodes to itself."""
    tokenizer = trained(kind)
    once = tokenizer.decode(tokenizer.encode([text])[0])
    assert tokenizer.decode(tokenizer.encode([once])[0]) == once


def test_decoding_leaves_specials_out() -> None:
    """Decoded text contains no special tokens."""
    t = trained("bytes")
    ids = [t.specials.eos, *t.encode(["the cat"])[0], t.specials.mask, *t.specials.sentinels]
    assert t.decode(ids) == "the cat"


@pytest.mark.parametrize(("kind", "piece", "starts"), [
    ("bytes", " the", True), ("bytes", "\n", True), ("bytes", "t", False),
    ("wordpiece", "the", True), ("wordpiece", "##s", False),
    ("unigram", "▁the", True), ("unigram", "t", False),
    ("word", "cats", True), ("character", " ", True), ("character", "t", False),
])  # fmt: skip
def test_word_starts(kind: str, piece: str, starts: bool) -> None:
    """Each kind knows which of its pieces begin a word; special tokens always do."""
    tokenizer = trained(kind)
    vocabulary = tokenizer.vocabulary()
    id = tokenizer.id(piece)
    assert id is not None
    assert vocabulary.word_starts[id] == starts
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
    with pytest.raises(TokenizerError, match=r"an id must be between 0 and 329, but this is 330"):
        tokenizer.token(330)


@pytest.mark.parametrize("kind", TRAINERS)
def test_lowercase(kind: str) -> None:
    """With lowercase, case makes no difference."""
    tokenizer = trained(kind, lowercase=True)
    assert tokenizer.encode(["THE Cats"]) == tokenizer.encode(["the cats"])


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_known_characters_are_never_unknown(kind: str) -> None:
    """Any word of known characters can be spelled from pieces."""
    tokenizer = trained(kind)
    assert tokenizer.specials.unk not in tokenizer.encode(["zebra tac goddess".replace("z", "t").replace("b", "d")])[0]


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


@pytest.mark.parametrize("kind", TRAINERS)
def test_save_load_pickle(kind: str, tmp_path: Path) -> None:
    """Saving, loading and pickling keep digest, kind, specials and encoding; nothing else is left in the folder."""
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    copies = [load_tokenizer(tmp_path / "tokenizer.json"), load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))]
    for copy in copies:
        assert (copy.digest, copy.type, copy.specials) == (tokenizer.digest, tokenizer.type, tokenizer.specials)
        assert copy.encode(TEXTS) == tokenizer.encode(TEXTS)


def test_saving_to_nowhere(tmp_path: Path) -> None:
    """A folder that does not exist is a StorageError that names the file."""
    with pytest.raises(StorageError, match=r"cannot write the tokenizer to .*absent.*No such file"):
        trained("word").save(tmp_path / "absent" / "tokenizer.json")


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


def test_one_foreign_name_serves_one_role() -> None:
    """A vocabulary with only an end-of-text token gets the other roles as new ids (50257 onwards in GPT-2)."""
    s = Tokenizer(foreign(end="<|endoftext|>").to_str()).specials
    assert (s.eos, s.pad, s.unk, s.mask, s.cls) == (0, 257, 258, 259, 260)


def test_words_that_spell_specials_stay_one_word() -> None:
    """Where each word is one token, a word that spells a special token is one unknown word, also inside brackets."""
    backend = Backend(models.WordLevel({"<unk>": 0, "cat": 1, "<eos>": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer.from_json(backend.to_str())
    assert tokenizer.encode(["cat <unk> <eos> (<eos>) cat"]) == [[1, 0, 0, 0, 1]]


def test_unknown_word_of_the_model_is_unk() -> None:
    """The spelling that a foreign model itself uses for unknown text is the unk role."""
    backend = Backend(models.WordLevel({"OOV": 0, "cat": 1}, unk_token="OOV"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer.from_json(backend.to_str())
    assert tokenizer.specials.unk == 0
    assert tokenizer.encode(["cat dog"]) == [[1, 0]]


def test_word_list(tmp_path: Path) -> None:
    """A word list, with or without counts, becomes the word kind in its own order."""
    path = tmp_path / "words.txt"
    path.write_text("the 12\nof 7\n▁cat\n1 1\n", encoding="utf-8")
    tokenizer = load_tokenizer(path)
    assert tokenizer.type == "word"
    assert [tokenizer.token(id) for id in range(5, 9)] == ["the", "of", "▁cat", "1"]
    assert tokenizer.encode(["of  the dog ▁cat [PAD]"])[0][:4] == [6, 5, tokenizer.specials.unk, 7]
    assert load_tokenizer(path, sentinels=4).vocab_size == 5 + 4 + 4


@pytest.mark.parametrize(("name", "content", "message"), [
    ("absent.json", None, "no such tokenizer file: .*absent.json; check the path"),
    ("a.vocab", b"", "must end in .json, .model or .txt"),
    ("a.txt", b"\xff\xfe", "cannot read the tokenizer file .* readable UTF-8"),
    ("a.txt", b"the 3\nof 2\nthe 1\n", "name each word once .*, but 'the' is repeated; correct"),
    ("a.txt", b"[PAD]\nthe\n", "no special token, but '.PAD.' is repeated"),
    ("a.txt", b"\n", "there is no word"),
    ("a.json", b"{}", "must be the JSON of the tokenizers library"),
    ("a.json", b"not json", "must be the JSON of the tokenizers library"),
])  # fmt: skip
def test_load_errors(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    """A file that is no tokenizer is refused with its name, what is wrong, and what to do."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(tmp_path / name)


def test_a_tokenizer_without_word_marks_is_refused() -> None:
    """A BPE vocabulary that marks the ends of words is refused: nothing would know where words begin."""
    backend = Backend(models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>"))
    with pytest.raises(TokenizerError, match="must mark the starts of words"):
        Tokenizer.from_json(backend.to_str())


def test_a_special_token_of_one_character_is_refused() -> None:
    """One character cannot be distinguished from text, so it cannot be special."""
    assert guard(["<pad>", "<eos>", "[X]"], "BPE")["pattern"] == {"Regex": r"<(?=(?:eos>|pad>))|\[(?=(?:X\]))"}
    with pytest.raises(TokenizerError, match=r"at least two characters.* but one is '_'"):
        Tokenizer.from_json(foreign(pad="_").to_str())


@pytest.mark.parametrize("kind", TRAINERS)
def test_training_errors(kind: str) -> None:
    """No text, or a vocabulary too small for the alphabet, is a TokenizerError that says how much is needed."""
    with pytest.raises(TokenizerError, match="needs text to learn from"):
        train_tokenizer(iter(["", " \n"]), TokenizerConfig(type=kind))  # type: ignore[arg-type]
    with pytest.raises(
        TokenizerError, match=rf"at least \d+ \(37 special tokens and an alphabet of \d+ for type '{kind}'\), but is 37"
    ):
        train_tokenizer(iter(TEXTS), TokenizerConfig(type=kind, vocab_size=37))  # type: ignore[arg-type]


@pytest.mark.parametrize(("texts", "message"), [("one text", "write encode"), (["\ud800"], "lone surrogate")])
def test_encode_errors(texts: typing.Any, message: str) -> None:
    """A bare string or invalid Unicode is refused."""
    with pytest.raises(TokenizerError, match=message):
        trained("bytes").encode(texts)


def test_vocabulary_report() -> None:
    """The report counts tokens, words, characters, unknown tokens and unused pieces."""
    report = vocabulary_report(trained("word"), ["the cat zzz", "the dog"])
    assert (report.tokens, report.words, report.characters, report.specials) == (5, 5, 18, 8)
    assert report.unknown_fraction == pytest.approx(1 / 5)
    used = len({"the", "cat", "dog"})
    assert report.unused_fraction == pytest.approx(1 - used / (trained("word").vocab_size - 8))
    assert report.tokens_per_word == 1
    assert report.characters_per_token == pytest.approx(18 / 5)
    assert len(report.longest_pieces[0]) >= len(report.longest_pieces[-1])
    assert ("unknown tokens", "20.00%") in report.rows()
    assert all(isinstance(text, str) for row in report.rows() for text in row)
    with pytest.raises(TokenizerError, match="needs text"):
        vocabulary_report(trained("word"), [])


def test_unigram_finds_shorter_splits_than_characters() -> None:
    """Unigram pieces are learned: frequent words are one piece."""
    tokenizer = trained("unigram")
    assert len(tokenizer.encode(["the"])[0]) == 1
    assert np.mean([len(ids) for ids in tokenizer.encode(TEXTS)]) < np.mean([len(text) for text in TEXTS]) / 2
