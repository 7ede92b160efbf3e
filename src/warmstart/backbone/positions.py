"""Positions of tokens: sinusoidal, learned and rotary; distances between them.

Sinusoidal and learned positions are added to the token embedding; rotary ones rotate queries and keys instead. Distances between
tokens may be added to the scores of attention beside.

Letters: B batch, T query tokens, S key tokens, D width, H heads, K head width.

``position_ids`` (B or 1, T) count real tokens from 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoidal_table(count: int, width: int) -> Tensor:
    """``table[p, 2i] = sin(p / 10000^(2i/D))`` and ``table[p, 2i+1] = cos(...)`` (Vaswani et al. 2017, section 3.5): (count, D)."""
    positions = torch.arange(count, dtype=torch.float32)[:, None]  # (count, 1)
    frequencies = torch.exp(torch.arange(0, width, 2) * (-torch.log(torch.tensor(10_000.0)) / width))  # (ceil(D/2),)
    table = torch.zeros(count, width)
    table[:, 0::2] = torch.sin(positions * frequencies)
    table[:, 1::2] = torch.cos(positions * frequencies)[:, : width // 2]
    return table


class Sinusoidal(nn.Module):
    """A fixed table of positions; it has no parameters and is not saved."""

    def __init__(self, max_length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(max_length, width), persistent=False)

    def forward(self, position_ids: Tensor) -> Tensor:
        """``position_ids`` (B or 1, T) -> (B or 1, T, D)."""
        return self.get_buffer("table")[position_ids]


class Rotary(nn.Module):
    """The cosines and sines that rotate queries and keys (Su et al. 2021, equation 34)."""

    def __init__(
        self, max_length: int, head_width: int, base: float = 10_000.0, scaling: tuple[float, float, float, int] | None = None
    ) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, head_width, 2, dtype=torch.float32) / head_width)  # (K/2,)
        if scaling:
            frequencies = scaled_frequencies(frequencies, *scaling)
        angles = torch.arange(max_length, dtype=torch.float32)[:, None] * frequencies  # (max_length, K/2)
        angles = torch.cat([angles, angles], dim=-1)  # (max_length, K)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """``position_ids`` (B or 1, T) -> cosines and sines, each (B or 1, 1, T, K)."""
        return self.get_buffer("cos")[position_ids][:, None], self.get_buffer("sin")[position_ids][:, None]


def scaled_frequencies(frequencies: Tensor, factor: float, low: float, high: float, length: int) -> Tensor:
    """Rotary frequencies (K/2,) for rows longer than ``length``, the longest row in pretraining (Llama 3.1's rule).

    Those that turn fewer than ``low`` times within ``length`` are divided by ``factor``, those that turn more than ``high`` times
    stay the same, those between are interpolated. Returns (K/2,).
    """
    turns = length * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / factor


def rotate(x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair ``(x[k], x[k + K/2])`` by its angle: ``x`` (B, H, T, K), cos and sin (B or 1, 1, T, K) -> (B, H, T, K)."""
    cos, sin = cos_sin
    front, back = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-back, front], dim=-1) * sin).to(x.dtype)


FURTHEST = 128
"""tokens: all distances from here on share a bucket"""


def _bucket_of(distances: Tensor, count: int) -> Tensor:
    """The bucket of each distance, of ``count``: the upper half is for keys behind the query (T5: Raffel et al. 2020, section 2.1).

    Of each half, one half of the buckets hold one distance each, and the others ever more, up to ``FURTHEST``.
    """
    half = count // 2
    single, far = half // 2, distances.abs()
    steps = torch.log(far.clamp(min=1) / single) / math.log(FURTHEST / single) * (half - single)
    return torch.where(far < single, far, (single + steps.long()).clamp(max=half - 1)) + half * (distances > 0)


class DistanceBias(nn.Embedding):
    """A bias for each bucket of distances and each head, which all blocks add to their scores."""

    def forward(self, distances: Tensor) -> Tensor:
        """Positions of keys less those of queries, (T, S) -> (1, H, T, S)."""
        return super().forward(_bucket_of(distances, self.num_embeddings)).permute(2, 0, 1)[None]
