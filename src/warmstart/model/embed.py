"""Embeddings: one vector for each text.

Letters: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warmstart.data.encode import encode
from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHead
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches


def embed(bundle: Bundle, texts: str | Sequence[str | tuple[str, str]]) -> Tensor:
    """(N, D) float32, in the order of the texts or pairs; (D,) for a single string. Other texts never change a vector.

    Raises ``ModelError`` if the bundle has another head.

    >>> vectors = ws.embed(ws.load("hf:MiniLM"), ["a cat", "a kitten"])
    >>> float(vectors[0] @ vectors[1])  # their cosine similarity
    """
    if isinstance(texts, str):
        return embed(bundle, [texts])[0]
    model, head = bundle.model, bundle.model.head
    if not isinstance(head, EmbeddingHead):
        raise ModelError(f"embeddings need an embedding head, but this model has a {head.config.kind} head")
    appended, typed = head.config.pooling == "appended", model.backbone.config.token_types > 1
    encoded = encode(bundle.tokenizer, texts, model.backbone.config.max_length, appended=appended, typed=typed)
    out = torch.empty(len(texts), model.backbone.config.width)
    for indices, vectors in run_in_batches(model, encoded, bundle.tokenizer.specials.pad):
        out[indices] = vectors
    return out
