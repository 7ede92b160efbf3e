"""What studies of tokens share: a sample of passages, tokens as the text they stand for, and which of them are punctuation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from warmstart.data.batch import Encoded
from warmstart.errors import DataError
from warmstart.seeding import rng
from warmstart.tokenizer import Tokenizer

Passage = TypeVar("Passage")

PART = re.compile(r"\\x[0-9a-f]{2}|<0x[0-9A-F]{2}>")
"""a byte of a character, as pieces that hold a part of one print it"""


def stretches(tokenizer: Tokenizer, documents: Iterable[str], room: int) -> Iterator[list[int]]:
    """The token ids of documents, read one by one; of one that is longer, as many stretches of ``room`` as it takes."""
    for text in documents:
        ids = tokenizer.encode([text])[0]
        yield from (ids[at : at + room] for at in range(0, len(ids), room))


def sampled(passages: Iterable[Passage], count: int, seed: int) -> list[Passage]:
    """At most ``count`` passages of a stream, each as likely as any other, in their order (Vitter 1985, algorithm R).

    Raises ``DataError`` where there is none.
    """
    draw, kept = rng(seed, "passages"), list[tuple[int, Passage]]()
    for number, passage in enumerate(passages):
        place = number if number < count else int(draw.integers(number + 1))
        if number < count:
            kept.append((number, passage))
        elif place < count:
            kept[place] = (number, passage)
    if not kept:
        raise DataError("a corpus needs at least one passage that is not empty, but found none; give more text")
    return [passage for _, passage in sorted(kept, key=lambda one: one[0])]


def pieces_of(tokenizer: Tokenizer, encoded: Encoded) -> dict[int, str]:
    """The text of every token that occurs, without what marks the starts or insides of words: ``##ing`` -> ``ing``."""
    ids = np.unique(np.concatenate(encoded.rows))
    return {int(one): _text_of(tokenizer, int(one)) for one in ids}


def in_running_text(tokenizer: Tokenizer, id: int) -> str:
    """The text of a token as it follows another, with a space before it where it begins a word: ``the`` -> `` the``."""
    piece = _text_of(tokenizer, id)
    return f" {piece}" if tokenizer.vocabulary().word_starts[id] and not piece[:1].isspace() else piece


def is_punctuation(piece: str) -> bool:
    """Whether a piece is made of punctuation and symbols only, white space aside."""
    bare = piece.strip()
    return bool(bare) and all(unicodedata.category(character)[0] in "PS" for character in bare)


def punctuated(tokenizer: Tokenizer, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(V,) which of the tokens ``ids`` begin with punctuation or a symbol, and which end with it; special ones do neither.

    Words end there whatever the kind of tokenizer, as BERT's do: "doesn't" is three words where its pieces let it be.
    """
    begins, ends = np.zeros(tokenizer.vocab_size, dtype=bool), np.zeros(tokenizer.vocab_size, dtype=bool)
    for id in sorted(set(ids.tolist()) - tokenizer.specials.all()):
        piece = PART.sub("a", _text_of(tokenizer, id)).strip()
        begins[id], ends[id] = is_punctuation(piece[:1]), is_punctuation(piece[-1:])
    return begins, ends


def _text_of(tokenizer: Tokenizer, id: int) -> str:
    """A token without what marks the starts or insides of words."""
    return tokenizer.token(id).removeprefix("##").replace("▁", " ")
