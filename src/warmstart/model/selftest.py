"""The self-test of a bundle: fixed rows, tokenized and run when it is saved, must give the same outputs when it is loaded.

The rows are made here, never taken from the user's text, so a bundle reveals nothing private.

Letters: T tokens, V vocabulary, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from warmstart.model.model import Model
from warmstart.seeding import rng
from warmstart.tokenizer.tokenizer import Tokenizer

SELFTEST_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Where was it found, and by whom? In 1912, near the river.",
    "def mean(values): return sum(values) / len(values)",
    "Ça alors ! Der Fluß fließt. 数 42 🙂",
)
SELFTEST_ROWS = 6
WINDOWS = (1, 2, 3)
"""of a head that joins windows, the rows are also read as the windows of so many texts"""
OUTPUT_TOLERANCE = 1e-4
"""largest difference of an output, as a fraction of the largest output"""


def make_selftest(model: Model, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Rows and outputs: ``ids`` and ``mask`` (6, T), ``answers`` (6, V or C), and the tokens of ``SELFTEST_TEXTS``.

    With windows also ``window_answers`` (3, C or D).
    """
    ids, mask = _rows(model)
    tokenized = tokenizer.encode(SELFTEST_TEXTS)
    joined = {"window_answers": _outputs(model, ids, mask, WINDOWS)} if _joins_windows(model) else {}
    return joined | {
        "ids": ids,
        "mask": mask,
        "answers": _outputs(model, ids, mask),
        "text_ids": torch.tensor([id_ for row in tokenized for id_ in row], dtype=torch.int64),
        "text_lengths": torch.tensor([len(row) for row in tokenized], dtype=torch.int64),
    }


def failures(model: Model, tokenizer: Tokenizer, stored: dict[str, Tensor]) -> list[str]:
    """What differs from the stored self-test, one phrase each; empty if all is well.

    Three things must hold: the tokenizer splits the texts alike; the outputs are the same; the outputs of a row do not depend on
    padding or on the other rows of its batch.
    """
    problems = []
    tokenized = tokenizer.encode(SELFTEST_TEXTS)
    if [id_ for row in tokenized for id_ in row] != stored["text_ids"].tolist():
        problems.append("the tokenizer splits the test texts differently")
    batched = _outputs(model, stored["ids"], stored["mask"])
    if not (gap := _difference(batched, stored["answers"])) <= OUTPUT_TOLERANCE:  # nan fails too
        problems.append(f"outputs differ from the stored ones by {gap:.2g} of the largest")
    if _joins_windows(model):
        gap = _difference(_outputs(model, stored["ids"], stored["mask"], WINDOWS), stored["window_answers"])
        if not gap <= OUTPUT_TOLERANCE:
            problems.append(f"outputs for texts in windows differ from the stored ones by {gap:.2g} of the largest")
    alone = [_outputs(model, row[real][None], None) for row, real in zip(stored["ids"], stored["mask"], strict=True)]
    if not (gap := _difference(torch.cat(alone), batched)) <= OUTPUT_TOLERANCE:
        problems.append(f"padding changes outputs by {gap:.2g} of the largest")
    return problems


def _rows(model: Model) -> tuple[Tensor, Tensor]:
    """Six rows of random tokens, padded on the right: from one token to the context length (at most 64)."""
    longest = min(64, model.backbone.config.max_length)
    draw = rng(0, "selftest")
    ids = torch.from_numpy(draw.integers(0, model.backbone.vocab_size, size=(SELFTEST_ROWS, longest)))
    lengths = torch.linspace(1, longest, SELFTEST_ROWS).long()
    return ids, torch.arange(longest) < lengths[:, None]


def _joins_windows(model: Model) -> bool:
    return model.head.config.window_settings.windows != "none"


@torch.inference_mode()
def _outputs(model: Model, ids: Tensor, mask: Tensor | None, windows: tuple[int, ...] = ()) -> Tensor:
    """The output for each row, or, of a head with outputs per token, for its last real token: (rows, C or V).

    With ``windows`` for each text: (texts, C or D).
    """
    states = model.backbone(ids, attention_mask=mask, causal=model.causal).last_hidden_state  # (B, T, D)
    if windows:
        return model.head(states, mask, torch.tensor(windows))
    if not model.head.per_token:
        return model.head(states, mask)
    last = mask.sum(dim=1) - 1 if mask is not None else torch.full((len(ids),), ids.shape[1] - 1)
    return model.head(states[torch.arange(len(ids)), last])


def _difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-6))
