"""A map of the words of a text: their vectors on the two axes of most variance, and the nearest other word of each.

A word's vector is that of the embedding, or the mean of its hidden states at a layer over its occurrences in the text, as in
``study map``. Vectors are scaled to length 1, so that points are near whose cosine is high; two axes hold only a part of the
variance, so the nearest word is found among the whole vectors.

Letters: W words, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warmstart.errors import DataError, ModelError
from warmstart.inspection.lexicon import Lexicon, lexicon_from_text, static_embeddings
from warmstart.inspection.neighbours import nearest_neighbours, random_pair_cosines, unit_vectors
from warmstart.inspection.occurrences import find_occurrences, mean_states
from warmstart.inspection.projection import project_pca
from warmstart.model.bundle import Bundle

MAPPED_WORDS = 200
"""words on a map: the most frequent ones of the text"""
_LEAST = 3
_OCCURRENCES = 10
"""of a word, over which its mean is taken"""


def word_map(bundle: Bundle, text: str, layer: int | None) -> dict[str, Any]:
    """The words of a text on a map; ``layer`` None: by the embedding, without context; else by the hidden states there.

    Raises ``ModelError`` for a layer that the model has not, and ``DataError`` for a text of too few words.
    """
    depth = bundle.model.backbone.config.depth
    if layer is not None and layer > depth:
        raise ModelError(f"layer must be at most {depth}, the model's number of blocks, but is {layer}")
    lexicon = lexicon_from_text(bundle.tokenizer, text.splitlines(), MAPPED_WORDS)
    words, vectors = _vectors(bundle, text, lexicon, layer)
    if len(words) < _LEAST:
        where = "" if layer is None else f" within the first {bundle.model.backbone.config.max_length} tokens of a line"
        raise DataError(
            f"a map needs at least {_LEAST} different words that the model can read, but the text has {len(words)}{where}; "
            "give more words, or shorter lines"
        )
    units = unit_vectors(vectors)
    points, explained = project_pca(units)
    nearest, cosines = nearest_neighbours(units, np.arange(len(words)), 1)
    return {
        "words": [
            {
                "word": lexicon.words[word], "count": lexicon.counts[word], "x": round(float(x), 4), "y": round(float(y), 4),
                "nearest": lexicon.words[words[other]], "cosine": round(float(cosine), 4),
            }
            for word, (x, y), other, cosine in zip(words, points, nearest[:, 0], cosines[:, 0], strict=True)
        ],
        "explained_variance": [round(one, 4) for one in explained],
        "random_pairs": round(float(random_pair_cosines(units, 0).mean()), 4),
    }  # fmt: skip


def _vectors(bundle: Bundle, text: str, lexicon: Lexicon, layer: int | None) -> tuple[list[int], np.ndarray]:
    """The words, as indices into the lexicon, and their vectors (W, D); in context only those that the model's context holds."""
    if not len(lexicon):
        return [], np.empty((0, bundle.model.backbone.config.width), dtype=np.float32)
    if layer is None:
        return list(range(len(lexicon))), static_embeddings(bundle, lexicon)
    limits = dict.fromkeys(range(len(lexicon)), _OCCURRENCES)
    occurrences = find_occurrences(bundle, text.splitlines(), lexicon, limits, seed=0)
    words = np.unique(occurrences.words)
    return words.tolist(), mean_states(bundle, occurrences, words, layer) if len(words) >= _LEAST else np.empty(0)
