"""Where words stand in texts, and what a model makes of them there.

Letters: N occurrences, K of them chosen, M layers, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warmstart.analysis.activations import Words, all_layers, states_of
from warmstart.analysis.lexicon import Lexicon, pieces_of
from warmstart.data.batch import encode_pieces
from warmstart.engine import read
from warmstart.model import Bundle
from warmstart.seeding import rng
from warmstart.types import Batch

LONGEST = 100
"""pieces of a passage: a longer text is cut"""
AROUND = 6
"""pieces that a context shows on each side"""


@dataclass(frozen=True)
class Occurrences:
    """N places where words stand, in the order of their passages."""

    passages: Words
    """each passage in pieces, as ``pieces_of`` cuts it"""
    word: np.ndarray
    """(N,) place in the lexicon"""
    where: np.ndarray
    """(N, 2) which passage, and which piece of it"""

    def of(self, word: int) -> np.ndarray:
        """Which occurrences are of a word."""
        return np.flatnonzero(self.word == word)

    def context(self, number: int) -> tuple[str, str, str]:
        """What stands left of an occurrence, the word, and what stands right of it."""
        passage, place = self.where[number]
        pieces = self.passages.texts[passage]
        left, right = pieces[max(0, place - AROUND) : place], pieces[place + 1 : place + 1 + AROUND]
        return "".join(left).strip(), pieces[place].strip(), "".join(right).strip()


def find_occurrences(bundle: Bundle, texts: Sequence[str], lexicon: Lexicon, wanted: Mapping[int, int], seed: int) -> Occurrences:
    """Up to so many occurrences of each wanted word (its place in the lexicon -> how many), in texts taken in random order.

    A text longer than ``LONGEST`` pieces is cut into passages; what of a passage does not fit into the model is passed over.
    """
    left = {word: min(most, lexicon.counts[word]) for word, most in wanted.items()}
    passages, found = list[list[str]](), list[tuple[int, int, int]]()
    for number in rng(seed, "passages").permutation(len(texts)):
        if not left:
            break
        pieces = pieces_of(texts[number])
        for first in range(0, len(pieces), LONGEST):
            passage = [pieces[first].lstrip(), *pieces[first + 1 : first + LONGEST]]
            met = [(place, lexicon.known.get(piece.lstrip(), -1)) for place, piece in enumerate(passage)]
            before = len(found)
            for place, word in met:
                if word in left:
                    found.append((word, len(passages), place))
                    left[word] -= 1
                    if not left[word]:
                        del left[word]
            if len(found) > before:
                passages.append(passage)
    encoded = encode_pieces(bundle.tokenizer, passages, bundle.model.backbone.config.max_tokens)
    kept = tuple(tuple(passage[: len(marks)]) for passage, marks in zip(passages, encoded.marks, strict=True))
    rows = np.array([row for row in found if row[2] < len(kept[row[1]])], dtype=np.int64).reshape(-1, 3)
    return Occurrences(Words(encoded, kept), rows[:, 0], rows[:, 1:])


def read_occurrences(bundle: Bundle, found: Occurrences, chosen: np.ndarray, layers: Sequence[int]) -> np.ndarray:
    """(K, M, D) float32: the states of the occurrences ``chosen`` (K,) at M layers, the mean over the tokens of each."""
    rows = dict[int, list[int]]()
    for row, passage in enumerate(found.where[chosen, 0].tolist()):
        rows.setdefault(passage, []).append(row)
    passages = np.array(sorted(rows))
    encoded = found.passages.encoded.take(passages)
    out = np.empty((len(chosen), len(layers), bundle.model.backbone.config.width), dtype=np.float32)

    def averaged(batch: Batch, places: np.ndarray) -> Tensor:
        states = all_layers(states_of(bundle, batch))[:, :, list(layers)]  # (B, T, M, D)
        means = []
        for i, place in enumerate(places):
            ends = [*encoded.marks[place], len(encoded.rows[place]) - 1]
            words = [found.where[chosen[row], 1] for row in rows[passages[place]]]
            means += [states[i, ends[word] : ends[word + 1]].mean(dim=0) for word in words]
        return torch.stack(means)

    for places, means in read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=averaged):
        out[[row for place in places for row in rows[passages[place]]]] = means.numpy()
    return out
