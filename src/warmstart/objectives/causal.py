"""Causal language modelling: every token predicts the next one."""

from __future__ import annotations

import numpy as np
import torch

from warmstart.objectives.config import ObjectiveConfig
from warmstart.types import IGNORE, Batch, Vocabulary


def causal(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """``[5 6 7 8]`` -> inputs ``[5 6 7]``, targets ``[6 7 8]``; what is not real is never a target."""
    return shifted(rows[:, :-1], rows, predicted(rows, lengths), None)


def predicted(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(B, T + 1) bool: the real tokens of each row."""
    return np.arange(rows.shape[1]) < lengths[:, None]


def shifted(inputs: np.ndarray, answers: np.ndarray, counts: np.ndarray, real: np.ndarray | None) -> Batch:
    """A batch in which place t of ``inputs`` (B, T) predicts place t + 1 of ``answers`` (B, T + 1), where ``counts`` says so.

    It is read causally without ``real`` (padding on the right is then never seen), and both ways with it: (B, T) real tokens.
    """
    targets = np.where(counts, answers, IGNORE)[:, 1:]
    return Batch(
        torch.from_numpy(np.ascontiguousarray(inputs)),
        torch.from_numpy(np.ascontiguousarray(targets)),
        None if real is None or real.all() else torch.from_numpy(real),
        causal=real is None,
        count=int((targets != IGNORE).sum()),
    )
