"""Probes: what can be read from a layer's states by a small classifier, and how much of that is the classifier's own doing.

A linear probe, or one with a hidden layer, reads one layer, a learned mix of all (Peters et al. 2018), or a bag of embeddings that
knows no context. Beside each stand a control task (Hewitt and Liang 2019), whose labels are drawn at random for every kind of item,
so that only a probe that learns by heart can know them, and the length of the online code (Voita and Titov 2020, section 2.2):
how many bits the labels take when each portion is coded by a probe that has learned those before it.

All layers are probed in one go: their probes stand side by side and read the same batches.

Letters: N items, R readings (layers), P probes, B batch, D width, C classes, K hidden units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.seeding import rng, seed_torch

BATCH, STEPS, LEAST, LOOKS = 64, 2000, 300, 15
"""items of a batch; most and least steps of a fit; how often a fit looks at validation"""
EPOCHS = 20
RATE, DECAY = 3e-3, 1e-2
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""shares of the training items after which the online code's probe learns anew"""


@dataclass(frozen=True)
class Items:
    """The states of N items under every reading, and their labels."""

    states: Tensor
    """(R, N, D)"""
    labels: Tensor
    """(P, N) int64; -1 where a probe is not asked"""

    def take(self, places: np.ndarray) -> Items:
        """The items at ``places``."""
        return Items(self.states[:, places], self.labels[:, places])


class Probes(nn.Module):
    """P classifiers side by side, each reading its own place: one of R, or a learned mix of several."""

    def __init__(self, reads: Tensor, width: int, classes: int, hidden: int | None) -> None:
        super().__init__()
        self.learned = nn.Parameter(torch.zeros(reads.shape))
        self.allowed = torch.where(reads > 0, 0.0, -math.inf)  # (P, R)
        sizes = [width, classes] if hidden is None else [width, hidden, classes]
        pairs = list(pairwise(sizes))
        self.weights = nn.ParameterList(torch.randn(len(reads), i, o) * (0.01 if o == classes else i**-0.5) for i, o in pairs)
        self.biases = nn.ParameterList(torch.zeros(len(reads), 1, o) for _, o in pairs)

    def forward(self, states: Tensor) -> Tensor:
        """(R, B, D) -> (P, B, C)."""
        x = torch.einsum("pr,rbd->pbd", (self.learned + self.allowed).softmax(dim=-1), states)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, F.relu(x) if number else x, weight)
        return x


def losses(logits: Tensor, labels: Tensor) -> Tensor:
    """(P, N) nats of the labels, 0 where none is asked, given logits (P, N, C)."""
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-1, reduction="none")


def fit(train: Items, validation: Items, reads: Tensor, size: tuple[int, int | None], seed: int) -> Probes:
    """Fit P probes; each keeps the weights with which it did best on validation. ``size`` is (classes, hidden units or None).

    ``reads`` (P, R): 1 where a probe may read. States should have mean 0 and variance 1 (``levelled``).
    """
    seed_torch(seed, "probes")
    probes = Probes(reads, train.states.shape[-1], *size)
    optimizer = torch.optim.AdamW(probes.parameters(), lr=RATE, weight_decay=DECAY)
    count, draw = train.states.shape[1], rng(seed, "probe batches")
    steps = max(LEAST, min(STEPS, EPOCHS * count // BATCH))
    best = torch.full((len(reads),), math.inf)
    kept = [parameter.detach().clone() for parameter in probes.parameters()]
    order = np.empty(0, dtype=np.int64)
    for step in range(steps):
        if len(order) < BATCH:
            order = np.concatenate([order, draw.permutation(count)])
        chosen, order = train.take(order[:BATCH]), order[BATCH:]
        for group in optimizer.param_groups:
            group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        said = losses(probes(chosen.states), chosen.labels)
        (said.sum(dim=1) / (chosen.labels >= 0).sum(dim=1).clamp(min=1)).sum().backward()
        optimizer.step()
        if (step + 1) % max(1, steps // LOOKS) == 0:
            with torch.no_grad():
                found = losses(probes(validation.states), validation.labels).mean(dim=1)
                better = found < best
                best = torch.where(better, found, best)
                for keep, parameter in zip(kept, probes.parameters(), strict=True):
                    keep[better] = parameter[better]
    with torch.no_grad():
        for keep, parameter in zip(kept, probes.parameters(), strict=True):
            parameter.copy_(keep)
    return probes


def levelled(train: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
    """States (R, N, D) with mean 0 and variance 1 over the training items, and the others by the same measure."""
    mean, spread = train.mean(dim=1, keepdim=True), train.std(dim=1, keepdim=True).clamp(min=1e-5)
    return [(states - mean) / spread for states in (train, *others)]


def control_labels(kinds: Sequence[Sequence[str]], labels: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Random labels for every split: one for each kind of item, drawn as often as the labels of the first split are.

    ``kinds``: for each split the kind of every item (a word's form).
    """
    asked = labels[0][labels[0] >= 0]
    names = sorted({kind for part in kinds for kind in part})
    drawn = dict(zip(names, rng(seed, "control labels").choice(asked, len(names)), strict=True))
    return [
        np.where(own >= 0, np.array([drawn[kind] for kind in part], dtype=np.int64), -1)
        for part, own in zip(kinds, labels, strict=True)
    ]


@torch.no_grad()
def right(probes: Probes, items: Items) -> np.ndarray:
    """(P, N) 1.0 where a probe names the label, 0.0 where another, nan where none is asked."""
    said = probes(items.states).argmax(dim=-1)
    return np.where(items.labels >= 0, (said == items.labels).double().numpy(), np.nan)


def online_code(train: Items, validation: Items, reads: Tensor, classes: int, seed: int) -> np.ndarray:
    """(P,) how many times shorter the labels are in the online code than in a uniform one.

    Labels that are not equally frequent become shorter by that alone: ``frequency_code`` says how much.
    Portions are drawn from the seed. The first is coded uniformly, at ``log2 C`` bits a label (equation 3 of the paper).
    """
    count = train.states.shape[1]
    order = rng(seed, "portions").permutation(count)
    ends = sorted({max(classes, round(share * count)) for share in PORTIONS} | {count})
    asked = (train.labels >= 0).sum(dim=1).double() * math.log2(classes)
    bits = (train.labels[:, order[: ends[0]]] >= 0).sum(dim=1).double() * math.log2(classes)
    for end, following in pairwise(ends):
        probes = fit(train.take(order[:end]), validation, reads, (classes, None), seed)
        with torch.no_grad():
            rest = train.take(order[end:following])
            bits += losses(probes(rest.states), rest.labels).double().sum(dim=1) / math.log(2)
    return np.asarray(asked / bits)


def frequency_code(train: Tensor, validation: Tensor, classes: int, seed: int) -> float:
    """The same for labels (N,) whose states are all 0: what is gained by how frequent the labels are, with nothing to read."""
    blank = [Items(torch.zeros(1, len(labels), 1), labels[None]) for labels in (train, validation)]
    return float(online_code(blank[0], blank[1], torch.ones(1, 1), classes, seed)[0])


def clustered(values: np.ndarray, groups: np.ndarray, draws: int = 1000) -> tuple[float, float, float]:
    """The mean of N values and its 95 % interval, by resampling whole groups (sentences) of values.

    Words of one sentence are not independent; ``groups`` (N,) says which belong together.
    """
    _, places = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(places, values), np.bincount(places)
    weights = rng(len(counts), "clusters").multinomial(len(counts), np.full(len(counts), 1 / len(counts)), draws)
    found = weights @ sums / (weights @ counts)
    low, high = np.quantile(found, [0.025, 0.975])
    return float(values.mean()), float(low), float(high)
