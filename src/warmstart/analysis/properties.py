"""What can be told of every token of a text without a model: its place, its form, whether it stands in quotes, its part of speech.

Letters: N passages, n tokens of a passage without those that frame it, P properties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.analysis.activations import words_of
from warmstart.analysis.pieces import is_punctuation, pieces_of
from warmstart.data.batch import Encoded, encode
from warmstart.errors import DataError
from warmstart.model import Bundle

FORMS: Mapping[str, Callable[[str], bool | int]] = {
    "length": lambda piece: len(piece.strip()),
    "capital": lambda piece: piece.strip()[:1].isupper(),
    "number": lambda piece: any(c.isdigit() for c in piece) and all(c.isdigit() or c in ".,:/-%" for c in piece.strip()),
    "punctuation": is_punctuation,
}
"""what a token's own text tells: characters, and three yes or no"""
PLAIN = ("place", *FORMS, "quoted", "brackets")
"""place in the text, the forms, inside quotation marks or not, and how many brackets are open"""
OPEN, CLOSE = "([{", ")]}"
RARE = 50
"""a part of speech of fewer tokens is left out"""


@dataclass(frozen=True)
class Told:
    """N passages as a model reads them, and P properties of their tokens."""

    encoded: Encoded
    names: tuple[str, ...]
    values: tuple[np.ndarray, ...]
    """for each passage (n, P) float32"""
    still: tuple[str, ...]
    """properties that never vary in these passages, and are left out"""


def told_of_texts(bundle: Bundle, texts: Sequence[str]) -> Told:
    """Properties of the tokens of texts, which are cut to what fits."""
    encoded = encode(bundle.tokenizer, texts, bundle.model.backbone.config.max_tokens)
    return _told(encoded, PLAIN, _plain(bundle, encoded))


def told_of_sentences(bundle: Bundle, sentences: Sequence[Sequence[tuple[str, str]]]) -> Told:
    """The same of sentences of (word, tag) with a yes or no for each tag that is not rare: a token has its word's tag."""
    words = words_of(bundle, [[form for form, _ in sentence] for sentence in sentences])
    tags = [[sentence[owner][1] for owner in owners[1:-1]] for sentence, owners in zip(sentences, words.owners, strict=True)]
    counts = Counter(tag for row in tags for tag in row)
    known = sorted(tag for tag, count in counts.items() if count >= RARE)
    plain = _plain(bundle, words.encoded)
    whole = [
        np.hstack([row, np.array([[tag == one for one in known] for tag in of_row], np.float32).reshape(len(row), len(known))])
        for row, of_row in zip(plain, tags, strict=True)
    ]
    return _told(words.encoded, (*PLAIN, *known), whole)


def _told(encoded: Encoded, names: Sequence[str], values: Sequence[np.ndarray]) -> Told:
    flat = np.concatenate(values)
    if len(flat) < 3:
        raise DataError(f"correlations need at least three tokens, but the text has {len(flat)}; give more text")
    moves = flat.min(axis=0) != flat.max(axis=0)
    if not moves.any():
        raise DataError("tokens must differ in something to correlate neurons with, but all are alike; give more text")
    kept = tuple(name for name, one in zip(names, moves, strict=True) if one)
    still = tuple(name for name, one in zip(names, moves, strict=True) if not one)
    return Told(encoded, kept, tuple(row[:, moves] for row in values), still)


def _plain(bundle: Bundle, encoded: Encoded) -> list[np.ndarray]:
    """For each passage (n, P) the plain properties, in the order of ``PLAIN``."""
    pieces = pieces_of(bundle.tokenizer, encoded) | dict.fromkeys(bundle.tokenizer.specials.all(), "")  # "[UNK]" opens no bracket
    forms = {one: [float(form(piece)) for form in FORMS.values()] for one, piece in pieces.items()}
    found = []
    for row in encoded.rows:
        inside = row[1:-1].tolist()
        depths = quoted([pieces[one] for one in inside])
        rows = [[place, *forms[one], *depth] for place, (one, depth) in enumerate(zip(inside, depths, strict=True))]
        found.append(np.array(rows, dtype=np.float32).reshape(len(inside), len(PLAIN)))
    return found


def quoted(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """For each piece, whether it stands inside double quotation marks (by their parity) and in how many brackets.

    Marks count as inside: ``["a", '"', "b", '"']`` -> quoted 0, 1, 1, 1. Brackets that close nothing are passed over.
    """
    found, inside, depth = [], False, 0
    for piece in pieces:
        was, deepest = inside, depth
        for character in piece:
            if character == '"':
                inside = not inside
            elif character in "“”":
                inside = character == "“"
            depth += (character in OPEN) - (character in CLOSE and depth > 0)
            was, deepest = was or inside, max(deepest, depth)
        found.append((int(was), deepest))
    return found
