"""The loss of a batch: that of the task, and additions of schemes (a contrast of texts, the language model's loss).

Letters: B batch, T tokens, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.adapters.scalar_mix import last_hidden_state_without_mix
from warmstart.data.batches import similar_lengths
from warmstart.data.encode import collate
from warmstart.errors import ModelError
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.pooled import PooledHead
from warmstart.heads.registry import make_head
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.objectives.comparison import RowComparison
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.loss import language_loss
from warmstart.objectives.registry import OBJECTIVES
from warmstart.seeding import rng
from warmstart.types import Batch, Vocabulary

# Cross-entropy with class weights and label smoothing.

TaskLoss = Callable[[Tensor, Tensor], Tensor]


def task_loss(weights: Tensor | None, smoothing: float) -> TaskLoss:
    """Summed cross-entropy in nats of class indices (B,) under logits (B, C); each text counts by its class's weight (C,).

    ``smoothing`` of each target is spread over all classes (Szegedy et al. 2016, section 7).
    """

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), targets, weights, reduction="sum", label_smoothing=smoothing)

    return loss


def class_weights(labels: Sequence[int] | np.ndarray, classes: int) -> Tensor:
    """(C,): texts / (classes x texts of the class), as scikit-learn balances classes; the mean weight of a text is 1.

    ``class_weights([0, 0, 0, 1], 2)`` -> ``[0.667, 2.0]``. A class without texts has weight 0.
    """
    counts = np.bincount(labels, minlength=classes)
    return torch.tensor([len(labels) / (classes * count) if count else 0.0 for count in counts], dtype=torch.float32)


# The supervised contrastive loss over all texts of a step, beside the head's (Gunel et al. 2021, equations 1 and 3).
#
# Texts of one label are drawn together, and apart from all other texts of the step (``objectives/comparison.py``).


@dataclass(frozen=True)
class Contrast:
    """The part of the comparison of texts in the loss."""

    weight: float = 1.0
    """weight of the contrastive loss; the head's own loss has 1"""
    temperature: float = 0.1
    """divisor of cosines; a low one looks at the most similar texts of other labels"""


class ContrastiveLoss:
    """The loss of a batch: that of its logits, and ``weight`` times that of the comparison of its texts."""

    def __init__(self, model: Model, contrast: Contrast, label_loss: TaskLoss) -> None:
        assert isinstance(model.head, PooledHead)
        self.model, self.head, self.contrast, self.label_loss = model, model.head, contrast, label_loss
        self.comparison = RowComparison(contrast.temperature, self._vectors, _labels)

    def prepare(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches of a step, each with its part in the comparison of all texts (``RowComparison.prepare``)."""
        return self.comparison.prepare(batches)

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch's texts, a scalar; of a batch that is not prepared, they alone are compared."""
        self.comparison.begin(batch)
        vectors = self._vectors(batch)
        contrast = self.comparison.loss(batch, vectors)
        logits = self.model.head(vectors[:, None])  # pooling a single state gives that state
        return self.contrast.weight * contrast + self.label_loss(logits, _labels(batch))

    def _vectors(self, batch: Batch) -> Tensor:
        """(B, D): the pooled states of a batch's texts.

        On a CPU, and without dropout, those of similar length are read together: pairs of a class differ in length, and a third of
        their batch is padding.
        """
        whole = self.model.backbone.training or batch.windows is not None or batch.attention_mask is None
        if whole or batch.ids.device.type != "cpu":
            return self._pooled(batch)
        groups = [torch.from_numpy(group) for group in similar_lengths(batch.lengths.numpy())]
        return torch.cat([self._pooled(batch.rows(group)) for group in groups])[torch.cat(groups).argsort()]

    def _pooled(self, batch: Batch) -> Tensor:
        return self.head.pooled(self.model.backbone.forward_batch(batch).last_hidden_state, batch.attention_mask, batch.windows)


def _labels(batch: Batch) -> Tensor:
    assert batch.targets is not None
    return batch.targets


# The language-model loss beside the task's: ``L3 = L2 + weight * L1`` (Radford et al. 2018, equation 5).
#
# The texts of a batch are read a second time as in pretraining: under the bundle's own objective, with the pretrained language
# head. The head is kept during training and is no part of the adapted model.
#
# L1 is a sum over tokens, divided by a constant, the mean number of targets per text: so the weight means the same for long and
# short texts, and k batches of b still count exactly as one of k b.

SAMPLE = 500
"""texts whose targets are counted to estimate the mean"""


class LanguageBatch(Batch):
    """Texts as the pretraining objective reads them; ``count`` is 0: the loss of a step is divided by its labelled texts."""


@dataclass(frozen=True)
class LanguageTask:
    """A pretrained language head with the objective that trained it."""

    head: LMHead
    objective: ObjectiveConfig
    vocabulary: Vocabulary

    @classmethod
    def of(cls, bundle: Bundle) -> LanguageTask | None:
        """The task of a language model; None for a model with another head."""
        objective = bundle.objective
        if not isinstance(bundle.model.head, LMHead) or objective is None:
            return None
        row = OBJECTIVES[objective.name]
        if row.compares:  # no crops are compared beside a task: what remains is its only view
            (objective,) = row.held_out_configs(objective).values()
        return cls(bundle.model.head, objective, bundle.tokenizer.vocabulary())

    @classmethod
    def required(cls, bundle: Bundle) -> LanguageTask:
        """The objective; raises ``ModelError`` for a model without a language head."""
        return require_language_head(cls.of(bundle))

    def attach(self, model: Model) -> None:
        """Add the pretrained head to ``model`` as its submodule ``language``; tied to its embedding if it was tied."""
        head = make_head(self.head.config, model.backbone.config.width, model.backbone.embedding.weight)
        own = {name: tensor for name, tensor in self.head.state_dict().items() if name != "weight" or not self.head.config.tied}
        head.load_state_dict(own, strict=False)  # a tied weight is the embedding's
        model.add_module("language", head.to(model.backbone.embedding.weight.device))

    def view(self, *, causal: bool) -> ObjectiveConfig:
        """The objective's settings for a model of this direction: a hybrid objective has one view for each."""
        views = OBJECTIVES[self.objective.name].held_out_configs(self.objective)
        return views.get("causal" if causal else "masked", next(iter(views.values())))

    def batch(self, rows: Sequence[np.ndarray], draw: np.random.Generator, max_length: int, *, causal: bool) -> LanguageBatch:
        """The texts ``rows`` (token ids) as pretraining reads them."""
        config = self.view(causal=causal)
        objective = OBJECTIVES[config.name]
        cut = [row[: objective.stride(max_length, config)] for row in rows]
        lengths = np.array([len(row) for row in cut])
        ids = collate(cut, None, self.vocabulary.specials.pad, causal=causal).ids.numpy()
        # objectives get one token more than they read
        ids = np.pad(ids, ((0, 0), (0, 1)), constant_values=self.vocabulary.specials.pad)
        return LanguageBatch.of(objective.make(ids, lengths, draw, self.vocabulary, config), count=0)


def require_language_head(language: LanguageTask | None) -> LanguageTask:
    """The argument; raises ``ModelError`` if it is None."""
    if language is None:
        raise ModelError("lm-loss needs a pretrained language head, but this model has none; start from a language model")
    return language


def with_language_batches(
    batches: Callable[[int], list[Batch]], language: LanguageTask, model: Model, seed: int
) -> Callable[[int], list[Batch]]:
    """The batches, each followed by its texts as pretraining reads them; also a pure function of the step."""

    def both(step: int) -> list[Batch]:
        result = list[Batch]()
        for part, batch in enumerate(batches(step)):
            rows = [row[:length] for row, length in zip(batch.ids.numpy(), batch.lengths.tolist(), strict=True)]
            draw = rng(seed, "language", step, part)
            result += [batch, language.batch(rows, draw, model.backbone.config.max_length, causal=model.causal)]
        return result

    return both


def mean_targets(language: LanguageTask, rows: Sequence[np.ndarray], model: Model) -> float:
    """The mean number of targets per text under the objective, on the first texts."""
    batch = language.batch(rows[:SAMPLE], rng(0, "language", "mean"), model.backbone.config.max_length, causal=model.causal)
    assert batch.targets is not None
    return max(1.0, int((batch.targets >= 0).sum()) / len(rows[:SAMPLE]))


def language_batch_loss(model: Model, batch: Batch) -> Tensor:
    """The summed language-model loss of a batch in nats, a scalar, with the head that ``LanguageTask.attach`` added."""
    head = model.get_submodule("language")
    assert isinstance(head, LMHead)
    assert batch.targets is not None
    states = last_hidden_state_without_mix(model.backbone, model.backbone.forward_batch(batch))
    return language_loss(states, head.weight, head.bias, batch.targets, head.transform, batch.target_places)
