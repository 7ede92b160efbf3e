"""What each layer of a model knows of a text's label: linear probes on the pooled states of every layer.

The probes are those of ``study probe``, fitted to convergence on the task's training texts. Some validation texts choose the
penalty, others tell how often a probe is right; a test split is never read. A task with few validation texts spares training texts
for both: if the model was adapted to these, its last layers know their labels, and the accuracy is too high.

Letters: N texts, M texts of a request, L blocks, D width, C classes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from warmstart.data.splits import strata, stratified_sample
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.heads.pooled import PooledHead, PooledHeadConfig
from warmstart.inspection.activations import layer_names, text_states
from warmstart.inspection.linear_probes import LinearProbe, fit_linear_probe
from warmstart.inspection.probes import scaling
from warmstart.model.bundle import Bundle
from warmstart.stats.proportions import wilson_interval

if TYPE_CHECKING:
    from warmstart.serve.served import ServedModel

MOST_PROBED_TEXTS = 2_000
"""training texts that probes are fitted on, and validation texts that they are judged by; of more a sample"""
_FEW = 20
"""validation texts, with fewer of which training texts are spared"""


class LayerProbes:
    """A probe for the embedding and each block of one model, for the labels of its task."""

    reading: str = "the texts that layer probes are fitted on are being read"

    def __init__(self, model: ServedModel) -> None:
        assert model.task is not None
        head = model.bundle.model.head
        assert isinstance(head, PooledHead)
        assert isinstance(head.config, PooledHeadConfig)
        self.bundle: Bundle = model.bundle
        self.pooling, self.labels = head.config.pooling, model.task.labels
        self.parts, self.held_out_of = parts_of(model.task)
        self.texts: Sequence[Any] = tuple(text for part in self.parts for text in part.texts)
        self.read, self.ready = 0, False
        depth, width = self.bundle.model.backbone.config.depth, self.bundle.model.backbone.config.width
        self.states = torch.empty(depth + 1, len(self.texts), width)
        """(L + 1, N, D), of which the first ``read`` texts are filled; empty once the probes are fitted"""
        self.probes = list[LinearProbe]()
        self.scales = list[tuple[torch.Tensor, torch.Tensor]]()
        self.right = list[float]()
        """the share of the held-out texts that the probe of each layer labels rightly"""

    def read_on(self, texts: Sequence[Any]) -> list[None]:
        """The states of the next texts; an answer for each."""
        self.states[:, self.read : self.read + len(texts)] = self._pooled(texts)
        self.read += len(texts)
        return [None] * len(texts)

    def finish(self, closed: threading.Event) -> None:
        """Fit the probes, a layer after the other."""
        labels = [torch.from_numpy(part.labels) for part in self.parts]
        sizes = [len(part) for part in self.parts]
        for layer in self.states.split(1):  # (1, N, D)
            if closed.is_set():
                return
            mean, deviation = scaling(layer[:, : sizes[0]])
            train, choosing, held_out = ((layer - mean) / deviation).split(sizes, dim=1)
            probe = fit_linear_probe((train, labels[0]), (choosing, labels[1]), len(self.labels))
            self.right.append(float((probe.logits(held_out).argmax(dim=1) == labels[2]).double().mean()))
            self.probes.append(probe)
            self.scales.append((mean, deviation))
        self.states, self.ready = torch.empty(0), True

    def read_labels(self, texts: Sequence[Any]) -> list[list[dict[str, Any]]]:
        """For each of M texts, by layer, the label that the probe finds most probable, with its probability."""
        states = self._pooled(texts)
        shares = [
            probe.logits((layer - mean) / deviation).softmax(dim=1)  # (M, C)
            for probe, layer, (mean, deviation) in zip(self.probes, states.split(1), self.scales, strict=True)
        ]
        return [
            [{"label": self.labels[int(one[i].argmax())], "probability": round(float(one[i].max()), 4)} for one in shares]
            for i in range(len(texts))
        ]

    def describe(self) -> dict[str, Any]:
        """The layers with held-out accuracies and 95% intervals, that of always saying one label, and the numbers of texts."""
        train, choosing, held_out = self.parts
        majority = int(np.bincount(train.labels, minlength=len(self.labels)).argmax())
        accuracies = [wilson_interval(right, len(held_out)) for right in self.right]
        return {
            "layers": [
                {"layer": name, "accuracy": found.value, "low": found.low, "high": found.high, "converged": probe.converged}
                for name, found, probe in zip(layer_names(self.bundle), accuracies, self.probes, strict=True)
            ],
            "majority": {"label": self.labels[majority], "accuracy": float((held_out.labels == majority).mean())},
            "train": len(train),
            "choosing": len(choosing),
            "held_out": len(held_out),
            "held_out_of": self.held_out_of,
        }

    def _pooled(self, texts: Sequence[Any]) -> torch.Tensor:
        """(L + 1, N, D)."""
        return torch.from_numpy(text_states(self.bundle, texts, self.pooling)).transpose(0, 1)


def parts_of(task: Task) -> tuple[tuple[Split, Split, Split], str]:
    """Texts to fit probes on, others to choose their penalty by, others to judge them by; and the split of the last two.

    Raises ``DataError`` if there are too few.
    """
    train, validation = (_sampled(split) for split in (task.train, task.validation))
    if len(validation) >= _FEW:
        choosing, held_out = validation.hold_out(0.5, 0)
        name = "validation"
    else:
        rest, held_out = train.hold_out(0.2, 0)
        train, choosing = rest.hold_out(0.25, 0)
        name = "training"
    if not (len(choosing) and len(held_out)) or len(np.unique(train.labels)) < 2:
        raise DataError(
            f"layer probes need two labels in training and further texts to be judged by, but '{task.name}' has {len(train)} "
            f"training texts with {len(np.unique(train.labels))} labels and {len(choosing) + len(held_out)} others; give more"
        )
    return (train, choosing, held_out), name


def _sampled(split: Split) -> Split:
    if len(split) <= MOST_PROBED_TEXTS:
        return split
    return split.take(stratified_sample(strata(split.labels), MOST_PROBED_TEXTS, 0))
