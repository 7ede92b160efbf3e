"""Attention by hand: keys and queries chosen so that the outcome has a closed form, which is then measured.

The constructions are those of Stanford CS224N's assignment 5, part 1. Attention here is ``softmax(K q)`` over n keys, without a
scale; ``measure_module`` sends the same keys and queries through the module that trains.

Letters: n keys, D width, N samples, beta the length of a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from warmstart.backbone.attention import Attention, AttentionMask, Synthesizer
from warmstart.backbone.config import BackboneConfig
from warmstart.backbone.positions import Rotary
from warmstart.seeding import rng, seed_torch
from warmstart.stats.goodness_of_fit import distance_from_normal

BETAS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)
"""lengths of the queries that copy or average"""
NOISE = math.sqrt(0.5)
"""standard deviation of the noisy key's length: its variance along its own direction is 1/2"""
CURVE_POINTS = 200
"""sorted samples that are drawn"""


@dataclass(frozen=True)
class Check:
    """A number with a closed form, and its measured value."""

    name: str
    closed_form: float
    measured: float

    @property
    def difference(self) -> float:
        """The absolute difference."""
        return abs(self.closed_form - self.measured)


@dataclass(frozen=True)
class Experiment:
    """The numbers of one experiment."""

    name: str
    checks: tuple[Check, ...]
    curves: dict[str, np.ndarray] = field(default_factory=dict)
    """line of the chart -> (points, 2) float: x and y"""
    figures: dict[str, float] = field(default_factory=dict)
    """further numbers, without a closed form"""

    @property
    def largest_difference(self) -> float:
        """Between a measured number and its closed form."""
        return max(check.difference for check in self.checks)


def run_experiments(seed: int = 0, keys: int = 8, width: int = 16, samples: int = 2000) -> list[Experiment]:
    """All experiments, each with its own constructions."""
    return [
        measure_copying(BETAS, keys, width, seed),
        measure_averaging(BETAS, keys, width, seed),
        measure_noisy_keys(10.0, keys, width, samples, seed),
        measure_projections(seed=seed),
        measure_module(seed=seed),
    ]


def softmax_weights(query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The weights (n,) of one query (D,) over keys (n, D): ``softmax(K q)``."""
    scores = keys @ query
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def orthonormal_vectors(count: int, width: int, seed: int) -> np.ndarray:
    """(count, width): orthonormal vectors, drawn from the seed."""
    basis, _ = np.linalg.qr(rng(seed, "directions").normal(size=(width, width)))
    return np.asarray(basis.T[:count])


def measure_copying(betas: Sequence[float], count: int = 8, width: int = 16, seed: int = 0) -> Experiment:
    """A query along one key copies its value: the weight is ``e^beta / (e^beta + n - 1)``."""
    return _by_beta("copying", betas, orthonormal_vectors(count, width, seed), (2,))


def measure_averaging(betas: Sequence[float], count: int = 8, width: int = 16, seed: int = 0) -> Experiment:
    """A query along two keys averages their values: each has the weight ``e^beta / (2 e^beta + n - 2)``."""
    return _by_beta("averaging", betas, orthonormal_vectors(count, width, seed), (1, 4))


def _by_beta(name: str, betas: Sequence[float], keys: np.ndarray, sought: tuple[int, ...]) -> Experiment:
    """The weight of the first of m ``sought`` keys among n (n, D): ``e^beta / (m e^beta + n - m)``."""
    query, m = keys[list(sought)].sum(axis=0), len(sought)
    closed = [math.exp(beta) / (m * math.exp(beta) + len(keys) - m) for beta in betas]
    measured = [float(softmax_weights(beta * query, keys)[sought[0]]) for beta in betas]
    checks = tuple(Check(f"beta {beta:g}", *values) for beta, *values in zip(betas, closed, measured, strict=True))
    curves = {"closed form": np.stack([betas, closed], axis=1), "measured": np.stack([betas, measured], axis=1)}
    return Experiment(name, checks, curves, {"beta": betas[-1], "weight": measured[-1]})


def measure_noisy_keys(beta: float = 10.0, count: int = 8, width: int = 16, samples: int = 2000, seed: int = 0) -> Experiment:
    """A key of varying length makes one head switch between two values; two heads average what each of them copies.

    The key of a is ``z`` times its direction, with z drawn from N(1, 1/2). One head: the weight of a among a and b is
    ``sigmoid(beta (z - 1))``, whose distribution is ``Phi(logit(w) / (beta sqrt(1/2)))``. Two heads: each copies one value, so
    a has half of the weight as long as its key does not change direction.
    """
    mu = orthonormal_vectors(count, width, seed)
    log_odds, first = np.empty(samples), np.empty(samples)
    for i, z in enumerate(rng(seed, "noise").normal(1.0, NOISE, samples)):
        keys = mu.copy()
        keys[0] *= z
        both = softmax_weights(beta * (mu[0] + mu[1]), keys)
        log_odds[i] = np.log(both[0]) - np.log(both[1])
        first[i] = softmax_weights(beta * mu[0], keys)[0]
    second = float(softmax_weights(beta * mu[1], mu)[1])
    one_head, two_heads = 1 / (1 + np.exp(-log_odds)), first / (first + second)
    (mean_1, deviation_1), (mean_2, deviation_2) = _noisy_moments(beta, count, second)
    distance = distance_from_normal(log_odds / (beta * NOISE))
    checks = (
        Check("one head: mean weight of a", mean_1, float(one_head.mean())),
        Check("one head: standard deviation", deviation_1, float(one_head.std())),
        Check("one head: distance from its distribution (Kolmogorov-Smirnov)", 0.0, distance),
        Check("two heads: mean weight of a", mean_2, float(two_heads.mean())),
        Check("two heads: standard deviation", deviation_2, float(two_heads.std())),
    )
    shown = np.linspace(0, samples - 1, min(samples, CURVE_POINTS)).astype(int)
    curves = {
        name: np.stack([(shown + 0.5) / samples, np.sort(values)[shown]], axis=1)
        for name, values in (("one head", one_head), ("two heads", two_heads))
    }
    figures = {
        "mean of one head": float(one_head.mean()),
        "deviation of one head": float(one_head.std()),
        "median of two heads": float(np.median(two_heads)),
        "steady": float(np.mean(np.abs(two_heads - 0.5) < 0.05)),
        "samples": samples,
    }
    return Experiment("noisy keys", checks, curves, figures)


def _noisy_moments(beta: float, count: int, second: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean and standard deviation of the weight of a, with one head and with two, by Gauss-Hermite quadrature over z.

    ``second`` is the weight that the second head gives to b.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(199)  # means over N(0, 1) as sums
    scores = np.exp(beta * (1 + NOISE * nodes))
    copied = scores / (scores + count - 1)
    switching, averaging = 1 / (1 + np.exp(-beta * NOISE * nodes)), copied / (copied + second)
    return _moments(switching, weights / weights.sum()), _moments(averaging, weights / weights.sum())


def _moments(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Weighted mean and standard deviation."""
    mean = float(weights @ values)
    return mean, math.sqrt(float(weights @ (values - mean) ** 2))


def measure_projections(beta: float = 3.0, width: int = 8, seed: int = 0) -> Experiment:
    """Inputs as keys, queries and values: ``x1 = d + b``, ``x2 = a``, ``x3 = c + b``, of orthogonal vectors of length beta.

    The second output copies its own input, and adding d or c to x2 cannot change that: a sum is closest to itself. Matrices can:
    ``V = (b b' - c c') / beta²``, ``K = 1``, ``Q = (d a' + c d') / beta²`` give ``y1 = b - c`` and ``y2 = b``. Each wanted weight
    is ``1 - 2 e`` with ``e = 1 / (e^(beta²) + 2)``; the rest bends y1 by ``e (2 c - b)`` and y2 by ``-e (b + c)``.
    """
    a, b, c, d = beta * orthonormal_vectors(4, width, seed)
    inputs = np.stack([d + b, a, c + b])
    rest = 1 / (math.exp(beta**2) + 2)
    plain = softmax_weights(inputs[1], inputs)
    own = softmax_weights(a + d, np.stack([d + b, a + d, c + b]))
    query = (np.outer(d, a) + np.outer(c, d)) / beta**2
    value = (np.outer(b, b) - np.outer(c, c)) / beta**2
    first, second = (softmax_weights(query @ inputs[i], inputs) for i in (0, 1))
    outputs = np.stack([first, second]) @ inputs @ value.T
    errors = [float(np.linalg.norm(y - wanted) / np.linalg.norm(wanted)) for y, wanted in zip(outputs, (b - c, b), strict=True)]
    closed_own = math.exp(2 * beta**2) / (math.exp(2 * beta**2) + math.exp(beta**2) + 1)
    checks = (
        Check("x2 = a: weight on itself", 1 - 2 * rest, float(plain[1])),
        Check("x2 = a + d: weight on itself", closed_own, float(own[1])),
        Check("with Q, K, V: weight of x1 on x3", 1 - 2 * rest, float(first[2])),
        Check("with Q, K, V: weight of x2 on x1", 1 - 2 * rest, float(second[0])),
        Check("with Q, K, V: relative error of y1 against b - c", rest * math.sqrt(2.5), errors[0]),
        Check("with Q, K, V: relative error of y2 against b", rest * math.sqrt(2), errors[1]),
    )
    return Experiment("no projections", checks)


def measure_module(beta: float = 3.0, width: int = 8, seed: int = 0) -> Experiment:
    """Experiments with ``backbone.attention``: copying, equivariance without positions, and a synthesizer's fixed weights."""
    keys = torch.from_numpy(orthonormal_vectors(width, width, seed)).float()
    seed_torch(seed, "lab")
    config = BackboneConfig(width=width, heads=1, depth=1, max_length=width, positions="rotary")
    module = Attention(config).eval()
    with torch.no_grad():
        copy = torch.cat([beta * math.sqrt(width) * torch.eye(width), torch.eye(width), torch.eye(width)])
        module.qkv.weight.copy_(copy)  # queries are inputs times beta; the module divides by sqrt(K)
        module.qkv.bias.zero_()
    mask = AttentionMask(False, width, torch.device("cpu"))
    order = torch.from_numpy(rng(seed, "order").permutation(width))
    rotary = Rotary(width, width)(torch.arange(width)[None])
    synthesizer = Synthesizer(config.model_copy(update={"attention": "synthesizer"})).eval()
    other = keys.clone()
    other[3] += other[0]  # one token changes, and becomes more like the first
    rest = [i for i in range(width) if i != 3]
    with torch.no_grad():
        out, weights = module(keys[None], mask, need_weights=True)
        shuffled, _ = module(keys[order][None], mask, need_weights=True)
        rotated, _ = module(keys[None], mask, rotary, need_weights=True)
        rotated_shuffled, _ = module(keys[order][None], mask, rotary, need_weights=True)
        fixed, fixed_after = (synthesizer(x[None], mask, need_weights=True)[1] for x in (keys, other))
        before, after = (module(x[None], mask, need_weights=True)[1] for x in (keys, other))
    checks = (
        Check(
            "copying: weight of each token on itself",
            math.exp(beta) / (math.exp(beta) + width - 1),
            float(weights[0, 0].diagonal().mean()),
        ),
        Check("no positions: difference to the outputs, shuffled alike", 0.0, _largest_gap(shuffled[0], out[0, order])),
        Check(
            "synthesizer: change of the other tokens' weights when one token changes",
            0.0,
            _largest_gap(fixed_after[0, 0, rest], fixed[0, 0, rest]),
        ),
    )
    figures = {
        "change by order": _largest_gap(rotated_shuffled[0], rotated[0, order]),
        "change by other tokens": _largest_gap(after[0, 0, rest], before[0, 0, rest]),
    }
    return Experiment("attention module", checks, figures=figures)


def _largest_gap(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().max())
