"""The language-model loss beside the task's: ``L3 = L2 + weight * L1`` (Radford et al. 2018, equation 5).

The texts of a batch are read a second time as pretraining read text: under the bundle's own objective (next token, hidden tokens,
spans), with the pretrained language head. The head is kept for the time of the training and is no part of the adapted model.

L1 is a sum over tokens, divided by the mean number of them per text, a constant: so the weight means the same for long and short
texts, and k batches of b still count exactly as one of k b.

Letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from torch import Tensor

from warmstart.data.batch import collate
from warmstart.errors import ModelError
from warmstart.heads import LanguageHead, make_head
from warmstart.inserts import unmixed
from warmstart.model import Bundle, Model
from warmstart.objectives import OBJECTIVES, ObjectiveConfig, language_loss
from warmstart.seeding import rng
from warmstart.types import Batch, Vocabulary

SAMPLE = 500
"""texts whose targets are counted to know the mean"""


class LanguageBatch(Batch):
    """Texts as the pretraining objective reads them; ``count`` is 0, for the loss of a step is divided by its labelled texts."""


@dataclass(frozen=True)
class Language:
    """What of a pretrained bundle the language-model loss needs."""

    head: LanguageHead
    objective: ObjectiveConfig
    vocabulary: Vocabulary

    @classmethod
    def of(cls, bundle: Bundle) -> Language | None:
        """That of a language model; None of a model with another head. Without a history, the objective follows the direction."""
        if not isinstance(bundle.model.head, LanguageHead):
            return None
        told = bundle.history[-1].get("objective") if bundle.history else None
        objective = ObjectiveConfig.build(told or {"name": "causal" if bundle.model.causal else "masked"}, "objective")
        return cls(bundle.model.head, objective, bundle.tokenizer.vocabulary())

    def attach(self, model: Model) -> None:
        """Give ``model`` the pretrained language head, as its part ``language``; tied to its own embedding where it was tied."""
        head = make_head(self.head.config, model.backbone.config.width, model.backbone.embedding.weight)
        own = {name: tensor for name, tensor in self.head.state_dict().items() if name != "weight" or not self.head.config.tied}
        head.load_state_dict(own, strict=False)  # a tied weight is the embedding's
        model.add_module("language", head.to(model.backbone.embedding.weight.device))

    def view(self, *, causal: bool) -> ObjectiveConfig:
        """The settings under which the objective reads: of one that reads two ways, the way in which the model looks."""
        views = OBJECTIVES[self.objective.name].views(self.objective)
        return views.get("causal" if causal else "masked", next(iter(views.values())))

    def batch(self, rows: Sequence[np.ndarray], draw: np.random.Generator, max_tokens: int, *, causal: bool) -> LanguageBatch:
        """The texts ``rows`` as pretraining would read them."""
        config = self.view(causal=causal)
        objective = OBJECTIVES[config.name]
        cut = [row[: objective.stride(max_tokens, config)] for row in rows]
        lengths = np.array([len(row) for row in cut])
        ids = collate(cut, None, self.vocabulary.specials.pad, causal=causal).ids.numpy()
        # objectives are given one place more than they read
        ids = np.pad(ids, ((0, 0), (0, 1)), constant_values=self.vocabulary.specials.pad)
        made = objective.make(ids, lengths, draw, self.vocabulary, config)
        return LanguageBatch(**{field.name: getattr(made, field.name) for field in fields(made)} | {"count": 0})


def with_language(
    batches: Callable[[int], list[Batch]], language: Language, model: Model, seed: int
) -> Callable[[int], list[Batch]]:
    """The same batches, each followed by its texts as pretraining reads them; a pure function of the step, too."""

    def both(step: int) -> list[Batch]:
        made = list[Batch]()
        for part, batch in enumerate(batches(step)):
            rows = [row[:length] for row, length in zip(batch.ids.numpy(), batch.lengths.tolist(), strict=True)]
            draw = rng(seed, "language", step, part)
            made += [batch, language.batch(rows, draw, model.backbone.config.max_tokens, causal=model.causal)]
        return made

    return both


def tokens_per_text(language: Language, rows: Sequence[np.ndarray], model: Model) -> float:
    """The mean number of targets a text has under the objective, on the first texts."""
    made = language.batch(rows[:SAMPLE], rng(0, "language", "mean"), model.backbone.config.max_tokens, causal=model.causal)
    assert made.targets is not None
    return max(1.0, int((made.targets >= 0).sum()) / len(rows[:SAMPLE]))


def text_loss(model: Model, batch: Batch) -> Tensor:
    """The summed language-model loss in nats of a batch, with the head that ``Language.attach`` gave; a scalar."""
    head = model.get_submodule("language")
    assert isinstance(head, LanguageHead)
    assert batch.targets is not None
    states = model.backbone(batch.ids, mask=batch.mask, causal=batch.causal)
    return language_loss(unmixed(model.backbone, states), head.weight, head.bias, batch.targets, head.transform)


def needed(language: Language | None) -> Language:
    """The language model; raises ``ModelError`` where there is none."""
    if language is None:
        raise ModelError("lm-loss and dapt need a pretrained language head, but this model has none; start from a language model")
    return language
