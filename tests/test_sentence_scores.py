"""Sentence scores: log-probabilities of causal models and pseudo-log-likelihoods of masked ones, by plain definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.bundles import classifier
from helpers.models import make_language_model
from warmstart.errors import ModelError
from warmstart.inspection.sentence_scores import score_sentences
from warmstart.inspection.tokens import is_punctuation
from warmstart.model.bundle import Bundle
from warmstart.model.history import PretrainRecord
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

SENTENCES = ["She holds the cat.", "I", "He rubs the river and it holds him.", "She holds the cat.", ""]


def bundle_of(tokenizer: Tokenizer, *, causal: bool) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, max_length=64), tokenizer)


def test_a_causal_score_is_the_sum_over_its_tokens(tokenizer: Tokenizer) -> None:
    """Checked with one row at a time and a plain softmax; the end of the text does not count."""
    bundle = bundle_of(tokenizer, causal=True)
    scores = score_sentences(bundle, SENTENCES)
    for place, ids in enumerate(tokenizer.encode(SENTENCES)):
        row = torch.tensor([[tokenizer.specials.begin, *ids]])
        with torch.inference_mode():
            log_probabilities = bundle.model(row)[0].log_softmax(dim=-1)
        wanted = sum(float(log_probabilities[i, token]) for i, token in enumerate(ids))
        assert scores.log_probabilities[place] == pytest.approx(wanted, abs=1e-4)
        assert scores.tokens[place] == len(ids)
    assert scores.log_probabilities[0] == scores.log_probabilities[3]
    assert scores.normalized(per_token=True)[0] == pytest.approx(scores.log_probabilities[0] / scores.tokens[0])


def test_a_model_is_scored_in_the_way_it_was_trained(tokenizer: Tokenizer) -> None:
    """A hybrid model from left to right; one that learned span corruption alone is refused."""
    history = (PretrainRecord(objective=ObjectiveConfig(name="hybrid"), generates=True),)
    hybrid, causal = bundle_of(tokenizer, causal=False), bundle_of(tokenizer, causal=True)
    found = score_sentences(replace(hybrid, history=history), SENTENCES).log_probabilities
    np.testing.assert_array_equal(found, score_sentences(causal, SENTENCES).log_probabilities)
    assert not np.allclose(found, score_sentences(hybrid, SENTENCES).log_probabilities)
    with pytest.raises(ModelError, match="learned span corruption alone"):
        score_sentences(replace(causal, history=(PretrainRecord(objective=ObjectiveConfig(name="span")),)), SENTENCES)


HOLDS = ["She", "She holds", "She holds the cat.", "She holds the cat!", "She holds the dog."]
PREFIXES = [*HOLDS, "He", "", "She holds the cat. He"]


@given(sentences=st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=12), synthesizer=st.booleans())
@settings(deadline=None)
def test_shared_prefixes_are_read_once_and_change_no_score(tokenizer: Tokenizer, sentences: list[str], synthesizer: bool) -> None:
    """A score is that of the sentence alone, whatever other sentences there are, and no row is a prefix of another."""
    switches = {"attention": "synthesizer"} if synthesizer else {}
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=64, **switches)
    alone = {one: score_sentences(Bundle(model, tokenizer), [one]).log_probabilities[0] for one in set(sentences)}
    shapes: list[tuple[int, int]] = []
    watch = model.backbone.register_forward_pre_hook(lambda _, ids: shapes.append(tuple(ids[0].shape)))
    found = score_sentences(Bundle(model, tokenizer), sentences)
    watch.remove()
    np.testing.assert_allclose(found.log_probabilities, [alone[one] for one in sentences], atol=1e-4)
    before = {tuple(ids[:-1]) for ids in tokenizer.encode(sentences) if ids}  # what must be read, apart from the first token
    ends = {one for one in before if not any(other != one and other[: len(one)] == one for other in before)}
    assert sum(rows for rows, _ in shapes) == len(ends)


def test_a_masked_score_masks_a_token_and_the_rest_of_its_word(tokenizer: Tokenizer) -> None:
    """Checked with a plain loop over tokens; punctuation is a word of its own, even without a space before it."""
    bundle, specials = bundle_of(tokenizer, causal=False), tokenizer.specials
    starts, sentences = tokenizer.vocabulary().word_starts, [*SENTENCES, "She rubs (doggedly)", "It doesn't."]
    found, several, ended = score_sentences(bundle, sentences), 0, 0
    for place, ids in enumerate(tokenizer.encode(sentences)):
        marks, wanted = [is_punctuation(tokenizer.token(id)) for id in ids], 0.0
        for i, token in enumerate(ids):
            end = next((j for j in range(i + 1, len(ids)) if starts[ids[j]] or marks[j] or marks[j - 1]), len(ids))
            several += end > i + 1
            ended += end < len(ids) and not starts[ids[end]]
            row = torch.tensor([[specials.begin, *ids[:i], *[specials.mask] * (end - i), *ids[end:], specials.eos]])
            with torch.inference_mode():
                wanted += float(bundle.model(row)[0, i + 1].log_softmax(dim=-1)[token])
        assert found.log_probabilities[place] == pytest.approx(wanted, abs=1e-4)
    assert several, "no word has several tokens"
    assert ended, "no word ends at punctuation"


def test_sentences_with_the_same_tokens_are_read_once() -> None:
    """Their scores are exactly equal, and such a pair is a tie."""
    folding = train_tokenizer(PREFIXES * 20, TokenizerConfig(type="wordpiece", vocab_size=120, lowercase=True))
    for causal in (True, False):
        bundle, rows = bundle_of(folding, causal=causal), list[int]()
        with_one = score_sentences(bundle, ["She holds the cat."])
        watch = bundle.model.backbone.register_forward_pre_hook(lambda _, ids, rows=rows: rows.append(len(ids[0])))
        found = score_sentences(bundle, ["She holds the cat.", "she  Holds the Cat."])
        watch.remove()
        assert found.log_probabilities[0] == found.log_probabilities[1]
        assert found.tokens.tolist() == [*with_one.tokens, *with_one.tokens]
        assert sum(rows) == (1 if causal else with_one.tokens[0])


def test_models_and_sentences_that_cannot_be_scored_are_refused(tokenizer: Tokenizer) -> None:
    """Models without a language head, and sentences that are too long."""
    model = classifier(tokenizer)
    names = tuple("abcdefgh"[: model.head.config.classes])  # type: ignore[union-attr]
    with pytest.raises(ModelError, match="only a language model can score sentences"):
        score_sentences(Bundle(model, tokenizer, names), SENTENCES)
    with pytest.raises(ModelError, match="1 of 2 do not"):
        score_sentences(bundle_of(tokenizer, causal=True), ["She", "the cat " * 60])
