"""Neurons: the activations inside the feed-forward layers, what of a text they go with, and where they are strongest.

A neuron is one number of a block's inner layer, after the non-linearity and before the projection back into the residual sum; or,
with ``states``, one dimension of the residual sum itself. Over a corpus each is correlated with what can be told of every token.

With thousands of neurons some go with anything by chance, and tokens of one passage are no independent cases. So beside every best
correlation stands a floor: the best over all neurons when the property is turned round within each passage by chance.

Sources: Radford et al. 2017, "Learning to generate reviews"; Dalvi et al. 2019, "What is one grain of sand in the desert?".

Letters: N passages, B batch, T tokens, n tokens without the frame, F neurons of all layers, P properties, L depth, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.analysis.activations import states_of
from warmstart.analysis.correlation import Sums, shifted
from warmstart.analysis.properties import Told
from warmstart.backbone import Backbone
from warmstart.backbone.block import FeedForward
from warmstart.data.batch import Encoded
from warmstart.engine import read
from warmstart.errors import ModelError
from warmstart.model import Bundle, Model
from warmstart.seeding import rng
from warmstart.types import Batch

Of = Literal["neurons", "states"]


@dataclass(frozen=True)
class Neuron:
    """One neuron; a block's number counts from 1, and 0 is the embedding; places count from 1."""

    layer: int
    place: int

    def __str__(self) -> str:
        return f"{self.layer}.{self.place}"


@dataclass(frozen=True)
class Plan:
    """Which neurons a model has."""

    first: int
    """the number of the first layer"""
    layers: int
    width: int

    def neuron(self, column: int) -> Neuron:
        """The neuron of a column among all F."""
        return Neuron(self.first + column // self.width, column % self.width + 1)

    def column(self, name: str) -> int:
        """The column of a neuron by its name: ``"2.113"``. Raises ``ModelError`` where there is no such neuron."""
        layer, _, place = name.partition(".")
        if layer.isdecimal() and place.isdecimal():
            row, within = int(layer) - self.first, int(place) - 1
            if 0 <= row < self.layers and 0 <= within < self.width:
                return row * self.width + within
        last = self.first + self.layers - 1
        raise ModelError(
            f"a neuron is named LAYER.PLACE with layers {self.first} to {last} and places 1 to {self.width}, but '{name}' came"
        )


def plan_of(model: Model, of: Of) -> Plan:
    """Which neurons there are. Raises ``ModelError`` where a backbone has no blocks, and so none inside."""
    config = model.backbone.config
    if of == "states":
        return Plan(0, config.depth + 1, config.width)
    if not config.depth:
        raise ModelError("a backbone of depth 0 has no feed-forward layers; look at its states (--of states)")
    return Plan(1, config.depth, config.feedforward)


@contextmanager
def overheard(backbone: Backbone) -> Iterator[list[Tensor]]:
    """Within it, each reading fills the list anew with what the projections back are given: L of (B, T, feedforward)."""
    heard = list[Tensor]()
    parts = [part for part in backbone.modules() if isinstance(part, FeedForward)]

    def hook(_part: nn.Module, inputs: tuple[Any, ...]) -> None:
        heard.append(inputs[0])

    hooks = [part.out.register_forward_pre_hook(hook) for part in parts]
    hooks.append(backbone.register_forward_pre_hook(lambda *_: heard.clear()))
    try:
        yield heard
    finally:
        for one in hooks:
            one.remove()


Seen = Callable[[np.ndarray, list[np.ndarray]], None]
"""is handed the places of a batch's passages, and (n, F) float32 activations of each"""


def visit(bundle: Bundle, encoded: Encoded, of: Of, seen: Seen) -> None:
    """Hand over the activations of every passage, without the tokens that frame it, batch by batch."""
    plan_of(bundle.model, of)

    def asked(batch: Batch, places: np.ndarray) -> Tensor:
        states = states_of(bundle, batch)
        layers = heard if of == "neurons" else [*states.layers[:-1], states.last]
        values = torch.cat(list(layers), dim=-1).float().cpu().numpy()  # (B, T, F)
        seen(places, [values[row, 1 : len(encoded.rows[place]) - 1] for row, place in enumerate(places)])
        return torch.zeros(0)

    with overheard(bundle.model.backbone) as heard:
        read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=asked)


@dataclass(frozen=True)
class Correlated:
    """What F neurons have to do with P properties."""

    r: np.ndarray
    """(F, P) Pearson's"""
    floor: np.ndarray
    """(P,) the 95 % quantile, over shifts by chance, of the largest absolute r of any neuron; nan without shifts"""
    n: int
    """tokens"""

    def best(self) -> np.ndarray:
        """(P,) the column of the neuron with the largest absolute r."""
        return np.abs(self.r).argmax(axis=0)


def correlate(bundle: Bundle, told: Told, of: Of, shifts: int, seed: int) -> Correlated:
    """Every neuron with every property, in one reading; memory holds sums, F x P x (1 + shifts) numbers, and one batch."""
    plain, turned, count = Sums(), Sums(), len(told.names)

    def seen(places: np.ndarray, rows: list[np.ndarray]) -> None:
        filled = [(int(place), values) for place, values in zip(places, rows, strict=True) if len(values)]
        if not filled:
            return
        values = np.concatenate([values for _, values in filled])
        plain.add(values, np.concatenate([told.values[place] for place, _ in filled]))
        if shifts:
            turned.add(values, np.concatenate([shifted(told.values[i], rng(seed, "shifts", i), shifts) for i, _ in filled]))

    visit(bundle, told.encoded, of, seen)
    floor = np.full(count, np.nan)
    if shifts:
        floor = np.quantile(np.abs(turned.r()).max(axis=0).reshape(shifts, count), 0.95, axis=0)
    return Correlated(plain.r(), floor, plain.n)


def activations(bundle: Bundle, encoded: Encoded, of: Of, columns: Sequence[int]) -> list[np.ndarray]:
    """For each passage (n, len(columns)): the activations of some neurons."""
    kept, out = list(columns), [np.zeros((0, len(columns)), dtype=np.float32) for _ in encoded.rows]

    def seen(places: np.ndarray, rows: list[np.ndarray]) -> None:
        for place, values in zip(places, rows, strict=True):
            out[place] = values[:, kept]

    visit(bundle, encoded, of, seen)
    return out


def strongest(values: Sequence[np.ndarray], column: int, count: int) -> list[tuple[int, int, float]]:
    """The passages where a neuron is strongest, of either sign, each by its strongest token: (passage, token, activation)."""
    tops = [(place, int(np.abs(rows[:, column]).argmax())) for place, rows in enumerate(values) if len(rows)]
    found = [(place, token, float(values[place][token, column])) for place, token in tops]
    return sorted(found, key=lambda one: (-abs(one[2]), one[0]))[:count]
