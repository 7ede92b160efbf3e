"""How far attention went from what it was: the Jensen-Shannon divergence between a head's weights in two models.

In bits it lies between 0 (the same) and 1 (nothing in common; Lin 1991). Only tokens that see more than one count, as the others
have no choice. What is far is said by the distance between different heads of one layer.

Letters: N passages, B batch, T tokens asking, S tokens seen, L depth, H heads, X what is compared, R draws.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warmstart.analysis.attention import views_of, weights_of
from warmstart.data.batch import Encoded, ordered_batches
from warmstart.engine import read
from warmstart.engine.reading import TOKENS
from warmstart.model import Bundle
from warmstart.model.packed import packed
from warmstart.seeding import rng
from warmstart.types import Batch

DRAWS = 1000


@dataclass(frozen=True)
class Divergence:
    """Divergences in bits, summed over the tokens that see more than one."""

    sums: np.ndarray
    """(N, L, X)"""
    counts: np.ndarray
    """(N, L) tokens"""

    def interval(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means (L, X) over tokens, and both ends of their 95 % bootstrap intervals over passages; nan without tokens."""
        count = len(self.sums)
        draws = rng(seed, "bootstrap").multinomial(count, np.full(count, 1 / count), DRAWS).astype(float)
        weights = np.concatenate([np.ones((1, count)), draws])  # (1 + R, N)
        over, under = np.tensordot(weights, self.sums, axes=1), (weights @ self.counts)[:, :, None]
        values = np.divide(over, under, out=np.full_like(over, np.nan), where=under > 0)
        if np.isnan(values[0]).any():
            return values[0], values[0], values[0]
        low, high = np.nanquantile(values, (0.025, 0.975), axis=0)
        return values[0], low, high

    @property
    def over_all(self) -> Divergence:
        """The mean over all that is compared in all layers, as one: L and X are 1."""
        return Divergence(self.sums.mean(axis=2).sum(axis=1)[:, None, None], self.counts.sum(axis=1)[:, None])


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """(...) Jensen-Shannon divergence in bits between shares (..., S)."""
    return (_bits((one + other) / 2) - (_bits(one) + _bits(other)) / 2).clamp(min=0)


def attention_moved(before: Bundle, after: Bundle, encoded: Encoded) -> Divergence:
    """How far each head's attention over N passages is from what it was; X is H."""
    config, device = before.model.backbone.config, next(before.model.parameters()).device
    sums = np.zeros((len(encoded), config.depth, config.heads))
    counts = np.zeros((len(encoded), config.depth))
    before.model.eval(), after.model.eval()
    other = nullcontext() if after.model is before.model else packed(after.model)
    with torch.no_grad(), packed(before.model), other:
        for places, batch in ordered_batches(encoded, TOKENS, before.tokenizer.specials.pad, causal=before.model.causal):
            here = batch.to(device)
            of_layers = zip(weights_of(before, here), weights_of(after, here), views_of(before, here), strict=True)
            for layer, (old, new, seen) in enumerate(of_layers):
                chosen = seen.sum(dim=-1) > 1  # (B, T)
                sums[places, layer] = (divergence(old, new) * chosen[:, None]).sum(dim=-1).cpu().numpy()
                counts[places, layer] = chosen.sum(dim=-1).cpu().numpy()
    return Divergence(sums, counts)


def heads_apart(bundle: Bundle, encoded: Encoded) -> Divergence:
    """How far two heads of one layer lie apart, the mean over all pairs; X is 1. Nothing is counted where a layer has one head."""
    heads, out = bundle.model.backbone.config.heads, np.zeros((len(encoded), bundle.model.backbone.config.depth, 2))
    pairs = heads * (heads - 1) // 2

    def asked(batch: Batch, _: np.ndarray) -> Tensor:
        layers = []
        for weights, seen in zip(weights_of(bundle, batch), views_of(bundle, batch), strict=True):
            chosen = (seen.sum(dim=-1) > 1) & (pairs > 0)  # (B, T)
            apart = torch.zeros_like(weights[:, 0, :, 0])  # (B, T)
            for step in range(1, heads):
                apart += divergence(weights[:, step:], weights[:, :-step]).sum(dim=1)
            layers.append(torch.stack([(apart * chosen).sum(dim=-1) / max(1, pairs), chosen.sum(dim=-1)], dim=-1))
        return torch.stack(layers, dim=1)  # (B, L, 2)

    for places, found in read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=asked):
        out[places] = found.numpy()
    return Divergence(out[:, :, :1], out[:, :, 1])


def _bits(shares: Tensor) -> Tensor:
    return torch.special.entr(shares).sum(dim=-1) / math.log(2)
