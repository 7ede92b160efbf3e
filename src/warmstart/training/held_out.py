"""Metrics of a language model on held-out text.

The loss per token depends on how the tokenizer splits words; the loss per word and per byte does not, so it compares between
tokenizers. Word-level perplexity is ``exp(nats of the whole text / its words)``: words are separated by white space, and each line
end counts as one, blank lines included, as WikiText counts its ``<eos>`` (``data.read.count_documents``). Bits per byte are
``nats / ln 2 / bytes``. Unknown tokens make a text look easier than it is, so their fraction is given too.

These metrics exist only if every token is predicted from those before it; if rows are documents, some of which are cut, the
fraction of tokens that were scored is given instead. A masked objective has its loss and perplexity per masked
token, which compare between models that mask the same fraction of the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.corpora.rows import PretrainingRows
from warmstart.heads.language_modeling import LMHead
from warmstart.model.inference import inference_weights
from warmstart.model.model import Model
from warmstart.objectives.loss import language_loss
from warmstart.objectives.registry import OBJECTIVES
from warmstart.seeding import rng
from warmstart.stats.ratios import ClusteredRatio
from warmstart.types import IGNORE, Batch

BATCH_TOKENS, BATCH_TOKENS_GPU = 2048, 16_384
"""tokens in a batch; a small batch stays in the CPU's cache"""


def held_out_metrics(model: Model, rows: PretrainingRows, limit: int | None = None) -> dict[str, Any]:
    """Metrics under every view of the objective, on the whole text or on its first ``limit`` tokens.

    The masks are drawn from a fixed seed, so that the metrics of one model at two times compare.
    """
    views = _views(rows)
    metrics: dict[str, Any] = {}
    for name, view in views.items():
        prefix = f"{name} " if len(views) > 1 else ""
        metrics |= {prefix + key: value for key, value in _metrics_of_view(model, view, limit).items()}
    return metrics


@torch.inference_mode()
def held_out_loss(model: Model, rows: PretrainingRows, limit: int | None = None) -> ClusteredRatio:
    """The loss per target in nats, the mean over the views of the objective, by document: a row counts for that in which it begins.

    N is the number of documents in which a row with a target begins. The same rows and masks are read every time, so that the
    losses of one model at two times are paired: subtract their ``sums``. With several views, the targets of each are weighted so
    that each view counts alike.
    """
    views, store = _views(rows).values(), rows.store
    (bounds,) = map(store.bounds, range(len(store.shards)))
    sums, counts = np.zeros((2, len(views), store.documents))
    with inference_weights(model):
        for number, view in enumerate(views):
            for indices, batch in _batches(model, view, limit):
                owners = indices if view.documents else np.searchsorted(bounds, indices * view.stride, side="right") - 1
                losses, targets = _row_losses(model, batch)
                np.add.at(sums[number], owners, losses)
                np.add.at(counts[number], owners, targets)
    weights = counts.sum() / len(views) / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # (views, 1)
    known = counts.sum(axis=0) > 0
    both = [(weights * part).sum(axis=0)[known] for part in (sums, counts)]
    return ClusteredRatio(both[0].sum() / both[1].sum(), *both)


def _row_losses(model: Model, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """(B,) the summed loss of each row in nats, and (B,) its number of targets."""
    head, targets = model.head, batch.targets
    assert isinstance(head, LMHead)
    assert targets is not None
    states = model.backbone.forward_batch(batch).last_hidden_state  # (B, T, D)
    parts = zip(states.split(1), targets.split(1), strict=True)
    losses = [float(language_loss(state, head.weight, head.bias, target, head.transform)) for state, target in parts]
    return np.array(losses), (targets != IGNORE).sum(dim=1).cpu().numpy()


def _views(rows: PretrainingRows) -> dict[str, PretrainingRows]:
    """The rows under each view of their objective."""
    views = OBJECTIVES[rows.objective.name].held_out_configs(rows.objective)
    return {name: replace(rows, objective=config) for name, config in views.items()}


def _batches(model: Model, rows: PretrainingRows, limit: int | None) -> Iterator[tuple[np.ndarray, Batch]]:
    """The numbers of the rows of each batch, and the batch, on the model's device; the masks are always the same."""
    count = len(rows) if rows.documents else rows.store.rows(rows.stride, ragged=True)
    if limit is not None:
        count = min(count, max(1, limit // rows.length))
    device = next(model.parameters()).device
    size = max(1, (BATCH_TOKENS if device.type == "cpu" else BATCH_TOKENS_GPU) // rows.length)
    for start in range(0, count, size):
        indices = np.arange(start, min(count, start + size))
        yield indices, rows.batch(indices, rng(0, "held out", start), ragged=True).to(device)


@torch.inference_mode()
def _metrics_of_view(model: Model, rows: PretrainingRows, limit: int | None) -> dict[str, float]:
    """The mean loss per target in nats, and what follows from it."""
    total, targets, has_likelihood = 0.0, 0, OBJECTIVES[rows.objective.name].plain_text
    with inference_weights(model):
        for _, batch in _batches(model, rows, limit):
            total += float(model.loss(batch))
            targets += batch.count
            has_likelihood = has_likelihood and batch.causal
    loss = total / max(1, targets)
    metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700))}
    if not has_likelihood:
        return metrics  # tokens are predicted from both sides, or behind sentinels: the text has no likelihood
    store = rows.store
    if rows.documents and targets < store.predicted_tokens:  # the ends of long documents were not read
        return metrics | {"scored_fraction": targets / store.predicted_tokens}
    per_word = loss * store.predicted_tokens / store.counts.words
    return metrics | {
        "word_perplexity": math.exp(min(per_word, 700)),
        "bits_per_byte": loss * store.predicted_tokens / store.counts.bytes / math.log(2),
        "unknown_fraction": store.counts.unknown / store.predicted_tokens,
    }


# ---------------------------------- Keeps the best weights of a run, and stops it when its evaluations no longer improve


class Restorable(Protocol):
    """A model whose weights can be copied and put back."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that may train, by name."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        ...

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True) -> object:
        """Put tensors back."""
        ...


class EarlyStopping:
    """Remembers the weights of the best evaluation, and says when to stop.

    Ties go to the later evaluation, whose weights have seen more. With ``keep="last"`` those of the last evaluation count, which
    ends the run, so that none are copied; nor is a parameter without gradient when the run begins, because it never trains.
    ``patience`` counts evaluations without improvement, from the progress ``patience_from`` on: until then, part of the model may
    still be frozen. A patience of 0 never stops a run.
    """

    def __init__(
        self, model: Restorable, keep: Literal["best", "last"] = "best", patience: int = 0, patience_from: float = 0.0
    ) -> None:
        self.model, self.keep, self.patience, self.patience_from = model, keep, patience, patience_from
        self.frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        self.kept_score, self.kept_weights = float("-inf"), dict[str, Tensor]()
        self.curve: list[tuple[int, float]] = []
        """(step, score) of every evaluation"""
        self.best_score, self.without_improvement = float("-inf"), 0

    def update(self, step: int, score: float) -> bool:
        """Take note of an evaluation of the present weights; returns whether they are to be kept."""
        self.curve.append((step, score))
        self.without_improvement = 0 if score > self.best_score else self.without_improvement + 1
        self.best_score = max(self.best_score, score)
        keeps = self.keep == "last" or score >= self.kept_score
        if keeps:
            self.kept_score = score
        if keeps and self.keep == "best":
            weights = self.model.weights().items()
            self.kept_weights = {name: tensor.detach().clone() for name, tensor in weights if name not in self.frozen}
        return keeps

    def should_stop(self, progress: float) -> bool:
        """Whether the last evaluations, as many as the patience allows, brought no improvement."""
        if progress < self.patience_from:
            self.without_improvement = 0
        return 0 < self.patience <= self.without_improvement

    def restore(self) -> None:
        """Put the kept weights back."""
        self.model.load_state_dict(self.kept_weights, strict=False)

    def state_tensors(self) -> dict[str, Tensor]:
        """The whole state, by name."""
        scores = torch.tensor([self.kept_score, self.best_score, self.without_improvement], dtype=torch.float64)
        curve = torch.tensor(self.curve, dtype=torch.float64).reshape(-1, 2)
        return {"scores": scores, "curve": curve} | {f"kept/{name}": tensor for name, tensor in self.kept_weights.items()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the state that ``state_tensors`` gave."""
        self.kept_score, self.best_score, without = tensors["scores"].tolist()
        self.without_improvement = int(without)
        self.curve = [(int(step), score) for step, score in tensors["curve"].tolist()]
        device = {name: tensor.device for name, tensor in self.model.weights().items()}
        kept = {name.removeprefix("kept/"): tensor for name, tensor in tensors.items() if name.startswith("kept/")}
        self.kept_weights = {name: tensor.to(device[name]) for name, tensor in kept.items()}
