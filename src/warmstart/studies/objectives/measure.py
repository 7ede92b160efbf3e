"""Models of several objectives, measured alike: held-out text, minimal pairs, attention and probes, over seeds.

Letters: S seeds (models of an objective), P pairs, L layers, H heads, M measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from warmstart.data.minimal_pairs import MinimalPair
from warmstart.data.probing import ProbingTask
from warmstart.inspection.activations import layer_names
from warmstart.inspection.attention import measure_attention
from warmstart.inspection.head_attention import MEASURES, RELATIONS
from warmstart.inspection.minimal_pairs import PairGroup, judge_pairs
from warmstart.inspection.probe_scores import ProbeScores, scores_by_layer
from warmstart.inspection.probing import probe_layers
from warmstart.inspection.sentence_scores import score_kind, score_sentences
from warmstart.model.bundle import Bundle
from warmstart.model.history import PretrainRecord
from warmstart.studies.probe.measure import TaskProbes, probe_random_weights

HEAD_THRESHOLD = 0.2
"""a head attends to something if it puts at least this much more weight there than uniform attention"""


@dataclass(frozen=True)
class EvaluationData:
    """What all models are evaluated on."""

    tasks: list[ProbingTask]
    pairs: list[MinimalPair]
    passages: list[str]


@dataclass(frozen=True)
class ModelMeasures:
    """What was measured of one model."""

    layers: list[str]
    held_out: dict[str, float]
    seconds: float
    tokens: int
    pairs: list[PairGroup]
    """empty if there are none, or if the model never learned to predict plain text"""
    normalized_entropy: float
    """of attention, 0 to 1, mean over heads"""
    heads: dict[str, float]
    """fraction of the heads that attend to each relation"""


@dataclass(frozen=True)
class ObjectiveMeasures:
    """All models of one objective."""

    name: str
    models: Sequence[ModelMeasures]
    """(S,) one per seed"""
    probes: list[TaskProbes]
    """one per task, with the fits of all seeds"""

    def mean_pairs(self) -> list[PairGroup]:
        """The groups of pairs, each pair's verdict being the mean over seeds."""
        groups = zip(*(model.pairs for model in self.models), strict=True)
        return [replace(same[0], right=np.mean([group.right for group in same], axis=0)) for same in groups]


def measure_objective(name: str, bundles: Iterable[tuple[int, Bundle]], data: EvaluationData) -> ObjectiveMeasures:
    """Measure the models of one objective, given one after the other with their seeds."""
    models = list[ModelMeasures]()
    linear, random = ({task.name: list[list[ProbeScores]]() for task in data.tasks} for _ in range(2))
    for seed, bundle in bundles:
        models.append(measure_model(bundle, data.pairs, data.passages))
        for task in data.tasks:
            linear[task.name].append(probe_layers(bundle, task, "linear", [seed]))
            random[task.name].append(probe_random_weights(bundle, task, seed))
    probes = [
        TaskProbes(task, name, scores_by_layer(linear[task.name]), {}, scores_by_layer(random[task.name])) for task in data.tasks
    ]
    return ObjectiveMeasures(name, models, probes)


def measure_model(bundle: Bundle, pairs: Sequence[MinimalPair], passages: Sequence[str]) -> ModelMeasures:
    """Measure a model that was just pretrained."""
    record = bundle.history[-1]
    assert isinstance(record, PretrainRecord)
    assert record.seconds is not None
    assert record.tokens is not None
    sentences = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    groups = judge_pairs(pairs, score_sentences(bundle, sentences).log_probabilities) if pairs and score_kind(bundle) else []
    attention = measure_attention(bundle, passages)
    difference = np.nan_to_num(attention.difference)  # (L, H, M)
    heads = {name: float((difference[:, :, MEASURES.index(name)] >= HEAD_THRESHOLD).mean()) for name in RELATIONS}
    entropy = float(np.nanmean(attention.means[:, :, MEASURES.index("normalized entropy")]))
    return ModelMeasures(layer_names(bundle), record.held_out, record.seconds, record.tokens, groups, entropy, heads)
