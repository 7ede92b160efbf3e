"""The vectors of a pool's texts, which the learner reads: of a frozen model, or of latent semantic analysis of the pool itself.

Letters: N texts, D width.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from warmstart.app.learner import standardised_vectors
from warmstart.errors import ConfigError, DataError
from warmstart.system.storage import atomic_write, sha256

if TYPE_CHECKING:
    from warmstart.app.project import Project
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


class NameVectors:
    """Label id -> vector (D,) of what it means in words, for the labels that stand; standardised as those of the pool.

    The words are those of the project's task, else those of the name. What is new since the last call is computed.
    """

    def __init__(self, project: Project, loaded: Bundle | None = None) -> None:
        self._project, self._loaded = project, loaded
        self._said, self._known = _label_descriptions(project.task), dict[str, np.ndarray]()

    def __call__(self) -> dict[int, np.ndarray]:
        """As they are now; a label whose name has no letter is missing."""
        from warmstart.data.task import words_of_name

        words = {one.id: self._said.get(one.name) or words_of_name(one.name) for one in self._project.labels()}
        if new := [one for one in dict.fromkeys(words.values()) if one and one not in self._known]:
            about = (self._project.settings.vectors, self._project.folder, self._loaded)
            pool, found = (_kept_vectors(texts, *about) for texts in (self._project.texts, new))
            self._known |= zip(new, standardised_vectors(found, pool), strict=True)
        return {label: self._known[some] for label, some in words.items() if some}


def _label_descriptions(manifest: str) -> Mapping[str, str]:
    """Those of a task, if there is one that can be read."""
    from warmstart.tasks.load import read_spec

    try:
        return read_spec(manifest)[1].label_descriptions if manifest else {}
    except (ConfigError, DataError):
        return {}


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
