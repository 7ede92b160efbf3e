"""How texts become rows of numbers, in a form that can be saved: as bags of words, or as vectors of a frozen backbone.

Words are runs of letters and digits, and every other sign by itself.

Letters: N texts, V words, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warmstart.data.task import plain_text
from warmstart.model.bundle import Bundle
from warmstart.model.embed import embed

TOKENS = r"(?u)\w+|[^\w\s]"
"""the words of a text"""


def plain_texts(inputs: Sequence[Any]) -> list[str]:
    """Inputs as plain strings."""
    return [*map(plain_text, inputs)]


@dataclass(frozen=True, eq=False)
class WordRows:
    """Bags of words, by scikit-learn: TF-IDF of length 1, or 1 for each word that a text has."""

    vocabulary: tuple[str, ...]
    """words, and pairs of words with a space between them, in the order of the columns"""
    word_pairs: bool
    """whether pairs of neighbouring words count too"""
    idf: np.ndarray | None = None
    """(V,) the weight of each word; None: a word counts 1"""
    directions: np.ndarray | None = None
    """(D, V) the directions of latent semantic analysis, along which rows of length 1 are read; None: the words themselves"""

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """(N, V) sparse, or (N, D) along directions."""
        from sklearn.preprocessing import normalize

        words = self._vectorizer.transform(plain_texts(inputs))
        return words if self.directions is None else np.asarray(normalize(words @ self.directions.T))

    @cached_property
    def _vectorizer(self) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

        shared = {"ngram_range": (1, 1 + self.word_pairs), "token_pattern": TOKENS, "vocabulary": [*self.vocabulary]}
        if self.idf is None:
            return CountVectorizer(binary=True, **shared)
        vectorizer = TfidfVectorizer(sublinear_tf=True, **shared)
        vectorizer.idf_ = self.idf
        return vectorizer


@dataclass(frozen=True, eq=False)
class VectorRows:
    """Vectors of a frozen backbone, each dimension standardised."""

    bundle: Bundle
    """with an embedding head"""
    mean: np.ndarray
    """(D,) subtracted"""
    scale: np.ndarray
    """(D,) divided by, after that"""

    def __call__(self, inputs: Sequence[Any]) -> np.ndarray:
        """(N, D)."""
        return np.asarray((embed(self.bundle, inputs).double().numpy() - self.mean) / self.scale)
