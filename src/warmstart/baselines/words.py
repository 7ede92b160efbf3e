"""Texts as bags of words (``stack/rows.py``), fitted by scikit-learn.

What reads the pool takes its vocabulary and its weights from it too, and leaves out words that only one text has. All draws of
labels share that, because it does not depend on which of the texts have labels.

Letters: N texts, V words, D dimensions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from warmstart.baselines.baseline import Readable, Reading
from warmstart.seeding import derive
from warmstart.stack.rows import TOKENS, WordRows, plain_texts

DIMENSIONS = 100
"""of latent semantic analysis, at most"""


def tfidf(readable: Readable) -> Reading:
    """Rows are (N, V) TF-IDF of words and word pairs."""
    return _read(_tfidf_of_pairs, readable)


def tfidf_words(readable: Readable) -> Reading:
    """Rows are (N, V) TF-IDF of words."""
    return _read(_tfidf_of_words, readable)


def present_words(readable: Readable) -> Reading:
    """Rows are (N, V): 1 for each word that a text has."""
    return _read(_words, readable)


def present_word_pairs(readable: Readable) -> Reading:
    """Rows are (N, V): 1 for each word and each pair of neighbouring words that a text has."""
    return _read(_word_pairs, readable)


def latent_semantic_analysis(readable: Readable) -> Reading:
    """Rows are (N, D): TF-IDF of words in the directions of most variance (truncated SVD), of length 1 (Deerwester et al. 1990)."""
    from sklearn.preprocessing import normalize

    known = _known_texts(_tfidf_of_words, readable)
    directions = _directions(known)

    def rows(inputs: Sequence[Any]) -> np.ndarray:
        return np.asarray(normalize(known.rows(inputs) @ directions.T))

    return Reading(rows, rows(readable.pool) if readable.pool else None, replace(known.words, directions=directions))


def _tfidf_of_pairs() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKENS)


def _tfidf_of_words() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, token_pattern=TOKENS)


def _words() -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(binary=True, token_pattern=TOKENS)


def _word_pairs() -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(binary=True, ngram_range=(1, 2), token_pattern=TOKENS)


@dataclass(frozen=True, eq=False)
class _KnownTexts:
    """Bags of words, and the rows of the texts to which they were fitted."""

    words: WordRows
    places: Mapping[str, int]
    """text -> its row"""
    matrix: Any
    """(N, V)"""

    def rows(self, inputs: Sequence[Any]) -> Any:
        """(·, V) rows of any inputs."""
        texts = plain_texts(inputs)
        if all(text in self.places for text in texts):
            return self.matrix[np.array([self.places[text] for text in texts], dtype=np.int64)]
        return self.words(texts)


def _read(make: Callable[[], Any], readable: Readable) -> Reading:
    known = _known_texts(make, readable)
    return Reading(known.rows, known.rows(readable.pool) if readable.pool else None, known.words)


def _known_texts(make: Callable[[], Any], readable: Readable) -> _KnownTexts:
    """The vectorizer, fitted to the texts that learn and to the pool."""
    texts = readable.words_of()
    return _fitted(make, tuple(sorted({*texts, *readable.pool}) if readable.pool else sorted(texts)), 2 if readable.pool else 1)


@functools.lru_cache(maxsize=12)
def _fitted(make: Callable[[], Any], texts: tuple[str, ...], least_texts: int) -> _KnownTexts:
    """A vectorizer of the words that so many texts have."""
    vectorizer = make()
    try:
        matrix = vectorizer.set_params(min_df=least_texts).fit_transform(texts)
    except ValueError:  # no word is in two texts
        matrix = vectorizer.set_params(min_df=1).fit_transform(texts)
    vocabulary = tuple(map(str, vectorizer.get_feature_names_out()))
    words = WordRows(vocabulary, vectorizer.ngram_range == (1, 2), getattr(vectorizer, "idf_", None))
    return _KnownTexts(words, {text: place for place, text in enumerate(texts)}, matrix)


@functools.lru_cache(maxsize=4)
def _directions(known: _KnownTexts) -> np.ndarray:
    """(D, V)."""
    from sklearn.utils.extmath import randomized_svd

    size = min(DIMENSIONS, *known.matrix.shape)
    return np.asarray(randomized_svd(known.matrix, size, random_state=derive(0, "baseline", "svd") % 2**32)[2])
