"""Texts as bags of words, from scikit-learn: words are runs of letters and digits, and every other sign by itself.

What reads the pool takes its vocabulary and its weights from the pool too, and leaves out words that only one text has.

Letters: N texts, V words, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warmstart.baselines.baseline import Readable, Reading, plain_texts
from warmstart.seeding import derive

TOKENS = r"(?u)\w+|[^\w\s]"
"""the words of a text"""
DIMENSIONS = 100
"""of latent semantic analysis, at most"""


def tfidf(readable: Readable) -> Reading:
    """Rows are (N, V) TF-IDF of words and word pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return _read(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKENS), readable)


def tfidf_words(readable: Readable) -> Reading:
    """Rows are (N, V) TF-IDF of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return _read(TfidfVectorizer(sublinear_tf=True, token_pattern=TOKENS), readable)


def present_words(readable: Readable) -> Reading:
    """Rows are (N, V): 1 for each word that a text has."""
    from sklearn.feature_extraction.text import CountVectorizer

    return _read(CountVectorizer(binary=True, token_pattern=TOKENS), readable)


def present_word_pairs(readable: Readable) -> Reading:
    """Rows are (N, V): 1 for each word and each pair of neighbouring words that a text has."""
    from sklearn.feature_extraction.text import CountVectorizer

    return _read(CountVectorizer(binary=True, ngram_range=(1, 2), token_pattern=TOKENS), readable)


def latent_semantic_analysis(readable: Readable) -> Reading:
    """Rows are (N, D): TF-IDF in the directions of most variance (truncated SVD), of length 1 (Deerwester et al. 1990)."""
    from sklearn.preprocessing import normalize
    from sklearn.utils.extmath import randomized_svd

    words = tfidf(readable)
    known = words.rows([*readable.inputs, *readable.pool])
    size = min(DIMENSIONS, *known.shape)
    directions = randomized_svd(known, size, random_state=derive(readable.seed, "baseline", "svd") % 2**32)[2]

    def rows(inputs: Sequence[Any]) -> np.ndarray:
        return np.asarray(normalize(words.rows(inputs) @ directions.T))

    return Reading(rows, rows(readable.pool) if readable.pool else None)


def _read(vectorizer: Any, readable: Readable) -> Reading:
    """The vectorizer, fitted to the texts that learn and to the pool."""
    texts = [*readable.words_of(), *readable.pool]
    try:
        vectorizer.set_params(min_df=2 if readable.pool else 1).fit(texts)
    except ValueError:  # no word is in two texts
        vectorizer.set_params(min_df=1).fit(texts)

    def rows(inputs: Sequence[Any]) -> Any:
        return vectorizer.transform(plain_texts(inputs))

    return Reading(rows, rows(readable.pool) if readable.pool else None)
