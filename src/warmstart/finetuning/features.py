"""Features of a frozen backbone, computed once per text: then a head trains in seconds, and several schemes share them.

A text's features are its pooled hidden states of every layer, as a scalar mix reads them; a head without a mix reads the last ones.
A text in windows has those of each window, and the head joins them.
Pooling is linear, so a head and a mix compute the same from pooled states as from the text. Features are cached by the backbone's
digest and by the text's tokens, in memory and in the store that all runs of a user share, each with the seconds that it took to
compute: in whichever run a text is read first, it costs each method the same.

On a CPU a text has the same bits whatever else is read with it: every batch has an attention mask, and enough tokens that a matrix
product does not change its order of sums for a few rows. So what is read from the store is what would be computed.

Letters: N texts, B batch, L layers, D width, C classes, R rows: texts, or windows of texts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.adapters.scalar_mix import ScalarMix, last_hidden_state_without_mix, normalized_layers
from warmstart.data.encode import Encoded
from warmstart.heads.pooled import POOLINGS
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.system.array_store import ArrayStore, Kept
from warmstart.system.device import processor
from warmstart.system.products import product_library
from warmstart.tasks.task_type import predictions_of
from warmstart.types import Batch

LEAST_TOKENS = 16
"""fewest tokens of a row: products of fewer rows have other sums"""


class FeatureCache:
    """Features by backbone and text. They are float32, whatever the precision of training."""

    def __init__(self, store: ArrayStore | None = None) -> None:
        self.store = store or ArrayStore()
        self.by_backbone: dict[str, dict[bytes, tuple[Tensor, float]]] = {}
        """features, and the seconds they took, by the backbone's digest and a hash of the text's tokens"""
        self._digest: tuple[Any, dict[str, Tensor], str] = (None, {}, "")
        """what tells whether a backbone is the latest one, the tensors of that, which are held so that no other has their place in
        memory, and its digest"""
        self.texts_computed = 0
        self.seconds_read = 0.0
        """seconds of reading texts since ``begin_count``"""
        self.seconds_saved = 0.0
        """since then: what the texts that were read before would have taken, each once"""
        self._counted: set[tuple[str, bytes]] = set()

    def begin_count(self) -> None:
        """From now on each text counts once more: it is read, or was read before."""
        self.seconds_read = self.seconds_saved = 0.0
        self._counted.clear()

    def get(self, model: Model, encoded: Encoded, pad_id: int) -> Tensor:
        """(R, L + 1, D): the features of every row of the texts, in order, on the model's device."""
        return self.get_each(model, [encoded], pad_id)[0]

    def get_each(self, model: Model, splits: Sequence[Encoded], pad_id: int) -> list[Tensor]:
        """The features of each split; the identity of the backbone is computed once."""
        digest = self._digest_of(model) if any(map(len, splits)) else ""
        return [self._of(digest, model, encoded, pad_id) for encoded in splits]

    def read_before(self, model: Model, splits: Sequence[Encoded], threads: int) -> str:
        """One sentence if texts of these splits are in the store, for a process with so many threads; empty if none is."""
        keys = list({key for encoded in splits for key in row_keys(encoded)})
        found, noun = self.store.count(self._digest_of(model, threads), keys), "texts" if _whole(splits) else "windows of texts"
        return f"{found:,} of {len(keys):,} {noun} had been read before, and are not read again" if found else ""

    def _digest_of(self, model: Model, threads: int = 0) -> str:
        """``backbone_digest``, computed anew only if other tensors hold the weights than before, or if any was written to."""
        settings, tensors = _identifying(model, threads)
        key = settings, [(name, one.data_ptr(), one._version) for name, one in tensors.items()]
        if key != self._digest[0]:
            self._digest = key, tensors, backbone_digest(model, threads)
        return self._digest[2]

    def _of(self, digest: str, model: Model, encoded: Encoded, pad_id: int) -> Tensor:
        shape = (model.backbone.config.depth + 1, model.backbone.config.width)
        if not len(encoded):
            return torch.empty(0, *shape)
        known, keys = self.by_backbone.setdefault(digest, {}), row_keys(encoded)
        places = {key: index for index, key in enumerate(keys) if key not in known}
        kept = self.store.read(digest, list(places), shape[0] * shape[1])
        known |= {key: (torch.from_numpy(one.values).view(shape), one.seconds) for key, one in kept.items()}
        missing = {key: index for key, index in places.items() if key not in kept}
        if missing:
            started = time.perf_counter()
            features = pooled_layers(model, encoded.by_row.take(np.array(list(missing.values()))), pad_id)
            spent = time.perf_counter() - started
            seconds = spent / len(missing)
            self.seconds_read += spent
            known |= {key: (row, seconds) for key, row in zip(missing, features, strict=True)}
            self.texts_computed += len(missing)
            self.store.write(digest, {key: Kept(known[key][0].numpy().ravel(), seconds) for key in missing})
        asked = {(digest, key) for key in keys} - self._counted
        self.seconds_saved += sum(known[key][1] for _, key in asked if key not in missing)
        self._counted |= asked
        return torch.stack([known[key][0] for key in keys]).to(next(model.parameters()).device)


def row_keys(encoded: Encoded) -> list[bytes]:
    """The identity of each row for a backbone: its tokens, and where the second text of a pair begins."""
    seconds = [b""] * len(encoded.rows) if encoded.second_starts is None else [one.tobytes() for one in encoded.second_starts]
    return [hashlib.sha256(row.tobytes() + second).digest()[:16] for row, second in zip(encoded.rows, seconds, strict=True)]


def _whole(splits: Sequence[Encoded]) -> bool:
    return all(one.windows is None for one in splits)


def backbone_digest(model: Model, threads: int = 0) -> str:
    """A hash of all that features depend on: the backbone's settings and weights without a mix, its direction, the pooling.

    And what rounds their last digits, with so many threads of a CPU; 0: those of this process.
    """
    return tensors_digest(*_identifying(model, threads))


def tensors_digest(settings: str, tensors: Mapping[str, Tensor]) -> str:
    """A hash of settings, and of tensors by name."""
    digest = hashlib.sha256(settings.encode())
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _identifying(model: Model, threads: int) -> tuple[str, dict[str, Tensor]]:
    """The parts of a digest: settings, and tensors by name."""
    device = next(model.parameters()).device
    rounding = [*_processor(), product_library(), threads or torch.get_num_threads()] if device.type == "cpu" else [str(device)]
    settings = [model.backbone.config.to_dict(), model.causal, _pooling(model), rounding]
    mixes = tuple(f"{path}." for path, module in model.backbone.named_modules() if isinstance(module, ScalarMix))
    tensors = sorted(model.backbone.state_dict().items())
    return json.dumps(settings, sort_keys=True), {name: one for name, one in tensors if not name.startswith(mixes)}


@cache
def _processor() -> tuple[str, str]:
    return torch.__version__, processor()


def pooled_layers(model: Model, encoded: Encoded, pad_id: int) -> Tensor:
    """(R, L + 1, D) on the CPU: each row's hidden states of every layer, as a scalar mix reads them, pooled.

    Of texts with states: those, and the layers above them.
    """
    pool = POOLINGS[_pooling(model)]
    training, encoded = model.training, encoded.by_row
    out = torch.empty(len(encoded), model.backbone.config.depth + 1 - encoded.from_block, model.backbone.config.width)

    def pooled(batch: Batch, _: np.ndarray) -> Tensor:
        batch = steady(batch, model, pad_id)
        output = model.backbone.forward_batch(batch, causal=model.causal)
        layers = normalized_layers(replace(output, last_hidden_state=last_hidden_state_without_mix(model.backbone, output)))
        return torch.stack([pool(layer, batch.attention_mask) for layer in layers], dim=1)  # (B, L + 1, D)

    for indices, features in run_in_batches(model, encoded, pad_id, forward=pooled):
        out[indices] = features
    model.train(training)
    return out


def steady(batch: Batch, model: Model, pad_id: int) -> Batch:
    """The batch with an attention mask, and with rows of enough tokens, so that a text has the same bits in any batch."""
    more = (0, max(0, min(LEAST_TOKENS, model.backbone.config.max_length) - batch.ids.shape[1]))
    real = torch.ones_like(batch.ids, dtype=torch.bool) if batch.attention_mask is None else batch.attention_mask
    typed = None if batch.token_type_ids is None else F.pad(batch.token_type_ids, more)
    states = None if batch.states is None else F.pad(batch.states, (0, 0, *more))
    ids, mask = F.pad(batch.ids, more, value=pad_id), F.pad(real, more)
    return replace(batch, ids=ids, attention_mask=mask, token_type_ids=typed, states=states)


def _pooling(model: Model) -> str:
    """Pooling of the hidden states of a text by the model's head."""
    pooling = getattr(model.head.config, "pooling", None)
    assert isinstance(pooling, str), "only a head that pools has features of a text"
    return pooling


def predict_from_features(model: Model, features: Tensor, windows: np.ndarray | None = None) -> np.ndarray:
    """The head's predictions for each text, in the form that its task type scores; from the same as ``logits_from_features``."""
    with torch.inference_mode():
        return predictions_of(model, logits_from_features(model, features, windows)).numpy()


def logits_from_features(model: Model, features: Tensor, windows: np.ndarray | None = None) -> Tensor:
    """(R, L + 1, D) -> (N, C): what the head computes from the features of texts; ``windows`` (N,) as of ``head_inputs``."""
    return model.head(*head_inputs(model, features, windows))


def head_inputs(model: Model, features: Tensor, windows: np.ndarray | None = None) -> tuple[Tensor, None, Tensor | None]:
    """The inputs of a head for the features (R, L + 1, D) of texts: one state each, after the scalar mix if there is one.

    With ``windows`` (N,), the number of windows of each text, they are joined.
    """
    mix = next((child for child in model.backbone.children() if isinstance(child, ScalarMix)), None)
    state = features[:, -1] if mix is None else (mix.weights()[:, None] * features).sum(dim=1)  # (R, D)
    single = state[:, None]  # pooling a single state gives that state
    return single, None, None if windows is None else torch.from_numpy(windows).to(state.device)
