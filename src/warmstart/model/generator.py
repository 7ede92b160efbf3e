"""A model that detects replaced tokens, with the generator that replaces them (ELECTRA: Clark et al. 2020, sections 2 and 3.2).

The generator is a small model of its own, which shares the token embedding: a layer in front of its blocks narrows it, one behind
them widens the states again. Both are trained together, each by its own loss: sampling has no gradient, so detection teaches the
generator nothing but the shared embedding. The generator is kept in checkpoints, never in a bundle.

Letters: B batch, T tokens, N masked tokens, D width of the model, E width of the generator, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.heads import make_head
from warmstart.heads.head import HeadConfig
from warmstart.heads.language_modeling import LMHead, LMHeadConfig
from warmstart.heads.per_token import DetectionHead, DetectionHeadConfig
from warmstart.model.model import Model, different_tensors
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.detect import replaced_batch, sample_replacements
from warmstart.objectives.loss import language_loss
from warmstart.seeding import seed_torch
from warmstart.system.products import Linear
from warmstart.types import IGNORE, Batch


class ProjectedEmbedding(nn.Module):
    """The embedding of a wider model, narrowed to E."""

    def __init__(self, embedding: nn.Embedding, width: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.projection = Linear(embedding.embedding_dim, width)
        nn.init.normal_(self.projection.weight, std=embedding.embedding_dim**-0.5)  # keeps the size of the states
        nn.init.zeros_(self.projection.bias)

    def forward(self, ids: Tensor) -> Tensor:
        """``ids`` (B, T) -> (B, T, E)."""
        projected: Tensor = self.projection(self.embedding(ids))
        return projected


def generator_config(config: BackboneConfig, size: float) -> BackboneConfig:
    """The settings of a generator: ``size`` of the heads, at least one, and as much of all widths; the rest as in ``config``.

    A quarter of width 256, 4 heads and feed-forward width 1024 is width 64, 1 head and feed-forward width 256.
    """
    heads = max(1, round(config.heads * size))
    changes: dict[str, Any] = {"heads": heads} | {
        name: max(1, getattr(config, name) * heads // config.heads) for name in ("width", "feedforward")
    }
    if config.kv_heads is not None:
        changes["kv_heads"] = math.gcd(heads, max(1, config.kv_heads * heads // config.heads))
    return config.model_copy(update=changes)


def make_generator(model: Model, objective: ObjectiveConfig, seed: int) -> Model:
    """A new generator for ``model``, with its token embedding (the same parameter, not a copy)."""
    seed_torch(seed, "generator")
    shared = model.backbone.embedding
    config = generator_config(model.backbone.config, objective.generator_size)
    backbone = Backbone(config, model.backbone.vocab_size)
    backbone.add_module("embedding", shared if config.width == shared.embedding_dim else ProjectedEmbedding(shared, config.width))
    head = make_head(LMHeadConfig(bias=True, transform=True), config.width, shared.weight)
    return Model(backbone, head, causal=False)


class WithGenerator(nn.Module):
    """A model and its generator in training: what the training loop trains and keeps in checkpoints."""

    def __init__(self, model: Model, objective: ObjectiveConfig, seed: int) -> None:
        super().__init__()
        self.model = model
        self.generator = make_generator(model, objective, seed)
        self.objective = objective

    def replace(self, batch: Batch) -> tuple[Batch, Tensor]:
        """The batch that the model reads instead of a masked one, and the generator's summed loss in nats, a scalar."""
        assert batch.targets is not None
        assert batch.draws is not None
        head, masked = self.generator.head, batch.targets != IGNORE
        assert isinstance(head, LMHead)
        assert head.transform is not None
        states = head.transform(self.generator.backbone.forward_batch(batch).last_hidden_state[masked])  # (N, D)
        sampled = sample_replacements(states, head.weight, head.bias, batch.draws[masked])
        return replaced_batch(batch, sampled), language_loss(states, head.weight, head.bias, batch.targets[masked])

    def loss(self, batch: Batch) -> Tensor:
        """Masked loss + weight x detection loss, a scalar in nats, to be divided by the number of masked tokens.

        The detection loss is summed over all real tokens, so it is multiplied by the mask rate first: divided, it is a mean over
        tokens, as in the paper. The rate is a constant, so k batches of b still count exactly as one of k b.
        """
        replaced, masked_loss = self.replace(batch)
        return masked_loss + self.objective.detection_weight * self.objective.effective_mask_rate * self.model.loss(replaced)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name, those of the generator too; the shared embedding is named once."""
        return different_tensors(self)


def pretraining_head(objective: ObjectiveConfig, language_head: HeadConfig) -> HeadConfig:
    """The settings of the head that an objective trains: ``language_head``, or a detection head."""
    return DetectionHeadConfig() if OBJECTIVES[objective.name].detects else language_head


def with_generator(model: Model, objective: ObjectiveConfig, seed: int) -> Model | WithGenerator:
    """What pretraining trains: the model; with a generator, if its head detects replaced tokens."""
    return WithGenerator(model, objective, seed) if isinstance(model.head, DetectionHead) else model
