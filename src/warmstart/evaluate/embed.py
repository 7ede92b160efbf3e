"""A vector for every text, in the order they came, whatever the batching."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warmstart.data.batch import encode
from warmstart.engine import read
from warmstart.errors import ModelError
from warmstart.heads import EmbedHead
from warmstart.model import Bundle


def embed(bundle: Bundle, texts: Sequence[str]) -> Tensor:
    """(N, D), float32: what a head that embeds says of each text. Raises ``ModelError`` where the head has another job.

    >>> vectors = ws.embed(ws.load("hf:MiniLM"), ["a cat", "a kitten"])
    >>> float(vectors[0] @ vectors[1])  # their cosine
    """
    model, head = bundle.model, bundle.model.head
    if not isinstance(head, EmbedHead):
        raise ModelError(f"embeddings come from a head of the kind 'embed', but this one's is '{head.config.kind}'")
    encoded = encode(bundle.tokenizer, texts, model.backbone.config.max_tokens, appended=head.config.pooling == "appended")
    out = torch.empty(len(texts), model.backbone.config.width)
    for places, vectors in read(model, encoded, bundle.tokenizer.specials.pad):
        out[places] = vectors
    return out
