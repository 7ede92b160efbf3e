"""A model is a backbone and a head. Changing the job means changing the head; the backbone stays the very same object.

Letters: B batch, T tokens, D width, V vocabulary, C classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from warmstart.backbone import Backbone
from warmstart.errors import ModelError
from warmstart.heads import EmbedHead, Head, HeadConfig, LanguageHead, make_head
from warmstart.inserts import Mix
from warmstart.objectives import language_loss
from warmstart.seeding import seed_torch
from warmstart.types import Batch


class Model(nn.Module):
    """``backbone`` turns ids into states, ``head`` reads them. ``causal`` says which way the backbone looks when it is read."""

    def __init__(self, backbone: Backbone, head: Head, *, causal: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.causal = causal

    def forward(self, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """What the head says of ``ids`` (B, T): logits (B, T, V) of a language head, (B, C) of a classifier; vectors (B, D)."""
        return self.head(self.backbone(ids, mask=mask, causal=self.causal, types=types).last, mask)

    def train(self, mode: bool = True) -> Model:
        """Training or evaluation, as in torch; but a wholly frozen backbone drops nothing, so that its features stay the same.

        A mix inserted in it is no part of it: no gradient flows below.
        """
        super().train(mode)
        parts = (part for part in self.backbone.children() if not isinstance(part, Mix))
        if not any(parameter.requires_grad for part in parts for parameter in part.parameters()):
            self.backbone.eval()
        return self

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss in nats of a batch's targets, a scalar; divide by ``batch.count`` for the mean."""
        assert batch.targets is not None, "a batch without targets has no loss"
        states = self.backbone(batch.ids, mask=batch.mask, causal=batch.causal, types=batch.types).last
        if isinstance(self.head, LanguageHead):
            return language_loss(states, self.head.weight, self.head.bias, batch.targets, self.head.transform)
        if isinstance(self.head, EmbedHead):
            raise ModelError("a bundle that gives embeddings learns nothing by itself; adapt it to a task, which gives it a head")
        return self.head.loss(self.head(states, batch.mask), batch.targets, batch.mask)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor that must be saved, by name. A tied head's weight is the embedding's and is named once."""
        names = {id(parameter): name for name, parameter in reversed(list(self.named_parameters(remove_duplicate=False)))}
        return {name: tensor for name, tensor in self.state_dict(keep_vars=True).items() if names.get(id(tensor), name) == name}


def fresh_head(config: HeadConfig, backbone: Backbone, seed: int) -> Head:
    """A head for this backbone, initialised from the seed."""
    seed_torch(seed, "head")
    return make_head(config, backbone.config.width, backbone.embedding.weight)


def swap_head(model: Model, config: HeadConfig, seed: int) -> Model:
    """The same backbone (the same object, not a copy) under a new head, looking the same way."""
    return Model(model.backbone, fresh_head(config, model.backbone, seed), causal=model.causal)


def parameter_counts(model: Model) -> dict[str, int]:
    """Numbers of parameters: in the token embedding, in the blocks, in the head (a tied weight is counted once), in all."""
    embedding = model.backbone.embedding.weight.numel()
    backbone = sum(parameter.numel() for parameter in model.backbone.parameters())
    total = sum(parameter.numel() for parameter in model.parameters())
    return {"embedding": embedding, "blocks": backbone - embedding, "head": total - backbone, "total": total}
