"""Probes: small classifiers that show what a layer's hidden states encode, and how much of that the classifier learns by itself.

A linear probe, or one with a hidden layer, reads one layer, a learned mix of all layers (Peters et al. 2018), or a bag of
embeddings without context. Two controls go with each of them. The labels of a control task (Hewitt and Liang 2019) are drawn at
random for every type of item, so only a probe that memorizes can know them. The length of the online code (Voita and Titov 2020,
section 2.2) is how many bits the labels take when a probe that has learned the portions before it codes each portion.

Linear probes are fitted to convergence by L-BFGS, one after the other: a code length must measure the layer, not the training of
the probe. Their loss of n items is the mean cross-entropy, plus ``|W|^2 / (2 C n)`` with scikit-learn's C, plus half a pseudo-item
of every class at the mean of the states, seen through the bias alone. A probe that finds nothing therefore predicts what Krichevsky
and Trofimov (1981) do, ``(n_c + 1/2) / (n + C/2)``, and a class that no item has keeps a finite code. C is chosen on validation.
L-BFGS runs in coordinates in which the loss is round at the origin: there its Hessian is ``(I - 1/C) x X'X / (n C) + I / (C n)``
for weights of 0, whose Cholesky factor changes the coordinates. It needs tens of steps where plain gradients need thousands. X of a
mix are the mixed states, so its coordinates are computed anew after every few steps, which saves a third to two thirds of them.

Probes with a hidden layer are trained side by side on the same batches.

Letters: N items, R representations (layers), P probes, B batch, D width, C classes, K hidden units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor, nn

from warmstart.seeding import rng, seed_torch
from warmstart.stats.coding import frequency_code_bits

PROBE_STRENGTHS = tuple(10.0**power for power in range(-4, 5))
"""scikit-learn's C, from the strongest penalty to the weakest"""
_MARGIN = 0.1
"""nats on validation, as a fraction of those of a uniform code, by which a fit must be worse than the best to end the path"""
_TOLERANCE = {"maxfun": 1000, "maxcor": 20, "ftol": 1e-5, "gtol": 1e-5}
_STEPS, _ROUNDS, _STEPS_OF_A_ROUND = 500, 40, 15
"""at most: for one layer; for a mix, between two changes of coordinates"""


@dataclass(frozen=True)
class LinearProbe:
    """The weights of one fitted probe."""

    mix: Tensor
    """(R,) logits of the weights of the representations"""
    weight: Tensor
    """(D, C)"""
    bias: Tensor
    """(C,)"""
    converged: bool = True
    """L-BFGS came to its end before it ran out of steps"""

    def logits(self, states: Tensor) -> Tensor:
        """(N, C) of states (R, N, D)."""
        return torch.tensordot(self.mix.softmax(dim=0), states, dims=1) @ self.weight + self.bias

    def losses(self, states: Tensor, labels: Tensor) -> Tensor:
        """(N,) cross-entropy in nats of labels (N,) given states (R, N, D)."""
        return torch.nn.functional.cross_entropy(self.logits(states), labels, reduction="none")


def fit_linear_probe(train: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor], classes: int) -> LinearProbe:
    """The probe whose penalty gives the lowest cross-entropy on validation; ``train`` is states (R, N, D) and labels (N,).

    From the strongest penalty to the weakest, every fit starts where the one before ended, with an equal mix. A path ends when
    validation is far worse than at its best, not when it is first worse: if large directions of the states are noise and small ones
    tell the label, validation becomes worse before it becomes better.
    """
    problem, margin = _Problem(*train, classes), _MARGIN * math.log(classes)
    point = np.zeros(problem.size)
    fitted = list[tuple[float, LinearProbe]]()
    for strength in PROBE_STRENGTHS:
        point, probe = problem.fit(point, strength)
        fitted.append((float(probe.losses(*validation).mean()), probe))
        if fitted[-1][0] > min(loss for loss, _ in fitted) + margin:
            break
    return min(fitted, key=lambda fit: fit[0])[1]


class _Problem:
    """The loss of one probe. A point is the bias (C,), the logits of the mix (R,) if R > 1, and the weights (C, D), flat.

    Logits and errors are (C, N): for few classes their products with the states take a fifth of the time that those of (N, C) do.
    """

    def __init__(self, states: Tensor, labels: Tensor, classes: int) -> None:
        self.mean = states.mean(dim=1)  # (R, D)
        self.states, self.labels, self.classes = states - self.mean[:, None], labels, classes
        self.layers, self.count, self.width = states.shape
        self.mixed, self.items = self.layers > 1, torch.arange(self.count)
        self.size = classes + self.layers * self.mixed + self.width * classes
        self.penalty = 0.0
        self.factor = torch.eye(self.width)  # (D, D)
        self.gram = self._gram(torch.full((self.layers,), 1 / self.layers, dtype=states.dtype))  # (D, D) of an equal mix

    def fit(self, point: np.ndarray, strength: float) -> tuple[np.ndarray, LinearProbe]:
        """The minimum for C = ``strength`` from the parameters ``point``, and its probe."""
        self.penalty, head = 1 / (strength * self.count), self.size - self.width * self.classes
        end, gram = point.copy(), self.gram
        end[self.classes : head] = 0  # under a strong penalty a mix tends to one layer, from which it would not come back
        for _ in range(_ROUNDS if self.mixed else 1):
            end, converged = self._descend(end, gram, _STEPS_OF_A_ROUND if self.mixed else _STEPS)
            bias, mix, weight = self._parameters(end)
            if converged:
                break
            gram = self._gram(mix.softmax(dim=0))
        return end, LinearProbe(mix, weight.T.contiguous(), bias - weight @ (mix.softmax(dim=0) @ self.mean), converged)

    def _descend(self, point: np.ndarray, gram: Tensor, steps: int) -> tuple[np.ndarray, bool]:
        """At most ``steps`` of L-BFGS from ``point``, in coordinates that make ``gram`` round: the end, and if it converged."""
        lower = torch.linalg.cholesky(gram + self.penalty * torch.eye(self.width))
        inverse = torch.linalg.solve_triangular(lower, torch.eye(self.width, dtype=lower.dtype), upper=False)
        self.factor = inverse.to(self.states.dtype)
        start, head = point.copy(), self.size - self.width * self.classes
        start[head:] = (torch.from_numpy(point[head:]).view(-1, self.width) @ lower).flatten()
        result = minimize(self.loss, start, jac=True, method="L-BFGS-B", options=_TOLERANCE | {"maxiter": steps})
        end = result.x
        end[head:] = (self._parameters(end)[2] @ self.factor).flatten()
        return end, result.nit < steps

    def loss(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss at ``point``, whose weights are in the coordinates of ``factor``, and its gradient."""
        bias, mix, weight = self._parameters(point)
        weight = weight @ self.factor
        shares = mix.softmax(dim=0)
        states = self._mixed_states(shares)
        logs = torch.addmm(bias[:, None], weight, states.T).log_softmax(dim=0)  # (C, N)
        alone = bias.log_softmax(dim=0)  # (C,)
        nats = -logs[self.labels, self.items].sum(dtype=torch.float64) - alone.sum() / 2
        errors = logs.exp_()
        errors[self.labels, self.items] -= 1
        errors /= self.count
        of_bias = errors.sum(dim=1) + (alone.exp() * self.classes - 1) / (2 * self.count)
        of_weight = (errors @ states + self.penalty * weight) @ self.factor.T
        gradients = [of_bias, of_weight.flatten()]
        if self.mixed:
            of_shares = self.states.flatten(1) @ (errors.T @ weight).flatten()  # (R,)
            gradients.insert(1, shares * (of_shares - shares @ of_shares))
        total = float(nats) / self.count + self.penalty / 2 * float(weight.square().sum())
        return total, torch.cat(gradients).double().numpy()

    def _gram(self, shares: Tensor) -> Tensor:
        """(D, D) float64, the Hessian of the cross-entropy at weights of 0 but for a factor near 1."""
        states = self._mixed_states(shares).double()
        return states.T @ states / (self.count * self.classes)

    def _mixed_states(self, shares: Tensor) -> Tensor:
        """(N, D) for the weights ``shares`` (R,) of the representations."""
        return torch.mv(self.states.flatten(1).T, shares).view(self.count, -1) if self.mixed else self.states[0]

    def _parameters(self, point: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        values = torch.from_numpy(point).to(self.states.dtype)
        layers = self.layers * self.mixed
        bias, mix, weight = values.split([self.classes, layers, self.width * self.classes])
        return bias, mix if self.mixed else torch.zeros(1, dtype=values.dtype), weight.view(-1, self.width)


_BATCH_SIZE, _EPOCHS = 64, 20
_MAX_STEPS, _MIN_STEPS = 2000, 300
_EVALUATIONS = 15
"""evaluations on validation during a fit"""
_LEARNING_RATE, _WEIGHT_DECAY = 3e-3, 1e-2
_PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""fractions of the training items after which the online code fits a new probe"""


@dataclass(frozen=True)
class ProbeData:
    """The hidden states of N items in every representation, and their labels."""

    states: Tensor
    """(R, N, D)"""
    labels: Tensor
    """(P, N) int64; -1 for an item without a label"""

    def take(self, indices: np.ndarray) -> ProbeData:
        """The items at ``indices`` (any,)."""
        return ProbeData(self.states[:, indices], self.labels[:, indices])


class Probes(nn.Module):
    """P classifiers side by side; each reads one of R representations, or a learned mix of several.

    ``inputs`` (P, R) is positive if a probe may read a representation.
    """

    def __init__(self, inputs: Tensor, width: int, classes: int, hidden: int | None) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.zeros(inputs.shape))
        self.allowed = torch.where(inputs > 0, 0.0, -math.inf)  # (P, R)
        sizes = [width, classes] if hidden is None else [width, hidden, classes]
        pairs = list(pairwise(sizes))
        self.weights = nn.ParameterList(torch.randn(len(inputs), i, o) * (0.01 if o == classes else i**-0.5) for i, o in pairs)
        self.biases = nn.ParameterList(torch.zeros(len(inputs), 1, o) for _, o in pairs)

    def forward(self, states: Tensor) -> Tensor:
        """Logits (P, B, C) of states (R, B, D)."""
        x = torch.einsum("pr,rbd->pbd", (self.mix + self.allowed).softmax(dim=-1), states)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, F.relu(x) if number else x, weight)
        return x


def probe_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """(P, N) cross-entropy in nats of labels (P, N) under logits (P, N, C); 0 for an item without a label."""
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-1, reduction="none")


def fit_probes(train: ProbeData, validation: ProbeData, inputs: Tensor, size: tuple[int, int | None], seed: int) -> Probes:
    """Fit P probes; ``size`` is (classes, hidden units or None). States should be standardized (``standardize``).

    ``inputs`` (P, R) is positive if a probe may read a representation. Linear probes are fitted to convergence, each with the
    penalty that is best on validation (``fit_linear_probe``), and do not depend on the seed. Probes with a hidden layer are trained
    by AdamW and keep the weights that were best on validation.
    """
    seed_torch(seed, "probes")
    probes = Probes(inputs, train.states.shape[-1], *size)
    if size[1] is None:
        _fit_linear(probes, train, validation)
    else:
        _fit_hidden(probes, train, validation, seed)
    return probes


@torch.no_grad()
def _fit_linear(probes: Probes, train: ProbeData, validation: ProbeData) -> None:
    for number, allowed in enumerate(probes.allowed == 0):
        parts = list[tuple[Tensor, Tensor]]()
        for data in (train, validation):
            labelled = data.labels[number] >= 0
            parts.append((data.states[allowed][:, labelled], data.labels[number, labelled]))
        if not len(parts[0][1]):
            probes.weights[0][number] = 0  # nothing to learn from: uniform
            continue
        fitted = fit_linear_probe(parts[0], parts[1], probes.biases[0].shape[-1])
        probes.mix[number, allowed] = fitted.mix
        probes.weights[0][number], probes.biases[0][number, 0] = fitted.weight, fitted.bias


def _fit_hidden(probes: Probes, train: ProbeData, validation: ProbeData, seed: int) -> None:
    optimizer = torch.optim.AdamW(probes.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    count, generator = train.states.shape[1], rng(seed, "probe batches")
    steps = max(_MIN_STEPS, min(_MAX_STEPS, _EPOCHS * count // _BATCH_SIZE))
    best_loss = torch.full(probes.mix.shape[:1], math.inf)
    best = [parameter.detach().clone() for parameter in probes.parameters()]
    order = np.empty(0, dtype=np.int64)
    for step in range(steps):
        if len(order) < _BATCH_SIZE:
            order = np.concatenate([order, generator.permutation(count)])
        batch, order = train.take(order[:_BATCH_SIZE]), order[_BATCH_SIZE:]
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        losses = probe_losses(probes(batch.states), batch.labels)
        (losses.sum(dim=1) / (batch.labels >= 0).sum(dim=1).clamp(min=1)).sum().backward()
        optimizer.step()
        if (step + 1) % max(1, steps // _EVALUATIONS) == 0:
            with torch.no_grad():
                loss = probe_losses(probes(validation.states), validation.labels).mean(dim=1)
                better = loss < best_loss
                best_loss = torch.where(better, loss, best_loss)
                for kept, parameter in zip(best, probes.parameters(), strict=True):
                    kept[better] = parameter[better]
    with torch.no_grad():
        for kept, parameter in zip(best, probes.parameters(), strict=True):
            parameter.copy_(kept)


def standardize(train: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
    """``train`` (R, N, D) and ``others`` (R, N, D), shifted and scaled as gives ``train`` mean 0 and variance 1 over its items.

    Returns them in this order, each (R, N, D) with its own N.
    """
    mean, deviation = train.mean(dim=1, keepdim=True), train.std(dim=1, keepdim=True).clamp(min=1e-5)
    return [(states - mean) / deviation for states in (train, *others)]


def control_labels(types: Sequence[Sequence[str]], labels: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Random labels for every split, (N,) each: one per type of item, as frequent as the labels of the first split.

    ``types`` holds for each split the type of every item (a word's form), ``labels`` (N,) each its labels.
    """
    first = labels[0][labels[0] >= 0]
    names = sorted({name for split in types for name in split})
    drawn = dict(zip(names, rng(seed, "control labels").choice(first, len(names)), strict=True))
    return [
        np.where(own >= 0, np.array([drawn[name] for name in split], dtype=np.int64), -1)
        for split, own in zip(types, labels, strict=True)
    ]


@torch.no_grad()
def correct_predictions(probes: Probes, data: ProbeData) -> np.ndarray:
    """(P, N) 1.0 if a probe predicts the label, 0.0 if not, nan for an item without a label."""
    predicted = probes(data.states).argmax(dim=-1)
    return np.where(data.labels >= 0, (predicted == data.labels).double().numpy(), np.nan)


def online_compression(train: ProbeData, validation: ProbeData, inputs: Tensor, classes: int, seed: int) -> np.ndarray:
    """(P,) how many times shorter the labels are in the online code than in a uniform code.

    Labels of unequal frequency become shorter by that alone: ``frequency_compression`` measures how much. The portions are drawn
    from the seed. The first is coded uniformly, with ``log2 C`` bits per label (equation 3 of the paper). ``inputs`` (P, R) is
    as in ``fit_probes``.
    """
    count = train.states.shape[1]
    order = rng(seed, "portions").permutation(count)
    ends = sorted({max(classes, round(fraction * count)) for fraction in _PORTIONS} | {count})
    uniform = (train.labels >= 0).sum(dim=1).double() * math.log2(classes)
    bits = (train.labels[:, order[: ends[0]]] >= 0).sum(dim=1).double() * math.log2(classes)
    for end, following in pairwise(ends):
        probes = fit_probes(train.take(order[:end]), validation, inputs, (classes, None), seed)
        with torch.no_grad():
            rest = train.take(order[end:following])
            bits += probe_losses(probes(rest.states), rest.labels).double().sum(dim=1) / math.log(2)
    return np.asarray(uniform / bits)


def frequency_compression(labels: Tensor, classes: int) -> float:
    """Compression of labels (N,) by their frequencies alone, against a uniform code (``frequency_code_bits``)."""
    counts = torch.bincount(labels[labels >= 0], minlength=classes).numpy()
    return float(counts.sum() * math.log2(classes) / frequency_code_bits(counts))
