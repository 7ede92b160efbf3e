"""Features of a frozen backbone, computed once per text: then a head trains in seconds, and several schemes share them.

A text's features are its pooled hidden states of every layer, as a scalar mix reads them; a head without a mix reads the last ones.
A text in windows has those of each window, and the head joins them.
Pooling is linear, so a head and a mix compute the same from pooled states as from the text. Features are cached by the backbone's
digest and by the text's tokens, in memory and, if a folder is given, on disk, each with the seconds that it took to compute.

Letters: N texts, B batch, L layers, D width, C classes, R rows: texts, or windows of texts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart.adapters.scalar_mix import ScalarMix, last_hidden_state_without_mix, normalized_layers
from warmstart.data.encode import Encoded
from warmstart.heads.pooling import POOLINGS
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.system.storage import atomic_write
from warmstart.tasks.task_type import predictions_of
from warmstart.types import Batch


class FeatureCache:
    """Features by backbone and text. They are float32, whatever the precision of training."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.by_backbone: dict[str, dict[bytes, tuple[Tensor, float]]] = {}
        """features, and the seconds they took, by the backbone's digest and a hash of the text's tokens"""
        self._digest: tuple[Any, dict[str, Tensor], str] = (None, {}, "")
        """what tells whether a backbone is the latest one, the tensors of that, which are held so that no other has their place in
        memory, and its digest"""
        self.texts_computed = 0
        self.seconds_saved = 0.0
        """what computing would have taken again, had the features not been cached"""

    def get(self, model: Model, encoded: Encoded, pad_id: int) -> Tensor:
        """(R, L + 1, D): the features of every row of the texts, in order, on the model's device."""
        return self.get_each(model, [encoded], pad_id)[0]

    def get_each(self, model: Model, splits: Sequence[Encoded], pad_id: int) -> list[Tensor]:
        """The same for each split; what identifies the backbone is computed once."""
        digest = self._digest_of(model) if any(map(len, splits)) else ""
        return [self._of(digest, model, encoded, pad_id) for encoded in splits]

    def _digest_of(self, model: Model) -> str:
        """``backbone_digest``, computed anew only if other tensors hold the weights than before, or if any was written to."""
        settings, tensors = _identifying(model)
        key = settings, [(name, one.data_ptr(), one._version) for name, one in tensors.items()]
        if key != self._digest[0]:
            self._digest = key, tensors, backbone_digest(model)
        return self._digest[2]

    def _of(self, digest: str, model: Model, encoded: Encoded, pad_id: int) -> Tensor:
        if not len(encoded):
            return torch.empty(0, model.backbone.config.depth + 1, model.backbone.config.width)
        if digest not in self.by_backbone:
            self.by_backbone[digest] = self._load(digest)
        known = self.by_backbone[digest]
        keys = [hashlib.sha256(row.tobytes()).digest() for row in encoded.rows]
        missing = {key: index for index, key in enumerate(keys) if key not in known}
        self.seconds_saved += sum(known[key][1] for key in dict.fromkeys(keys) if key not in missing)
        if missing:
            started = time.perf_counter()
            features = pooled_layers(model, encoded.by_row.take(np.array(list(missing.values()))), pad_id)
            seconds = (time.perf_counter() - started) / len(missing)
            known |= {key: (row, seconds) for key, row in zip(missing, features, strict=True)}
            self.texts_computed += len(missing)
            self._save(digest, known)
        return torch.stack([known[key][0] for key in keys]).to(next(model.parameters()).device)

    def _file(self, digest: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{digest}.safetensors"

    def _load(self, digest: str) -> dict[bytes, tuple[Tensor, float]]:
        """The features in the folder; one that cannot be read counts as none and is written anew."""
        file = self._file(digest)
        if file is None or not file.exists():
            return {}
        try:
            stored = parse_tensors(file.read_bytes())
            rows = zip(stored["texts"], stored["features"], stored["seconds"].tolist(), strict=True)
            return {bytes(key.numpy()): (row, seconds) for key, row, seconds in rows}
        except (OSError, KeyError, ValueError, safetensors.SafetensorError):
            return {}

    def _save(self, digest: str, known: dict[bytes, tuple[Tensor, float]]) -> None:
        file = self._file(digest)
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = torch.tensor([list(key) for key in known], dtype=torch.uint8)
        features, seconds = zip(*known.values(), strict=True)
        stored = {"texts": texts, "features": torch.stack(features), "seconds": torch.tensor(seconds, dtype=torch.float64)}
        atomic_write(file, serialise(stored), "features of texts")


def backbone_digest(model: Model) -> str:
    """A hash of all that features depend on: the backbone's settings and weights without a mix, its direction, the pooling."""
    settings, tensors = _identifying(model)
    digest = hashlib.sha256(settings.encode())
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _identifying(model: Model) -> tuple[str, dict[str, Tensor]]:
    """What a digest is of: settings, and tensors by name."""
    settings = [model.backbone.config.to_dict(), model.causal, _pooling(model)]
    mixes = tuple(f"{path}." for path, module in model.backbone.named_modules() if isinstance(module, ScalarMix))
    tensors = sorted(model.backbone.state_dict().items())
    return json.dumps(settings, sort_keys=True), {name: one for name, one in tensors if not name.startswith(mixes)}


def pooled_layers(model: Model, encoded: Encoded, pad_id: int) -> Tensor:
    """(R, L + 1, D) on the CPU: each row's hidden states of every layer, as a scalar mix reads them, pooled."""
    pool = POOLINGS[_pooling(model)]
    training, encoded = model.training, encoded.by_row
    out = torch.empty(len(encoded), model.backbone.config.depth + 1, model.backbone.config.width)

    def pooled(batch: Batch, _: np.ndarray) -> Tensor:
        output = model.backbone.forward_batch(batch, causal=model.causal)
        layers = normalized_layers(replace(output, last_hidden_state=last_hidden_state_without_mix(model.backbone, output)))
        return torch.stack([pool(layer, batch.attention_mask) for layer in layers], dim=1)  # (B, L + 1, D)

    for indices, features in run_in_batches(model, encoded, pad_id, forward=pooled):
        out[indices] = features
    model.train(training)
    return out


def _pooling(model: Model) -> str:
    """How the model's head pools the hidden states of a text."""
    pooling = getattr(model.head.config, "pooling", None)
    assert isinstance(pooling, str), "only a head that pools has features of a text"
    return pooling


def predict_from_features(model: Model, features: Tensor, windows: np.ndarray | None = None) -> np.ndarray:
    """What the head predicts for each text, in the form that its task type scores; from the same as ``logits_from_features``."""
    with torch.inference_mode():
        return predictions_of(model, logits_from_features(model, features, windows)).numpy()


def logits_from_features(model: Model, features: Tensor, windows: np.ndarray | None = None) -> Tensor:
    """(R, L + 1, D) -> (N, C): what the head computes, after the scalar mix if there is one, from the features of texts.

    With ``windows`` (N,), the number of windows of each text, they are joined.
    """
    mix = next((child for child in model.backbone.children() if isinstance(child, ScalarMix)), None)
    state = features[:, -1] if mix is None else (mix.weights()[:, None] * features).sum(dim=1)  # (R, D)
    single = state[:, None]  # pooling a single state gives that state
    return model.head(single) if windows is None else model.head(single, None, torch.from_numpy(windows).to(state.device))
