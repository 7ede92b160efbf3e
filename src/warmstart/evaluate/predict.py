"""What a model says of texts, in the order they came, whatever the batching.

Letters: N texts, C classes, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warmstart.data.batch import Encoded, encode
from warmstart.engine import read
from warmstart.errors import ModelError
from warmstart.evaluate.calibrate import at_temperature
from warmstart.heads import ClassifyHead
from warmstart.model import Bundle, Model
from warmstart.tokenizer import Tokenizer


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


def probabilities(model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> np.ndarray:
    """Probabilities (N, C) of encoded texts; in float32, whatever the training used, unless another ``precision`` is asked for."""
    assert isinstance(model.head, ClassifyHead)
    out = np.empty((len(encoded), model.head.config.classes), dtype=np.float64)
    for places, logits in read(model, encoded, pad_id, precision):
        out[places] = logits.double().softmax(dim=-1).numpy()
    return out
