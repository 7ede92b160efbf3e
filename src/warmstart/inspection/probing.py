"""Probing a model: every layer, a mix of all layers and a bag of embeddings, each with its control task and its online code.

Letters: N items, R representations, D width, S fits (seeds).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from warmstart.data.encode import encode
from warmstart.data.probing import BAG, MIX, ProbingSplit, ProbingTask
from warmstart.errors import DataError
from warmstart.inspection.activations import encode_words, layer_names, text_states, with_random_weights, word_states
from warmstart.inspection.probes import (
    ProbeData,
    control_labels,
    correct_predictions,
    fit_probes,
    frequency_compression,
    online_compression,
    standardize,
)
from warmstart.model.bundle import Bundle
from warmstart.stats.intervals import Estimate
from warmstart.stats.multiple_testing import above_zero
from warmstart.stats.resampling import cluster_bootstrap
from warmstart.training.progress import counting


@dataclass(frozen=True)
class ProbedItems:
    """The items of a task as one model reads them, and what their labels give without any states."""

    majority: float
    """accuracy on the test items of always predicting the most frequent training label"""
    dropped: int
    """words that do not fit into the model, or sentences whose ends do not fit"""
    total: int
    """words or sentences of all splits, including these"""
    frequency_compression: float = math.nan
    """compression of the training labels by their frequencies alone"""


@dataclass(frozen=True)
class ProbeScores:
    """The scores of one type of probe on one representation."""

    layer: str
    """bag of embeddings, embedding, the number of a block, or mix"""
    correct: np.ndarray
    """(S, N) 1.0 for each test item that is predicted correctly, else 0.0"""
    control: np.ndarray
    """(S, N) the same for the control task"""
    sentences: np.ndarray
    """(N,) the sentence of each test item"""
    validations: tuple[float, ...]
    """(S,) accuracy on validation, by whose mean a layer may be chosen"""
    compression: tuple[float, ...] = ()
    """(S,) how many times shorter the labels are in the online code than in a uniform code"""
    items: ProbedItems = ProbedItems(math.nan, 0, 0)

    @property
    def accuracy(self) -> Estimate:
        """Accuracy on the test items, mean over fits, with its 95% interval over sentences."""
        return cluster_bootstrap(self.correct.mean(axis=0), self.sentences)

    @property
    def validation(self) -> float:
        """Accuracy on validation, mean over fits."""
        return float(np.mean(self.validations))

    @property
    def selectivity(self) -> float:
        """Accuracy less that on the control task (Hewitt and Liang 2019)."""
        return float(self.correct.mean() - self.control.mean())

    def difference(self, other: ProbeScores) -> Estimate:
        """Accuracy less that of ``other`` on the same items, with its 95% interval over sentences."""
        return cluster_bootstrap(self.correct.mean(axis=0) - other.correct.mean(axis=0), self.sentences)


def best_layer(scores: Mapping[str, ProbeScores]) -> ProbeScores:
    """The layer that is best on validation; the mix and the bag of embeddings are no layers."""
    return max((layer for layer in scores.values() if layer.layer not in (BAG, MIX)), key=lambda layer: layer.validation)


def pool_scores(scores: Sequence[ProbeScores]) -> ProbeScores:
    """The scores of the same layer of several models on the same items, as one; every fit counts alike."""
    first = scores[0]
    return replace(
        first,
        correct=np.concatenate([fit.correct for fit in scores]),
        control=np.concatenate([fit.control for fit in scores]),
        validations=tuple(value for fit in scores for value in fit.validations),
        compression=tuple(value for fit in scores for value in fit.compression),
    )


ProbeType = Literal["linear", "mlp"]
_HIDDEN_UNITS = 128


@dataclass(frozen=True)
class ProbeSplit:
    """One split of a task as a model represents it."""

    states: Tensor
    """(R, N, D): bag of embeddings, embedding, blocks"""
    labels: np.ndarray
    """(N,)"""
    types: tuple[str, ...]
    """(N,) the type of each item for the control task: a word's form, or the longest word of a sentence"""
    sentences: np.ndarray
    """(N,) the sentence of each item"""
    dropped: int
    """words that do not fit, or sentences whose ends do not fit"""
    total: int
    """words or sentences, including these"""


def probe_layers(
    bundle: Bundle,
    task: ProbingTask,
    probe_type: ProbeType,
    seeds: Sequence[int],
    *,
    with_compression: bool = False,
    splits: Sequence[ProbeSplit] | None = None,
) -> list[ProbeScores]:
    """The scores of every representation of a model on a task: the bag, the embedding, each block and the mix, in this order.

    Every seed draws new control labels, an order of the online code (measured ``with_compression``, by linear probes) and the
    initial weights of MLPs. Linear probes of the task itself are the same for every seed. ``splits`` are those of ``probe_splits``,
    for a caller that has them.
    """
    splits = splits or probe_splits(bundle, task)
    train, validation, test = splits
    states = standardize(train.states, [validation.states, test.states])
    names = [BAG, *layer_names(bundle), MIX]
    count, classes = len(names), len(task.labels)
    single = torch.eye(count - 1)
    inputs = torch.cat([single, torch.cat([torch.zeros(1), torch.ones(count - 2)])[None]])  # the mix reads all but the bag
    size = classes, _HIDDEN_UNITS if probe_type == "mlp" else None
    labels = [torch.from_numpy(split.labels).expand(count, -1) for split in splits]
    own, fitted = [ProbeData(x, y) for x, y in zip(states, labels, strict=True)], None
    correct, on_validation, compression = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for seed in seeds:
        drawn = control_labels([split.types for split in splits], [split.labels for split in splits], seed)
        control = [ProbeData(x, torch.from_numpy(y).expand(count, -1)) for x, y in zip(states, drawn, strict=True)]
        if fitted is None or probe_type == "mlp":  # linear probes of the same labels do not depend on the seed
            fitted = fit_probes(own[0], own[1], inputs, size, seed)
        of_control = fit_probes(control[0], control[1], inputs, size, seed)
        correct.append(np.concatenate([correct_predictions(fitted, own[2]), correct_predictions(of_control, control[2])]))
        on_validation.append(correct_predictions(fitted, own[1]).mean(axis=1))
        if with_compression:
            compression.append(online_compression(own[0], own[1], inputs, classes, seed))
    majority = float((test.labels == np.bincount(train.labels).argmax()).mean())
    dropped, total = sum(split.dropped for split in splits), sum(split.total for split in splits)
    items = ProbedItems(majority, dropped, total, frequency_compression(own[0].labels[0], classes))
    stacked, validations = np.stack(correct), np.stack(on_validation)  # (S, 2 R, N), (S, R)
    return [
        ProbeScores(
            name, stacked[:, i], stacked[:, count + i], test.sentences, tuple(validations[:, i].tolist()),
            tuple(float(values[i]) for values in compression), items,
        )
        for i, name in enumerate(names)
    ]  # fmt: skip


def probe_splits(bundle: Bundle, task: ProbingTask) -> list[ProbeSplit]:
    """Training, validation and test of a task, as the model represents them. Raises ``DataError`` if too little of it fits."""
    splits = [(_word_split if task.words else _sentence_split)(bundle, part) for part in (task.train, task.validation, task.test)]
    labels, sentences = len(np.unique(splits[0].labels)), len(np.unique(splits[2].sentences))
    if labels < 2 or not len(splits[1].labels) or sentences < 2:
        raise DataError(
            f"'{task.name}' must have two labels in training, an item in validation and two sentences in test, but of what fits "
            f"into {bundle.model.backbone.config.max_length} tokens there are {labels} labels, {len(splits[1].labels)} items and "
            f"{sentences} sentences; give more sentences, or a model with a larger context"
        )
    return splits


def _sentence_split(bundle: Bundle, part: ProbingSplit) -> ProbeSplit:
    """A bag holds exactly the tokens over which the layers are averaged, including those that frame the sentence."""
    texts = [" ".join(text) for text in part.texts]
    encoded = encode(bundle.tokenizer, texts, bundle.model.backbone.config.max_length)
    table = bundle.model.backbone.embedding.weight.detach().cpu()
    bags = [table[torch.from_numpy(row)].mean(dim=0) for row in encoded.rows]
    states = _with_bags(bags, torch.from_numpy(text_states(bundle, texts)))
    types = tuple(max(text, key=len, default="").lower() for text in part.texts)
    cut = int((encoded.cut > 0).sum())
    return ProbeSplit(states, np.concatenate(part.targets), types, np.arange(len(texts)), cut, len(texts))


def _word_split(bundle: Bundle, part: ProbingSplit) -> ProbeSplit:
    words = encode_words(bundle, part.texts)
    table = bundle.model.backbone.embedding.weight.detach().cpu()
    bags, states, types = list[Tensor](), list[Tensor](), list[str]()
    sentences, labels = list[int](), list[int]()
    for number, (text, layers, targets) in enumerate(zip(words.texts, word_states(bundle, words), part.targets, strict=True)):
        labelled = [i for i in range(len(text)) if targets[i] >= 0]
        word_ids, row = words.word_ids[number], words.encoded.rows[number]
        bags += [table[torch.from_numpy(row[word_ids == i])].mean(dim=0) for i in labelled]
        states.append(torch.from_numpy(layers[labelled]))
        types += [text[i].lower() for i in labelled]
        sentences += [number] * len(labelled)
        labels += [int(targets[i]) for i in labelled]
    total = sum(int((targets >= 0).sum()) for targets in part.targets)
    all_states = _with_bags(bags, torch.cat(states))
    return ProbeSplit(all_states, np.array(labels, dtype=np.int64), tuple(types), np.array(sentences), total - len(labels), total)


def _with_bags(bags: Sequence[Tensor], layers: Tensor) -> Tensor:
    """(R, N, D): the bags of N items before their layers (N, R - 1, D)."""
    bag = torch.stack(list(bags)) if bags else layers[:, 0]
    return torch.cat([bag[:, None], layers], dim=1).transpose(0, 1).contiguous()


@dataclass(frozen=True)
class TaskProbes:
    """The probes of one model on one task, by layer."""

    task: ProbingTask
    model: str
    """its name"""
    linear: dict[str, ProbeScores]
    mlp: dict[str, ProbeScores]
    """empty without MLP probes"""
    random: dict[str, ProbeScores]
    """linear probes of the same architecture with random weights, new ones for every fit"""

    @property
    def bag(self) -> ProbeScores:
        """The linear probe of the bag of embeddings."""
        return self.linear[BAG]

    @property
    def items(self) -> ProbedItems:
        """The items of the task as this model reads them."""
        return self.bag.items

    @property
    def best(self) -> ProbeScores:
        """The linear probe of the layer that is best on validation."""
        return best_layer(self.linear)

    @property
    def best_mlp(self) -> ProbeScores | None:
        """The MLP probe of the layer that is best on validation, if there are MLP probes."""
        return best_layer(self.mlp) if self.mlp else None

    @property
    def best_random(self) -> ProbeScores:
        """The linear probe of random weights whose layer is best on validation."""
        return best_layer(self.random)


def learned_by(probes: Sequence[TaskProbes]) -> dict[str, list[str]]:
    """Model -> the tasks that its best layer tells better than random weights.

    Significantly so over sentences, corrected for all tasks and models (Holm 1979).
    """
    learned = {probe.model: list[str]() for probe in probes}
    better = above_zero([probe.best.difference(probe.best_random) for probe in probes])
    for probe in (probe for probe, above in zip(probes, better, strict=True) if above):
        learned[probe.model].append(probe.task.name)
    return learned


def probe_models(
    bundles: Mapping[str, Bundle], tasks: Sequence[ProbingTask], seeds: Sequence[int], *, mlp: bool
) -> Iterator[TaskProbes]:
    """Every model (by its name) on every task, one after the other.

    Random weights of one architecture and tokenizer are probed once per task, whichever models share them; every seed fits a new
    probe on newly drawn weights.
    """
    shapes = {
        name: f"{bundle.model.backbone.config} {bundle.model.causal} {bundle.tokenizer.digest}" for name, bundle in bundles.items()
    }
    fits = len(seeds) * len(tasks) * (len({*shapes.values()}) + (1 + mlp) * len(bundles))
    with counting("probes", fits) as fitted:
        for task in tasks:
            drawn = dict[str, dict[str, ProbeScores]]()
            for name, bundle in bundles.items():
                if shapes[name] not in drawn:
                    drawn_fits = list[list[ProbeScores]]()
                    for seed in seeds:
                        drawn_fits.append(probe_layers(with_random_weights(bundle, seed), task, "linear", [seed]))
                        fitted(1)
                    drawn[shapes[name]] = {same[0].layer: pool_scores(same) for same in zip(*drawn_fits, strict=True)}
                splits, of_mlp = probe_splits(bundle, task), list[ProbeScores]()
                if mlp:
                    of_mlp = probe_layers(bundle, task, "mlp", seeds, splits=splits)
                    fitted(len(seeds))
                linear = probe_layers(bundle, task, "linear", seeds, with_compression=True, splits=splits)
                fitted(len(seeds))
                by_layer, mlp_by_layer = ({layer.layer: layer for layer in scores} for scores in (linear, of_mlp))
                yield TaskProbes(task, name, by_layer, mlp_by_layer, drawn[shapes[name]])
