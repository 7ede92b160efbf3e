"""Causal language modeling: every token predicts the next one.

Letters: B batch, T tokens.
"""

from __future__ import annotations

import numpy as np
import torch

from warmstart.objectives.config import ObjectiveConfig
from warmstart.types import IGNORE, Batch, Vocabulary


def causal_batch(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """``[5 6 7 8]`` -> inputs ``[5 6 7]``, targets ``[6 7 8]``; padding is no target. ``rows`` (B, T + 1), ``lengths`` (B,)."""
    return next_token_batch(rows[:, :-1], rows, real_tokens(rows, lengths), None)


def real_tokens(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(B, T) bool: the first ``lengths`` (B,) tokens of each of the ``rows`` (B, T)."""
    return np.arange(rows.shape[1]) < lengths[:, None]


def next_token_batch(inputs: np.ndarray, tokens: np.ndarray, is_target: np.ndarray, attention_mask: np.ndarray | None) -> Batch:
    """A batch in which position t of ``inputs`` (B, T) predicts ``tokens`` (B, T + 1) at t + 1, if ``is_target`` (B, T + 1) there.

    Without ``attention_mask`` (B, T) it is read causally (padding on the right is then never attended to), with it bidirectionally.
    """
    targets = np.where(is_target, tokens, IGNORE)[:, 1:]
    return Batch(
        torch.from_numpy(np.ascontiguousarray(inputs)),
        torch.from_numpy(np.ascontiguousarray(targets)),
        None if attention_mask is None or attention_mask.all() else torch.from_numpy(attention_mask),
        causal=attention_mask is None,
        count=int((targets != IGNORE).sum()),
    )
