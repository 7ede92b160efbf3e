"""Attention by hand: keys and queries chosen so that what attention does can be written down, and then measured.

The constructions are those of Stanford CS224N's assignment 5, part 1. Each experiment gives its measured numbers beside the closed
form. Attention here is ``softmax(K q)`` over n keys, without a scale; ``through_the_module`` sends the same keys and queries
through the very module that trains.

Letters: n keys, d width, N samples, beta the length of a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from warmstart.backbone import BackboneConfig
from warmstart.backbone.attention import Attention, Sight, Synthesizer
from warmstart.backbone.positions import Rotary
from warmstart.seeding import rng, seed_torch

NOISE = math.sqrt(0.5)
"""standard deviation of the noisy key's length: its covariance is 1/2 along its own direction"""


@dataclass(frozen=True)
class Check:
    """One number that theory gives and attention was measured to give."""

    name: str
    closed: float
    measured: float

    @property
    def gap(self) -> float:
        """How far they are apart."""
        return abs(self.closed - self.measured)


@dataclass(frozen=True)
class Experiment:
    """One question, with its numbers."""

    name: str
    question: str
    finding: str
    checks: tuple[Check, ...]
    points: tuple[tuple[str, float, float], ...] = ()
    """what is drawn: (line, x, y)"""
    axes: tuple[str, str] = ("", "")


def attend(query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The weights (n,) of one query (d,) over keys (n, d): ``softmax(K q)``."""
    scores = keys @ query
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def directions(count: int, width: int, seed: int) -> np.ndarray:
    """(count, width): orthonormal directions, drawn from the seed."""
    basis, _ = np.linalg.qr(rng(seed, "directions").normal(size=(width, width)))
    return np.asarray(basis.T[:count])


def copying(betas: Sequence[float], count: int = 8, width: int = 16, seed: int = 0) -> Experiment:
    """A query along one key copies its value: the weight is ``e^beta / (e^beta + n - 1)``."""
    keys = directions(count, width, seed)
    checks = [
        Check(f"beta {beta:g}", math.exp(beta) / (math.exp(beta) + count - 1), float(attend(beta * keys[2], keys)[2]))
        for beta in betas
    ]
    finding = f"With beta {betas[-1]:g} the output is the value wanted, but for {1 - checks[-1].measured:.2g} of the weight."
    return Experiment(
        "copying", "Can one query pick one value out of many?", finding, tuple(checks), _drawn(betas, checks), ("beta", "weight")
    )


def averaging(betas: Sequence[float], count: int = 8, width: int = 16, seed: int = 0) -> Experiment:
    """A query along two keys averages their values: each has the weight ``e^beta / (2 e^beta + n - 2)``."""
    keys = directions(count, width, seed)
    checks = [
        Check(
            f"beta {beta:g}",
            math.exp(beta) / (2 * math.exp(beta) + count - 2),
            float(attend(beta * (keys[1] + keys[4]), keys)[1]),
        )
        for beta in betas
    ]
    finding = f"With beta {betas[-1]:g} both have weight {checks[-1].measured:.4f}: the output is their mean."
    return Experiment(
        "averaging", "Can one query average two values?", finding, tuple(checks), _drawn(betas, checks), ("beta", "weight of each")
    )


def noisy_keys(beta: float = 10.0, count: int = 8, width: int = 16, samples: int = 2000, seed: int = 0) -> Experiment:
    """A key of varying length makes one head swing between two values; two heads average what each copies.

    The key of a is ``z`` times its direction, z drawn from N(1, 1/2). One head: the share of a among a and b is
    ``sigmoid(beta (z - 1))``, whose distribution is ``Phi(logit(w) / (beta sqrt(1/2)))``. Two heads: each copies one value, so that
    a has half of all weight as long as its key points the right way.
    """
    mu = directions(count, width, seed)
    odds, first = np.empty(samples), np.empty(samples)
    for i, z in enumerate(rng(seed, "noise").normal(1.0, NOISE, samples)):
        keys = mu.copy()
        keys[0] *= z
        both = attend(beta * (mu[0] + mu[1]), keys)
        odds[i] = np.log(both[0]) - np.log(both[1])
        first[i] = attend(beta * mu[0], keys)[0]
    second = float(attend(beta * mu[1], mu)[1])
    one, two = 1 / (1 + np.exp(-odds)), first / (first + second)
    nodes, weights = np.polynomial.hermite_e.hermegauss(199)  # means over N(0, 1) as sums
    grown = np.exp(beta * (1 + NOISE * nodes))
    copied = grown / (grown + count - 1)
    swing, of_a = 1 / (1 + np.exp(-beta * NOISE * nodes)), copied / (copied + second)
    (mean, spread), (pair, pair_spread) = (_moments(values, weights / weights.sum()) for values in (swing, of_a))
    distance = float(stats.kstest(odds / (beta * NOISE), "norm").statistic)
    checks = (
        Check("one head: mean share of a", mean, float(one.mean())),
        Check("one head: standard deviation", spread, float(one.std())),
        Check("one head: distance from its distribution (Kolmogorov-Smirnov)", 0.0, distance),
        Check("two heads: mean share of a", pair, float(two.mean())),
        Check("two heads: standard deviation", pair_spread, float(two.std())),
    )
    shown = np.linspace(0, samples - 1, min(samples, 200)).astype(int)
    ordered = {"one head": np.sort(one), "two heads": np.sort(two)}
    points = [(name, (i + 0.5) / samples, float(values[i])) for name, values in ordered.items() for i in shown]
    steady = 100 * np.mean(np.abs(two - 0.5) < 0.05)
    finding = (
        f"One head answers a or b by chance (standard deviation {one.std():.2f} around {one.mean():.2f}); two heads stay at "
        f"{np.median(two):.2f} in {steady:.0f} % of the draws, and lose a only where its key turns round."
    )
    return Experiment(
        "noisy keys", "What does a key of varying length do to one head, and to two?", finding, checks, tuple(points),
        ("share of draws", "share of a"),
    )  # fmt: skip


def _moments(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of values with their weights."""
    mean = float(weights @ values)
    return mean, math.sqrt(float(weights @ (values - mean) ** 2))


def without_projections(beta: float = 3.0, width: int = 8, seed: int = 0) -> Experiment:
    """Inputs as keys, queries and values: ``x1 = d + b``, ``x2 = a``, ``x3 = c + b``, of orthogonal vectors of length beta.

    The second output copies its own input, and adding d or c to x2 cannot change that: a sum is closest to itself. With matrices
    it can: ``V = (b b' - c c') / beta²``, ``K = 1``, ``Q = (d a' + c d') / beta²`` give ``y1 = b - c`` and ``y2 = b``. Each weight
    wanted is ``1 - 2 e`` with ``e = 1 / (e^(beta²) + 2)``; what is left bends y1 by ``e (2 c - b)`` and y2 by ``-e (b + c)``.
    """
    a, b, c, d = beta * directions(4, width, seed)
    inputs = np.stack([d + b, a, c + b])
    rest = 1 / (math.exp(beta**2) + 2)
    plain = attend(inputs[1], inputs)
    own = attend(a + d, np.stack([d + b, a + d, c + b]))
    query = (np.outer(d, a) + np.outer(c, d)) / beta**2
    value = (np.outer(b, b) - np.outer(c, c)) / beta**2
    first, second = (attend(query @ inputs[i], inputs) for i in (0, 1))
    outputs = np.stack([first, second]) @ inputs @ value.T
    far = [float(np.linalg.norm(out - goal) / np.linalg.norm(goal)) for out, goal in zip(outputs, (b - c, b), strict=True)]
    closed_own = math.exp(2 * beta**2) / (math.exp(2 * beta**2) + math.exp(beta**2) + 1)
    checks = (
        Check("no projections: weight of x2 on itself", 1 - 2 * rest, float(plain[1])),
        Check("x2 = a + d: weight on itself", closed_own, float(own[1])),
        Check("with Q, K, V: weight of x1 on x3", 1 - 2 * rest, float(first[2])),
        Check("with Q, K, V: weight of x2 on x1", 1 - 2 * rest, float(second[0])),
        Check("with Q, K, V: y1 away from b - c (share of its length)", rest * math.sqrt(2.5), far[0]),
        Check("with Q, K, V: y2 away from b (share of its length)", rest * math.sqrt(2), far[1]),
    )
    finding = "Without projections a token sees itself; matrices of rank two make it see what is asked for."
    return Experiment("no projections", "What can self-attention do without queries, keys and values?", finding, checks)


def through_the_module(beta: float = 3.0, width: int = 8, seed: int = 0) -> Experiment:
    """The same through ``backbone.attention``: copying, no order without positions, and weights that do not look at the others."""
    keys = torch.from_numpy(directions(width, width, seed)).float()
    seed_torch(seed, "lab")
    config = BackboneConfig(width=width, heads=1, depth=1, max_tokens=width, positions="rotary")
    module = Attention(config).eval()
    with torch.no_grad():
        copy = torch.cat([beta * math.sqrt(width) * torch.eye(width), torch.eye(width), torch.eye(width)])
        module.qkv.weight.copy_(copy)  # queries are inputs times beta; the module divides by sqrt(K)
        module.qkv.bias.zero_()
    sight = Sight(False, width, torch.device("cpu"))
    order = torch.from_numpy(rng(seed, "order").permutation(width))
    turn = Rotary(width, width)(torch.arange(width)[None])
    synthesizer = Synthesizer(config.model_copy(update={"attention": "synthesizer"})).eval()
    other = keys.clone()
    other[3] += other[0]  # another token, which the first one finds more like itself
    rest = [i for i in range(width) if i != 3]
    with torch.no_grad():
        out, weights = module(keys[None], sight, None, None, True)
        shuffled, _ = module(keys[order][None], sight, None, None, True)
        turned, _ = module(keys[None], sight, turn, None, True)
        turned_shuffled, _ = module(keys[order][None], sight, turn, None, True)
        seen, changed = (synthesizer(x[None], sight, None, None, True)[1] for x in (keys, other))
        looked, moved = (module(x[None], sight, None, None, True)[1] for x in (keys, other))
    assert weights is not None
    assert seen is not None
    assert changed is not None
    assert looked is not None
    assert moved is not None
    closed = math.exp(beta) / (math.exp(beta) + width - 1)
    checks = (
        Check("copying: weight of each token on itself", closed, float(weights[0, 0].diagonal().mean())),
        Check("no positions: outputs of shuffled tokens are the outputs, shuffled", 0.0, _gap(shuffled[0], out[0, order])),
        Check("synthesizer: weights of the others when one token changes", 0.0, _gap(changed[0, 0, rest], seen[0, 0, rest])),
    )
    by_order, by_others = _gap(turned_shuffled[0], turned[0, order]), _gap(moved[0, 0, rest], looked[0, 0, rest])
    finding = (
        f"The module gives the closed form; with rotary positions order matters (outputs move by {by_order:.2f}), and dot-product "
        f"weights look at the others (they move by {by_others:.2f}), as a synthesizer's do not."
    )
    return Experiment("the real module", "Is it the same attention that trains?", finding, checks)


def run_lab(seed: int = 0, count: int = 8, width: int = 16, samples: int = 2000) -> list[Experiment]:
    """All experiments."""
    betas = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    return [
        copying(betas, count, width, seed),
        averaging(betas, count, width, seed),
        noisy_keys(10.0, count, width, samples, seed),
        without_projections(seed=seed),
        through_the_module(seed=seed),
    ]


def _drawn(betas: Sequence[float], checks: Sequence[Check]) -> tuple[tuple[str, float, float], ...]:
    pairs = list(zip(betas, checks, strict=True))
    lines = [("closed form", beta, check.closed) for beta, check in pairs]
    return (*lines, *(("measured", beta, check.measured) for beta, check in pairs))


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())
