"""Texts as bags of words, from scikit-learn: words are runs of letters and digits, and every other sign by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warmstart.baselines.baseline import Readable, Reading, plain_texts

TOKENS = r"(?u)\w+|[^\w\s]"
"""the words of a text"""


def tfidf(readable: Readable) -> Reading:
    """Rows are TF-IDF of words and word pairs; weights and vocabulary come from the texts that learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKENS)
    vectorizer.fit(readable.words_of())

    def rows(inputs: Sequence[Any]) -> Any:
        return vectorizer.transform(plain_texts(inputs))

    return Reading(rows)
