"""Held-out figures: every token once, words and bytes as counted, and a trained model near the truth of a known grammar."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.grammar import entropy, next_word, sentences
from helpers.models import SENTENCES, make_language_model
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.data.pretraining_rows import PretrainingRows, pretraining_batches
from warmstart.data.source import Source
from warmstart.data.token_store import TokenStore, prepare_store
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TokenizerConfig, train_tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import held_out_loss, held_out_metrics
from warmstart.training.loop import TrainingJob, train


def corpus_of(texts: list[str], tokenizer: Tokenizer, folder: Path) -> TokenStore:
    file = folder / "text.txt"
    file.write_text("\n".join(texts) + "\n")
    return prepare_store([Source(path=str(file), document="line")], tokenizer, folder / "cache")


def test_word_perplexity_and_bits_per_byte_are_those_of_the_whole_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Computed by hand over all tokens in one long row, for a model that has no use for context."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, depth=0, max_length=16)
    corpus = corpus_of(SENTENCES, tokenizer, tmp_path)
    figures = held_out_metrics(model, PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(), 16))
    ids = torch.from_numpy(np.asarray(corpus.tokens).astype(np.int64))
    with torch.no_grad():
        logits = model.head(model.backbone.norm(model.backbone.embedding(ids[:-1])))
        nats = float(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
    words = sum(len(text.split()) + 1 for text in SENTENCES)
    assert figures["loss"] == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
    assert figures["word_perplexity"] == pytest.approx(math.exp(nats / words), rel=1e-4)
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / sum(len(text.encode()) for text in SENTENCES), rel=1e-4)
    assert figures["unknown_fraction"] == 0


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("rows", ["packed", "documents"])
def test_the_loss_by_document_is_the_loss(name: str, rows: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Over all documents it is the mean over views of the loss of the whole text; each document with a row has its part."""
    objective = ObjectiveConfig.build({"name": name, "rows": rows, "mask_rate": 0.3})
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=16)
    held = PretrainingRows(corpus_of(SENTENCES, tokenizer, tmp_path), tokenizer.vocabulary(), objective, 16)
    figures, by_document = held_out_metrics(model, held), held_out_loss(model, held)
    assert by_document.value == pytest.approx(np.mean([figures[key] for key in figures if key.endswith("loss")]), rel=1e-5)
    assert by_document.sums.shape == by_document.counts.shape
    assert 2 <= len(by_document.sums) <= held.store.documents
    views = OBJECTIVES[name].held_out_configs(objective).values()
    by_rows = not all(replace(held, objective=view).documents for view in views)
    assert by_rows or len(by_document.sums) == held.store.documents
    assert (held_out_loss(model, held).sums == by_document.sums).all(), "two readings are paired"


@pytest.mark.parametrize(("length", "whole"), [(8, False), (64, True)])
def test_cut_documents_have_no_figures_per_word(length: int, whole: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Rows of documents leave out what does not fit: no figure per word or byte then, but the fraction of tokens scored."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=length)
    corpus = corpus_of([" ".join(SENTENCES[:4]), *SENTENCES], tokenizer, tmp_path)
    rows = PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(rows="documents"), length)
    figures = held_out_metrics(model, rows)
    assert ("word_perplexity" in figures, "bits_per_byte" in figures, "scored_fraction" in figures) == (whole, whole, not whole)
    if not whole:
        assert 0 < figures["scored_fraction"] < 1


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_repeatable_held_out_figures(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Two evaluations of one model agree, and every figure is a number."""
    model = make_language_model(vocab_size=tokenizer.vocab_size)
    corpus = corpus_of(SENTENCES * 5, tokenizer, tmp_path)
    rows = PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(name=name), 24)
    one, two = held_out_metrics(model, rows), held_out_metrics(model, rows)
    assert one == two
    assert all(math.isfinite(value) for value in one.values())
    assert any(key.endswith("loss") for key in one)
    # only what is predicted from what stands before it has a likelihood
    likelihoods = [key for key in one if "word_perplexity" in key]
    assert likelihoods == {"causal": ["word_perplexity"], "hybrid": ["causal word_perplexity"]}.get(name, [])


def test_a_trained_model_knows_the_grammar(tmp_path: Path) -> None:
    """After training, held-out loss is near the grammar's own entropy, and next-word probabilities are near the true ones."""
    tokenizer = train_tokenizer(sentences(200), TokenizerConfig(type="word", min_frequency=1, sentinels=0))
    train_on = corpus_of(sentences(3000, seed=1), tokenizer, tmp_path)
    (tmp_path / "held").mkdir()
    held = corpus_of(sentences(300, seed=2), tokenizer, tmp_path / "held")
    backbone = Backbone(BackboneConfig(width=32, depth=2, heads=2, feedforward=64, max_length=32), tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True)
    rows, held_rows = (PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(), 32) for corpus in (train_on, held))
    job = TrainingJob(pretraining_batches(rows, 16, 1, 0), 300, 0, progress_bar=False)
    train(model, job, TrainConfig(learning_rate=5e-3, weight_decay=0.01))
    floor = entropy() * 5.875 / 6.875  # each sentence's end token is certain: no nats, one token more
    assert held_out_metrics(model, held_rows)["loss"] == pytest.approx(floor, rel=0.12)
    for prefix in (["she"], ["they"]):
        truth = next_word(prefix)
        ids = [tokenizer.specials.eos, *tokenizer.encode([" ".join(prefix)])[0]]
        with torch.no_grad():
            shares = model(torch.tensor([ids]))[0, -1].softmax(-1)
        distance = sum(abs(float(shares[tokenizer.id(word)]) - share) for word, share in truth.items()) / 2
        assert distance < 0.15, prefix
