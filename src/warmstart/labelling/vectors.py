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
    from warmstart.labelling.project import Project
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
    return standardised_vectors(_kept_vectors(texts, model, folder, loaded))


def name_vectors(
    meanings: Sequence[str], texts: Sequence[str], model: str, folder: Path, loaded: Bundle | None = None
) -> np.ndarray:
    """(C, D) vectors of what labels mean, in words, standardised as those of the pool's ``texts``."""
    from warmstart.interop.encoders import find_model
    from warmstart.model.files import load_bundle

    loaded = loaded or load_bundle(find_model(model))
    pool = _kept_vectors(texts, model, folder, loaded)
    return standardised_vectors(_frozen_vectors(meanings, loaded), pool)


def label_words(project: Project) -> dict[int, str]:
    """Label id -> what it means: as the project's task says, or the words of its name; empty for one without a letter."""
    from warmstart.data.task import words_of_name
    from warmstart.tasks.load import load_task

    task = load_task(project.task) if project.task and Path(project.task).is_file() else None
    said = dict(zip(task.labels, task.label_meanings, strict=True)) if task else {}
    return {one.id: said.get(one.name) or words_of_name(one.name) for one in project.labels()}


def _kept_vectors(texts: Sequence[str], model: str, folder: Path, loaded: Bundle | None) -> np.ndarray:
    from warmstart.interop.encoders import find_model
    from warmstart.model.files import load_bundle, model_digest

    digest = sha256(json.dumps([model_digest(model), *texts]).encode())[:16]
    file = folder / f"vectors-{digest}.npy"
    if file.is_file():
        return np.asarray(np.load(file, allow_pickle=False))
    vectors = _frozen_vectors(texts, loaded or load_bundle(find_model(model)))
    buffer = io.BytesIO()
    np.save(buffer, vectors, allow_pickle=False)
    atomic_write(file, buffer.getvalue())
    return vectors


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
