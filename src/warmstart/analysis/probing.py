"""Probing a model: every layer, a mix of all and a bag of embeddings, each with its control and its code.

Letters: N items, R readings, D width, S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from warmstart.analysis.activations import layer_names, text_states, word_states, words_of
from warmstart.analysis.probe import Items, clustered, control_labels, fit, levelled, online_code, right
from warmstart.data.probing import Part, Probing
from warmstart.model import Bundle

BAG, MIX = "bag of embeddings", "mix"
HIDDEN = 128
Form = Literal["linear", "mlp"]


@dataclass(frozen=True)
class Reading:
    """What one kind of probe reads from one place."""

    layer: str
    """bag of embeddings, embedding, the number of a block, or mix"""
    right: np.ndarray
    """(S, N) of the test items, 1.0 or 0.0"""
    control: np.ndarray
    """(S, N) the same of the control task"""
    groups: np.ndarray
    """(N,) the sentence of each item"""
    validation: float
    """share right on validation: by this a layer may be chosen"""
    compression: tuple[float, ...] = ()
    """for each seed, how many times shorter the online code is than a uniform one"""

    @property
    def share(self) -> tuple[float, float, float]:
        """Share of test items right with its 95 % interval, resampled by sentence."""
        return clustered(self.right.mean(axis=0), self.groups)

    @property
    def selectivity(self) -> float:
        """How much more is right than of the control task."""
        return float(self.right.mean() - self.control.mean())

    def above(self, other: Reading) -> tuple[float, float, float]:
        """By how much this one is better than another on the same items, with its 95 % interval."""
        return clustered(self.right.mean(axis=0) - other.right.mean(axis=0), self.groups)


def together(readings: Sequence[Reading]) -> Reading:
    """Readings of the same place by several models (of other seeds) as one: each model's fits count alike."""
    first = readings[0]
    return replace(
        first,
        right=np.concatenate([one.right for one in readings]),
        control=np.concatenate([one.control for one in readings]),
        validation=float(np.mean([one.validation for one in readings])),
        compression=tuple(code for one in readings for code in one.compression),
    )


@dataclass(frozen=True)
class Split:
    """One split as states (R, N, D): bag, embedding, blocks."""

    states: Tensor
    labels: np.ndarray
    """(N,)"""
    kinds: tuple[str, ...]
    """what a control task takes an item for: a word's form; of a sentence, its longest word"""
    groups: np.ndarray
    """(N,)"""


def splits_of(bundle: Bundle, task: Probing) -> list[Split]:
    """Training, validation and test of a task, as the model reads them."""
    return [_split(bundle, part, words=task.words) for part in (task.train, task.validation, task.test)]


def _split(bundle: Bundle, part: Part, *, words: bool) -> Split:
    read = words_of(bundle, part.texts)
    table = bundle.model.backbone.embedding.weight.detach().cpu()
    bags, states = list[Tensor](), list[Tensor]()
    if not words:
        for row in read.encoded.rows:
            bags.append(table[torch.from_numpy(row[1:-1] if len(row) > 2 else row)].mean(dim=0))
        found = torch.from_numpy(text_states(bundle, [" ".join(text) for text in part.texts]))  # (N, L + 1, D)
        labels = np.concatenate(part.targets)
        kinds = tuple(max(text, key=len, default="").lower() for text in part.texts)
        return Split(_stacked(bags, found), labels, kinds, np.arange(len(labels)))
    names, groups, wanted = list[str](), list[int](), list[int]()
    for number, (text, layers, targets) in enumerate(zip(read.texts, word_states(bundle, read), part.targets, strict=True)):
        asked = [place for place in range(len(text)) if targets[place] >= 0]
        owner, row = read.owners[number], read.encoded.rows[number]
        bags += [table[torch.from_numpy(row[owner == place])].mean(dim=0) for place in asked]
        states.append(torch.from_numpy(layers[asked]))
        names += [text[place].lower() for place in asked]
        groups += [number] * len(asked)
        wanted += [int(targets[place]) for place in asked]
    return Split(_stacked(bags, torch.cat(states)), np.array(wanted), tuple(names), np.array(groups))


def _stacked(bags: Sequence[Tensor], layers: Tensor) -> Tensor:
    return torch.cat([torch.stack(list(bags))[:, None], layers], dim=1).transpose(0, 1).contiguous()  # (R, N, D)


def probe(bundle: Bundle, task: Probing, form: Form, seeds: Sequence[int], *, coded: bool = False) -> list[Reading]:
    """Every reading of a model for a task: the bag, the embedding, each block and the mix, in that order.

    ``coded`` takes the online code's length too, by linear probes.
    """
    train, validation, test = splits_of(bundle, task)
    states = levelled(train.states, [validation.states, test.states])
    names = [BAG, *layer_names(bundle), MIX]
    count, classes = len(names), len(task.labels)
    one = torch.eye(count - 1)
    reads = torch.cat([one, torch.cat([torch.zeros(1), torch.ones(count - 2)])[None]])  # the mix reads all but the bag
    hidden = HIDDEN if form == "mlp" else None
    rights, codes = list[np.ndarray](), list[np.ndarray]()
    seen = 0.0
    for seed in seeds:
        drawn = control_labels([s.kinds for s in (train, validation, test)], [s.labels for s in (train, validation, test)], seed)
        parts = [
            Items(x, torch.from_numpy(np.concatenate([np.tile(s.labels, (count, 1)), np.tile(control, (count, 1))])))
            for x, s, control in zip(states, (train, validation, test), drawn, strict=True)
        ]
        fitted = fit(parts[0], parts[1], reads.repeat(2, 1), (classes, hidden), seed)
        rights.append(right(fitted, parts[2]))
        seen = seen + right(fitted, parts[1])[:count].mean(axis=1) / len(seeds)
        if coded:
            own = [Items(part.states, part.labels[:count]) for part in parts[:2]]
            codes.append(online_code(own[0], own[1], reads, classes, seed))
    found = np.stack(rights)  # (S, 2 P, N)
    return [
        Reading(
            name, found[:, place], found[:, count + place], test.groups, float(np.asarray(seen)[place]),
            tuple(float(code[place]) for code in codes),
        )
        for place, name in enumerate(names)
    ]  # fmt: skip
