"""Right and wrong answers of several methods, drawn from a model with four kinds of chance."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

ACCURACY = 0.75
TEXT, METHOD_BY_TEXT, RESIDUAL = 1.0, 0.4, 0.5
"""standard deviations on the probit scale: the difficulty of a text, a method's affinity to it, and what each run does with it"""
SCALE = float(np.hypot(np.hypot(TEXT, METHOD_BY_TEXT), RESIDUAL))
_SLOPE = float(norm.pdf(norm.ppf(ACCURACY)) / SCALE)
"""accuracy gained per unit of skill"""


def seed_effects(chance: np.random.Generator, shape: tuple[int, ...], spread: float) -> np.ndarray:
    """What seeds add to the skill of a run; ``spread`` is its standard deviation in accuracy."""
    return chance.normal(0, spread / _SLOPE, shape)


def answers(chance: np.random.Generator, seeds: np.ndarray, texts: int, lead: float = 0.0) -> np.ndarray:
    """(..., M, S, N) bool: right or wrong answers of M methods, with seed effects (..., M, S), to N new texts.

    All methods have an accuracy of 75% over endless seeds and texts; the first has ``lead`` more.
    """
    skill = np.full(seeds.shape[-2], norm.ppf(ACCURACY) * SCALE)
    skill[0] = norm.ppf(ACCURACY + lead) * SCALE
    outer = seeds.shape[:-2]
    level = chance.normal(0, TEXT, (*outer, 1, texts)) + chance.normal(0, METHOD_BY_TEXT, (*outer, len(skill), texts))
    base = (level + skill[:, None]).astype(np.float32)[..., None, :] + seeds[..., None].astype(np.float32)
    return base + RESIDUAL * chance.standard_normal(base.shape, dtype=np.float32) > 0


def accuracies(chance: np.random.Generator, right: np.ndarray, draws: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy (..., M, S), and on resamples of the texts that all share (..., M, S, R)."""
    texts = right.shape[-1]
    weights = chance.multinomial(texts, np.full(texts, 1 / texts), draws).astype(np.float32) / texts
    return right.mean(axis=-1), right.astype(np.float32) @ weights.T


def accuracy(spread: float, lead: float = 0.0) -> float:
    """The accuracy over endless seeds and texts: the spread of seeds pulls it a little towards one half."""
    effects = seed_effects(np.random.default_rng(0), (400_000,), spread)
    return float(norm.cdf(norm.ppf(ACCURACY + lead) + effects / SCALE).mean())
