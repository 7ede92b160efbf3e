"""How well a vocabulary fits a set of texts: a few numbers worth reading before training on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from warmstart.errors import TokenizerError
from warmstart.stats.formatting import percent
from warmstart.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class VocabularyReport:
    """A vocabulary, measured on texts."""

    size: int
    """number of ids, special ones included"""
    specials: int
    """number of special ids"""
    tokens: int
    """tokens in the texts"""
    words: int
    """white-space words in the texts"""
    characters: int
    """characters in the texts"""
    unknown_fraction: float
    """fraction of the tokens that are unknown"""
    unused_fraction: float
    """fraction of the ordinary ids that never occur in the texts"""
    longest_pieces: tuple[str, ...]
    """the longest pieces of the vocabulary"""

    @property
    def tokens_per_word(self) -> float:
        """How many tokens a word takes: 1 is the least for most types; above 2 the vocabulary fits badly."""
        return self.tokens / max(self.words, 1)

    @property
    def characters_per_token(self) -> float:
        """How many characters of text a token holds."""
        return self.characters / max(self.tokens, 1)

    def rows(self) -> list[tuple[str, str]]:
        """The report as rows (name, value) of a table."""
        return [
            ("vocabulary", f"{self.size:,} ({self.specials} special)"),
            ("tokens", f"{self.tokens:,}"),
            ("words", f"{self.words:,}"),
            ("characters", f"{self.characters:,}"),
            ("tokens per word", f"{self.tokens_per_word:.2f}"),
            ("characters per token", f"{self.characters_per_token:.2f}"),
            ("unknown tokens", percent(self.unknown_fraction, 2)),
            ("unused vocabulary", percent(self.unused_fraction)),
            ("longest pieces", " · ".join(repr(piece) for piece in self.longest_pieces)),
        ]


def vocabulary_report(tokenizer: Tokenizer, texts: Iterable[str]) -> VocabularyReport:
    """Measure a tokenizer on a stream of texts, 256 at a time. Raises ``TokenizerError`` if there is no text."""
    used = np.zeros(tokenizer.vocab_size, dtype=np.int64)  # (V,) how often each id occurs
    words = characters = 0
    stream = iter(texts)
    while batch := list(islice(stream, 256)):
        for ids in tokenizer.encode(batch):
            used += np.bincount(ids, minlength=tokenizer.vocab_size) if ids else 0
        words += sum(len(text.split()) for text in batch)
        characters += sum(map(len, batch))
    if not characters:
        raise TokenizerError("a vocabulary report needs text, but every text is empty; check the source")
    specials = sorted(tokenizer.specials.all())
    ordinary = [id for id in range(tokenizer.vocab_size) if id not in tokenizer.specials.all()]
    tokens = int(used.sum())
    pieces = sorted((tokenizer.token(id) for id in ordinary), key=lambda piece: (-len(piece), piece))
    return VocabularyReport(
        size=tokenizer.vocab_size,
        specials=len(specials),
        tokens=tokens,
        words=words,
        characters=characters,
        unknown_fraction=int(used[tokenizer.specials.unk]) / max(tokens, 1),
        unused_fraction=float(np.mean(used[ordinary] == 0)),
        longest_pieces=tuple(pieces[:5]),
    )
