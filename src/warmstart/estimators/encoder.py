"""Texts to hidden states of a frozen backbone, as features for other estimators.

Letters: N texts, D width, L depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from warmstart.errors import ModelError
from warmstart.estimators.texts import as_bundle, as_texts, text_tags
from warmstart.finetuning.features import pooled_layers
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.pooled import POOLINGS, join_windows
from warmstart.model.bundle import Bundle
from warmstart.model.model import swap_head
from warmstart.tasks import TASK_TYPES


class TextEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts to the pooled hidden states of a frozen backbone.

    ``layer``: 0 for the embedding, 1 to L for the blocks; all are normalised as in a scalar mix. -1 is L, which heads read.
    ``windows``: "none" cuts texts that are longer than the backbone reads; "mean" or "max" reads them in windows, joined so.
    """

    def __init__(
        self,
        backbone: str | Path | Bundle = "",
        *,
        pooling: str = "mean",
        layer: int = -1,
        windows: Literal["none", "mean", "max"] = "none",
    ) -> None:
        self.backbone = backbone
        self.pooling = pooling
        self.layer = layer
        self.windows = windows

    def fit(self, texts: Sequence[str], y: Any = None) -> TextEncoder:
        """Load the backbone; nothing is learned from the texts."""
        bundle = as_bundle(self.backbone)
        depth = bundle.model.backbone.config.depth
        if not -1 <= self.layer <= depth:
            raise ModelError(f"layer must be from -1 to {depth}, but is {self.layer}")
        head = EmbeddingHeadConfig(pooling=POOLINGS.known(self.pooling), windows=self.windows)  # its vectors are not used
        self.reader_ = Bundle(swap_head(bundle.model, head, 0), bundle.tokenizer)
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D) float32."""
        check_is_fitted(self)
        model, tokenizer = self.reader_.model, self.reader_.tokenizer
        encoded = TASK_TYPES["classification"].encode(model, tokenizer, as_texts(texts))
        found = pooled_layers(model, encoded, tokenizer.specials.pad)[:, self.layer]
        return (found if encoded.windows is None else join_windows(found, torch.from_numpy(encoded.windows), self.windows)).numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names ``state0``, ``state1``, …, one for each column."""
        check_is_fitted(self)
        return np.array([f"state{i}" for i in range(self.reader_.model.backbone.config.width)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Texts, not tables of numbers; nothing is learned."""
        tags = text_tags(super().__sklearn_tags__())
        tags.requires_fit = True
        return tags
