"""Replaced-token detection (ELECTRA: Clark et al. 2020, section 2): tell which tokens of a text a generator has replaced.

A generator G learns masked language modeling, and its samples take the place of the masked tokens. The model D predicts for every
token of the result whether it was replaced; a sample equal to the original token was not. Of one text x with masked tokens m:

    x_masked  = x with [MASK] at m            x_corrupt = x with samples of p_G( . | x_masked) at m
    loss_MLM  = mean over i in m of -log p_G(x_i | x_masked)
    loss_Disc = mean over all t of -log p(is x_corrupt_t = x_t?), by D's sigmoid
    loss      = loss_MLM + 50 loss_Disc

Here are the pure functions; the generator itself is in ``model/generator.py``, as it needs a backbone.

Letters: B batch, T tokens, N masked tokens, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from warmstart.objectives.causal import real_tokens
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.loss import CHUNK
from warmstart.objectives.masked import choose_tokens, in_place_batch
from warmstart.system.products import linear_product
from warmstart.types import IGNORE, Batch, Vocabulary


def detect_batch(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """What the generator reads: ``[5 6 7 8]`` with 6 chosen -> inputs ``[5 M 7 8]``, targets ``[. 6 . .]``, and ``draws``.

    ``rows`` (B, T + 1), of which the first ``lengths`` (B,) tokens are real; the last column is not read. Every chosen token is
    masked. The draws decide what is sampled, so that replacements are a pure function of the batch and the weights.
    """
    ids = rows[:, :-1]
    real = real_tokens(ids, lengths)
    chosen = choose_tokens(ids, real, rng, vocabulary, config)
    draws = torch.from_numpy(rng.random(ids.shape, dtype=np.float32))
    return replace(in_place_batch(np.where(chosen, vocabulary.specials.mask, ids), ids, chosen, real), draws=draws)


def replaced_batch(batch: Batch, sampled: Tensor) -> Batch:
    """What the model reads: ``[5 M 7 8]`` with targets ``[. 6 . .]`` and ``sampled`` 9 -> ``[5 9 7 8]``, targets ``[0 1 0 0]``.

    ``sampled`` (N,) holds a token for each target of ``batch``. The targets are 1 where a token differs from the original one, else
    0, and ``IGNORE`` at padding.
    """
    assert batch.targets is not None
    masked = batch.targets != IGNORE
    original = torch.where(masked, batch.targets, batch.ids)
    ids = original.masked_scatter(masked, sampled)
    targets = (ids != original).long()
    if batch.attention_mask is not None:
        targets = targets.masked_fill(~batch.attention_mask, IGNORE)
    return Batch(ids, targets, batch.attention_mask, causal=False, count=int((targets != IGNORE).sum()))


@torch.no_grad()
def sample_replacements(hidden_states: Tensor, weight: Tensor, bias: Tensor | None, draws: Tensor) -> Tensor:
    """(N,) token ids, sampled from the softmax of ``hidden_states`` (N, D) ``@ weight.T + bias``, (V, D) and (V,).

    ``draws`` (N,) are uniform in [0, 1): token k is sampled if the draw lies between the cumulative probabilities before and after
    it. Logits live for one chunk only.
    """
    sampled = [torch.empty(0, dtype=torch.int64, device=hidden_states.device)]
    for states, draw in zip(hidden_states.split(CHUNK), draws.split(CHUNK), strict=True):
        cumulative = linear_product(states, weight.to(states.dtype), bias).float().softmax(dim=-1).cumsum(dim=-1)  # (chunk, V)
        position = torch.searchsorted(cumulative, draw[:, None] * cumulative[:, -1:], right=True)
        sampled.append(position[:, 0].clamp(max=len(weight) - 1))
    return torch.cat(sampled)
