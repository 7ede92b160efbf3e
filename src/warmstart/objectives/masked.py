"""Masked language modelling (Devlin et al. 2019, section 3.1): hide some tokens, predict them from both sides.

Of the chosen tokens 80 % become [MASK], 10 % a random token, 10 % stay; all chosen ones are predicted, no others.
"""

from __future__ import annotations

import numpy as np
import torch

from warmstart.objectives.causal import predicted
from warmstart.objectives.config import ObjectiveConfig
from warmstart.types import IGNORE, Batch, Vocabulary


def masked(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """``[5 6 7 8]`` with 6 chosen -> inputs ``[5 M 7 8]``, targets ``[. 6 . .]``: each hidden token is predicted at its place."""
    ids = rows[:, :-1]
    real = predicted(ids, lengths)
    inputs, chosen = hide(ids, real, rng, vocabulary, config)
    targets = np.where(chosen, ids, IGNORE)
    mask = None if real.all() else torch.from_numpy(real)
    return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), mask, causal=False, count=int(chosen.sum()))


def hide(
    ids: np.ndarray, real: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Choose and hide tokens of ``ids`` (B, T): returns the ids after hiding, and which were chosen (B, T) bool.

    Special tokens and padding are never chosen. At least one token is, if there is any to choose.
    """
    open_ = real & ~vocabulary.is_special[ids]
    chosen = open_ & (_draw(ids, rng, vocabulary, config.whole_words) < config.hidden)
    if not chosen.any() and open_.any():
        chosen[np.unravel_index(rng.choice(np.flatnonzero(open_)), ids.shape)] = True
    fate = rng.random(ids.shape)
    hidden = np.where(chosen & (fate < 0.8), vocabulary.specials.mask, ids)
    swapped = chosen & (fate >= 0.9)
    hidden[swapped] = rng.choice(vocabulary.ordinary, size=int(swapped.sum()))
    return hidden, chosen


def _draw(ids: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, whole_words: bool) -> np.ndarray:
    """(B, T) uniform numbers, one for each token or the same one for all pieces of a word."""
    draws = rng.random(ids.shape)
    if not whole_words:
        return draws
    words = vocabulary.word_starts[ids].cumsum(axis=1)  # (B, T): which word of the row a token belongs to
    return np.take_along_axis(np.pad(draws, ((0, 0), (0, 1))), words, axis=1)
