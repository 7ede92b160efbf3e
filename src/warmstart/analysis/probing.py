"""Probing a model: every layer, a mix of all and a bag of embeddings, each with its control and its code.

Letters: N items, R readings, D width, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from warmstart.analysis.activations import layer_names, text_states, word_states, words_of
from warmstart.analysis.probe import Items, clustered, control_labels, fit, frequency_code, levelled, online_code, right
from warmstart.data.batch import encode
from warmstart.data.probing import Part, Probing
from warmstart.errors import DataError
from warmstart.model import Bundle

BAG, MIX = "bag of embeddings", "mix"
HIDDEN = 128
Form = Literal["linear", "mlp"]


@dataclass(frozen=True)
class Asked:
    """What of a task a model was asked, and what labels alone tell of it."""

    commonest: float
    """share of test items that have the commonest training label"""
    lost: int
    """words that did not fit and are not asked, or sentences of which the end did not fit"""
    whole: int
    """words or sentences of all splits, with those"""
    frequencies: tuple[float, ...] = ()
    """for each seed, how many times shorter the online code is by how frequent labels are, with nothing to read"""


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
    asked: Asked = Asked(math.nan, 0, 0)

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
        asked=replace(first.asked, frequencies=tuple(code for one in readings for code in one.asked.frequencies)),
    )


def joined(fits: Sequence[Sequence[Reading]]) -> dict[str, Reading]:
    """Readings by their place; those of several models (or of one) together."""
    return {same[0].layer: together(same) for same in zip(*fits, strict=True)}


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
    lost: int
    """words that did not fit, or sentences of which the end did not"""
    whole: int
    """words or sentences, with those"""


def splits_of(bundle: Bundle, task: Probing) -> list[Split]:
    """Training, validation and test of a task, as the model reads them. Raises ``DataError`` where too little is asked."""
    splits = [(_words if task.words else _sentences)(bundle, part) for part in (task.train, task.validation, task.test)]
    labels, sentences = len(np.unique(splits[0].labels)), len(np.unique(splits[2].groups))
    if labels < 2 or not len(splits[1].labels) or sentences < 2:
        raise DataError(
            f"'{task.name}' must ask for two labels in training, for something in validation and of two sentences in test, but "
            f"of what fits into {bundle.model.backbone.config.max_tokens} tokens it asks for {labels}, of "
            f"{len(splits[1].labels)} items and of {sentences}; give more sentences, or a model that reads longer ones"
        )
    return splits


def _sentences(bundle: Bundle, part: Part) -> Split:
    """A bag holds the very tokens that the layers' mean is over, those that frame the sentence too."""
    texts = [" ".join(text) for text in part.texts]
    encoded = encode(bundle.tokenizer, texts, bundle.model.backbone.config.max_tokens)
    table = bundle.model.backbone.embedding.weight.detach().cpu()
    bags = [table[torch.from_numpy(row)].mean(dim=0) for row in encoded.rows]
    states = _stacked(bags, torch.from_numpy(text_states(bundle, texts)))
    kinds = tuple(max(text, key=len, default="").lower() for text in part.texts)
    return Split(states, np.concatenate(part.targets), kinds, np.arange(len(texts)), int((encoded.cut > 0).sum()), len(texts))


def _words(bundle: Bundle, part: Part) -> Split:
    read = words_of(bundle, part.texts)
    table = bundle.model.backbone.embedding.weight.detach().cpu()
    bags, states, names = list[Tensor](), list[Tensor](), list[str]()
    groups, wanted = list[int](), list[int]()
    for number, (text, layers, targets) in enumerate(zip(read.texts, word_states(bundle, read), part.targets, strict=True)):
        asked = [place for place in range(len(text)) if targets[place] >= 0]
        owner, row = read.owners[number], read.encoded.rows[number]
        bags += [table[torch.from_numpy(row[owner == place])].mean(dim=0) for place in asked]
        states.append(torch.from_numpy(layers[asked]))
        names += [text[place].lower() for place in asked]
        groups += [number] * len(asked)
        wanted += [int(targets[place]) for place in asked]
    whole = sum(int((targets >= 0).sum()) for targets in part.targets)
    labels = np.array(wanted, dtype=np.int64)
    return Split(_stacked(bags, torch.cat(states)), labels, tuple(names), np.array(groups), whole - len(wanted), whole)


def _stacked(bags: Sequence[Tensor], layers: Tensor) -> Tensor:
    bag = torch.stack(list(bags)) if bags else layers[:, 0]
    return torch.cat([bag[:, None], layers], dim=1).transpose(0, 1).contiguous()  # (R, N, D)


def probe(bundle: Bundle, task: Probing, form: Form, seeds: Sequence[int], *, coded: bool = False) -> list[Reading]:
    """Every reading of a model for a task: the bag, the embedding, each block and the mix, in that order.

    ``coded`` takes the online code's length too, by linear probes.
    """
    splits = splits_of(bundle, task)
    train, validation, test = splits
    states = levelled(train.states, [validation.states, test.states])
    names = [BAG, *layer_names(bundle), MIX]
    count, classes = len(names), len(task.labels)
    one = torch.eye(count - 1)
    reads = torch.cat([one, torch.cat([torch.zeros(1), torch.ones(count - 2)])[None]])  # the mix reads all but the bag
    hidden = HIDDEN if form == "mlp" else None
    rights, codes, alone = list[np.ndarray](), list[np.ndarray](), list[float]()
    seen = 0.0
    for seed in seeds:
        drawn = control_labels([s.kinds for s in splits], [s.labels for s in splits], seed)
        parts = [
            Items(x, torch.from_numpy(np.concatenate([np.tile(s.labels, (count, 1)), np.tile(control, (count, 1))])))
            for x, s, control in zip(states, splits, drawn, strict=True)
        ]
        fitted = fit(parts[0], parts[1], reads.repeat(2, 1), (classes, hidden), seed)
        rights.append(right(fitted, parts[2]))
        seen = seen + right(fitted, parts[1])[:count].mean(axis=1) / len(seeds)
        if coded:
            own = [Items(part.states, part.labels[:count]) for part in parts[:2]]
            codes.append(online_code(own[0], own[1], reads, classes, seed))
            alone.append(frequency_code(own[0].labels[0], own[1].labels[0], classes, seed))
    commonest = float((test.labels == np.bincount(train.labels).argmax()).mean())
    asked = Asked(commonest, sum(s.lost for s in splits), sum(s.whole for s in splits), tuple(alone))
    found = np.stack(rights)  # (S, 2 P, N)
    return [
        Reading(
            name, found[:, place], found[:, count + place], test.groups, float(np.asarray(seen)[place]),
            tuple(float(code[place]) for code in codes), asked,
        )
        for place, name in enumerate(names)
    ]  # fmt: skip
