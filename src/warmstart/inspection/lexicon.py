"""The words of a text or of a vocabulary, and their vectors in the embedding.

A word is a run of letters, with apostrophes inside. Spellings that the tokenizer encodes alike are one word: "The" and "the" for a
tokenizer that lowercases. A word's tokens are those it has inside a text, after a space.

Letters: W words, D width.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import torch

from warmstart.errors import DataError, TokenizerError
from warmstart.model.bundle import Bundle
from warmstart.tokenizer.tokenizer import Tokenizer

_PIECE = re.compile(r"\s*(?:<\w+>|[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|\S)")
"""a word, a number, a sign, or a mark such as <unk>, with the space before it"""
_Ids = tuple[int, ...]


@dataclass(frozen=True)
class Lexicon:
    """W words, the most frequent first."""

    words: tuple[str, ...]
    """the most frequent spelling of each"""
    token_ids: tuple[_Ids, ...]
    """the tokens of each"""
    counts: tuple[int, ...]
    """the number of times each occurs in the text; empty for the words of a vocabulary"""
    index: Mapping[str, int]
    """the index of every spelling"""

    def __len__(self) -> int:
        return len(self.words)

    def find(self, word: str) -> int | None:
        """The index of a word as it is spelled, else in lower case; None if it is not in the lexicon."""
        return self.index.get(word, self.index.get(word.lower()))


def split_pieces(text: str) -> list[str]:
    """Split a text into words and signs that keep the space before them: ``"I don't."`` -> ``["I", " don't", "."]``."""
    return _PIECE.findall(" ".join(text.split()))


def lexicon_from_text(tokenizer: Tokenizer, texts: Iterable[str], limit: int, required: Sequence[str] = ()) -> Lexicon:
    """The ``limit`` most frequent words of the texts, and the ``required`` ones.

    Raises ``DataError`` if a required word does not occur, or if the tokenizer cannot spell it.
    """
    pieces = (piece.lstrip() for text in texts for piece in split_pieces(text))
    counts = Counter(piece for piece in pieces if piece[0].isalpha())
    spellings = [spelling for spelling, _ in counts.most_common()]
    groups, totals = dict[_Ids, list[str]](), Counter[_Ids]()
    for spelling, ids in zip(spellings, _encode_words(tokenizer, spellings), strict=True):
        if _can_spell(tokenizer, ids):
            groups.setdefault(ids, []).append(spelling)
            totals[ids] += counts[spelling]
    required_ids = dict(zip(required, _encode_words(tokenizer, required), strict=True))
    for word, ids in required_ids.items():
        if ids not in groups:
            near = get_close_matches(word, spellings, n=3)
            hint = f"similar words are {', '.join(near)}" if near else "give more text, or another word"
            raise DataError(f"'{word}' must occur in the text as a word that the tokenizer can spell, but does not; {hint}")
    kept = [ids for rank, (ids, _) in enumerate(totals.most_common()) if rank < limit or ids in required_ids.values()]
    index = {spelling: number for number, ids in enumerate(kept) for spelling in groups[ids]}
    index |= {word: kept.index(ids) for word, ids in required_ids.items()}
    return Lexicon(tuple(groups[ids][0] for ids in kept), tuple(kept), tuple(totals[ids] for ids in kept), index)


def lexicon_from_vocabulary(tokenizer: Tokenizer, required: Sequence[str] = ()) -> Lexicon:
    """The tokens that are whole words of letters, lowest id first (most frequent first, if tokens were merged by frequency).

    ``required`` words may have several tokens, and come last. Raises ``TokenizerError`` if one cannot be spelled.
    """
    starts, specials = tokenizer.vocabulary().word_starts, tokenizer.specials.all()
    tokens = [(id, tokenizer.token(id).strip(" ▁")) for id in np.flatnonzero(starts).tolist() if id not in specials]
    candidates = [(id, word) for id, word in tokens if word.isalpha()]
    encoded = _encode_words(tokenizer, [word for _, word in candidates])
    words: dict[_Ids, str] = {(id,): word for (id, word), ids in zip(candidates, encoded, strict=True) if ids == (id,)}
    required_ids = dict(zip(required, _encode_words(tokenizer, required), strict=True))
    for word, ids in required_ids.items():
        if not _can_spell(tokenizer, ids):
            raise TokenizerError(f"the tokenizer must be able to spell '{word}', but cannot; give another word")
        words.setdefault(ids, word)
    numbers = {ids: number for number, ids in enumerate(words)}
    index = {word: numbers[ids] for ids, word in words.items()} | {word: numbers[ids] for word, ids in required_ids.items()}
    return Lexicon(tuple(words.values()), tuple(words), (), index)


def static_embeddings(bundle: Bundle, lexicon: Lexicon) -> np.ndarray:
    """(W, D) float32: each word's vector in the embedding, the mean over its tokens; without positions or context."""
    embedding = bundle.model.backbone.embedding
    flat = torch.tensor([id for ids in lexicon.token_ids for id in ids], device=next(embedding.parameters()).device)
    with torch.no_grad():
        rows = embedding(flat).float().cpu().numpy()
    lengths = np.array([len(ids) for ids in lexicon.token_ids])
    starts = np.concatenate([[0], lengths.cumsum()[:-1]])
    return np.asarray(np.add.reduceat(rows, starts, axis=0) / lengths[:, None], dtype=np.float32)


def _encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[_Ids]:
    return [tuple(ids) for ids in tokenizer.encode([f" {word}" for word in words])]


def _can_spell(tokenizer: Tokenizer, ids: _Ids) -> bool:
    return bool(ids) and tokenizer.specials.unk not in ids
