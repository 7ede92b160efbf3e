"""Maps from texts to rows of numbers, in a form that can be saved: as bags of words, or as vectors of a frozen backbone.

Words are runs of letters and digits, and every other sign by itself. Character n-grams may count in their place: those of 2 to 5
characters inside what stands between white space, with a space at either end (scikit-learn's ``char_wb``).

Letters: N texts, V words, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warmstart.data.text_key import plain_text
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.model.readout import of_unit_length

TOKENS = r"(?u)\w+|[^\w\s]"
"""the words of a text"""


def plain_texts(inputs: Sequence[Any]) -> list[str]:
    """Inputs as plain strings."""
    return [*map(plain_text, inputs)]


CHARACTERS = (2, 5)
"""lengths of character n-grams"""


def word_vectorizer(*, word_pairs: bool, weighted: bool, characters: bool = False, **settings: Any) -> Any:
    """scikit-learn's vectorizer: TF-IDF of length 1 if ``weighted``, otherwise 1 for each word that a text has.

    With ``characters`` it counts character n-grams in place of words.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    shared = {"ngram_range": (1, 1 + word_pairs), "token_pattern": TOKENS, **settings}
    if characters:
        shared = {"analyzer": "char_wb", "ngram_range": CHARACTERS, **settings}
    return TfidfVectorizer(sublinear_tf=True, **shared) if weighted else CountVectorizer(binary=True, **shared)


@dataclass(frozen=True, eq=False)
class WordRows:
    """Bags of words, by scikit-learn: TF-IDF of length 1, or 1 for each word that a text has."""

    vocabulary: tuple[str, ...]
    """words, and pairs of words with a space between them, in the order of the columns"""
    word_pairs: bool
    """True if pairs of neighbouring words count too"""
    idf: np.ndarray | None = None
    """(V,) the weight of each word; None: a word counts 1"""
    directions: np.ndarray | None = None
    """(D, V) the directions of latent semantic analysis, along which rows of length 1 are read; None: the words themselves"""
    characters: bool = False
    """True if the vocabulary holds character n-grams in place of words"""

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """(N, V) sparse, or (N, D) along directions."""
        return self.along_directions(self._vectorizer.transform(plain_texts(inputs)))

    def along_directions(self, words: Any) -> Any:
        """(N, V) rows of words -> (N, D), each of length 1; the same rows if there are no directions."""
        return words if self.directions is None else np.asarray(of_unit_length(words @ self.directions.T))

    @cached_property
    def _vectorizer(self) -> Any:
        weighted = self.idf is not None
        vectorizer = word_vectorizer(
            word_pairs=self.word_pairs, weighted=weighted, characters=self.characters, vocabulary=[*self.vocabulary]
        )
        if weighted:
            vectorizer.idf_ = self.idf
        return vectorizer


@dataclass(frozen=True)
class BackboneVectors:
    """Inputs -> (N, D) vectors of a frozen backbone."""

    bundle: Bundle
    """a bundle with an embedding head"""

    def __call__(self, inputs: Sequence[Any]) -> np.ndarray:
        """(N, D) the rows of N inputs."""
        return np.asarray(embed(self.bundle, inputs).double().numpy())


@dataclass(frozen=True, eq=False)
class VectorRows:
    """Vectors of a frozen backbone, each dimension standardised."""

    vectors: Callable[[Sequence[Any]], np.ndarray]
    """inputs -> (N, D); ``BackboneVectors`` can be saved"""
    mean: np.ndarray
    """(D,) subtracted"""
    scale: np.ndarray
    """(D,) divided by, after that"""

    def __call__(self, inputs: Sequence[Any]) -> np.ndarray:
        """(N, D) the rows of N inputs."""
        return self.standardised(self.vectors(inputs))

    def standardised(self, vectors: np.ndarray) -> np.ndarray:
        """(N, D) vectors -> (N, D) rows."""
        return np.asarray((vectors - self.mean) / self.scale)
