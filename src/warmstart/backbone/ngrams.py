"""A text's vector from its neighbouring tokens, where other backbones have blocks (Yang et al. 2020, arXiv 1907.04307, its CNN).

Convolutions over 2, 3 and 5 tokens, twice, each added to what it reads; the sum of all tokens, and two dense layers.

Letters: B batch, T tokens, D width, C = D / 2 width of a convolution, F inner width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.backbone.config import BackboneConfig
from warmstart.system.products import Linear

SPANS = (2, 3, 5)
"""tokens that a convolution reads: the token itself, and as many before as behind it, or one more behind"""


class NGrams(nn.Module):
    """Embeddings of tokens -> the vector of their text, as the state of each of them."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        width, narrow, eps = config.width, config.width // 2, config.norm_eps
        joined = width + len(SPANS) * narrow
        self.narrow, self.narrow_norm = Linear(width, joined - width), nn.LayerNorm(joined - width, eps)
        self.first = nn.ModuleList(Linear(span * narrow, narrow) for span in SPANS)
        self.second = nn.ModuleList(Linear(span * narrow, narrow) for span in SPANS)
        self.norm, self.sum = nn.LayerNorm(joined, eps), Linear(joined, width)
        self.inner = _Dense(width, config.feedforward, config.feedforward)
        self.final = _Dense(config.feedforward, width, width)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D), the same for all T; ``real`` (B, T) is True at tokens that count, None: all do."""
        counts = torch.ones_like(x[..., :1]) if real is None else real[..., None].to(x.dtype)  # (B, T, 1)
        parts = [x]
        narrow = self.narrow_norm(self.narrow(x)).chunk(len(SPANS), dim=-1)
        for span, part, *layers in zip(SPANS, narrow, self.first, self.second, strict=True):
            for layer in layers:
                part = part + F.relu(layer(_spans(part * counts, span)))  # (B, T, C)
            parts.append(part)
        summed, length = (self.norm(torch.cat(parts, dim=-1)) * counts).sum(dim=1), counts.sum(dim=1).clamp(min=1)
        pooled = self.sum(summed / length) * length.sqrt()  # (B, D)
        return torch.tanh(self.final(F.relu(self.inner(pooled))))[:, None].expand(x.shape)


class _Dense(nn.Module):
    """A linear layer beside two with a ReLU between them."""

    def __init__(self, width: int, inner: int, out: int) -> None:
        super().__init__()
        self.lower, self.upper = Linear(width, inner, bias=False), Linear(inner, out, bias=False)
        self.direct = Linear(width, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.direct(x) + self.upper(F.relu(self.lower(x)))


def _spans(x: Tensor, span: int) -> Tensor:
    """Each token with its neighbours, zeros outside the text: (B, T, C) -> (B, T, span C)."""
    before = (span - 1) // 2
    return F.pad(x, (0, 0, before, span - 1 - before)).unfold(1, span, 1).transpose(2, 3).flatten(2)
