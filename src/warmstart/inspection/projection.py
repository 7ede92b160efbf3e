"""Points in many dimensions on the two axes of most variance: principal component analysis (Pearson 1901).

Letters: N points, D width.
"""

from __future__ import annotations

import numpy as np


def project_pca(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Points (N, D), N and D at least 2, on the two axes of most variance: (N, 2), and the explained variance of each axis."""
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore", divide="ignore"):  # equal points have no variance to explain
        pca = PCA(2, svd_solver="full").fit(vectors)
    first, second = np.nan_to_num(pca.explained_variance_ratio_).tolist()
    return pca.transform(vectors), (first, second)
