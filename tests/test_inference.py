"""Inference: every text once, whatever the batching; single strings give single results; the model is left as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.models import SENTENCES, make_backbone
from warmstart.data.encode import encode
from warmstart.errors import ModelError
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.head import HeadConfig
from warmstart.heads.tagging import TaggingHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.embed import embed
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model, fresh_head
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.predict import predict, raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

TEXTS = [SENTENCES[0], "She", SENTENCES[1], "", "a dog"]


def make_bundle(tokenizer: Tokenizer, head: HeadConfig) -> Bundle:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=False)
    return Bundle(model, tokenizer, tuple("abc") if hasattr(head, "classes") else ())


def test_every_text_is_read_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of at most so many tokens; the indices of all batches together are those of the texts."""
    monkeypatch.setattr("warmstart.model.inference.INFERENCE_TOKENS", 64)
    bundle = make_bundle(tokenizer, ClassificationHeadConfig(classes=3))
    encoded = encode(tokenizer, TEXTS * 4, 32)
    batches = run_in_batches(bundle.model, encoded, tokenizer.specials.pad, forward=lambda batch, _: batch.ids.float())
    assert sorted(np.concatenate([indices for indices, _ in batches])) == list(range(20))
    assert len(batches) > 1
    assert all(ids.numel() <= 64 for _, ids in batches)


def test_predictions_do_not_depend_on_the_other_texts(tokenizer: Tokenizer) -> None:
    """Predictions for texts together, in any order, equal those for each text alone."""
    bundle = make_bundle(tokenizer, ClassificationHeadConfig(classes=3))
    together = raw_predictions(bundle, TEXTS)
    alone = np.concatenate([raw_predictions(bundle, [text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(together.sum(axis=1), 1)
    classification = TASK_TYPES["classification"]
    encoded = classification.encode(bundle.model, tokenizer, TEXTS)
    np.testing.assert_allclose(classification.predict(bundle.model, encoded, 0), together)


def test_a_single_string_gives_a_single_result(tokenizer: Tokenizer) -> None:
    """A prediction is a dictionary, an embedding a vector; a tagger splits the string into words."""
    classifier = make_bundle(tokenizer, ClassificationHeadConfig(classes=3))
    assert predict(classifier, "She holds the cat.") == predict(classifier, ["She holds the cat."])[0]
    tagger = make_bundle(tokenizer, TaggingHeadConfig(classes=3))
    assert predict(tagger, "She holds the cat")["words"] == ["She", "holds", "the", "cat"]
    embedder = make_bundle(tokenizer, EmbeddingHeadConfig())
    assert torch.equal(embed(embedder, "She"), embed(embedder, ["She"])[0])
    with pytest.raises(ModelError, match="embeddings need an embedding head, but this model has a classification head"):
        embed(classifier, "She")
