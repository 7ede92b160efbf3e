"""Where words occur in texts, and the hidden states of a model there.

Letters: N occurrences, K of them selected, W words, M layers, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warmstart.data.encode import encode_pieces
from warmstart.inspection.activations import EncodedWords, run_backbone, stack_layers
from warmstart.inspection.lexicon import Lexicon, split_pieces
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.seeding import rng
from warmstart.types import Batch

_MAX_PIECES = 100
"""pieces of a passage; a longer text becomes several passages"""
_CONTEXT = 6
"""pieces shown on each side of an occurrence"""


@dataclass(frozen=True)
class Occurrences:
    """N occurrences of words, in the order of their passages."""

    passages: EncodedWords
    """each passage in pieces, from ``split_pieces``"""
    words: np.ndarray
    """(N,) the word of each, as an index into the lexicon"""
    positions: np.ndarray
    """(N, 2) the index of the passage, and of the piece in it"""

    def of(self, word: int) -> np.ndarray:
        """(n,) the indices of a word's occurrences."""
        return np.flatnonzero(self.words == word)

    def context(self, number: int) -> tuple[str, str, str]:
        """The text left of an occurrence, the word, and the text right of it."""
        passage, position = self.positions[number]
        pieces = self.passages.texts[passage]
        left, right = pieces[max(0, position - _CONTEXT) : position], pieces[position + 1 : position + 1 + _CONTEXT]
        return "".join(left).strip(), pieces[position].strip(), "".join(right).strip()


def find_occurrences(bundle: Bundle, texts: Sequence[str], lexicon: Lexicon, limits: Mapping[int, int], seed: int) -> Occurrences:
    """Occurrences of words in texts that are read in random order, up to ``limits[word]`` of each word (an index in the lexicon).

    A text of more than 100 pieces is cut into passages; occurrences that do not fit into the model's context are left out.
    """
    missing = {word: min(limit, lexicon.counts[word]) for word, limit in limits.items()}
    passages, rows = list[list[str]](), list[tuple[int, int, int]]()
    for number in rng(seed, "passages").permutation(len(texts)):
        if not missing:
            break
        pieces = split_pieces(texts[number])
        for start in range(0, len(pieces), _MAX_PIECES):
            passage = [pieces[start].lstrip(), *pieces[start + 1 : start + _MAX_PIECES]]
            before = len(rows)
            for position, piece in enumerate(passage):
                word = lexicon.index.get(piece.lstrip(), -1)
                if word in missing:
                    rows.append((word, len(passages), position))
                    missing[word] -= 1
                    if not missing[word]:
                        del missing[word]
            if len(rows) > before:
                passages.append(passage)
    encoded = encode_pieces(bundle.tokenizer, passages, bundle.model.backbone.config.max_length)
    kept = tuple(tuple(passage[: len(marks)]) for passage, marks in zip(passages, encoded.piece_starts, strict=True))
    inside = np.array([row for row in rows if row[2] < len(kept[row[1]])], dtype=np.int64).reshape(-1, 3)
    return Occurrences(EncodedWords(encoded, kept), inside[:, 0], inside[:, 1:])


def occurrence_states(bundle: Bundle, occurrences: Occurrences, selected: np.ndarray, layers: Sequence[int]) -> np.ndarray:
    """(K, M, D) float32: the hidden states of the occurrences ``selected`` (K,) at M layers, each the mean over its tokens."""
    rows = dict[int, list[int]]()
    for row, passage in enumerate(occurrences.positions[selected, 0].tolist()):
        rows.setdefault(passage, []).append(row)
    passages = np.array(sorted(rows))
    encoded = occurrences.passages.encoded.take(passages)
    out = np.empty((len(selected), len(layers), bundle.model.backbone.config.width), dtype=np.float32)

    def word_means(batch: Batch, indices: np.ndarray) -> Tensor:
        states = stack_layers(run_backbone(bundle, batch))[:, :, list(layers)]  # (B, T, M, D)
        means = []
        for i, index in enumerate(indices):
            ends = [*encoded.piece_starts[index], len(encoded.rows[index]) - 1]
            pieces = [occurrences.positions[selected[row], 1] for row in rows[passages[index]]]
            means += [states[i, ends[piece] : ends[piece + 1]].mean(dim=0) for piece in pieces]
        return torch.stack(means)

    for indices, means in run_in_batches(bundle.model, encoded, bundle.tokenizer.specials.pad, forward=word_means):
        out[[row for index in indices for row in rows[passages[index]]]] = means.numpy()
    return out


def mean_states(bundle: Bundle, occurrences: Occurrences, words: np.ndarray, layer: int) -> np.ndarray:
    """(W, D) float32: each of the ``words`` (W,), which all occur, as the mean of its occurrences' hidden states at a layer."""
    states = occurrence_states(bundle, occurrences, np.arange(len(occurrences.words)), [layer])[:, 0]
    return np.stack([states[occurrences.of(word)].mean(axis=0) for word in words])
