"""What studies of tokens share: chunks of documents, samples of passages, and tokens as text."""

from __future__ import annotations

import numpy as np
import pytest

from warmstart.errors import DataError
from warmstart.inspection.tokens import is_punctuation, running_text, sample_passages, token_chunks, word_boundaries
from warmstart.tokenizer.tokenizer import Tokenizer


def test_long_documents_come_in_chunks(tokenizer: Tokenizer) -> None:
    """All tokens in order; only the last chunk of a document is shorter."""
    documents = ["She holds the cat and rubs the dog.", "I", ""]
    ids = [tokenizer.encode([text])[0] for text in documents]
    chunks = list(token_chunks(tokenizer, documents, 4))
    assert [token for chunk in chunks for token in chunk] == [token for row in ids for token in row]
    assert [len(chunk) for chunk in chunks[: -(-len(ids[0]) // 4) - 1]] == [4] * (-(-len(ids[0]) // 4) - 1)


def test_passages_are_sampled_evenly() -> None:
    """All if there are few; else each equally likely, in their order; none at all is an error."""
    assert sample_passages(iter("abc"), 5, 0) == ["a", "b", "c"]
    samples = [sample_passages((str(i) for i in range(10)), 3, seed) for seed in range(2000)]
    assert all(sample == sorted(sample) and len(set(sample)) == 3 for sample in samples)
    counts = np.unique(samples, return_counts=True)[1]
    assert abs(counts - 600).max() < 100
    with pytest.raises(DataError, match="at least one passage"):
        sample_passages(iter(()), 3, 0)


def test_tokens_read_as_running_text(tokenizer: Tokenizer) -> None:
    """Joined, they are the text with a space before each word."""
    text = "She holds the cat."
    assert "".join(running_text(tokenizer, token) for token in tokenizer.encode([text])[0]).strip() == text


def test_words_end_at_punctuation(tokenizer: Tokenizer) -> None:
    """A token of punctuation begins and ends a word; special tokens do neither."""
    ids = np.array([*tokenizer.encode(["cat, dog."])[0], tokenizer.specials.eos])
    begins, ends = word_boundaries(tokenizer, ids)
    for token in ids[:-1]:
        assert begins[token] == ends[token] == is_punctuation(tokenizer.token(int(token)))
    assert not begins[tokenizer.specials.eos]
    assert not ends[tokenizer.specials.eos]
