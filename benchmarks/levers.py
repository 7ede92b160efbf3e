"""Ways to train small models that others have proved, each added to our recipe, or taken from it, alone (see ``convergence``)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch
from benchmarks.convergence import OURS, SEEDS, Reached, Recipe, compared, reach, texts
from torch import Tensor

from warmstart.heads.language_modeling import LMHead
from warmstart.model.model import Model
from warmstart.training.muon import Muon

TOKENS = 300_000


def frequencies_first(model: Model) -> None:
    """The head's bias begins at the logarithms of frequencies (Karpathy 2019, "A Recipe for Training Neural Networks")."""
    head, (tokenizer, text, _) = model.head, texts()
    assert isinstance(head, LMHead)
    assert head.bias is not None
    counts = [np.bincount(text.tokens(shard), minlength=tokenizer.vocab_size) for shard in range(len(text.shards))]
    head.bias.data = torch.from_numpy(np.log(np.sum(counts, axis=0) + 1)).float()


def uneven(muon: Muon, matrices: list[Tensor], changes: Tensor) -> Tensor:
    """The changes (N, A, B) as torch's Muon makes them."""
    return changes


Lever = tuple[Recipe, Callable[[], AbstractContextManager[object]]]
VARIANTS: dict[str, Lever] = {
    "ours": (OURS, nullcontext),
    "Muon without even rows": (OURS, lambda: patch.object(Muon, "_even", uneven)),
    "a bias of the head that begins at the logarithms of frequencies": (
        replace(OURS, head={"bias": True}, begin=frequencies_first),
        nullcontext,
    ),
}


def measured(recipe: Recipe, context: Callable[[], AbstractContextManager[object]]) -> list[Reached]:
    """A lever, once with each seed."""
    with context():
        return [reach(recipe, TOKENS, seed) for seed in SEEDS]


def run() -> str:
    """One row for each."""
    return compared(f"{TOKENS:,} tokens", {name: measured(*lever) for name, lever in VARIANTS.items()})


if __name__ == "__main__":
    print(run())
