"""Embeddings: one vector for each text.

Letters: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warmstart.data.encode import encode
from warmstart.data.windows import WindowSettings
from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model


def embed(bundle: Bundle, texts: str | Sequence[str | tuple[str, str]], windows: WindowSettings | None = None) -> Tensor:
    """(N, D) float32, in the order of the texts or pairs; (D,) for a single string. Other texts never change a vector.

    What becomes of texts that are longer than the model reads ``windows`` says; None: the settings of the bundle. Raises
    ``ModelError`` if the bundle has another head.

    >>> vectors = ws.embed(ws.load("hf:MiniLM"), ["a cat", "a kitten"])
    >>> float(vectors[0] @ vectors[1])  # their cosine similarity
    """
    if isinstance(texts, str):
        return embed(bundle, [texts], windows)[0]
    model, head = bundle.model, bundle.model.head
    if not isinstance(head, EmbeddingHead):
        raise ModelError(f"embeddings need an embedding head, but this model has a {head.config.kind} head")
    config, backbone = head.config, model.backbone.config
    if windows is not None:
        config = EmbeddingHeadConfig(**dict(config) | dict(windows))
        model = Model(model.backbone, EmbeddingHead(config, backbone.width), causal=model.causal)
    appended, typed = config.pooling == "appended", backbone.token_types > 1
    encoded = encode(bundle.tokenizer, texts, backbone.max_length, appended=appended, typed=typed, windows=config.window_settings)
    out = torch.empty(len(texts), backbone.width)
    for indices, vectors in run_in_batches(model, encoded, bundle.tokenizer.specials.pad):
        out[indices] = vectors
    return out
