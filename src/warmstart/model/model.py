"""A model is a backbone and a head. For another task it gets another head; the backbone stays the same object.

Letters: B batch, T tokens, D width, V vocabulary, C classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from warmstart.adapters.scalar_mix import ScalarMix
from warmstart.backbone.backbone import Backbone
from warmstart.errors import ModelError
from warmstart.heads import make_head
from warmstart.heads.head import Head, HeadConfig, LossHead
from warmstart.heads.language_modeling import LMHead
from warmstart.objectives.loss import language_loss
from warmstart.seeding import seed_torch
from warmstart.types import Batch


class Model(nn.Module):
    """``backbone`` maps token ids to hidden states, ``head`` these to outputs; ``causal``: tokens attend only to earlier ones."""

    def __init__(self, backbone: Backbone, head: Head, *, causal: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.causal = causal
        self.reordered = False
        """its linear layers multiply with reordered copies of their weights for good (``inference_weights.py``)"""

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        windows: Tensor | None = None,
    ) -> Tensor:
        """The head's outputs for ``ids`` (B, T): logits (B, T, V) for words or (B, C) for labels, or vectors (B, D).

        With ``windows`` (N,) adjacent rows are windows of N texts, and there is one output for each text.
        """
        output = self.backbone(ids, attention_mask=attention_mask, causal=self.causal, token_type_ids=token_type_ids)
        return self._outputs(output.last_hidden_state, attention_mask, windows)

    def _outputs(self, states: Tensor, attention_mask: Tensor | None, windows: Tensor | None) -> Tensor:
        """Only heads that pool take windows."""
        return self.head(states, attention_mask) if windows is None else self.head(states, attention_mask, windows)

    def train(self, mode: bool = True) -> Model:
        """Training or evaluation mode, as in torch; but a fully frozen backbone never uses dropout, so its features stay the same.

        An inserted scalar mix is not part of it: no gradient flows below.
        """
        super().train(mode)
        parts = (part for part in self.backbone.children() if not isinstance(part, ScalarMix))
        if not any(parameter.requires_grad for part in parts for parameter in part.parameters()):
            self.backbone.eval()
        return self

    def loss(self, batch: Batch) -> Tensor:
        """The loss summed over the targets of a batch, in nats, a scalar; divide by ``batch.count`` for the mean."""
        assert batch.targets is not None, "a batch without targets has no loss"
        states = self.backbone.forward_batch(batch).last_hidden_state
        if isinstance(self.head, LMHead):
            head = self.head
            return language_loss(states, head.weight, head.bias, batch.targets, head.transform, batch.target_places)
        if not isinstance(self.head, LossHead):
            raise ModelError("an embedding head has no loss; adapt the model to a task, which gives it another head")
        logits = self._outputs(states, batch.attention_mask, batch.windows)
        return self.head.loss(logits, batch.targets, batch.attention_mask)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to save, by name. The weight of a tied head is the embedding, and is named once."""
        return different_tensors(self)


def different_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Every tensor of a module by name; one that several parts share is named once, as the first of them names it."""
    names = {id(parameter): name for name, parameter in reversed(list(module.named_parameters(remove_duplicate=False)))}
    return {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if names.get(id(tensor), name) == name}


def fresh_head(config: HeadConfig, backbone: Backbone, seed: int) -> Head:
    """A new head for this backbone, initialised from the seed."""
    seed_torch(seed, "head")
    return make_head(config, backbone.config.width, backbone.embedding.weight)


def swap_head(model: Model, config: HeadConfig, seed: int) -> Model:
    """The same backbone (the same object, not a copy) with a new head and the same direction."""
    return Model(model.backbone, fresh_head(config, model.backbone, seed), causal=model.causal)


def parameter_counts(model: Model) -> dict[str, int]:
    """Number of parameters in the token embedding, the blocks, the head (a tied weight is counted once), and in all."""
    embedding = model.backbone.embedding.weight.numel()
    backbone = sum(parameter.numel() for parameter in model.backbone.parameters())
    total = sum(parameter.numel() for parameter in model.parameters())
    return {"embedding": embedding, "blocks": backbone - embedding, "head": total - backbone, "total": total}
