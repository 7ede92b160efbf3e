"""Probes of several models on several tasks, and of the same architectures with random weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from warmstart.data.probing import ProbingTask
from warmstart.inspection.activations import with_random_weights
from warmstart.inspection.probe_scores import BAG, ProbedItems, ProbeScores, best_layer, scores_by_layer
from warmstart.inspection.probing import probe_layers, probe_splits
from warmstart.model.bundle import Bundle


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
    """linear probes of the same architecture with random weights, new ones for every fit; empty without them"""

    @property
    def items(self) -> ProbedItems:
        """The items of the task as this model reads them."""
        return self.linear[BAG].items

    @property
    def best(self) -> ProbeScores:
        """The linear probe of the layer that is best on validation."""
        return best_layer(self.linear)


def probe_models(
    bundles: Mapping[str, Bundle], tasks: Sequence[ProbingTask], seeds: Sequence[int], *, mlp: bool, random: bool
) -> Iterator[TaskProbes]:
    """Every model (by its name) on every task, one after the other.

    Random weights of one architecture and tokenizer are probed once per task, whichever models share them; every seed fits a new
    probe on newly drawn weights.
    """
    for task in tasks:
        by_architecture = dict[str, dict[str, ProbeScores]]()
        for name, bundle in bundles.items():
            architecture = f"{bundle.model.backbone.config} {bundle.model.causal} {bundle.tokenizer.digest}"
            if random and architecture not in by_architecture:
                by_architecture[architecture] = scores_by_layer([probe_random_weights(bundle, task, seed) for seed in seeds])
            splits = probe_splits(bundle, task)
            of_mlp = scores_by_layer([probe_layers(bundle, task, "mlp", seeds, splits=splits)]) if mlp else {}
            linear = scores_by_layer([probe_layers(bundle, task, "linear", seeds, with_compression=True, splits=splits)])
            yield TaskProbes(task, name, linear, of_mlp, by_architecture.get(architecture, {}))


def probe_random_weights(bundle: Bundle, task: ProbingTask, seed: int) -> list[ProbeScores]:
    """Linear probes of a model of the same architecture whose weights, like the fit, are drawn from the seed."""
    return probe_layers(with_random_weights(bundle, seed), task, "linear", [seed])
