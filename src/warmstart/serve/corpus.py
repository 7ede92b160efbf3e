"""A text whose n-grams stand beside what a model finds probable; counted once for each tokenizer."""

from __future__ import annotations

from warmstart.data.read import documents_of
from warmstart.data.source import Source
from warmstart.generation.ngram_counts import NgramCounts
from warmstart.tokenizer.tokenizer import Tokenizer


class Corpus:
    """Files or a folder of text, of up to a few million tokens: all counts are in memory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._counts = dict[str, NgramCounts]()

    def counts(self, tokenizer: Tokenizer) -> NgramCounts:
        """What followed each context. Raises ``DataError`` if there is no text."""
        if tokenizer.digest not in self._counts:
            self._counts[tokenizer.digest] = NgramCounts(tokenizer, documents_of([Source(path=self.path)]))
        return self._counts[tokenizer.digest]
