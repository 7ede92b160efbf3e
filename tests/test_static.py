"""``import --static``: an encoder as word vectors of the tokens that a text uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from helpers.foreign import folder_of
from helpers.models import SENTENCES, make_backbone
from warmstart.cli import main
from warmstart.errors import DataError, ModelError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.settings import HeadConfig, LMHeadConfig
from warmstart.interop.framing import with_prefix
from warmstart.interop.load import load_model
from warmstart.interop.static import PENALTY, fitted, static
from warmstart.model.already_read import already_read
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.history import ImportRecord, ReadRecord
from warmstart.model.inference import embed
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


def an_encoder(kind: str = "WordPiece", head: HeadConfig | None = None) -> Bundle:
    """A tiny one that has read IMDb."""
    tokenizer = made(kind)
    backbone = make_backbone(vocab_size=tokenizer.vocab_size + 2)
    model = Model(backbone, fresh_head(head or EmbeddingHeadConfig(), backbone, 0), causal=False).eval()
    record = ImportRecord(family="bert", config={}, read=ReadRecord(texts=("IMDb",), source="us"))
    return Bundle(model, tokenizer, history=(record,))


def test_word_vectors_are_a_ridge_regression() -> None:
    """As by its normal equations over tokens; the cosine is that of fits without each passage."""
    draw = np.random.default_rng(0)
    passages = [draw.integers(0, 9, size) for size in (4, 2, 7, 3, 5)]
    wanted, prior = draw.normal(size=(5, 3)) + 2, draw.normal(size=(9, 3))
    x = np.array([np.bincount(row, minlength=9) / len(row) for row in passages])
    ridge = PENALTY * (x**2).sum() / 5 * np.eye(9)
    centre, expected = wanted.mean(axis=0), x @ prior
    scale = (expected * (wanted - centre)).sum() / (expected**2).sum()
    rest = wanted - centre - scale * expected
    rows, cosine = fitted(passages, wanted, prior)
    assert np.allclose(rows, centre + scale * prior + np.linalg.solve(x.T @ x + ridge, x.T @ rest))
    cosines = []
    for one in range(5):
        others = np.delete(x, one, axis=0)
        found = (
            wanted[one] - rest[one] + x[one] @ np.linalg.solve(others.T @ others + ridge, others.T @ np.delete(rest, one, axis=0))
        )
        cosines.append(found @ wanted[one] / np.linalg.norm(found) / np.linalg.norm(wanted[one]))
    assert np.isclose(cosine, np.mean(cosines))


def test_a_static_model_is_the_mean_of_its_rows(tmp_path: Path) -> None:
    """Whatever the order of words and the other texts; near the encoder; saved and loaded; what was read stays known."""
    for number, kind in enumerate(["Unigram", "WordPiece"]):
        encoder = an_encoder(kind)
        found = static(encoder, iter(SENTENCES[:3]))
        assert found.passages >= 3
        save(found.bundle, tmp_path / str(number))
        part = load_bundle(tmp_path / str(number))
        assert part.tokenizer.vocab_size < encoder.tokenizer.vocab_size
        assert part.model.backbone.config.depth == 0
        assert already_read(part.history, "this", "imdb")
        rows, tokenizer = part.model.backbone.embedding.weight, part.tokenizer
        texts = ["the cat holds a dog", "dog a the holds cat", "the dog " * 40, ""]
        for text, vector in zip(texts, embed(part, texts), strict=True):
            [ids] = tokenizer.encode([text])
            mean = rows[[*tokenizer.opening, *ids, tokenizer.specials.eos]].mean(dim=0)
            assert torch.allclose(vector, mean / mean.norm(), atol=1e-6)
            assert torch.allclose(vector, embed(part, text), atol=1e-6)
        assert torch.allclose(*embed(part, texts[:2]), atol=1e-6)
        near, far = (embed(one, SENTENCES[:3]) for one in (part, encoder))
        assert float((near * far).sum(dim=1).min()) > 0.9


def test_what_cannot_be_word_vectors_is_refused(tokenizer: Tokenizer) -> None:
    """A model whose head gives no vector, and no text; a BPE tokenizer keeps all tokens."""
    with pytest.raises(ModelError, match="has a language-modeling head; import an encoder"):
        static(an_encoder(head=LMHeadConfig()), SENTENCES)
    with pytest.raises(DataError, match="there is none"):
        static(an_encoder(), [])
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    whole = Bundle(Model(backbone, fresh_head(EmbeddingHeadConfig(), backbone, 0), causal=True), tokenizer)
    assert static(whole, SENTENCES).bundle.tokenizer is tokenizer


def test_the_command_reads_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On import, for the column of a table; it says how many tokens stay. An empty file is refused."""
    folder_of("bert-bare", tmp_path / "theirs")
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "river"]
    backend = Backend(models.WordLevel({word: id_ for id_, word in enumerate(known)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.save(str(tmp_path / "theirs" / "tokenizer.json"))
    (tmp_path / "texts.csv").write_text("body\nthe cat\n")
    (tmp_path / "empty.txt").write_text("")
    texts, empty = str(tmp_path / "texts.csv"), str(tmp_path / "empty.txt")
    for flags, said in (
        (["--static", texts, "--text-column", "body"], "static: 7 of 300 tokens stay"),
        (["--static", empty], "there is none"),
    ):
        out = tmp_path / f"ours{flags[0]}"
        done = "tokens stay" in said
        code = main(["import", str(tmp_path / "theirs"), "--out", str(out if done else tmp_path / "none"), *flags])
        assert said in " ".join(capsys.readouterr().err.split())
        assert code == (0 if done else 2)
        if done:
            assert load_model(out).tokenizer.vocab_size == 7
    assert not (tmp_path / "none").exists()
