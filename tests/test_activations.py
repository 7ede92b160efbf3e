"""Hidden states of words and texts: means over their tokens, whatever the batch."""

from __future__ import annotations

import numpy as np
import torch

from helpers.models import SENTENCES, make_language_model
from warmstart.data.encode import encode
from warmstart.inspection.activations import encode_words, run_backbone, text_states, with_random_weights, word_states
from warmstart.model.bundle import Bundle
from warmstart.tokenizer.tokenizer import Tokenizer

WORDS = [tuple(sentence.split()) for sentence in SENTENCES]


def bundle_of(tokenizer: Tokenizer, *, causal: bool = False) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, max_length=64), tokenizer)


def test_word_states_are_means_over_a_words_tokens(tokenizer: Tokenizer) -> None:
    """Checked one text at a time; a text without words has none; the tokens are those of the text as a whole."""
    for causal in (True, False):
        bundle = bundle_of(tokenizer, causal=causal)
        words = encode_words(bundle, [*WORDS, ()])
        states = word_states(bundle, words)
        assert states[-1].shape == (0, 3, 16)
        for number, text in enumerate(WORDS):
            alone = encode_words(bundle, [text]).encoded
            output = run_backbone(bundle, alone.batch(np.array([0]), None, 0, causal=causal))
            layers = torch.stack([*output.hidden_states[:-1], output.last_hidden_state])[:, 0]
            ends = [*alone.piece_starts[0], len(alone.rows[0]) - 1]
            for i in range(len(text)):
                wanted = layers[:, ends[i] : ends[i + 1]].mean(dim=1).detach().numpy()
                np.testing.assert_allclose(states[number][i], wanted, atol=1e-5)
        whole = encode(tokenizer, [" ".join(text) for text in WORDS], 64)
        for row, own in zip(whole.rows, words.encoded.rows[:-1], strict=True):
            assert row.tolist() == own.tolist()
        assert text_states(bundle, SENTENCES).shape == (4, 3, 16)


def test_random_weights_keep_the_architecture(tokenizer: Tokenizer) -> None:
    """The same configuration, other weights; the seed decides which."""
    bundle = bundle_of(tokenizer)
    other, again = with_random_weights(bundle, 1), with_random_weights(bundle, 1)
    assert other.model.backbone.config == bundle.model.backbone.config
    assert not torch.equal(other.model.backbone.embedding.weight, bundle.model.backbone.embedding.weight)
    assert torch.equal(other.model.backbone.embedding.weight, again.model.backbone.embedding.weight)
