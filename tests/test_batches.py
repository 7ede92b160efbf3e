"""Batches: every text once an epoch, padding only where it must be, a batch known from its step; inference reads a text once."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from helpers.bundles import bundle_with
from helpers.models import SENTENCES
from warmstart.data.batches import BATCH_COST, labelled_batches, sorted_batches
from warmstart.data.encode import Encoded, collate, encode, encode_pieces
from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.per_token import TaggingHeadConfig
from warmstart.model.inference import embed, run_in_batches
from warmstart.seeding import rng
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.predict import predict, raw_predictions
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer


def texts_of(lengths: list[int]) -> Encoded:
    """PretrainingRows whose first token is their own number, so that they can be distinguished."""
    rows = tuple(np.full(length, i + 5, dtype=np.int64) for i, length in enumerate(lengths))
    return Encoded(rows, np.zeros(len(lengths), dtype=np.int64))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 16), st.integers(0, 99), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_an_epoch_reads_every_text_once(lengths: list[int], batch: int, seed: int, epoch: int) -> None:
    """With its own label, whatever the bucketing; and asking twice gives the same."""
    encoded = texts_of(lengths)
    labels = np.arange(len(lengths)) % 3
    batches = labelled_batches(encoded, labels, (batch, 1), seed, 0, causal=False)
    steps = -(-len(lengths) // batch)
    seen = []
    for step in range(epoch * steps, (epoch + 1) * steps):
        (one,) = batches(step)
        assert (one.ids == batches(step)[0].ids).all()
        for row, label in zip(one.ids[:, 0].tolist(), one.targets.tolist(), strict=True):
            assert label == labels[row - 5]
            seen.append(row - 5)
        assert one.count == len(one.ids) <= batch
    assert sorted(seen) == list(range(len(lengths)))


def test_bucketing_wastes_little() -> None:
    """For 800 texts of 3 to 60 tokens, less than 12 % of what is read is padding; in random order it is over 40 %."""
    lengths = rng(0, "lengths").integers(3, 61, 800).tolist()
    batches = labelled_batches(texts_of(lengths), np.zeros(800, dtype=np.int64), (16, 1), 0, 0, causal=False)
    read = sum(batches(step)[0].ids.numel() for step in range(50))
    assert sum(lengths) / read > 0.88
    shuffled = rng(0, "order").permutation(lengths)
    assert sum(lengths) / sum(16 * shuffled[i : i + 16].max() for i in range(0, 800, 16)) < 0.6


@given(st.lists(st.integers(1, 30), min_size=1, max_size=50), st.integers(1, 100))
@settings(deadline=None, max_examples=60)
def test_reading_in_order_of_length_misses_nothing(lengths: list[int], tokens: int) -> None:
    """Every text once, in batches of at most so many padded tokens (one text may be longer)."""
    seen = []
    for places, batch in sorted_batches(texts_of(lengths), tokens, 0, causal=False):
        assert len(places) == 1 or batch.ids.numel() <= tokens
        assert [int(ids[0]) - 5 for ids in batch.ids] == places.tolist()
        seen += places.tolist()
    assert sorted(seen) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(60, 300))
@settings(deadline=None, max_examples=40)
def test_reading_in_order_of_length_pads_as_little_as_pays(lengths: list[int], tokens: int) -> None:
    """No other way to cut the sorted texts into batches has fewer tokens with padding, a batch counting as so many more."""
    ranked, inner = sorted(lengths), range(1, len(lengths))
    ways = [[0, *cuts, len(lengths)] for size in range(len(lengths)) for cuts in combinations(inner, size)]
    sizes = [[(end - start) * ranked[end - 1] for start, end in pairwise(way)] for way in ways]
    found = [batch.ids.numel() for _, batch in sorted_batches(texts_of(lengths), tokens, 0, causal=False)]
    assert sum(found) + BATCH_COST * len(found) == min(sum(way) + BATCH_COST * len(way) for way in sizes if max(way) <= tokens)


def test_collate_pads_on_the_right() -> None:
    """The mask is True at real tokens, and absent where nothing is padded."""
    batch = collate([np.array([5, 6, 7]), np.array([8])], np.array([1, 0]), 0, causal=True)
    assert batch.ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.attention_mask.tolist() == [[True] * 3, [True, False, False]]
    assert collate([np.array([5]), np.array([8])], None, 0, causal=True).attention_mask is None


def test_long_texts_lose_their_end_but_not_their_frame(tokenizer: Tokenizer) -> None:
    """A text of any length begins and ends with its special tokens; what is cut is counted; an empty text is no accident."""
    texts, specials = ["She holds the cat and rubs the dog.", ""], tokenizer.specials
    whole = tokenizer.encode(texts)[0]
    for appended, last in ((False, specials.eos), (True, specials.cls)):
        encoded = encode(tokenizer, texts, 5, appended=appended)
        assert encoded.rows[0].tolist() == [specials.eos, *whole[:3], last]
        assert encoded.cut.tolist() == [len(whole) - 3, 0]
        assert encoded.rows[1].tolist() == [specials.eos, last]


def blank_of_its_own() -> Tokenizer:
    """As Llama 2 has it: a blank before every text, also before one that begins with a blank."""
    backend = Backend(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    backend.train_from_iterator(SENTENCES * 20, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"]))
    backend.pre_tokenizer = None
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return Tokenizer(backend.to_str())


def test_words_are_encoded_as_the_text_that_they_make() -> None:
    """Whoever puts the blank before a word; each mark is where the word begins."""
    words = [sentence.split() for sentence in SENTENCES]
    for kind in ("bytes", "wordpiece", "unigram", "word", "llama"):
        config = TokenizerConfig(type="bytes" if kind == "llama" else kind, vocab_size=330, sentinels=0)
        tokenizer = blank_of_its_own() if kind == "llama" else train_tokenizer(SENTENCES * 20, config)
        found = encode_pieces(tokenizer, [[text[0], *(f" {word}" for word in text[1:])] for text in words], 64)
        whole = encode(tokenizer, SENTENCES, 64)
        for text, row, wanted, marks in zip(words, found.rows, whole.rows, found.piece_starts, strict=True):
            assert row.tolist() == wanted.tolist(), kind
            spelled = [tokenizer.decode(row[a:b].tolist()).strip() for a, b in pairwise([*marks, len(row) - 1])]
            assert kind in ("wordpiece", "word") or spelled == text, kind


def test_accumulated_steps_read_as_many_texts() -> None:
    """Three batches of 4 a step: two steps read 24 texts, and the epochs join without a gap."""
    encoded = texts_of([3] * 20)
    batches = labelled_batches(encoded, np.zeros(20, dtype=np.int64), (4, 3), 0, 0, causal=False)
    read = [int(row) - 5 for step in range(5) for batch in batches(step) for row in batch.ids[:, 0]]
    assert len(read) == 60
    assert all(sorted(read[i : i + 20]) == list(range(20)) for i in (0, 20, 40))


TEXTS = [SENTENCES[0], "She", SENTENCES[1], "", "a dog"]


def test_every_text_is_read_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of at most so many tokens; the indices of all batches together are those of the texts."""
    monkeypatch.setattr("warmstart.model.inference.INFERENCE_TOKENS", 64)
    bundle = bundle_with(tokenizer, ClassificationHeadConfig(classes=3))
    encoded = encode(tokenizer, TEXTS * 4, 32)
    batches = run_in_batches(bundle.model, encoded, tokenizer.specials.pad, forward=lambda batch, _: batch.ids.float())
    assert sorted(np.concatenate([indices for indices, _ in batches])) == list(range(20))
    assert len(batches) > 1
    assert all(ids.numel() <= 64 for _, ids in batches)


def test_predictions_do_not_depend_on_the_other_texts(tokenizer: Tokenizer) -> None:
    """Predictions for texts together, in any order, equal those for each text alone."""
    bundle = bundle_with(tokenizer, ClassificationHeadConfig(classes=3))
    together = raw_predictions(bundle, TEXTS)
    alone = np.concatenate([raw_predictions(bundle, [text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(together.sum(axis=1), 1)
    classification = TASK_TYPES["classification"]
    encoded = classification.encode(bundle.model, tokenizer, TEXTS)
    np.testing.assert_allclose(classification.predict(bundle.model, encoded, 0), together)


def test_a_single_string_gives_a_single_result(tokenizer: Tokenizer) -> None:
    """A prediction is a dictionary, an embedding a vector; a tagger splits the string into words."""
    classifier = bundle_with(tokenizer, ClassificationHeadConfig(classes=3))
    assert predict(classifier, "She holds the cat.") == predict(classifier, ["She holds the cat."])[0]
    tagger = bundle_with(tokenizer, TaggingHeadConfig(classes=3))
    assert predict(tagger, "She holds the cat")["words"] == ["She", "holds", "the", "cat"]
    embedder = bundle_with(tokenizer, EmbeddingHeadConfig())
    assert torch.equal(embed(embedder, "She"), embed(embedder, ["She"])[0])
    with pytest.raises(ModelError, match="embeddings need an embedding head, but this model has a classification head"):
        embed(classifier, "She")
