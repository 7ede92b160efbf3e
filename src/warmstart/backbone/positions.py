"""Where a token stands: sinusoidal, learned and rotary positions.

Sinusoidal and learned positions are added to the token embedding; rotary ones turn queries and keys instead.

Letters: B batch, T tokens, D width, H heads, K head width. ``places`` (B or 1, T) are positions counted from 0 over real tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoidal_table(count: int, width: int) -> Tensor:
    """``table[p, 2i] = sin(p / 10000^(2i/D))`` and ``table[p, 2i+1] = cos(...)`` (Vaswani et al. 2017, section 3.5): (count, D)."""
    places = torch.arange(count, dtype=torch.float32)[:, None]  # (count, 1)
    rates = torch.exp(torch.arange(0, width, 2) * (-torch.log(torch.tensor(10_000.0)) / width))  # (ceil(D/2),)
    table = torch.zeros(count, width)
    table[:, 0::2] = torch.sin(places * rates)
    table[:, 1::2] = torch.cos(places * rates)[:, : width // 2]
    return table


class Sinusoidal(nn.Module):
    """A fixed table of positions; it has no parameters and is not saved."""

    def __init__(self, max_tokens: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(max_tokens, width), persistent=False)

    def forward(self, places: Tensor) -> Tensor:
        """(B or 1, T) -> (B or 1, T, D)."""
        return self.get_buffer("table")[places]


class Rotary(nn.Module):
    """The cosines and sines by which queries and keys are turned (Su et al. 2021, equation 34)."""

    def __init__(
        self, max_tokens: int, head_width: int, base: float = 10_000.0, stretch: tuple[float, float, float, int] | None = None
    ) -> None:
        super().__init__()
        rates = base ** (-torch.arange(0, head_width, 2, dtype=torch.float32) / head_width)  # (K/2,)
        if stretch:
            rates = stretched(rates, *stretch)
        angles = torch.arange(max_tokens, dtype=torch.float32)[:, None] * rates  # (max, K/2)
        angles = torch.cat([angles, angles], dim=-1)  # (max, K)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """(B or 1, T) -> cosines and sines, each (B or 1, 1, T, K)."""
        return self.get_buffer("cos")[places][:, None], self.get_buffer("sin")[places][:, None]


def stretched(rates: Tensor, factor: float, low: float, high: float, length: int) -> Tensor:
    """Rates (K/2,) for rows longer than ``length``: those that turn fewer than ``low`` times in it are divided by ``factor``.

    Those that turn more than ``high`` times stay, those between are blended (Llama 3.1's rule).
    """
    turns = length * rates / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * rates + (1 - kept) * rates / factor


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair ``(x[k], x[k + K/2])`` by its angle: (B, H, T, K) -> (B, H, T, K)."""
    cos, sin = turn
    front, back = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-back, front], dim=-1) * sin).to(x.dtype)
