"""What a model must still say when it is loaded again: fixed probes, tokenised and run when it is saved.

The probes are made here, never taken from the user's text, so that a bundle gives nothing private away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from warmstart.seeding import rng

if TYPE_CHECKING:
    from warmstart.model.model import Model
    from warmstart.tokenizer import Tokenizer

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Where was it found, and by whom? In 1912, near the river.",
    "def mean(values): return sum(values) / len(values)",
    "Ça alors ! Der Fluß fließt. 数 42 🙂",
)
ROWS = 6
TOLERANCE = 1e-4
"""largest difference of an output, as a share of the largest output"""


def make_selftest(model: Model, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Probe rows and the model's answer to each: ``ids`` and ``mask`` (6, T), ``answers`` (6, V or C), the probe texts' tokens."""
    ids, mask = _rows(model)
    spelled = tokenizer.encode(TEXTS)
    return {
        "ids": ids,
        "mask": mask,
        "answers": _answers(model, ids, mask),
        "text_ids": torch.tensor([id_ for row in spelled for id_ in row], dtype=torch.int64),
        "text_lengths": torch.tensor([len(row) for row in spelled], dtype=torch.int64),
    }


def failures(model: Model, tokenizer: Tokenizer, stored: dict[str, Tensor]) -> list[str]:
    """What differs from the stored self-test, one sentence each; empty when all is well.

    Three promises: the tokenizer splits the probe texts alike; the model answers the probe rows alike; a row's answer does not
    depend on padding or on its batch mates.
    """
    found = []
    spelled = tokenizer.encode(TEXTS)
    if [id_ for row in spelled for id_ in row] != stored["text_ids"].tolist():
        found.append("the tokenizer splits the probe texts differently")
    together = _answers(model, stored["ids"], stored["mask"])
    if not (gap := _gap(together, stored["answers"])) <= TOLERANCE:  # a gap that is no number fails too
        found.append(f"outputs differ from the stored ones by {gap:.2g} of the largest")
    alone = [_answers(model, row[real][None], None) for row, real in zip(stored["ids"], stored["mask"], strict=True)]
    if not (gap := _gap(torch.cat(alone), together)) <= TOLERANCE:
        found.append(f"padding changes outputs by {gap:.2g} of the largest")
    return found


def _rows(model: Model) -> tuple[Tensor, Tensor]:
    """Six rows of random tokens, from one token to the longest row the model reads (at most 64), padded on the right."""
    longest = min(64, model.backbone.config.max_tokens)
    draw = rng(0, "selftest")
    ids = torch.from_numpy(draw.integers(0, model.backbone.vocab_size, size=(ROWS, longest)))
    lengths = torch.linspace(1, longest, ROWS).long()
    return ids, torch.arange(longest) < lengths[:, None]


@torch.inference_mode()
def _answers(model: Model, ids: Tensor, mask: Tensor | None) -> Tensor:
    """What a pooled head says of each row, or a head of tokens of each row's last real token: (rows, C or V)."""
    states = model.backbone(ids, mask=mask, causal=model.causal).last  # (B, T, D)
    if not model.head.per_token:
        return model.head(states, mask)
    last = mask.sum(dim=1) - 1 if mask is not None else torch.full((len(ids),), ids.shape[1] - 1)
    return model.head(states[torch.arange(len(ids)), last])


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-6))
