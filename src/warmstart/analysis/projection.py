"""Many dimensions on a page: PCA and t-SNE, and how far each map can be trusted.

PCA (Pearson 1901) shows the two directions of most variance; t-SNE (van der Maaten and Hinton 2008) keeps near what is near and
says nothing of distances far apart. Trustworthiness (Venna and Kaski 2001) is 1 where neighbours on the map are neighbours indeed.

Letters: N points, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warmstart.seeding import derive, rng

NEIGHBOURS, PERPLEXITY = 12, 30
SHUFFLES = 20
FEWEST = 5
"""points of a map"""


@dataclass(frozen=True)
class Projection:
    """A map of N points."""

    method: str
    points: np.ndarray
    """(N, 2)"""
    trust: float
    """trustworthiness, 0 to 1"""
    shuffled: float
    """the highest of ``SHUFFLES`` maps whose points were shuffled: what chance gives"""
    explained: tuple[float, float] | None = None
    """share of the variance that each axis of a PCA shows"""


def project(vectors: np.ndarray, seed: int) -> tuple[Projection, Projection]:
    """Maps of the points (N, D), N at least ``FEWEST``, by PCA and by t-SNE; the same seed gives the same maps."""
    from sklearn.manifold import TSNE

    flat, explained = pca(vectors)
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    spread = TSNE(perplexity=perplexity, init="pca", random_state=derive(seed, "t-SNE") % 2**32).fit_transform(vectors)
    return (
        Projection("PCA", flat, *_trust(vectors, flat, seed), explained),
        Projection("t-SNE", spread, *_trust(vectors, spread, seed)),
    )


def pca(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """The points (N, D), N and D at least 2, on the two axes of most variance: (N, 2) and the share of each axis."""
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore", divide="ignore"):  # points that are all alike have no variance to share
        made = PCA(2, svd_solver="full").fit(vectors)
    first, second = np.nan_to_num(made.explained_variance_ratio_).tolist()
    return made.transform(vectors), (first, second)


def _trust(vectors: np.ndarray, points: np.ndarray, seed: int) -> tuple[float, float]:
    from sklearn.manifold import trustworthiness

    near, draw = min(NEIGHBOURS, (len(vectors) - 1) // 2), rng(seed, "shuffles")
    shuffled = [trustworthiness(vectors, draw.permutation(points), n_neighbors=near) for _ in range(SHUFFLES)]
    return float(trustworthiness(vectors, points, n_neighbors=near)), float(max(shuffled))
