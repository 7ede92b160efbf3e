"""The words of a text or of a vocabulary, and what stands for each in the embedding.

A word is a run of letters, with apostrophes inside. What a tokenizer does not tell apart is one word: to one that folds case,
"The" and "the" are. A word's tokens are those it has inside a text, after a space.

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
from warmstart.model import Bundle
from warmstart.tokenizer import Tokenizer

PIECE = re.compile(r"\s*(?:<\w+>|[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|\S)")
"""a word, a number, a sign, or a mark such as <unk>, with the space before it"""

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Lexicon:
    """W words, the most frequent first."""

    words: tuple[str, ...]
    """each as it is spelled most often"""
    ids: tuple[Ids, ...]
    """tokens of each"""
    counts: tuple[int, ...]
    """how often each stands in the text; empty where the words are a vocabulary's"""
    known: Mapping[str, int]
    """the place of every spelling"""

    def __len__(self) -> int:
        return len(self.words)

    def find(self, word: str) -> int | None:
        """The place of a word as it is spelled, else in lower case; None where it is not here."""
        return self.known.get(word, self.known.get(word.lower()))


def pieces_of(text: str) -> list[str]:
    """A text in pieces that keep the space before them: ``"I don't."`` -> ``["I", " don't", "."]``."""
    return PIECE.findall(" ".join(text.split()))


def lexicon_of_text(tokenizer: Tokenizer, texts: Iterable[str], most: int, asked: Sequence[str] = ()) -> Lexicon:
    """The ``most`` most frequent words of texts, and those ``asked`` for. Raises ``DataError`` where one of these is not there."""
    bare = (piece.lstrip() for text in texts for piece in pieces_of(text))
    counts = Counter(piece for piece in bare if piece[0].isalpha())
    spellings = [spelling for spelling, _ in counts.most_common()]
    groups, totals = dict[Ids, list[str]](), Counter[Ids]()
    for spelling, ids in zip(spellings, _ids_of(tokenizer, spellings), strict=True):
        if _can_spell(tokenizer, ids):
            groups.setdefault(ids, []).append(spelling)
            totals[ids] += counts[spelling]
    wanted = set[Ids]()
    for word, ids in zip(asked, _ids_of(tokenizer, asked), strict=True):
        if ids not in groups:
            near = get_close_matches(word, spellings, n=3)
            hint = f"near it are {', '.join(near)}" if near else "give more text, or another word"
            raise DataError(f"'{word}' must stand in the text as a word that the tokenizer can spell, but does not; {hint}")
        wanted.add(ids)
    ranked = [ids for ids, _ in totals.most_common()]
    kept = [ids for rank, ids in enumerate(ranked) if rank < most or ids in wanted]
    known = {spelling: place for place, ids in enumerate(kept) for spelling in groups[ids]}
    known |= {word: kept.index(ids) for word, ids in zip(asked, _ids_of(tokenizer, asked), strict=True)}
    return Lexicon(tuple(groups[ids][0] for ids in kept), tuple(kept), tuple(totals[ids] for ids in kept), known)


def lexicon_of_vocabulary(tokenizer: Tokenizer, asked: Sequence[str] = ()) -> Lexicon:
    """The tokens that are whole words of letters, lowest id first (the most frequent, where pieces were merged by frequency).

    Words ``asked`` for may have several tokens, and come last. Raises ``TokenizerError`` where one cannot be spelled.
    """
    starts, specials = tokenizer.vocabulary().word_starts, tokenizer.specials.all()
    tokens = [(id, tokenizer.token(id).strip(" ▁")) for id in np.flatnonzero(starts).tolist() if id not in specials]
    letters = [(id, word) for id, word in tokens if word.isalpha()]
    back = _ids_of(tokenizer, [word for _, word in letters])
    words: dict[Ids, str] = {(id,): word for (id, word), ids in zip(letters, back, strict=True) if ids == (id,)}
    for word, ids in zip(asked, _ids_of(tokenizer, asked), strict=True):
        if not _can_spell(tokenizer, ids):
            raise TokenizerError(f"the tokenizer must be able to spell '{word}', but cannot; ask for another word")
        words.setdefault(ids, word)
    places = {ids: place for place, ids in enumerate(words)}
    known = {word: places[ids] for ids, word in words.items()}
    known |= {word: places[ids] for word, ids in zip(asked, _ids_of(tokenizer, asked), strict=True)}
    return Lexicon(tuple(words.values()), tuple(words), (), known)


def static_states(bundle: Bundle, lexicon: Lexicon) -> np.ndarray:
    """(W, D) float32: each word's vector in the embedding, the mean over its tokens; no positions, no context."""
    embedding = bundle.model.backbone.embedding
    flat = torch.tensor([id for ids in lexicon.ids for id in ids], device=next(embedding.parameters()).device)
    with torch.no_grad():
        rows = embedding(flat).float().cpu().numpy()
    lengths = np.array([len(ids) for ids in lexicon.ids])
    starts = np.concatenate([[0], lengths.cumsum()[:-1]])
    return np.asarray(np.add.reduceat(rows, starts, axis=0) / lengths[:, None], dtype=np.float32)


def _ids_of(tokenizer: Tokenizer, words: Sequence[str]) -> list[Ids]:
    return [tuple(ids) for ids in tokenizer.encode([f" {word}" for word in words])]


def _can_spell(tokenizer: Tokenizer, ids: Ids) -> bool:
    return bool(ids) and tokenizer.specials.unk not in ids
