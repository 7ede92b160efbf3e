"""Correlations of many things with many others over a stream: sums only, so memory does not grow with the stream.

Letters: n rows, F things on one side (neurons), P on the other (properties), N passages, R draws.
"""

from __future__ import annotations

import numpy as np

from warmstart.seeding import rng

DRAWS = 1000


class Sums:
    """What Pearson's r of F x P pairs needs. Both sides count from the means of the first rows, so that no digits are lost."""

    def __init__(self) -> None:
        self.n = 0
        self._at: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, one: np.ndarray, other: np.ndarray) -> None:
        """Take in rows: (n, F) and (n, P)."""
        if self._at is None:
            self._at = one.mean(axis=0), other.mean(axis=0)
            sides = (one.shape[1], other.shape[1])
            self._sums, self._squares = ([np.zeros(side) for side in sides] for _ in range(2))
            self._products = np.zeros(sides)
        moved = [side - at for side, at in zip((one, other), self._at, strict=True)]
        for place, side in enumerate(moved):
            self._sums[place] += side.sum(axis=0, dtype=np.float64)
            self._squares[place] += (side * side).sum(axis=0, dtype=np.float64)
        self._products += moved[0].T @ moved[1]
        self.n += len(one)

    def r(self) -> np.ndarray:
        """(F, P) Pearson's correlations; 0 where one side never varies."""
        spread = [
            np.sqrt(np.maximum(squares - sums**2 / self.n, 0)) for sums, squares in zip(self._sums, self._squares, strict=True)
        ]
        over = self._products - np.outer(*self._sums) / self.n
        still = [side <= 1e-6 * np.sqrt(squares + 1e-30) for side, squares in zip(spread, self._squares, strict=True)]
        under = np.outer(*spread)
        found = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
        found[still[0]], found[:, still[1]] = 0, 0
        return np.clip(found, -1, 1)


def corrected(r: np.ndarray, n: int) -> np.ndarray:
    """The q of each correlation of n rows: p by the t-distribution, two-sided, corrected for their number.

    Source: Benjamini and Hochberg 1995. They take rows as independent, which tokens of one passage are not.
    """
    from scipy import stats

    with np.errstate(divide="ignore"):
        t = np.abs(r) * np.sqrt(max(n - 2, 1) / np.maximum(1 - r**2, 0))
    p = 2 * stats.t.sf(t, max(n - 2, 1))
    q: np.ndarray = stats.false_discovery_control(np.clip(p, 0, 1).ravel()).reshape(r.shape)
    return q


def shifted(values: np.ndarray, draw: np.random.Generator, shifts: int) -> np.ndarray:
    """A passage's properties (n, P) turned round by chance, all alike, ``shifts`` times: (n, shifts x P).

    What a passage holds stays, and neighbours stay neighbours; only where it stands is lost.
    """
    return np.concatenate([np.roll(values, int(by), axis=0) for by in draw.integers(len(values), size=shifts)], axis=1)


def interval(pairs: list[tuple[np.ndarray, np.ndarray]], seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of r over passages, each given as its two columns (n,)."""
    sums = np.array([[len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y] for x, y in pairs], dtype=np.float64)  # (N, 6)
    draws = rng(seed, "bootstrap").multinomial(len(sums), np.full(len(sums), 1 / len(sums)), DRAWS).astype(float)
    n, x, y, xx, yy, xy = (draws @ sums).T  # (R,) each
    spread = np.sqrt(np.maximum(n * xx - x**2, 0) * np.maximum(n * yy - y**2, 0))
    found = np.divide(n * xy - x * y, spread, out=np.zeros_like(spread), where=spread > 0)
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)
