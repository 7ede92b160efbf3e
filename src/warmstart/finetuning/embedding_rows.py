"""Training only those rows of the token embedding that a run reads.

A few hundred texts use a small part of the vocabulary. The other rows never get a gradient; passing over them in every step, to
clear, clip and update them, takes a quarter of the step of a small encoder. They keep their pretrained values exactly: weight
decay, which would shrink the vectors of all words that the training texts lack, does not reach them.

Letters: V vocabulary, R rows in use, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.backbone.backbone import Backbone
from warmstart.training.optimizers import ParameterGroup

WORTHWHILE = 0.5
"""the largest fraction of the vocabulary in use for which the rows are set apart"""


class _Rows(nn.Module):
    """The rows in use, looked up by token id; raises ``IndexError`` for an id that is not in use."""

    def __init__(self, weight: Tensor, ids: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach()[ids], requires_grad=weight.requires_grad)  # (R, D)
        positions = torch.full((len(weight),), -1, device=weight.device)
        positions[ids] = torch.arange(len(ids), device=weight.device)
        self.register_buffer("positions", positions, persistent=False)  # (V,)

    def forward(self, ids: Tensor) -> Tensor:
        assert isinstance(self.positions, Tensor)
        return F.embedding(self.positions[ids], self.weight)


class EmbeddingRows:
    """A backbone whose embedding is replaced, while it trains, by its rows for the tokens ``ids`` (R,); None: for all.

    ``groups`` then has those rows in place of the embedding. Inside ``whole()``, and after ``restore()``, the backbone has its own
    embedding again, with the rows as they are. Nothing is replaced if the embedding does not train, or if most of it is in use.
    """

    def __init__(self, backbone: Backbone, groups: Sequence[ParameterGroup], ids: np.ndarray | None) -> None:
        self.backbone, self.embedding = backbone, backbone.embedding
        self.rows: _Rows | None = None
        weight = self.embedding.weight
        trains = any(parameter is weight for group in groups for parameter in group.parameters.values())
        if trains and ids is not None and len(ids) <= WORTHWHILE * len(weight):
            self.ids = torch.from_numpy(ids).to(weight.device)
            self.rows = _Rows(weight, self.ids)
        self.groups = [self._with_rows(group) for group in groups]
        self._replace()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, the backbone has its own embedding, with the present rows."""
        self.restore()
        try:
            yield
        finally:
            self._replace()

    def restore(self) -> None:
        """Put the rows back into the embedding, and the embedding into the backbone."""
        if self.rows is not None:
            with torch.no_grad():
                self.embedding.weight[self.ids] = self.rows.weight
            self.backbone.embedding = self.embedding

    def _replace(self) -> None:
        if self.rows is not None:
            self.backbone.embedding = self.rows  # type: ignore[assignment]

    def _with_rows(self, group: ParameterGroup) -> ParameterGroup:
        """The group with the rows in place of the embedding, under its name."""
        if self.rows is None:
            return group
        weight, rows = self.embedding.weight, self.rows.weight
        return replace(group, parameters={name: rows if p is weight else p for name, p in group.parameters.items()})
