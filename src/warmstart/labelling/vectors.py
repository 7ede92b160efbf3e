"""The vectors of a pool's texts, which the learner reads: of a frozen model, or of latent semantic analysis of the pool itself.

Letters: N texts, D width.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from warmstart.labelling.learner import standardised_vectors
from warmstart.system.storage import atomic_write, sha256

if TYPE_CHECKING:
    from warmstart.model.bundle import Bundle

_DIMENSIONS = 100
"""of latent semantic analysis, at most"""


def pool_vectors(texts: Sequence[str], model: str, folder: Path, loaded: Bundle | None = None) -> np.ndarray:
    """(N, D) standardised vectors; those of a model are kept in the folder, since a large one takes minutes.

    ``model`` is a bundle, which may be ``loaded`` already; empty: latent semantic analysis. Raises ``ModelError`` if it cannot be
    loaded.
    """
    if not model:
        return standardised_vectors(_latent_semantic_vectors(texts))
    from warmstart.interop.encoders import find_model
    from warmstart.model.files import load_bundle, model_digest

    digest = sha256(json.dumps([model_digest(model), *texts]).encode())[:16]
    file = folder / f"vectors-{digest}.npy"
    if file.is_file():
        return standardised_vectors(np.load(file, allow_pickle=False))
    vectors = _frozen_vectors(texts, loaded or load_bundle(find_model(model)))
    buffer = io.BytesIO()
    np.save(buffer, vectors, allow_pickle=False)
    atomic_write(file, buffer.getvalue())
    return standardised_vectors(vectors)


def _latent_semantic_vectors(texts: Sequence[str]) -> np.ndarray:
    from sklearn.decomposition import TruncatedSVD

    from warmstart.stack.rows import word_vectorizer

    try:
        words = word_vectorizer(word_pairs=False, weighted=True).fit_transform(texts)
    except ValueError:  # no text has a word
        return np.zeros((len(texts), 1))
    size = min(_DIMENSIONS, min(words.shape) - 1)
    if size < 1:
        return np.asarray(words.todense())
    return np.asarray(TruncatedSVD(size, random_state=0).fit_transform(words))


def _frozen_vectors(texts: Sequence[str], bundle: Bundle) -> np.ndarray:
    from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
    from warmstart.model.bundle import Bundle
    from warmstart.model.inference import embed
    from warmstart.model.model import swap_head

    if not isinstance(bundle.model.head, EmbeddingHead):
        bundle = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(pooling="mean"), 0).eval(), bundle.tokenizer)
    return embed(bundle, list(texts)).numpy()
