"""An encoder as word vectors of one matrix: a text's vector is the mean of those of its tokens, thousands of texts a second.

    static(bundle, texts)  ->  a backbone without blocks, whose vectors are near the encoder's

The vectors W are a ridge regression of the encoder's vectors Y of passages of the texts on the fractions X of their tokens:

    W = A + X' (X X' + penalty I)^-1 (Y - X A)

A are the encoder's vectors of each token alone, frequent ones weighted less (Arora et al. 2017, equation 3): what no passage says
of a token, and the whole of a static model in model2vec (Tulkens and van Dongen 2024), which reads no text in the encoder.

Letters: N passages, V tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice

import numpy as np
import torch
from scipy.sparse import csr_array

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.data.encode import Encoded, encode
from warmstart.errors import DataError, ModelError
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.heads.settings import WindowSettings
from warmstart.interop.trim import trimmed
from warmstart.model.bundle import Bundle
from warmstart.model.history import OtherRecord
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.seeding import rng

PASSAGES = 4000
"""at most, drawn from all: the regression's matrix is N x N"""
PASSAGE_TOKENS = 64
TEXTS_AT_ONCE = 1000
PENALTY = 0.3
"""relative to the mean of the diagonal of X X'; 0.1 to 1 are as accurate on the development sets"""
RARE = 1e-3
"""a token of this frequency has half the weight of one that never occurs"""
TINY = 1e-12
MAX_LENGTH = 8192
"""tokens; nothing grows with it"""


@dataclass(frozen=True)
class Static:
    """Word vectors, and how near they are."""

    bundle: Bundle
    passages: int
    """from whose vectors they were learned"""
    cosine: float
    """mean cosine with the encoder's vector of a passage that is left out"""


def static(bundle: Bundle, texts: Iterable[str]) -> Static:
    """The word vectors of an encoder for these texts, with the pieces that occur in them.

    Raises ``ModelError`` for a model that does not give a text a vector, and ``DataError`` without texts.
    """
    head, tokenizer = bundle.model.head, bundle.tokenizer
    if not isinstance(head, EmbeddingHead):
        raise ModelError(
            f"--static needs an encoder, which gives each text a vector, but this model has a {head.config.kind} head; import an "
            "encoder, such as minilm, or leave --static out"
        )
    passages, counts = _passages(bundle, texts, appended=head.config.pooling == "appended")
    used = counts.nonzero()[0]
    wanted = _vectors(bundle.model, passages, tokenizer.specials.pad)
    opening, last = tokenizer.opening, passages[0][-1]
    alone = _vectors(bundle.model, [np.array([*opening, id_, last]) for id_ in used], tokenizer.specials.pad)
    prior = np.zeros((tokenizer.vocab_size, wanted.shape[1]))
    prior[used] = (alone - alone.mean(axis=0)) / (1 + counts[used] / counts.sum() / RARE)[:, None]
    vectors, cosine = fitted(passages, wanted, prior)
    config = BackboneConfig(width=wanted.shape[1], depth=0, heads=1, head_width=2, norm="post", max_length=MAX_LENGTH)
    backbone = Backbone(config, tokenizer.vocab_size)
    backbone.embedding.weight.data = torch.from_numpy(vectors).float()
    pooled = EmbeddingHeadConfig(normalize=head.config.normalize)
    model = Model(backbone, EmbeddingHead(pooled, config.width), causal=False).eval()
    record = OtherRecord(name="static", details={"passages": len(passages), "cosine": round(cosine, 4)})
    made = replace(bundle, model=model, history=(*bundle.history, record))
    return Static(trimmed(made, used.tolist()), len(passages), cosine)


def fitted(passages: Sequence[np.ndarray], wanted: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float]:
    """(V, D) the vectors of tokens whose means over ``passages``, of which each is its tokens' ids, are near ``wanted`` (N, D).

    ``prior`` (V, D) is scaled to fit. Also the mean cosine with ``wanted`` of the mean vector of a passage left out of the fit:
    for ridge regression that takes no second fit (Allen 1974).
    """
    lengths = np.array([len(row) for row in passages])
    entries = np.repeat(1 / lengths, lengths), np.concatenate(passages), np.append(0, lengths.cumsum())
    fractions = csr_array(entries, shape=(len(passages), len(prior)))  # (N, V)
    centre = wanted.mean(axis=0)
    expected = fractions @ prior  # (N, D)
    scale = (expected * (wanted - centre)).sum() / max((expected**2).sum(), TINY)
    rest = wanted - centre - scale * expected
    products = (fractions @ fractions.T).toarray()  # (N, N)
    inverse = np.linalg.inv(products + PENALTY * products.trace() / len(products) * np.eye(len(products)))
    weights = inverse @ rest
    without = wanted - weights / inverse.diagonal()[:, None]  # what the others say of each passage
    lengths_of_both = np.linalg.norm(without, axis=1) * np.linalg.norm(wanted, axis=1)
    cosine = (without * wanted).sum(axis=1) / np.maximum(lengths_of_both, TINY)
    return centre + scale * prior + fractions.T @ weights, float(cosine.mean())


def _passages(bundle: Bundle, texts: Iterable[str], *, appended: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Up to N rows of tokens, drawn from all texts, and how often the texts have each token (V,)."""
    stream, draw, counts = iter(texts), rng(0, "passages of a static model"), np.zeros(bundle.tokenizer.vocab_size)
    longest = min(PASSAGE_TOKENS, bundle.model.backbone.config.max_length)
    whole = WindowSettings(windows="mean", window_overlap=0.0)

    def drawn() -> Iterator[tuple[float, int, np.ndarray]]:
        while group := [*islice(stream, TEXTS_AT_ONCE)]:
            rows = encode(bundle.tokenizer, group, longest, appended=appended, windows=whole).rows
            counts[:] += np.bincount(np.concatenate(rows), minlength=len(counts))
            yield from zip(draw.random(len(rows)).tolist(), range(len(rows)), rows, strict=True)

    passages = [row for _, _, row in nsmallest(PASSAGES, drawn())]
    if not passages:
        raise DataError("--static needs text, from which the vectors are learned, but there is none; name a file that is not empty")
    return passages, counts


def _vectors(model: Model, rows: Sequence[np.ndarray], pad_id: int) -> np.ndarray:
    """(N, D) float64: an encoder's vectors of rows of tokens."""
    out = np.empty((len(rows), model.backbone.config.width))
    for indices, vectors in run_in_batches(model, Encoded(tuple(rows), np.zeros(len(rows), dtype=np.int64)), pad_id):
        out[indices] = vectors
    return out
