"""A model is a backbone and a head. For another task it gets another head; the backbone stays the same object.

Letters: B batch, T tokens, D width, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from warmstart.adapters.insertion import inserted_adapters
from warmstart.adapters.registry import adapter_config, insert_adapter
from warmstart.adapters.scalar_mix import ScalarMix
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.errors import BundleError, ModelError
from warmstart.heads.head import Head, LossHead
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.registry import HEADS, head_config, make_head
from warmstart.heads.settings import HeadConfig
from warmstart.objectives.loss import language_loss
from warmstart.seeding import seed_torch
from warmstart.system.limits import check_depth
from warmstart.types import Batch


class Model(nn.Module):
    """``backbone`` maps token ids to hidden states, ``head`` these to outputs; ``causal``: tokens attend only to earlier ones."""

    def __init__(self, backbone: Backbone, head: Head, *, causal: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.causal = causal
        self.drops = True
        """its backbone has dropout in training"""
        self.reordered = False
        """its linear layers multiply with reordered copies of their weights for good (``inference.py``)"""

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

    def read(self, batch: Batch) -> Tensor:
        """The head's outputs for a batch."""
        states = self.backbone.forward_batch(batch, causal=self.causal).last_hidden_state  # (B, T, D)
        return self._outputs(states, batch.attention_mask, batch.windows)

    def _outputs(self, states: Tensor, attention_mask: Tensor | None, windows: Tensor | None) -> Tensor:
        """The head's outputs for hidden states; only heads that pool take windows."""
        return self.head(states, attention_mask) if windows is None else self.head(states, attention_mask, windows)

    def train(self, mode: bool = True) -> Model:
        """Training or evaluation mode, as in torch; but a fully frozen backbone never uses dropout, so its features stay the same.

        Nor does any without ``drops``. An inserted scalar mix is not part of it: no gradient flows below.
        """
        super().train(mode)
        parts = (part for part in self.backbone.children() if not isinstance(part, ScalarMix))
        if not self.drops or not any(parameter.requires_grad for part in parts for parameter in part.parameters()):
            self.backbone.eval()
        return self

    def loss(self, batch: Batch) -> Tensor:
        """The loss summed over the targets of a batch, in nats, a scalar; divide by ``batch.count`` for the mean."""
        assert batch.targets is not None, "a batch without targets has no loss"
        states = self.backbone.forward_batch(batch).last_hidden_state  # (B, T, D)
        if isinstance(self.head, LMHead):
            head = self.head
            return language_loss(states, head.weight, head.bias, batch.targets, head.transform, batch.target_places)
        if not isinstance(self.head, LossHead):
            raise ModelError("an embedding head has no loss; adapt the model to a task, which gives it another head")
        logits = self._outputs(states, batch.attention_mask, batch.windows)
        return self.head.loss(logits, batch.targets, batch.attention_mask)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to save, by name. The weight of a tied head is the embedding, and is named once."""
        names = {id(parameter): name for name, parameter in reversed(list(self.named_parameters(remove_duplicate=False)))}
        return {name: tensor for name, tensor in self.state_dict(keep_vars=True).items() if names.get(id(tensor), name) == name}


def fresh_head(config: HeadConfig, backbone: Backbone, seed: int) -> Head:
    """A new head for this backbone, initialised from the seed. Raises ``ModelError`` for one that it has no states for."""
    if backbone.config.ngrams and HEADS[config.kind].per_token:
        raise ModelError(
            f"a {config.kind} head must read a state of each token, but this backbone (USE) has one for a whole text; take another "
            "encoder"
        )
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


# A model as settings and tensors, and back: what a bundle stores of it.
#
# Nothing else of a model is stored: whatever a module was given beside them is lost, and saving ends with a reload that notices it.


def model_settings(model: Model) -> dict[str, Any]:
    """The settings of a model, as plain values."""
    return {
        "backbone": model.backbone.config.to_dict(),
        "vocab_size": model.backbone.vocab_size,
        "head": model.head.config.to_dict(),
        "causal": model.causal,
        "adapters": [config.to_dict() for config in inserted_adapters(model.backbone)],
    }


def rebuilt(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    """The model with these settings and tensors, in evaluation mode. Raises ``BundleError`` if they do not fit each other."""
    config = BackboneConfig.build(settings["backbone"], "backbone")
    check_depth(config.depth, len(tensors))
    with torch.device("meta"), _AnyWeights():  # shapes without memory: settings may ask for more than the tensors hold
        wanted = {name: list(tensor.shape) for name, tensor in _made(settings, config).weights().items()}
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if wanted != shapes:
        wrong = sorted(name for name in wanted.keys() | shapes.keys() if wanted.get(name) != shapes.get(name))
        raise BundleError(f"the settings and the weights disagree about these tensors: {', '.join(wrong)}")
    with _AnyWeights():
        model = _made(settings, config)
    model.load_state_dict(tensors, strict=False)  # a tied head's weight is the embedding's; the names were compared above
    return model.eval()


_DRAWING = ("normal_", "uniform_", "kaiming_uniform_")


class _AnyWeights(TorchFunctionMode):
    """Inside, no weights are drawn: those of a saved model follow. On the device ``meta`` drawing would load torch's compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = kwargs or {}
        return (args or [*arguments.values()])[0] if func.__name__ in _DRAWING else func(*args, **arguments)


def _made(settings: Mapping[str, Any], config: BackboneConfig) -> Model:
    """A model of these settings, with any weights."""
    if not isinstance(settings["causal"], bool):
        raise TypeError(f"causal must be true or false, but is {settings['causal']!r}")
    backbone = Backbone(config, settings["vocab_size"])
    for values in settings["adapters"]:
        insert_adapter(backbone, adapter_config(values), seed=0)
    head = make_head(head_config(settings["head"]), backbone.config.width, backbone.embedding.weight)
    return Model(backbone, head, causal=settings["causal"])
