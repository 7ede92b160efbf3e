"""Hybrid: each batch is causal or masked next-token prediction, with the same weights (Charpentier and Samuel 2024, GPT-BERT).

In a masked batch attention is bidirectional, and a masked token is predicted one position before it, exactly as in a causal batch.
So one backbone learns to generate from left to right and to read in both directions.

Letters: B batch, T tokens.
"""

from __future__ import annotations

import numpy as np

from warmstart.objectives.causal import causal_batch, next_token_batch, real_tokens
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.masked import mask_tokens
from warmstart.types import Batch, Vocabulary


def hybrid_batch(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """``[5 6 7 8]`` -> causal: ``[5 6 7]`` predicts ``[6 7 8]``; masked with 7 chosen: ``[5 6 M]`` predicts ``[. 7 .]``.

    ``rows`` (B, T + 1), of which the first ``lengths`` (B,) tokens are real.
    """
    if rng.random() < config.causal_fraction:
        return causal_batch(rows, lengths, rng, vocabulary, config)
    maskable = real_tokens(rows, lengths)
    maskable[:, 0] = False  # there is no position before a row's first token to predict it from
    masked, chosen = mask_tokens(rows, maskable, rng, vocabulary, config)
    return next_token_batch(masked[:, :-1], rows, chosen, real_tokens(rows[:, :-1], lengths))


def hybrid_target_fractions(config: ObjectiveConfig) -> tuple[float, float]:
    """A causal batch predicts every token, a masked one those that are masked."""
    rate = config.effective_mask_rate
    return config.causal_fraction + (1 - config.causal_fraction) * rate, 1.0 if config.causal_fraction else rate


def hybrid_held_out_configs(config: ObjectiveConfig) -> dict[str, ObjectiveConfig]:
    """Held-out loss is measured both as causal and as masked."""
    return {
        "causal": config.model_copy(update={"causal_fraction": 1.0}),
        "masked": config.model_copy(update={"causal_fraction": 0.0}),
    }
