"""Hybrid: each batch is causal or masked next-token, on one set of weights (Charpentier and Samuel 2024, GPT-BERT).

In a masked batch attention looks both ways, and a hidden token is predicted one place before it, exactly as the causal batch does.
One backbone so learns to write from left to right and to read both ways.
"""

from __future__ import annotations

import numpy as np

from warmstart.objectives.causal import causal, predicted, shifted
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.masked import hide
from warmstart.types import Batch, Vocabulary


def hybrid(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """``[5 6 7 8]`` -> causal: ``[5 6 7]`` predicts ``[6 7 8]``; masked with 7 chosen: ``[5 6 M]`` predicts ``[. 7 .]``."""
    if rng.random() < config.causal_share:
        return causal(rows, lengths, rng, vocabulary, config)
    real = predicted(rows, lengths)
    real[:, 0] = False  # nothing stands before a row's first token to predict it from
    hidden, chosen = hide(rows, real, rng, vocabulary, config)
    return shifted(hidden[:, :-1], rows, chosen, predicted(rows[:, :-1], lengths))


def two_views(config: ObjectiveConfig) -> dict[str, ObjectiveConfig]:
    """Held-out loss is measured both ways."""
    return {
        "causal": config.model_copy(update={"causal_share": 1.0}),
        "masked": config.model_copy(update={"causal_share": 0.0}),
    }
