"""Texts in chunks, samples of passages, tokens as text, and punctuation among them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from warmstart.errors import DataError
from warmstart.seeding import rng

if TYPE_CHECKING:
    from warmstart.data.encode import Encoded
    from warmstart.tokenizer.tokenizer import Tokenizer

_Passage = TypeVar("_Passage")

_BYTE = re.compile(r"\\x[0-9a-f]{2}|<0x[0-9A-F]{2}>")
"""a byte of a character, as tokens that hold a part of one print it"""


def token_chunks(tokenizer: Tokenizer, documents: Iterable[str], length: int) -> Iterator[list[int]]:
    """The token ids of documents, encoded one by one; a longer document comes in chunks of ``length`` tokens."""
    for text in documents:
        ids = tokenizer.encode([text])[0]
        yield from (ids[start : start + length] for start in range(0, len(ids), length))


def sample_passages(passages: Iterable[_Passage], count: int, seed: int) -> list[_Passage]:
    """At most ``count`` passages of a stream, each equally likely, in their order (Vitter 1985, algorithm R).

    Raises ``DataError`` if there is none.
    """
    generator, kept = rng(seed, "passages"), list[tuple[int, _Passage]]()
    for number, passage in enumerate(passages):
        slot = number if number < count else int(generator.integers(number + 1))
        if number < count:
            kept.append((number, passage))
        elif slot < count:
            kept[slot] = (number, passage)
    if not kept:
        raise DataError("a corpus needs at least one passage that is not empty, but has none; give more text")
    return [passage for _, passage in sorted(kept, key=lambda pair: pair[0])]


def token_texts(tokenizer: Tokenizer, encoded: Encoded) -> dict[int, str]:
    """The text of every token id that occurs, without the marks of word starts or continuations: ``##ing`` -> ``ing``."""
    ids = np.unique(np.concatenate(encoded.rows))
    return {int(token_id): _text_of(tokenizer, int(token_id)) for token_id in ids}


def running_text(tokenizer: Tokenizer, token_id: int) -> str:
    """The text of a token as it follows another one, with a space before it if it starts a word: ``the`` -> `` the``."""
    text = _text_of(tokenizer, token_id)
    return f" {text}" if tokenizer.vocabulary().word_starts[token_id] and not text[:1].isspace() else text


def is_punctuation(text: str) -> bool:
    """True for a text of punctuation and symbols only, apart from white space."""
    bare = text.strip()
    return bool(bare) and all(unicodedata.category(character)[0] in "PS" for character in bare)


def word_boundaries(tokenizer: Tokenizer, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(V,) bool each: the tokens among ``ids`` (N,) that begin, and those that end with punctuation or a symbol.

    A word ends there whatever the tokenizer, as BERT's do: "doesn't" is three words if its tokens allow it. Special tokens do
    neither.
    """
    begins, ends = np.zeros(tokenizer.vocab_size, dtype=bool), np.zeros(tokenizer.vocab_size, dtype=bool)
    for token_id in sorted(set(ids.tolist()) - tokenizer.specials.all()):
        text = _BYTE.sub("a", _text_of(tokenizer, token_id)).strip()
        begins[token_id], ends[token_id] = is_punctuation(text[:1]), is_punctuation(text[-1:])
    return begins, ends


def _text_of(tokenizer: Tokenizer, token_id: int) -> str:
    """A token without the marks of word starts or continuations."""
    return tokenizer.token(token_id).removeprefix("##").replace("▁", " ")
