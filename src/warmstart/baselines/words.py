"""Texts as bags of words, or of character n-grams (``model/rows.py``), fitted by scikit-learn.

Words that only one text has, or only copies of one or texts by one hand, are left out; where none is left, nothing is read. A
text that is left out would count words that no new text is known by, so that it would be predicted with less confidence than new
texts are; and such words are often names. What reads the pool takes its vocabulary and its weights from it too. All draws of
labels share that, because it does not depend on which texts have labels.

Letters: N texts, V words, D dimensions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array

from warmstart.baselines.baseline import NoWordsError, Readable, Reading
from warmstart.model.rows import WordRows, plain_texts, word_vectorizer
from warmstart.seeding import derive

DIMENSIONS = 100
"""most dimensions of latent semantic analysis"""


def tfidf(readable: Readable) -> Reading:
    """Rows are (N, V) TF-IDF of words and word pairs."""
    return _read(readable, word_pairs=True, weighted=True)


def tfidf_characters(readable: Readable) -> Reading:
    """Rows are (N, V) TF-IDF of character n-grams."""
    texts = tuple(sorted({*readable.words_of()}))
    known = _fitted(texts, _units(readable, texts), word_pairs=False, weighted=True, characters=True)
    return Reading(known.rows, saved=known.words)


def present_words(readable: Readable) -> Reading:
    """Rows are (N, V): 1 for each word that a text has."""
    return _read(readable, word_pairs=False, weighted=False)


def present_word_pairs(readable: Readable) -> Reading:
    """Rows are (N, V): 1 for each word and each pair of neighbouring words that a text has."""
    return _read(readable, word_pairs=True, weighted=False)


def latent_semantic_analysis(readable: Readable, dimensions: int = DIMENSIONS) -> Reading:
    """Rows are (N, D): TF-IDF of words in the directions of most variance (truncated SVD), of length 1 (Deerwester et al. 1990)."""
    known = _known_texts(readable, word_pairs=False, weighted=True)
    words = replace(known.words, directions=_directions(known, dimensions))

    def rows(inputs: Sequence[Any]) -> Any:
        return words.along_directions(known.rows(inputs))

    return Reading(rows, rows(readable.pool) if readable.pool else None, words)


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


def _read(readable: Readable, *, word_pairs: bool, weighted: bool) -> Reading:
    known = _known_texts(readable, word_pairs=word_pairs, weighted=weighted)
    return Reading(known.rows, known.rows(readable.pool) if readable.pool else None, known.words)


def _known_texts(readable: Readable, *, word_pairs: bool, weighted: bool) -> _KnownTexts:
    """The texts that learn, and the pool, as bags of words."""
    known = tuple(sorted({*readable.words_of(), *readable.pool}))
    return _fitted(known, _units(readable, known), word_pairs=word_pairs, weighted=weighted)


def _units(readable: Readable, texts: Sequence[str]) -> tuple[int, ...]:
    """The unit of each of these texts; a text of the pool is one of its own."""
    own = dict(zip(readable.words_of(), readable.units, strict=True)) if readable.units else {}
    return tuple(own.get(text, ~place) for place, text in enumerate(texts))


@functools.lru_cache(maxsize=12)
def _fitted(
    texts: tuple[str, ...], units: tuple[int, ...], *, word_pairs: bool, weighted: bool, characters: bool = False
) -> _KnownTexts:
    """Bags of the words that two of the units (N,) have. Raises ``NoWordsError`` if there are none."""
    how = {"word_pairs": word_pairs, "weighted": weighted, "characters": characters}
    vectorizer = word_vectorizer(**how, min_df=2)
    try:
        matrix = vectorizer.fit_transform(texts)
        if len({*units}) < len(texts) and not (kept := _of_two(matrix, units)).all():
            vectorizer = word_vectorizer(**how, vocabulary=vectorizer.get_feature_names_out()[kept])
            matrix = vectorizer.fit_transform(texts)
    except ValueError:  # no word is left
        raise NoWordsError from None
    vocabulary = tuple(map(str, vectorizer.get_feature_names_out()))
    words = WordRows(vocabulary, word_pairs, vectorizer.idf_ if weighted else None, characters=characters)
    return _KnownTexts(words, {text: place for place, text in enumerate(texts)}, matrix)


def _of_two(matrix: Any, units: Sequence[int]) -> np.ndarray:
    """(V,) whether two units have a word, by the rows (N, V) of their texts."""
    _, rows = np.unique(units, return_inverse=True)
    by_unit = coo_array((np.ones(len(rows)), (rows, np.arange(len(rows))))).tocsr() @ (matrix > 0)
    return np.asarray((by_unit > 0).sum(axis=0) > 1).ravel()


@functools.lru_cache(maxsize=4)
def _directions(known: _KnownTexts, dimensions: int) -> np.ndarray:
    """(D, V) directions of most variance."""
    from sklearn.utils.extmath import randomized_svd

    size = min(dimensions, *known.matrix.shape)
    return np.asarray(randomized_svd(known.matrix, size, random_state=derive(0, "baseline", "svd") % 2**32)[2])
