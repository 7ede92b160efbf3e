"""Held-out figures: every token once, words and bytes as counted, and a trained model near the truth of a known, exact grammar."""

from __future__ import annotations

import math
from collections import Counter
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
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TokenizerConfig, train_tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import held_out_metrics
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


def test_cut_documents_have_no_figures_per_word(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Rows of documents leave out what does not fit: no figure per word or byte then, but the fraction of tokens scored."""
    corpus = corpus_of([" ".join(SENTENCES[:4]), *SENTENCES], tokenizer, tmp_path)
    for length, whole in ((8, False), (64, True)):
        model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=length)
        rows = PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(rows="documents"), length)
        figures = held_out_metrics(model, rows)
        assert ("word_perplexity" in figures, "bits_per_byte" in figures, "scored_fraction" in figures) == (whole, whole, not whole)
        assert whole or 0 < figures["scored_fraction"] < 1


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


def test_the_grammar_is_exact() -> None:
    """Probabilities of all its sentences sum to one; its entropy is their mean surprise per word, which drawn text costs too."""
    whole, open_ = {}, {(): 1.0}
    while open_:
        longer = {(*prefix, word): p * q for prefix, p in open_.items() for word, q in next_word(prefix).items()}
        whole |= {prefix: p for prefix, p in longer.items() if prefix[-1] == "."}
        open_ = {prefix: p for prefix, p in longer.items() if prefix[-1] != "."}
    assert math.isclose(sum(whole.values()), 1)
    words = sum(p * len(sentence) for sentence, p in whole.items())
    assert math.isclose(entropy(), sum(-p * math.log(p) for p in whole.values()) / words)
    drawn = [tuple(sentence.split()) for sentence in sentences(4000, seed=7)]
    gaps = np.array([-math.log(whole[sentence]) - entropy() * len(sentence) for sentence in drawn])
    assert abs(gaps.mean()) < 4 * gaps.std() / math.sqrt(len(drawn))


def test_drawn_words_are_as_frequent_as_they_should_be() -> None:
    """The words after a beginning are drawn with their exact probabilities, within four and a half standard errors."""
    drawn = [sentence.split() for sentence in sentences(20_000, seed=7)]
    for prefix in ("", "the", "she", "a cat", "the cats near", "they feed", "she reads", "he holds the"):
        words = prefix.split()
        following = Counter(sentence[len(words)] for sentence in drawn if sentence[: len(words)] == words)
        total, choices = following.total(), next_word(words)
        assert following.keys() <= choices.keys(), prefix
        for word, p in choices.items():
            assert abs(following[word] / total - p) < 4.5 * math.sqrt(p * (1 - p) / total) + 1e-9, (prefix, word)
