"""Neighbours that moved: which words are near a word in one model, and are not in the other.

A word in context is the mean of its states at some of its occurrences, so its neighbours hang on which ones those are. How much
they would change by that alone is said by the same model on two halves of each word's occurrences; what changed between the models
is therefore taken on halves too, the same one in both.

Letters: W words, K neighbours, N occurrences, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.analysis.lexicon import Lexicon, lexicon_of_text, static_states
from warmstart.analysis.neighbours import nearest, overlap, shared_neighbours
from warmstart.analysis.occurrences import Occurrences, find_occurrences, read_occurrences
from warmstart.model import Bundle

NEAREST = 10
"""neighbours of a word (K)"""
LETTERS = 3
"""that a word has at least"""
OCCURRENCES, FEW = 20, 4
"""of each word, at most and at least; half of them make a vector"""


@dataclass(frozen=True)
class Common:
    """The frequent words of a text, and where they stand."""

    lexicon: Lexicon
    found: Occurrences
    places: np.ndarray
    """(W,) those met often enough, as places in the lexicon"""

    @property
    def words(self) -> list[str]:
        """Their spelling."""
        return [self.lexicon.words[place] for place in self.places]


@dataclass(frozen=True)
class Moved:
    """What became of the neighbours of W words in one space."""

    space: str
    same: np.ndarray
    """(W,) share of the K nearest that stay; in context the mean over both halves"""
    chance: np.ndarray | None
    """(W,) share that is the same in the two halves of the first model; None in the embedding, where there is nothing to draw"""
    before: np.ndarray
    """(W, K) nearest first, of all occurrences"""
    after: np.ndarray

    @property
    def stayed(self) -> np.ndarray:
        """(W,) share of the K nearest that stay, of all occurrences."""
        return overlap(self.before, self.after)


def common_words(bundle: Bundle, sentences: Sequence[str], most: int, seed: int) -> Common:
    """The most frequent words of three letters or more that the model reads in context at least ``FEW`` times."""
    lexicon = lexicon_of_text(bundle.tokenizer, sentences, 5 * most)
    chosen = [place for place, word in enumerate(lexicon.words) if len(word) >= LETTERS and lexicon.counts[place] >= FEW][:most]
    found = find_occurrences(bundle, sentences, lexicon, dict.fromkeys(chosen, OCCURRENCES), seed)
    places, counts = np.unique(found.word, return_counts=True)
    return Common(lexicon, found, places[counts >= FEW])


def moved(before: Bundle, after: Bundle, common: Common, layers: Sequence[int]) -> list[Moved]:
    """In the embedding, and at some layers in context."""
    most = min(NEAREST, len(common.places) - 1)
    everyone = np.arange(len(common.places))

    def near(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return nearest(one, everyone, most)[0], nearest(other, everyone, most)[0]

    static = [static_states(bundle, common.lexicon)[common.places] for bundle in (before, after)]
    sides = near(*static)
    out = [Moved("static", overlap(*sides), None, *sides)]
    everything = np.arange(len(common.found.word))
    states = [read_occurrences(bundle, common.found, everything, layers) for bundle in (before, after)]
    for place, layer in enumerate(layers):
        old, new = ([_means(common, one[:, place], half) for half in (None, 0, 1)] for one in states)
        same = np.mean([shared_neighbours(old[half], new[half], most) for half in (1, 2)], axis=0)
        out.append(Moved(f"layer {layer}", same, shared_neighbours(old[1], old[2], most), *near(old[0], new[0])))
    return out


def _means(common: Common, states: np.ndarray, half: int | None) -> np.ndarray:
    """(W, D): each word's mean over its occurrences' states (N, D), or over the first or second half of them."""
    rows = [common.found.of(place) for place in common.places]
    if half is not None:  # of an odd number, the last is left out, so that both are as sure
        rows = [row[half * (len(row) // 2) : (half + 1) * (len(row) // 2)] for row in rows]
    return np.stack([states[row].mean(axis=0) for row in rows])
