"""Linear models on fewer rows than columns, learned in the span of the rows: same margins, same weights, a fraction of the time.

The weights of a linear model with a penalty on their squares are a combination of the rows X (N, D) from which it learned. So the
rows are turned once, X X' = U diag(s) U', and models learn from Z = U diag(s)^(1/2), of N columns at most:

    x W = z V for every row of X and its row z of Z, |W| = |V|,   where   W = X' U diag(s)^(-1/2) V

A fold is a choice of rows of Z; every strength and every class learns from the same Z (Hastie and Tibshirani 2004, "Efficient
quadratic regularization for expression arrays", Biostatistics 5).

Letters: N texts, D columns, R dimensions of the span, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from warmstart.model.readout import ConstantReadout, LinearReadout, PerLabelReadout

MOST_ROWS = 1000
"""number of rows above which turning takes longer than it saves"""
NEGLIGIBLE = 1e-10
"""an eigenvalue below this share of the largest is none: copies and empty texts add no dimension"""


@dataclass(frozen=True, eq=False)
class Span:
    """Rows in their own span."""

    rows: np.ndarray
    """(N, R)"""
    source: Any
    """(N, D) the rows as they were"""
    back: np.ndarray
    """(N, R) weights of the span -> how much of each row of ``source`` is in the weights of the columns"""

    def on_columns(self, readout: Any) -> Any:
        """A model of the span as one of the columns; a constant one is both."""
        if isinstance(readout, PerLabelReadout):
            return PerLabelReadout(tuple(self.on_columns(part) for part in readout.parts))
        assert isinstance(readout, LinearReadout | ConstantReadout), "a linear baseline learns linear models"
        if isinstance(readout, ConstantReadout):
            return readout
        return replace(readout, weights=self.source.T @ (self.back @ readout.weights))


def span_of(rows: Any) -> Span | None:
    """The span of (N, D) rows, sparse or dense; None where models learn as fast from the rows themselves."""
    from scipy.linalg import eigh

    if rows.shape[0] > min(MOST_ROWS, rows.shape[1] - 1):
        return None
    products = rows @ rows.T  # (N, N) = U S² Uᵀ; the rows are U S along R directions
    squares, directions = eigh(products if isinstance(products, np.ndarray) else products.toarray())
    kept = squares > NEGLIGIBLE * squares[-1]
    lengths = np.sqrt(squares[kept])
    return Span(directions[:, kept] * lengths, rows, directions[:, kept] / lengths)
