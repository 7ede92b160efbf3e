"""What a frozen backbone says of each text, computed once: then a head trains in seconds, and several schemes share one reading.

A text's features are its pooled states of every layer, as a mix reads them; the last is what a head reads without one. Pooling is
linear, so a head and a mix on pooled states see what they would see on the text. They are kept by the backbone's digest and by the
text's tokens, in memory and, where a folder is given, on disk, each with its share of the seconds that the reading took.

Letters: N texts, B batch, L depth, D width, C classes.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors
import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart.data.batch import Encoded
from warmstart.engine import read
from warmstart.heads import POOLINGS
from warmstart.inserts import Mix, levelled, unmixed
from warmstart.model import Model
from warmstart.storage import write_forced
from warmstart.types import Batch


class Features:
    """Pooled states of texts, by backbone and text. Computed in float32, whatever precision a run trains in."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.kept: dict[str, dict[bytes, tuple[Tensor, float]]] = {}
        self.read = 0
        """how many texts a backbone really had to read"""
        self.spared = 0.0
        """seconds that reading would have taken once more, had the features not been kept"""

    def of(self, model: Model, encoded: Encoded, pad_id: int) -> Tensor:
        """(N, L + 1, D): the features of every text, in order, on the model's device."""
        digest = reading_digest(model)
        if digest not in self.kept:
            self.kept[digest] = self._load(digest)
        known = self.kept[digest]
        keys = [hashlib.sha256(row.tobytes()).digest() for row in encoded.rows]
        new = {key: place for place, key in enumerate(keys) if key not in known}
        self.spared += sum(known[key][1] for key in dict.fromkeys(keys) if key not in new)
        if new:
            rows = encoded.take(np.array(list(new.values())))
            started = time.perf_counter()
            read_ = pooled_layers(model, rows, pad_id)
            share = (time.perf_counter() - started) / len(new)
            known |= {key: (row, share) for key, row in zip(new, read_, strict=True)}
            self.read += len(new)
            self._keep(digest, known)
        return torch.stack([known[key][0] for key in keys]).to(next(model.parameters()).device)

    def _file(self, digest: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{digest}.safetensors"

    def _load(self, digest: str) -> dict[bytes, tuple[Tensor, float]]:
        """What the folder holds of this backbone; a damaged file, or one without seconds, is as none, and is written anew."""
        file = self._file(digest)
        if file is None or not file.exists():
            return {}
        try:
            stored = parse_tensors(file.read_bytes())
            rows = zip(stored["texts"], stored["features"], stored["seconds"].tolist(), strict=True)
            return {bytes(key.numpy()): (row, seconds) for key, row, seconds in rows}
        except (OSError, KeyError, ValueError, safetensors.SafetensorError):
            return {}

    def _keep(self, digest: str, known: dict[bytes, tuple[Tensor, float]]) -> None:
        file = self._file(digest)
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = torch.tensor([list(key) for key in known], dtype=torch.uint8)
        features, seconds = zip(*known.values(), strict=True)
        stored = {"texts": texts, "features": torch.stack(features), "seconds": torch.tensor(seconds, dtype=torch.float64)}
        write_forced(file, serialise(stored), "features of texts")


def reading_digest(model: Model) -> str:
    """Names all that a text's features depend on: the backbone's settings and weights without a mix, its direction, the pooling."""
    found = hashlib.sha256(json.dumps([model.backbone.config.plain(), model.causal, _pooling(model)], sort_keys=True).encode())
    mix = {f"{path}." for path, module in model.backbone.named_modules() if isinstance(module, Mix)}
    for name, tensor in sorted(model.backbone.state_dict().items()):
        if not name.startswith(tuple(mix)):
            found.update(name.encode())
            found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def pooled_layers(model: Model, encoded: Encoded, pad_id: int) -> Tensor:
    """(N, L + 1, D) on the processor: each text's states of every layer, as a mix reads them, pooled."""
    pool = POOLINGS[_pooling(model)]
    was = model.training
    out = torch.empty(len(encoded), model.backbone.config.depth + 1, model.backbone.config.width)

    def pooled(batch: Batch, _: np.ndarray) -> Tensor:
        states = model.backbone(batch.ids, mask=batch.mask, causal=model.causal, types=batch.types)
        layers = levelled(replace(states, last=unmixed(model.backbone, states)))
        return torch.stack([pool(layer, batch.mask) for layer in layers], dim=1)  # (B, L + 1, D)

    for places, features in read(model, encoded, pad_id, ask=pooled):
        out[places] = features
    model.train(was)
    return out


def _pooling(model: Model) -> str:
    """How the model's head makes one state of many."""
    pooling = getattr(model.head.config, "pooling", None)
    assert isinstance(pooling, str), "only a head that pools has features of a text"
    return pooling


def read_features(model: Model, features: Tensor) -> Tensor:
    """(B, L + 1, D) -> (B, C): what the head, and the mix where there is one, say of texts whose features are known."""
    mix = next((child for child in model.backbone.children() if isinstance(child, Mix)), None)
    state = features[:, -1] if mix is None else (mix.weights()[:, None] * features).sum(dim=1)  # (B, D)
    return model.head(state[:, None])  # pooling one state gives that state
