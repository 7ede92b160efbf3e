"""What a model says of texts, in the order they came, whatever the batching.

Letters: N texts, C classes, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from warmstart.data.batch import Encoded, encode, ordered_batches
from warmstart.engine.device import arithmetic
from warmstart.errors import ModelError
from warmstart.evaluate.calibrate import at_temperature
from warmstart.heads import ClassifyHead
from warmstart.model import Bundle, Model
from warmstart.tokenizer import Tokenizer

TOKENS = 8192
"""padded tokens read at once"""


def predict(bundle: Bundle, texts: Sequence[str]) -> np.ndarray:
    """Probabilities of every label for every text: (N, C), rows in the order of ``texts``, each summing to one.

    They are calibrated where the bundle knows its temperature.
    """
    said = probabilities(bundle.model, encode_for(bundle.model, bundle.tokenizer, texts), bundle.tokenizer.specials.pad)
    return at_temperature(said, bundle.calibration.temperature) if bundle.calibration else said


def encode_for(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    """Texts as this classification model reads them. Raises ``ModelError`` where the head does not classify."""
    if not isinstance(model.head, ClassifyHead):
        raise ModelError(
            f"a bundle with a classification head is needed, but this one's is of the kind '{model.head.config.kind}'; "
            "adapt it to a task first"
        )
    appended = model.head.config.pooling == "appended"
    return encode(tokenizer, texts, model.backbone.config.max_tokens, appended=appended)


@torch.inference_mode()
def probabilities(model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> np.ndarray:
    """Probabilities (N, C) of encoded texts; in float32, whatever the training used, unless another ``precision`` is asked for."""
    assert isinstance(model.head, ClassifyHead)
    model.eval()
    device = next(model.parameters()).device
    out = np.empty((len(encoded), model.head.config.classes), dtype=np.float64)
    for places, batch in ordered_batches(encoded, TOKENS, pad_id, causal=model.causal):
        batch = batch.to(device)
        with arithmetic(precision, device):
            logits = model(batch.ids, batch.mask)
        out[places] = logits.float().cpu().double().softmax(dim=-1).numpy()
    return out
