"""``import --trim``: tokens that a text does not use leave the vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from helpers.foreign import folder_of
from helpers.models import SENTENCES, make_backbone
from warmstart.cli import main
from warmstart.errors import DataError, ModelError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.head import HeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.interop.framing import with_prefix
from warmstart.interop.load import load_model
from warmstart.interop.trim import trimmed
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, fresh_head
from warmstart.tokenizer.tokenizer import Tokenizer

SPECIALS = ["<pad>", "</s>", "<mask>", "<s>", "<unk>"]


def made(kind: str) -> Tokenizer:
    """A small tokenizer of a kind, which frames its texts and has words before them."""
    if kind == "Unigram":
        backend, trainer = (
            Backend(models.Unigram()),
            trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIALS, unk_token="<unk>"),
        )
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        backend = Backend(models.WordPiece(unk_token="<unk>"))
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIALS)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator([*SENTENCES * 3, "Ünïque Ωmega"], trainer)
    backend.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 3))
    return with_prefix(Tokenizer(backend.to_str()), "the dog")


def test_the_texts_have_the_same_outputs(tmp_path: Path) -> None:
    """To the bit, and saved and loaded; fewer tokens, the same pieces; of new words of the same alphabet every letter is known."""
    texts = SENTENCES[:3]
    heads: list[HeadConfig] = [EmbeddingHeadConfig(), LMHeadConfig(bias=True), LMHeadConfig(tied=False)]
    for number, (kind, head) in enumerate(zip(["Unigram", "WordPiece", "WordPiece"], heads, strict=True)):
        tokenizer = made(kind)
        backbone = make_backbone(vocab_size=tokenizer.vocab_size + 2)
        whole = Bundle(Model(backbone, fresh_head(head, backbone, 0), causal=False).eval(), tokenizer)
        save(trimmed(whole, iter(texts)), tmp_path / str(number))
        part = load_bundle(tmp_path / str(number))
        assert part.tokenizer.vocab_size < tokenizer.vocab_size
        assert part.model.backbone.vocab_size == part.tokenizer.vocab_size
        named = [
            [one.token(id_) for row in one.encode(texts) for id_ in (*one.opening, *row)]
            for one in (whole.tokenizer, part.tokenizer)
        ]
        assert named[0] == named[1]
        states = [
            one.model.backbone(torch.tensor([[*one.tokenizer.opening, *one.tokenizer.encode(texts)[0]]])).hidden_states[-1]
            for one in (whole, part)
        ]
        assert torch.equal(*states)
        unknown = [one.specials.unk in one.encode(["dogcathold"])[0] for one in (tokenizer, part.tokenizer)]
        assert unknown[0] == unknown[1]


def test_what_cannot_be_trimmed_is_refused(tokenizer: Tokenizer) -> None:
    """A tokenizer whose pieces are built from one another, and no text."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    bundle = Bundle(Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True), tokenizer)
    with pytest.raises(ModelError, match="this is BPE; leave --trim out"):
        trimmed(bundle, SENTENCES)
    with pytest.raises(DataError, match="there is none"):
        trimmed(Bundle(bundle.model, made("Unigram")), [])


def test_the_command_trims(tmp_path: Path, no_second_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    """On import, for the column of a table; it says how many tokens stay."""
    folder_of("bert", tmp_path / "theirs")
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "river"]
    backend = Backend(models.WordLevel({word: id_ for id_, word in enumerate(known)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.save(str(tmp_path / "theirs" / "tokenizer.json"))
    (tmp_path / "texts.csv").write_text("body\nthe cat\n")
    words = ["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours"), "--trim", str(tmp_path / "texts.csv")]
    code = main([*words, "--text-column", "body"])
    said = capsys.readouterr().err
    assert code == 0, said
    assert "tokens stay" in said
    assert load_model(tmp_path / "ours").tokenizer.vocab_size == 7
