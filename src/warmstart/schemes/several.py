"""Several tasks on one backbone: a head for each, batches that say whose they are, and what keeps old tasks from being forgotten.

Replay mixes a few stored texts of earlier tasks into every step. Elastic weight consolidation remembers no text: it pulls each
weight towards where it was, as strongly as the earlier tasks depend on it.

Letters: B batch, T tokens, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.backbone import Backbone
from warmstart.data.batch import Encoded
from warmstart.errors import ConfigError
from warmstart.heads import ClassifyHead
from warmstart.model import Model
from warmstart.objectives import class_loss
from warmstart.seeding import rng, seed_torch
from warmstart.types import Batch


@dataclass(frozen=True)
class TaskBatch(Batch):
    """Texts of one task."""

    task: int = 0
    """whose head reads them"""

    @classmethod
    def of(cls, batch: Batch, task: int) -> TaskBatch:
        """The same batch, with its owner."""
        return cls(**{field.name: getattr(batch, field.name) for field in fields(batch)}, task=task)


class Several(nn.Module):
    """One backbone under a head for each task."""

    def __init__(self, backbone: Backbone, heads: Sequence[ClassifyHead], *, causal: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleList(heads)
        self.causal = causal

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss in nats of a task's batch, under that task's head."""
        assert isinstance(batch, TaskBatch)
        assert batch.targets is not None
        states = self.backbone(batch.ids, mask=batch.mask, causal=self.causal, types=batch.types).last
        return class_loss(self.heads[batch.task](states, batch.mask), batch.targets)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        return self.state_dict(keep_vars=True)

    def alone(self, task: int) -> Model:
        """The backbone (the same object) under one task's head."""
        head = self.heads[task]
        assert isinstance(head, ClassifyHead)
        return Model(self.backbone, head, causal=self.causal)


def shares(sizes: Sequence[int], alpha: float) -> np.ndarray:
    """The share of batches that each task gets: proportional to ``size ** alpha``; 1 by size, 0.5 by its root, 0 all alike."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha must lie between 0 (all tasks alike) and 1 (by size), but is {alpha}")
    weights = np.array(sizes, dtype=float) ** alpha
    return weights / weights.sum()


def whose_turn(wanted: np.ndarray, steps: int, seed: int) -> list[int]:
    """The task of each of ``steps`` batches: exactly the wanted shares (largest remainder), in an order drawn from the seed.

    ``whose_turn([.75, .25], 4, 0)`` holds three 0s and one 1.
    """
    exact = wanted * steps
    counts = np.floor(exact).astype(int)
    for place in np.argsort(counts - exact, kind="stable")[: steps - counts.sum()]:
        counts[place] += 1
    turns = np.repeat(np.arange(len(wanted)), counts)
    return [int(task) for task in rng(seed, "turns").permutation(turns)]


@dataclass(frozen=True)
class Stored:
    """A few texts of an earlier task."""

    rows: Encoded
    labels: np.ndarray
    task: int

    def batch(self, size: int, pad_id: int, draw: np.random.Generator, *, causal: bool) -> TaskBatch:
        """So many of them, drawn without repeats as far as they go."""
        places = draw.permutation(len(self.labels))[:size]
        return TaskBatch.of(self.rows.batch(places, self.labels[places], pad_id, causal=causal), self.task)


def fisher(model: Several, task: int, rows: Encoded, pad_id: int, seed: int) -> dict[str, Tensor]:
    """The diagonal of the backbone's Fisher information for one task: the mean square of each weight's gradient, text by text.

    Labels are drawn from what the model itself says, as the definition has it; with the true labels it would be the "empirical"
    Fisher, which says other things (Kunstner et al. 2019).
    """
    seed_torch(seed, "fisher", task)
    model.eval()
    named = {name: p for name, p in model.backbone.named_parameters() if p.requires_grad}
    found = {name: torch.zeros_like(p) for name, p in named.items()}
    for place in range(len(rows)):
        batch = rows.batch(np.array([place]), None, pad_id, causal=model.causal).to(next(model.parameters()).device)
        states = model.backbone(batch.ids, mask=batch.mask, causal=model.causal, types=batch.types).last
        logits = model.heads[task](states, batch.mask)
        drawn = torch.multinomial(logits.detach().softmax(dim=-1), 1)[:, 0]
        grads = torch.autograd.grad(class_loss(logits, drawn), list(named.values()), allow_unused=True)
        for name, grad in zip(named, grads, strict=True):
            if grad is not None:
                found[name] += grad.detach().square() / len(rows)
    return found


@dataclass(frozen=True)
class Anchor:
    """Where the weights were when a task was finished, and how much it depends on each."""

    start: dict[str, Tensor]
    weight: dict[str, Tensor]

    @classmethod
    def at(cls, model: Several, weight: dict[str, Tensor]) -> Anchor:
        """Here and now."""
        return cls({name: p.detach().clone() for name, p in model.backbone.named_parameters() if name in weight}, weight)


def elastic(model: Several, anchors: Sequence[Anchor], strength: float) -> Callable[[], Tensor]:
    """The penalty ``strength / 2 * sum over tasks and weights of F (w - w*)^2`` (Kirkpatrick et al. 2017, equation 3)."""
    named = dict(model.backbone.named_parameters())

    def penalty() -> Tensor:
        parts = [
            (anchor.weight[name] * (named[name] - start).square()).sum()
            for anchor in anchors
            for name, start in anchor.start.items()
        ]
        return strength / 2 * torch.stack(parts).sum()

    return penalty
