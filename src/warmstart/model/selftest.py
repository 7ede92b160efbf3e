"""The self-test of a bundle: rows and texts, stored with the outputs for them when it is saved; ``checks.py`` compares.

The rows and texts are made here, never taken from the user's, so a bundle reveals nothing private.

Letters: T tokens, V vocabulary, C classes, P tokens of all texts together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.data.encode import Encoded, encode
from warmstart.heads.head import TaskHead
from warmstart.heads.per_text import MultilabelHead, RegressionHead
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.seeding import rng
from warmstart.stats.calibration import apply_temperature
from warmstart.system.device import exact_products

SELFTEST_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Where was it found, and by whom? In 1912, near the river.",
    "def mean(values): return sum(values) / len(values)",
    "Ça alors ! Der Fluß fließt. 数 42 🙂",
)
SELFTEST_ROWS = 6
WINDOWS = (1, 2, 3)
"""numbers of rows that are also read as the windows of one text, by a head that joins windows"""
LEAST_LENGTH = 4
"""context length from which texts are read; a shorter one has no room for text between the tokens that frame it"""


def make_selftest(bundle: Bundle) -> dict[str, Tensor]:
    """Rows and outputs: ``ids`` and ``mask`` (6, T), ``answers`` (6, V or C), and the tokens of ``SELFTEST_TEXTS``.

    With windows also ``window_answers`` (3, C or D). With room for text also ``framed_ids`` (P,), the texts as the model reads
    them, and ``longest``, the tokens that are read of a text without end. With labels also ``label NAME`` (4,) for each of them,
    what the model predicts for the texts, and ``calibrated`` (4, C), the same at its temperature; of a regression ``number`` (4,).
    The rows read few tokens, so each token has a number in ``row_products`` and in ``pieces``.
    """
    model = bundle.model
    ids, mask = _rows(model)
    tokenized = bundle.tokenizer.encode(SELFTEST_TEXTS)
    joined = {"window_answers": outputs_of(model, ids, mask, WINDOWS)} if joins_windows(model) else {}
    framed = {}
    if model.backbone.config.max_length >= LEAST_LENGTH:
        framed = {"framed_ids": framed_ids(bundle), "longest": torch.tensor(longest_row(bundle))}
    named = named_predictions(bundle)
    if bundle.labels and named:
        named["calibrated"] = calibrated_predictions(bundle, named)
    return joined | framed | named | {
        "ids": ids,
        "mask": mask,
        "answers": outputs_of(model, ids, mask),
        "text_ids": torch.tensor([id_ for row in tokenized for id_ in row], dtype=torch.int64),
        "text_lengths": torch.tensor([len(row) for row in tokenized], dtype=torch.int64),
        "row_products": row_products(model),
        "pieces": torch.from_numpy(bundle.tokenizer.checksums()),
    }  # fmt: skip


def _rows(model: Model) -> tuple[Tensor, Tensor]:
    """Six rows of random tokens, padded on the right: from one token to the context length (at most 64)."""
    longest = min(64, model.backbone.config.max_length)
    draw = rng(0, "selftest")
    ids = torch.from_numpy(draw.integers(0, model.backbone.vocab_size, size=(SELFTEST_ROWS, longest)))
    lengths = torch.linspace(1, longest, SELFTEST_ROWS).long()
    return ids, torch.arange(longest) < lengths[:, None]


def joins_windows(model: Model) -> bool:
    """True for a head that reads long texts in windows."""
    return model.head.config.window_settings.windows != "none"


def encoded_texts(bundle: Bundle, texts: tuple[str, ...] = SELFTEST_TEXTS) -> Encoded:
    """Texts as the model reads them, one row each."""
    config = bundle.model.head.config
    longest = bundle.model.backbone.config.max_length
    return encode(bundle.tokenizer, texts, longest, appended=getattr(config, "pooling", "") == "appended")


def framed_ids(bundle: Bundle) -> Tensor:
    """(P,) the ids of all of ``SELFTEST_TEXTS``, with the tokens that frame them."""
    return torch.from_numpy(np.concatenate(encoded_texts(bundle).rows))


def longest_row(bundle: Bundle) -> int:
    """The number of tokens that are read of a text which is too long."""
    return len(encoded_texts(bundle, ("river " * bundle.model.backbone.config.max_length,)).rows[0])


def named_predictions(bundle: Bundle) -> dict[str, Tensor]:
    """Predictions of the model for ``SELFTEST_TEXTS``, before calibration: (4,) as ``label NAME`` for each label, or as ``number``.

    Empty for models without labels that predict no number either.
    """
    head = bundle.model.head
    names = [f"label {name}" for name in bundle.labels] or ["number"] * isinstance(head, RegressionHead)
    if not names or not isinstance(head, TaskHead) or bundle.model.backbone.config.max_length < LEAST_LENGTH:
        return {}
    rows = [outputs_of(bundle.model, torch.from_numpy(row)[None]) for row in encoded_texts(bundle).rows]
    columns = head.predictions(torch.cat(rows)).T.contiguous()  # (C, 4)
    return dict(zip(names, columns, strict=True))


def calibrated_predictions(bundle: Bundle, named: Mapping[str, Tensor]) -> Tensor:
    """(4, C) the ``named_predictions`` for labels, at the temperature of the bundle."""
    outputs = torch.stack([*named.values()], dim=1)
    if bundle.calibration is None:
        return outputs
    several = isinstance(bundle.model.head, MultilabelHead)
    return torch.from_numpy(apply_temperature(outputs.double().numpy(), bundle.calibration.temperature, several)).float()


@torch.no_grad()
@exact_products()
def row_products(model: Model) -> Tensor:
    """(R,) each row of the tables that are read by number (tokens, positions, types, distances) times a fixed vector."""
    tables = [module.weight for module in model.backbone.modules() if isinstance(module, nn.Embedding)]
    fixed = torch.from_numpy(rng(0, "row products").standard_normal(model.backbone.config.width)).float()
    return torch.cat([table @ fixed[: table.shape[1]] for table in tables])


@torch.no_grad()
@exact_products()
def outputs_of(model: Model, ids: Tensor, mask: Tensor | None = None, windows: tuple[int, ...] = ()) -> Tensor:
    """The output for each row, or, of a head with outputs per token, for its last real token: (rows, C or V).

    Rows are padded on the right. With ``windows`` for each text: (texts, C or D).
    """
    states = model.backbone(ids, attention_mask=mask, causal=model.causal).last_hidden_state  # (B, T, D)
    if windows:
        return model.head(states, mask, torch.tensor(windows))
    if not model.head.per_token:
        return model.head(states, mask)
    last = mask.sum(dim=1) - 1 if mask is not None else torch.full((len(ids),), ids.shape[1] - 1)
    return model.head(states[torch.arange(len(ids)), last])
