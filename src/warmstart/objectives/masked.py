"""Masked language modeling (Devlin et al. 2019, section 3.1): mask some tokens, predict them from both sides.

Of the chosen tokens 80% become [MASK], 10% a random token, 10% stay; exactly the chosen ones are predicted. A hybrid of it and
causal prediction is below.

Letters: B batch, T tokens.
"""

from __future__ import annotations

import numpy as np
import torch

from warmstart.objectives.causal import causal_batch, next_token_batch, real_tokens
from warmstart.objectives.config import ObjectiveConfig
from warmstart.types import IGNORE, Batch, Vocabulary


def masked_batch(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """``[5 6 7 8]`` with 6 chosen -> inputs ``[5 M 7 8]``, targets ``[. 6 . .]``: masked tokens are predicted in place.

    ``rows`` (B, T + 1), of which the first ``lengths`` (B,) tokens are real; the last column is not read.
    """
    ids = rows[:, :-1]
    real = real_tokens(ids, lengths)
    inputs, chosen = mask_tokens(ids, real, rng, vocabulary, config)
    return in_place_batch(inputs, ids, chosen, real)


def in_place_batch(inputs: np.ndarray, ids: np.ndarray, chosen: np.ndarray, real: np.ndarray) -> Batch:
    """A bidirectional batch in which ``inputs`` (B, T) predict ``ids`` (B, T) in place, where they are ``chosen`` (B, T) bool.

    ``real`` (B, T) bool is its attention mask.
    """
    targets = np.where(chosen, ids, IGNORE)
    attention_mask = None if real.all() else torch.from_numpy(real)
    return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), attention_mask, causal=False, count=int(chosen.sum()))


def masked_target_fractions(config: ObjectiveConfig) -> tuple[float, float]:
    """Every batch predicts the masked tokens."""
    return config.effective_mask_rate, config.effective_mask_rate


def mask_tokens(
    ids: np.ndarray, maskable: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens of ``ids`` (B, T) as ``choose_tokens`` does, and mask them.

    Returns the masked ids (B, T) and which tokens were chosen (B, T) bool.
    """
    chosen = choose_tokens(ids, maskable, rng, vocabulary, config)
    action = rng.random(ids.shape)  # of the chosen tokens 80% are masked, 10% stay, and 10% become a random one
    masked = np.where(chosen & (action < 0.8), vocabulary.specials.mask, ids)
    random_token = chosen & (action >= 0.9)
    masked[random_token] = rng.choice(vocabulary.ordinary, size=int(random_token.sum()))
    return masked, chosen


def choose_tokens(
    ids: np.ndarray, maskable: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> np.ndarray:
    """(B, T) bool: which tokens of ``ids`` (B, T) are chosen, at the mask rate, among those ``maskable`` (B, T) bool.

    Special tokens are never chosen. At least one token is, if there is any to choose.
    """
    maskable = maskable & ~vocabulary.is_special[ids]
    chosen: np.ndarray = maskable & (rng.random(ids.shape) < config.effective_mask_rate)
    if not chosen.any() and maskable.any():
        chosen[np.unravel_index(rng.choice(np.flatnonzero(maskable)), ids.shape)] = True
    return chosen


# Hybrid: each batch is causal or masked next-token prediction, with the same weights (Charpentier and Samuel 2024, GPT-BERT).
#
# In a masked batch attention is bidirectional, and a masked token is predicted one position before it, exactly as in a causal
# batch. So one backbone learns to generate from left to right and to read in both directions.


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
